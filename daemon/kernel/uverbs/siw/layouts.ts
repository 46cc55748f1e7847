/** The private parts of siw's responses, as data: byte offsets from where each starts. */

export const CreatedCQ = {
  id: 0,
  count: 4,
  /** u64 */
  key: 8,
  bytes: 16,
} as const;

export const CreatedQP = {
  id: 0,
  sendCount: 4,
  receiveCount: 8,
  /** u64 */
  sendKey: 16,
  receiveKey: 24,
  bytes: 32,
} as const;

export const CreatedSRQ = {
  count: 0,
  /** u64 */
  key: 8,
  bytes: 16,
} as const;
