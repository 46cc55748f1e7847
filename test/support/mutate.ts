/** Mutations of byte sequences and of lists of them, the source of most hostile input. */
import { Draws } from './draws.ts';

/** Bytes that occur in limits and signs. */
const EDGE_BYTES = [0, 1, 2, 0x3f, 0x40, 0x41, 0x7f, 0x80, 0xc1, 0xfd, 0xfe, 0xff] as const;
/** Longest stretch removed or repeated at once. */
const STRETCH_MAX_BYTES = 40;

/** Bytes from several parts. */
export function join(parts: readonly Uint8Array[]): Uint8Array {
  let length = 0;
  for (const part of parts) length += part.length;
  const whole = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** A copy of `bytes` with `count` mutations. */
export function mutated(
  bytes: Uint8Array,
  corpus: readonly Uint8Array[],
  draws: Draws,
  count: number,
): Uint8Array {
  let copy: Uint8Array = bytes.slice();
  for (let left = count; left > 0; left--) copy = mutate(copy, corpus, draws);
  return copy;
}

/** `count` mutants of a corpus, decided by the seed, for suites with their own rigs. */
export function mutants(corpus: readonly Uint8Array[], count: number, seed = 1): Uint8Array[] {
  const draws = new Draws();
  return Array.from({ length: count }, (_, index) => {
    draws.seed(seed, index);
    return mutated(draws.pick(corpus), corpus, draws, draws.below(5));
  });
}

/** Overwrites a field of 1, 2, 4 or 8 bytes at `at`, in either byte order, if it fits. */
export function scribble(bytes: Uint8Array, at: number, draws: Draws): void {
  const draw = draws.next();
  const width = 1 << (draw & 3);
  const isLittle = (draw & 4) !== 0;
  let value = draws.word();
  for (let index = 0; index < width; index++) {
    const place = isLittle ? at + index : at + width - 1 - index;
    if (place < bytes.length) bytes[place] = value;
    value = index === 3 ? 0 : value >>> 8;
  }
}

function mutate(bytes: Uint8Array, corpus: readonly Uint8Array[], draws: Draws): Uint8Array {
  const draw = draws.next();
  const at = (draw >>> 4) % (bytes.length + 1);
  switch (draw & 15) {
    case 0:
    case 1:
      if (at < bytes.length) bytes[at] = (bytes[at] ?? 0) ^ (1 << draws.below(8));
      return bytes;
    case 2:
    case 3:
    case 4:
      if (at < bytes.length) bytes[at] = draws.pick(EDGE_BYTES);
      return bytes;
    case 5:
      if (at < bytes.length) bytes[at] = draws.next();
      return bytes;
    case 6:
    case 7:
    case 8:
    case 9:
      scribble(bytes, at, draws);
      return bytes;
    case 10:
      return bytes.slice(0, at);
    case 11:
      return join([bytes.subarray(0, at), bytes.subarray(at + draws.below(STRETCH_MAX_BYTES))]);
    case 12:
      return join([
        bytes.subarray(0, at),
        bytes.subarray(Math.max(0, at - draws.below(STRETCH_MAX_BYTES))),
      ]);
    case 13:
      return join([bytes.subarray(0, at), draws.bytes(draws.below(STRETCH_MAX_BYTES))]);
    case 14:
      // Copy a field from another input.
      copyField(draws.pick(corpus), bytes, at, draws);
      return bytes;
    default:
      return join([bytes.subarray(0, at), draws.pick(corpus)]);
  }
}

function copyField(source: Uint8Array, target: Uint8Array, at: number, draws: Draws): void {
  const from = draws.below(source.length + 1);
  const part = source.subarray(from, from + draws.below(16));
  target.set(part.subarray(0, target.length - at), at);
}

/**
 * A list of records with some removed, repeated, swapped or inserted. The records themselves stay
 * unchanged.
 */
export function rearranged<T>(records: readonly T[], corpus: readonly T[], draws: Draws): T[] {
  const list = [...records];
  for (let count = draws.below(3); count > 0; count--) {
    const draw = draws.next();
    const at = (draw >>> 4) % (list.length + 1);
    switch (draw & 3) {
      case 0:
        list.splice(at, 1);
        break;
      case 1:
        if (at < list.length) list.splice(at, 0, list[at] as T);
        break;
      case 2: {
        const other = draws.below(list.length + 1);
        if (at < list.length && other < list.length) {
          [list[at], list[other]] = [list[other] as T, list[at] as T];
        }
        break;
      }
      default:
        list.splice(at, 0, draws.pick(corpus));
    }
  }
  return list;
}

/** Passes on `bytes` in pieces of random size, often in one piece. */
export function inPieces(
  bytes: Uint8Array,
  draws: Draws,
  take: (start: number, end: number) => void,
): void {
  if (draws.oneIn(2)) {
    take(0, bytes.length);
    return;
  }
  const most = draws.oneIn(4) ? 8 : 400;
  for (let at = 0; at < bytes.length; ) {
    const end = Math.min(at + draws.between(1, most), bytes.length);
    take(at, end);
    at = end;
  }
}
