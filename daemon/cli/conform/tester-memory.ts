/** The buffers that a tester advertises, which exist only in messages, and the text of a ping. */

export const SOURCE = { address: 0x1234_5678_9000n, rkey: 0x0a0b_0c0d } as const;
export const SINK = { address: 0x1234_5679_a000n, rkey: 0x0a0b_0c0e } as const;

/** A text of this many bytes that ends with the only NUL, so that the peer writes all of it back. */
export function pingText(sizeBytes: number): Uint8Array {
  const text = Uint8Array.from({ length: sizeBytes }, (_, index) => 1 + (index % 255));
  text[sizeBytes - 1] = 0;
  return text;
}
