/**
 * The atomic operations of RFC 7306 §5.1, on pairs of 32-bit halves.
 *
 * The word is read and written in the byte order of the target memory: little endian on every
 * supported machine.
 */
import type { AtomicAccess } from '../wire-port.ts';

/** Operation codes on the wire (RFC 7306 §5.2.1). */
export const AtomicOpcode = { fetchAdd: 0, compareSwap: 2 } as const;

/** Size of an atomic's target, in bytes. */
export const ATOMIC_WORD_BYTES = 8;

/**
 * Performs `access.operation` on the 8 bytes in `word`: fills in the original halves and leaves the
 * new value in `word`. Returns false, and changes nothing, for an unknown operation.
 */
export function performAtomic(access: AtomicAccess, word: DataView): boolean {
  const lo = word.getUint32(0, true);
  const hi = word.getUint32(4, true);
  switch (access.operation) {
    case AtomicOpcode.fetchAdd:
      fetchAdd(access, hi, lo, word);
      break;
    case AtomicOpcode.compareSwap:
      compareSwap(access, hi, lo, word);
      break;
    default:
      return false;
  }
  access.originalHi = hi;
  access.originalLo = lo;
  return true;
}

// RDMAPX-5.1.1-01: each 1 bit of the mask is the most significant bit of a field, and no carry
// leaves a field. Adding without those bits cannot carry out of a field; each such bit is then the
// XOR of both addends and the carry into it.
function fetchAdd(access: AtomicAccess, hi: number, lo: number, word: DataView): void {
  const { operandHi, operandLo, operandMaskHi, operandMaskLo } = access;
  const sumLo = ((lo & ~operandMaskLo) >>> 0) + ((operandLo & ~operandMaskLo) >>> 0);
  const carry = sumLo > 0xffffffff ? 1 : 0;
  const sumHi = ((hi & ~operandMaskHi) >>> 0) + ((operandHi & ~operandMaskHi) >>> 0) + carry;
  word.setUint32(0, sumLo ^ ((lo ^ operandLo) & operandMaskLo), true);
  word.setUint32(4, sumHi ^ ((hi ^ operandHi) & operandMaskHi), true);
}

// RDMAPX-5.1.2-01
function compareSwap(access: AtomicAccess, hi: number, lo: number, word: DataView): void {
  const differs =
    ((access.compareHi ^ hi) & access.compareMaskHi) |
    ((access.compareLo ^ lo) & access.compareMaskLo);
  if (differs !== 0) return;
  const { operandHi, operandLo, operandMaskHi, operandMaskLo } = access;
  word.setUint32(0, (lo & ~operandMaskLo) | (operandLo & operandMaskLo), true);
  word.setUint32(4, (hi & ~operandMaskHi) | (operandHi & operandMaskHi), true);
}
