/**
 * Pieces that a queue pair has placed and its memory has not written yet: finds the work request
 * whose memory is gone when one transfer of many pieces fails.
 */
import type { MemoryBacking } from './memory-backing.ts';

/** The kind of operation that a piece belongs to. */
export type PieceKind = 'write' | 'receive' | 'response';

/** Limit of buffered pieces: enough for the short messages of a turn, with a bound on memory. */
const KEPT_MAX = 256;

/** Replaces the bytes of a written piece, so that they can be freed. */
const NO_BYTES = new Uint8Array(0);

interface Piece {
  kind: PieceKind;
  offset: number;
  bytes: Uint8Array;
  start: number;
  length: number;
}

/** All pieces belong to one backing. */
export class KeptPieces {
  count = 0;
  /** The first `count` are buffered; the rest are kept for reuse. */
  readonly #pieces: Piece[] = [];

  get full(): boolean {
    return this.count === KEPT_MAX;
  }

  /** Must not be called if `full`. */
  add(kind: PieceKind, offset: number, bytes: Uint8Array, start: number, length: number): void {
    const piece = this.#pieces[this.count];
    this.count += 1;
    if (piece === undefined) {
      this.#pieces.push({ kind, offset, bytes, start, length });
      return;
    }
    piece.kind = kind;
    piece.offset = offset;
    piece.bytes = bytes;
    piece.start = start;
    piece.length = length;
  }

  kindOf(index: number): PieceKind | undefined {
    return index < this.count ? this.#pieces[index]?.kind : undefined;
  }

  /** Writes the pieces one by one, up to the first that is lost. Returns how many are in place. */
  writeEach(backing: MemoryBacking): number {
    for (let index = 0; index < this.count; index += 1) {
      const { offset, bytes, start, length } = this.#pieces[index] as Piece;
      if (!backing.write(offset, bytes, start, length)) return index;
    }
    return this.count;
  }

  clear(): void {
    for (let index = 0; index < this.count; index += 1) {
      (this.#pieces[index] as Piece).bytes = NO_BYTES;
    }
    this.count = 0;
  }
}
