/** Memory for Writes over UC, each of which may be lost, placed in part, or placed again at any time. */
import { holdsPattern, PATTERN } from '../pattern.ts';
import { must } from '../rules.ts';
import { Pieces } from './pieces.ts';

/** A Write to a piece, which no other Write uses. */
export interface LossyWrite {
  readonly at: number;
  /** Place of its bytes in the pattern. */
  readonly offset: number;
  readonly lengthBytes: number;
  /** It was sent within a host, where no packet is lost. */
  sure: boolean;
}

export class LossyPieces extends Pieces {
  readonly #writes: LossyWrite[] = [];

  /** Takes a piece for a Write; undefined if all are taken. */
  expect(offset: number, lengthBytes: number): LossyWrite | undefined {
    const at = this.take();
    if (at === undefined) return undefined;
    const write = { at, offset, lengthBytes, sure: false };
    this.#writes.push(write);
    return write;
  }

  /** Checks that all bytes of a Write are in place. */
  checkWhole({ at, offset, lengthBytes }: LossyWrite): void {
    const { area } = this.registered;
    if (area.lost || this.forged) return;
    const whole = holdsPattern(area.bytes, at, offset, lengthBytes);
    must(whole, 'lossy', () => `a Write of ${lengthBytes} bytes completes without them`);
  }

  /** Also checks that each Write is in place up to some packet, and nothing beyond. */
  override check(): void {
    super.check();
    const { area } = this.registered;
    if (area.lost || this.forged) return;
    for (const { at, offset, lengthBytes, sure } of this.#writes) {
      let placed = 0;
      if (holdsPattern(area.bytes, at, offset, lengthBytes)) placed = lengthBytes;
      while (placed < lengthBytes && area.bytes[at + placed] === PATTERN[offset + placed])
        placed += 1;
      must(!sure || placed === lengthBytes, 'lossy', 'a Write within a host is lost');
      must(this.isFree(at + placed, this.pieceBytes - placed), 'lossy', () => {
        return `a Write of ${lengthBytes} bytes is in place for ${placed}, and others follow`;
      });
    }
  }
}
