/** CRC32C computed by Intel's ISA-L, if the library is installed. */
import koffi from 'koffi';

/** The library's name since version 2.0. */
const ISAL_LIBRARY = 'libisal.so.2';
/** The call takes the length as an int. */
const CALL_BYTES_MAX = 2 ** 30;

/**
 * Loads ISA-L and returns its CRC32C (RFC 3720 §12.1) of `bytes`, continued from `initial`, the CRC of
 * the preceding bytes. It folds by carry-less multiplication: several times as fast as the CPU's CRC
 * instruction. Throws if the library is not installed.
 */
export function openIsalCrc32c(
  library = ISAL_LIBRARY,
): (bytes: Uint8Array, initial?: number) => number {
  const call = koffi
    .load(library)
    .func('uint32_t crc32_iscsi(const void *bytes, int length, uint32_t state)') as (
    bytes: Uint8Array,
    length: number,
    state: number,
  ) => number;
  return (bytes, initial = 0) => {
    // A CRC is the complement of the state.
    if (bytes.length <= CALL_BYTES_MAX) return ~call(bytes, bytes.length, ~initial) >>> 0;
    let state = ~initial;
    for (let at = 0; at < bytes.length; at += CALL_BYTES_MAX) {
      const part = bytes.subarray(at, at + CALL_BYTES_MAX);
      state = call(part, part.length, state);
    }
    return ~state >>> 0;
  };
}
