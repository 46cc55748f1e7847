/**
 * Recovers the IPv4 identification of a datagram from its ICRC.
 *
 * The ICRC covers the identification, which a socket does not report and other senders choose freely. A CRC
 * is linear: the ICRC with identification 0 differs from the received one by the CRC of the 16 unknown bits
 * followed by zeros. Undoing those zeros leaves the 16 bits, followed by 16 zeros. So 16 bits of the ICRC
 * still check the datagram.
 */

/** The reflected polynomial of CRC-32. */
const POLYNOMIAL = 0xedb88320;
/** The bits after the 16 of the identification must be zero. */
const CHECKED = 0xffff_0000;
const LENGTH_BITS = 13;

/** Multiplies by the inverse of the polynomial's unknown: undoes one zero bit. */
function stepBack(x: number): number {
  return ((x & 0x8000_0000) !== 0 ? ((x ^ POLYNOMIAL) << 1) | 1 : x << 1) >>> 0;
}

/** The product of two polynomials, reflected like the CRC: bit 31 is the constant term. */
function multiply(a: number, b: number): number {
  let product = 0;
  let factor = b;
  for (let bit = 31; bit >= 0; bit -= 1) {
    if (((a >>> bit) & 1) !== 0) product ^= factor;
    factor = ((factor & 1) !== 0 ? (factor >>> 1) ^ POLYNOMIAL : factor >>> 1) >>> 0;
  }
  return product >>> 0;
}

/** Factors that undo 2^n zero bytes. */
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

/** The last length and its factor; most datagrams of a flow have the same length. */
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
 * The identification of a datagram with this ICRC, if its ICRC with identification 0 would be `icrcOfZero`.
 * `bytesCovered`: how many bytes the ICRC covers from the identification on. Undefined if the datagram is
 * damaged.
 */
export function identificationOf(
  icrc: number,
  icrcOfZero: number,
  bytesCovered: number,
): number | undefined {
  if (bytesCovered <= 0 || bytesCovered >>> LENGTH_BITS !== 0) return undefined;
  const bits = multiply(undo(bytesCovered), (icrc ^ icrcOfZero) >>> 0);
  if ((bits & CHECKED) !== 0) return undefined;
  // The CRC takes the first byte on the wire first, so it is the lower one here.
  return ((bits & 0xff) << 8) | (bits >>> 8);
}
