/**
 * A link that a tap watches: the tap sees each byte once, when the network accepts or delivers it.
 */
import type { CaptureTap, LinkTap } from '../../capture/capture-tap.ts';
import type { Link } from './link.ts';
import { LinkAround } from './link-around.ts';

const NO_BYTES = new Uint8Array(0);

/** See the module's comment. */
export class TappedLink extends LinkAround {
  readonly #tap: LinkTap;
  /** Written, and not yet accepted by the network. */
  #rest: Uint8Array = NO_BYTES;
  #finished = false;
  #reset = false;

  /** `dialed`: this side sent the SYN; `emssBytes`: as the link reports it now. */
  constructor(inner: Link, tap: CaptureTap, dialed: boolean, emssBytes: number) {
    super(inner);
    const { localAddress, localPort, remoteAddress, remotePort } = inner;
    this.#tap = tap.opened(
      { localAddress, localPort, remoteAddress, remotePort, dialed, emssBytes },
      this,
    );
  }

  override write(bytes: Uint8Array): number {
    const taken = this.inner.write(bytes);
    if (taken === bytes.length) this.#tap.outbound(bytes);
    else {
      if (taken > 0) this.#tap.outbound(bytes.subarray(0, taken));
      this.#rest = bytes.subarray(taken);
    }
    return taken;
  }

  override handleFlushed(bytes: number): void {
    this.#tap.outbound(this.#rest);
    this.#rest = NO_BYTES;
    this.user.handleFlushed(bytes);
  }

  override handleBytes(bytes: Uint8Array): void {
    this.#tap.inbound(bytes);
    this.user.handleBytes(bytes);
  }

  override handlePeerClosed(): void {
    this.#tap.finished('peer');
    this.user.handlePeerClosed();
  }

  override handleClosed(errorCode: string | undefined): void {
    this.#finished = true;
    this.#tap.closed(this.#reset || errorCode !== undefined);
    this.user.handleClosed(errorCode);
  }

  override finish(): void {
    if (!this.#finished) this.#tap.finished('us');
    this.#finished = true;
    this.inner.finish();
  }

  override close(): void {
    this.#finished = true;
    this.inner.close();
  }

  override reset(): void {
    this.#finished = true;
    this.#reset = true;
    this.inner.reset();
  }
}
