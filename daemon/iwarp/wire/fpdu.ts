/**
 * FPDU geometry (RFC 5044 §4.1), markers aside:
 *
 *      0                   1                   2                   3
 *      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 *     +-------------------------------+-------------------------------+
 *     |         ULPDU_Length          |            ULPDU              |
 *     +-------------------------------+                               |
 *     |                      ULPDU, continued         +---------------|
 *     |                                               | PAD (0-3)     |
 *     +---------------------------------------------------------------+
 *     |                              CRC                              |
 *     +---------------------------------------------------------------+
 *
 * Read before changing: RFC 5044 §3, §4.1, §4.5.
 */

/** Bytes of the ULPDU_Length field. */
export const ULPDU_LENGTH_BYTES = 2;
/** Bytes of the CRC field, which is present with and without CRCs (MPA-4.4-08). */
export const FPDU_CRC_BYTES = 4;
/** Largest ULPDU that may be sent (MPA-3-03, MPA-3-05). */
export const ULPDU_SEND_MAX_BYTES = 64768;
/** Smallest MULPDU that may be reported (MPA-3-03). */
export const MULPDU_MIN_BYTES = 128;

// MPA-4.1-05: PAD extends length field and ULPDU to a multiple of 4; markers do not count.
/** PAD bytes after a ULPDU of `ulpduLength` bytes: 0 to 3. */
export function padBytes(ulpduLength: number): number {
  return (2 - ulpduLength) & 3;
}

// MPA-4.1-01, MPA-4.4-08: length field, ULPDU, PAD and, always, the CRC field.
/** Bytes of the FPDU around a ULPDU of `ulpduLength` bytes, without markers; a multiple of 4. */
export function fpduSizeBytes(ulpduLength: number): number {
  return ULPDU_LENGTH_BYTES + ulpduLength + padBytes(ulpduLength) + FPDU_CRC_BYTES;
}
