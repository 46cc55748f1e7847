/**
 * What a queue pair has placed and its memory has not written yet, so that the work request whose
 * memory is gone can be told from the others when one transfer of many pieces fails.
 */
import type { MemoryBacking } from './memory-backing.ts';

/** What a piece belongs to. */
export type PieceKind = 'write' | 'receive' | 'response';

/** Most pieces that wait: enough for the short messages of a turn, and a bound on what is kept for them. */
const KEPT_MAX = 256;

/** Empty, so that a piece that was written holds no memory. */
const NO_BYTES = new Uint8Array(0);

interface Piece {
  kind: PieceKind;
  offset: number;
  bytes: Uint8Array;
  start: number;
  length: number;
}

/** All pieces are of one backing. */
export class KeptPieces {
  /** Pieces that wait. */
  count = 0;
  /** The first `count` wait; the others are kept to be used again. */
  readonly #pieces: Piece[] = [];

  get full(): boolean {
    return this.count === KEPT_MAX;
  }

  /** Not if `full`. */
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

  /** Writes them again, one by one. Returns how many are in place: all, or those before the first that is lost. */
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
