/** Typed views over a shared ring, in the ring's byte order. */
import { VerbsError } from '#contract/verbs/errors';

/** A ring's memory as 32-bit and 64-bit words; elements and their fields are aligned to them. */
export interface RingMemory {
  readonly bytes: Uint8Array;
  readonly words: Uint32Array;
  /** The same words for `Atomics`: an element's flags are its only shared state. */
  readonly control: Int32Array;
  readonly longs: BigUint64Array;
}

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
const TWO_TO_32 = 0x1_0000_0000;

/** Views over `lengthBytes` bytes of `mapping` from `offset` on, a multiple of 8. */
export function ringMemory(mapping: Uint8Array, offset: number, lengthBytes: number): RingMemory {
  if (!LITTLE_ENDIAN) {
    throw new VerbsError('EOPNOTSUPP', 'the rings are little endian, this machine is not');
  }
  const start = mapping.byteOffset + offset;
  const { buffer } = mapping;
  return {
    bytes: new Uint8Array(buffer, start, lengthBytes),
    words: new Uint32Array(buffer, start, lengthBytes >>> 2),
    control: new Int32Array(buffer, start, lengthBytes >>> 2),
    longs: new BigUint64Array(buffer, start, lengthBytes >>> 3),
  };
}

/**
 * Writes a 64-bit value at an even word index. False if a number is not a whole number from 0 to
 * 2^53 - 1. A `bigint` is taken modulo 2^64, which permits signed operands of atomics.
 */
export function putLong(memory: RingMemory, word: number, value: number | bigint): boolean {
  if (typeof value === 'bigint') {
    memory.longs[word >>> 1] = value;
    return true;
  }
  if (!Number.isSafeInteger(value) || value < 0) return false;
  memory.words[word] = value;
  memory.words[word + 1] = value / TWO_TO_32;
  return true;
}

/** True for a whole number that fits 32 bits. */
export function isUint32(value: number): boolean {
  return value >>> 0 === value;
}
