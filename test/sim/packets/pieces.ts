/** Registered memory of programs on RoCE: in pieces for one work request each, and words for atomics. */
import { must } from '../rules.ts';
import type { Registered } from '../sim-memory.ts';

/** Filler for memory that a program has finished with: it reveals a late write. */
const DONE = 0xee;
const ALL_DONE = new Uint8Array(1 << 17).fill(DONE);
export const WORD_BYTES = 8;

export class Pieces {
  readonly registered: Registered;
  readonly pieceBytes: number;
  /** A hostile sender may write to it. */
  forged = false;
  readonly #free: number[] = [];

  constructor(registered: Registered, pieceBytes: number) {
    this.registered = registered;
    this.pieceBytes = pieceBytes;
    const { bytes } = registered.area;
    bytes.fill(DONE);
    for (let at = 0; at + pieceBytes <= bytes.length; at += pieceBytes) this.#free.push(at);
  }

  /** Takes a piece and returns its offset; undefined if all are taken. */
  take(): number | undefined {
    const at = this.#free.shift();
    if (at !== undefined) this.#checkDone(at);
    return at;
  }

  /** The program has finished with a piece. */
  give(at: number): void {
    this.registered.area.bytes.fill(DONE, at, at + this.pieceBytes);
    this.#free.push(at);
  }

  /** Checks that no free piece was written to. */
  check(): void {
    for (const at of this.#free) this.#checkDone(at);
  }

  /** True if nothing was written to these bytes. */
  protected isFree(at: number, lengthBytes: number): boolean {
    const bytes = this.registered.area.bytes.subarray(at, at + lengthBytes);
    return Buffer.compare(bytes, ALL_DONE.subarray(0, lengthBytes)) === 0;
  }

  #checkDone(at: number): void {
    const free = this.isFree(at, this.pieceBytes) || this.forged;
    must(free, 'late', () => `a free piece at ${at} was written to`);
  }
}

/** Eight bytes on which one peer runs atomics, in order. */
export class Counter {
  readonly registered: Registered;
  forged = false;
  /** Its value after each posted atomic; the first one is its start. */
  readonly #values = [0n];
  /** Number of atomics that are known to be carried out. */
  #done = 0;

  constructor(registered: Registered) {
    this.registered = registered;
    registered.area.bytes.fill(0);
  }

  /** Its value once every posted atomic is carried out. */
  get last(): bigint {
    return this.#values.at(-1) ?? 0n;
  }

  /** An atomic is posted: `next` is the value after it. Returns its number. */
  post(next: bigint): number {
    this.#values.push(next);
    return this.#values.length - 1;
  }

  succeed(number: number): void {
    this.#done = Math.max(this.#done, number);
    this.check();
  }

  check(): void {
    if (this.registered.area.lost || this.forged) return;
    const value = wordAt(this.registered.area.bytes, 0);
    must(this.#values.includes(value, this.#done), 'atomic', () => {
      return `the word is ${value}, after ${this.#done} of ${this.#values.length - 1} atomics`;
    });
  }
}

/** Eight bytes to which every queue pair may add 1. */
export class SharedCounter {
  readonly registered: Registered;
  forged = false;
  #posted = 0;
  #done = 0;
  readonly #seen = new Set<bigint>();

  constructor(registered: Registered) {
    this.registered = registered;
    registered.area.bytes.fill(0);
  }

  post(): void {
    this.#posted += 1;
  }

  succeed(original: bigint): void {
    this.#done += 1;
    must(!this.#seen.has(original) || this.forged, 'atomic', `two additions found ${original}`);
    this.#seen.add(original);
    this.check();
  }

  check(): void {
    if (this.registered.area.lost || this.forged) return;
    const value = Number(wordAt(this.registered.area.bytes, 0));
    must(value >= this.#done && value <= this.#posted, 'atomic', () => {
      return `${value} additions, of which ${this.#done} succeeded and ${this.#posted} are posted`;
    });
  }
}

/** The word at an offset, in the order of the host. */
export function wordAt(bytes: Uint8Array, at: number): bigint {
  return new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(at, true);
}

export function putWord(bytes: Uint8Array, at: number, value: bigint): void {
  new DataView(bytes.buffer, bytes.byteOffset).setBigUint64(at, value, true);
}
