/**
 * A link that a tap watches: the tap sees each byte once, when the network accepts or delivers it.
 */

import type { Delivery, Transmit } from '#base/transmit';
import type { CaptureTap, LinkTap } from '#daemon/capture/capture-tap';
import type { Link } from './link.ts';
import { LinkAround } from './link-around.ts';

const NO_BYTES = new Uint8Array(0);

export class TappedLink extends LinkAround {
  readonly #tap: LinkTap;
  /** Written, and not yet accepted by the network. */
  #rest: Uint8Array = NO_BYTES;
  #restUnsealed = false;
  #finished = false;
  #reset = false;

  /** `dialed`: this side sent the SYN. `emssBytes`: the link's present value. */
  constructor(inner: Link, tap: CaptureTap, dialed: boolean, emssBytes: number) {
    super(inner);
    const { localAddress, localPort, remoteAddress, remotePort } = inner;
    this.#tap = tap.opened(
      { localAddress, localPort, remoteAddress, remotePort, dialed, emssBytes },
      this,
    );
  }

  override write(transmit: Transmit): number {
    const { bytes } = transmit;
    if (transmit.unsealed && this.#tap.watched) {
      this.seal(bytes);
      transmit.unsealed = false;
    }
    const taken = this.inner.write(transmit);
    if (taken === bytes.length) this.#tap.outbound(bytes);
    else {
      if (taken > 0) this.#tap.outbound(bytes.subarray(0, taken));
      this.#rest = bytes.subarray(taken);
      this.#restUnsealed = transmit.unsealed && taken === 0;
    }
    return taken;
  }

  override handleFlushed(bytes: number): void {
    if (this.#restUnsealed && this.#tap.watched) this.seal(this.#rest);
    this.#tap.outbound(this.#rest);
    this.#rest = NO_BYTES;
    this.user.handleFlushed(bytes);
  }

  override handleBytes(bytes: Uint8Array, delivery?: Delivery): void {
    this.#tap.inbound(bytes);
    this.user.handleBytes(bytes, delivery);
  }

  override get inspectsInput(): boolean {
    return this.#tap.watched || super.inspectsInput;
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
