/** Copies of messages that share blocks. */
import { describe, expect, it } from 'vitest';
import { MessageCopies } from '#verbs-api/rpcrdma/message-copies';

describe('message copies', () => {
  it('keep their content while the receive buffer and later copies change', () => {
    const copies = new MessageCopies();
    const buffer = new Uint8Array(512);
    const kept: { readonly copy: Uint8Array; readonly fill: number; readonly length: number }[] =
      [];
    for (const length of [0, 52, 512, 1, 511]) {
      for (let i = 0; i < 20; i++) {
        const fill = kept.length;
        buffer.fill(fill);
        kept.push({ copy: copies.copy(buffer.subarray(0, length)), fill, length });
      }
    }
    for (const { copy, fill, length } of kept) {
      expect([...copy]).toEqual(new Array<number>(length).fill(fill));
    }
  });

  it('of small messages share a block, long ones have separate memory', () => {
    const copies = new MessageCopies();
    const small = copies.copy(new Uint8Array(100));
    expect(copies.copy(new Uint8Array(100)).buffer).toBe(small.buffer);
    const long = copies.copy(new Uint8Array(600));
    expect(long.buffer).not.toBe(small.buffer);
    expect(long.buffer.byteLength).toBe(600);
  });
});
