/** The user of a link, for tests of links. */
import type { Link, LinkUser } from '#daemon/host/links/link';

/** Records the reports of its link. */
export class LinkListener implements LinkUser {
  readonly link: Link;
  readonly received: Uint8Array[] = [];
  readonly lent: ArrayBufferLike[] = [];
  flushedBytes = 0;
  peerClosed = false;
  closed: string | undefined | null = null;
  onBytes: () => void = () => {};

  constructor(link: Link) {
    this.link = link;
    link.user = this;
  }

  get receivedBytes(): number {
    return this.received.reduce((sum, { length }) => sum + length, 0);
  }

  handleBytes(bytes: Uint8Array): void {
    this.received.push(bytes.slice());
    this.lent.push(bytes.buffer);
    this.onBytes();
  }
  handleFlushed(bytes: number): void {
    this.flushedBytes += bytes;
  }
  handlePeerClosed(): void {
    this.peerClosed = true;
  }
  handleClosed(errorCode: string | undefined): void {
    this.closed = errorCode;
  }
}
