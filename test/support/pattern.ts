/** Payloads that a test can predict. */

/** Bytes that differ from place to place and from seed to seed. */
export function pattern(length: number, seed = 1): Uint8Array {
  const bytes = new Uint8Array(length);
  let state = (seed * 2_654_435_761) >>> 0;
  for (let index = 0; index < length; index += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}

/** Bytes that count up from `first`, and from 0 again after 255. */
export function counted(length: number, first = 0): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => first + index);
}
