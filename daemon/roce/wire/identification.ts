/**
 * The IPv4 identification of a datagram from its ICRC.
 *
 * The ICRC covers it, and a socket does not show it; senders other than ours choose any number. A CRC
 * is linear: that of the datagram with identification 0 differs from the one that was sent by what
 * the 16 unknown bits make of it after all bytes behind them. Taking those bytes' effect back leaves
 * the bits themselves, below 16 zeros. So 16 bits of the ICRC still check the datagram.
 */

/** The reflected polynomial of CRC-32. */
const POLYNOMIAL = 0xedb88320;
/** Bits behind the 16 of the identification must be zero. */
const CHECKED = 0xffff_0000;
/** Powers of two of bytes that a length may have. */
const LENGTH_BITS = 13;

/** `x` times the polynomial's unknown, backwards: what one zero bit did is undone. */
function stepBack(x: number): number {
  return ((x & 0x8000_0000) !== 0 ? ((x ^ POLYNOMIAL) << 1) | 1 : x << 1) >>> 0;
}

/** The product of two polynomials, reflected as the CRC is: bit 31 is the constant term. */
function multiply(a: number, b: number): number {
  let product = 0;
  let factor = b;
  for (let bit = 31; bit >= 0; bit -= 1) {
    if (((a >>> bit) & 1) !== 0) product ^= factor;
    factor = ((factor & 1) !== 0 ? (factor >>> 1) ^ POLYNOMIAL : factor >>> 1) >>> 0;
  }
  return product >>> 0;
}

/** Undoes 2^n bytes of zeros, as a factor. */
const UNDO: readonly number[] = (() => {
  let factor = 0x8000_0000;
  for (let bit = 0; bit < 8; bit += 1) factor = stepBack(factor);
  const factors = [factor];
  for (let power = 1; power < LENGTH_BITS; power += 1) {
    factor = multiply(factor, factor);
    factors.push(factor);
  }
  return factors;
})();

/** Undoes the bytes of one length; most datagrams of a flow have the same. */
let knownBytes = 0;
let knownFactor = 0x8000_0000;

function undo(bytes: number): number {
  if (bytes === knownBytes) return knownFactor;
  let factor = 0x8000_0000;
  for (let power = 0; power < LENGTH_BITS; power += 1) {
    if (((bytes >>> power) & 1) !== 0) factor = multiply(factor, UNDO[power] as number);
  }
  knownBytes = bytes;
  knownFactor = factor;
  return factor;
}

/**
 * The identification of a datagram with this ICRC, when its ICRC with identification 0 would be
 * `icrcOfZero`. `bytesBehind`: those that the ICRC covers from the identification on, itself included.
 * Undefined if there is none: the datagram is damaged.
 */
export function identificationOf(
  icrc: number,
  icrcOfZero: number,
  bytesBehind: number,
): number | undefined {
  if (bytesBehind <= 0 || bytesBehind >>> LENGTH_BITS !== 0) return undefined;
  const bits = multiply(undo(bytesBehind), (icrc ^ icrcOfZero) >>> 0);
  if ((bits & CHECKED) !== 0) return undefined;
  // The first byte on the wire was taken in first, so it is the lower one here.
  return ((bits & 0xff) << 8) | (bits >>> 8);
}
