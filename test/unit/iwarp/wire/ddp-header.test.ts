import { describe, expect, it } from 'vitest';
import {
  type DDPHeader,
  ddpHeaderBytes,
  readDDPHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
  writeTaggedHeader,
  writeUntaggedHeader,
} from '#daemon/iwarp/wire/ddp-header';
import { bytesOf, hexOf } from '#test/support/hex';
import { readVectors } from '#test/support/vectors';

interface Vectors {
  readonly valid: readonly {
    readonly id: string;
    readonly bytes: string;
    readonly header: DDPHeader;
    readonly canonical?: boolean;
  }[];
  readonly invalid: readonly { readonly id: string; readonly bytes: string }[];
}

const vectors = readVectors<Vectors>('ddp.json');

function emit(header: DDPHeader): Uint8Array {
  const target = new Uint8Array(24).fill(0xa5);
  if (header.tagged) {
    writeTaggedHeader(target, 2, header);
  } else {
    writeUntaggedHeader(target, 2, header);
  }
  return target;
}

describe('DDP headers', () => {
  it('golden bytes are read [DDP-4.1-01, DDP-4.2-01, DDP-4.3-01, DDP-4.1-10, DDP-4.2-07]', () => {
    for (const { bytes, header } of vectors.valid) {
      const segment = bytesOf(bytes);
      expect(readDDPHeader(segment, 0, segment.length), bytes).toEqual(header);
      expect(readDDPHeader(bytesOf(`00*5 ${bytes}`), 5, segment.length), bytes).toEqual(header);
    }
  });

  it('they are written byte for byte [DDP-4.1-09, DDP-4.1-11, DDP-4.2-01, DDP-4.3-01]', () => {
    for (const { bytes, header, canonical = true } of vectors.valid) {
      const size = header.tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
      const target = emit(header);
      if (canonical) {
        expect(hexOf(target.subarray(2, 2 + size))).toBe(hexOf(bytesOf(bytes).subarray(0, size)));
      }
      // Reserved bits are zero and the version is 1, whatever the buffer held before.
      expect((target[2] ?? 0) & 0x3f).toBe(1);
      expect(hexOf(target.subarray(2 + size))).toBe('a5'.repeat(24 - 2 - size));
      expect(hexOf(target.subarray(0, 2))).toBe('a5a5');
    }
  });

  it('a segment shorter than its header has none [DDP-4.4-01, DDP-4.4-02]', () => {
    for (const { bytes } of vectors.invalid) {
      const segment = bytesOf(bytes);
      expect(readDDPHeader(segment, 0, segment.length)).toBe(undefined);
    }
    expect(readDDPHeader(bytesOf('c140 00*12'), 0, 13)).toBe(undefined);
  });

  it('T decides the header length [DDP-4.1-01]', () => {
    expect(ddpHeaderBytes(0x81)).toBe(14);
    expect(ddpHeaderBytes(0x41)).toBe(18);
  });
});
