/**
 * The random choices that make one input. A seed decides every draw. Recorded draws form a tape: the
 * tape makes the same input again, and a shorter tape or smaller numbers make a smaller input. Failing
 * inputs are minimised and kept inputs mutated this way.
 */
import { Prng } from './prng.ts';

/** Numbers around which off-by-one errors occur. */
const EDGES = [
  0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024, 4095, 4096,
  0x7fff, 0x8000, 0xfffe, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff,
] as const;
/** Draws to discard so that similar seeds diverge. */
const WARM_UP_DRAWS = 12;

/** Identifies an input: the target, the seed of its batch, and its number in the batch. */
export interface InputName {
  readonly target: string;
  readonly seed: number;
  readonly input: number;
}

/** A 32-bit hash of text and numbers (FNV-1a), for derived seeds. */
export function hash32(text: string, ...numbers: readonly number[]): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  for (const number of numbers) {
    for (let shift = 0; shift < 32; shift += 8) {
      hash = Math.imul(hash ^ ((number >>> shift) & 0xff), 0x01000193);
    }
  }
  return (hash ^ (hash >>> 15)) >>> 0;
}

/** See the module's comment. The generator is sfc32; it does not repeat within 10^8 inputs. */
export class Draws extends Prng {
  #a = 0;
  #b = 0;
  #c = 0;
  #counter = 1;
  #tape: readonly number[] | undefined;
  #at = 0;
  #record: number[] | undefined;
  readonly #shown: string[] = [];

  constructor() {
    super(0);
  }

  /** Starts the draws of an input. */
  seed(batchSeed: number, input: number, recording = false): void {
    this.#a = batchSeed | 0;
    this.#b = input | 0;
    this.#c = 0x9e3779b9 | 0;
    this.#counter = 1;
    this.#tape = undefined;
    this.#record = undefined;
    for (let count = 0; count < WARM_UP_DRAWS; count++) this.next();
    this.#record = recording ? [] : undefined;
    this.#shown.length = 0;
  }

  /** Starts an input from a tape; after its end every draw is 0. */
  play(tape: readonly number[]): void {
    this.#tape = tape;
    this.#at = 0;
    this.#record = [];
    this.#shown.length = 0;
  }

  /** The draws of this input so far, if they are recorded. */
  get tape(): readonly number[] {
    return this.#record ?? [];
  }

  /** Lines that the target showed for this input. */
  get shown(): readonly string[] {
    return this.#shown;
  }

  /** True if the input is to be shown. */
  get recording(): boolean {
    return this.#record !== undefined;
  }

  /** Describes the input for people. Test `recording` before building the text. */
  show(text: string): void {
    if (this.#record !== undefined) this.#shown.push(text);
  }

  override next(): number {
    const drawn = this.#tape === undefined ? this.#generate() : (this.#tape[this.#at++] ?? 0);
    if (this.#record !== undefined) this.#record.push(drawn);
    return drawn;
  }

  #generate(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum >>> 0;
  }

  pick<T>(list: readonly T[]): T {
    const picked = list[this.below(list.length)];
    if (picked === undefined && list.length === 0) throw new Error('nothing to pick from');
    return picked as T;
  }

  /** An unsigned 32-bit number, often one at an edge. */
  word(): number {
    const draw = this.next();
    const kind = draw & 3;
    if (kind === 0) return this.next();
    if (kind === 1) return (draw >>> 8) % 300;
    return EDGES[(draw >>> 8) % EDGES.length] ?? 0;
  }

  /** An unsigned 64-bit number, often one at an edge. */
  wide(): bigint {
    const draw = this.next();
    const low = BigInt(this.word());
    const kind = draw & 7;
    if (kind < 3) return low;
    if (kind === 3) return 0xffff_ffff_ffff_ffffn - low;
    if (kind === 4) return (BigInt(this.word()) << 32n) | low;
    return [0x20_0000_0000_0000n, 0x7fff_ffff_ffff_ffffn, 0x1_0000_0000n][kind - 5] ?? low;
  }

  bytes(length: number): Uint8Array {
    const bytes = new Uint8Array(length);
    let word = 0;
    for (let at = 0; at < length; at++) {
      if ((at & 3) === 0) word = this.next();
      bytes[at] = word >>> ((at & 3) * 8);
    }
    return bytes;
  }
}
