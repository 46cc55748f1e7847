import { describe, expect, it } from 'vitest';
import {
  type DDPHeader,
  ddpHeaderBytes,
  readDDPHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
  writeTaggedHeader,
  writeUntaggedHeader,
} from '../../../daemon/wire/ddp-header.ts';
import { hexOf, octetsOf } from '../../support/hex.ts';
import { readVectors } from '../../support/vectors.ts';

interface Vectors {
  readonly valid: readonly {
    readonly id: string;
    readonly octets: string;
    readonly header: DDPHeader;
    readonly canonical?: boolean;
  }[];
  readonly invalid: readonly { readonly id: string; readonly octets: string }[];
}

const vectors = readVectors<Vectors>('ddp.json');

function emit(header: DDPHeader): Uint8Array {
  const target = new Uint8Array(24).fill(0xa5);
  if (header.tagged) {
    const { last, ulp, stag, toHi, toLo } = header;
    writeTaggedHeader(target, 2, last, ulp, stag, toHi, toLo);
  } else {
    const { last, ulp, ulpWord, qn, msn, mo } = header;
    writeUntaggedHeader(target, 2, last, ulp, ulpWord, qn, msn, mo);
  }
  return target;
}

describe('DDP headers', () => {
  it('DDP-4.1-01, DDP-4.2-01, DDP-4.3-01, DDP-4.1-10, DDP-4.2-07: golden octets are read', () => {
    for (const { octets, header } of vectors.valid) {
      const segment = octetsOf(octets);
      expect(readDDPHeader(segment, 0, segment.length), octets).toEqual(header);
      const shifted = octetsOf(`00*5 ${octets}`);
      expect(readDDPHeader(shifted, 5, segment.length), octets).toEqual(header);
    }
  });

  it('DDP-4.1-09, DDP-4.1-11, DDP-4.2-01, DDP-4.3-01: they are written octet for octet', () => {
    for (const { octets, header, canonical = true } of vectors.valid) {
      const size = header.tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
      const target = emit(header);
      if (canonical) {
        expect(hexOf(target.subarray(2, 2 + size))).toBe(hexOf(octetsOf(octets).subarray(0, size)));
      }
      // Reserved bits are zero and the version is 1, whatever the buffer held before.
      expect((target[2] ?? 0) & 0x3f).toBe(1);
      expect(hexOf(target.subarray(2 + size))).toBe('a5'.repeat(24 - 2 - size));
      expect(hexOf(target.subarray(0, 2))).toBe('a5a5');
    }
  });

  it('DDP-4.4-01, DDP-4.4-02: a segment shorter than its header has none', () => {
    for (const { octets } of vectors.invalid) {
      const segment = octetsOf(octets);
      expect(readDDPHeader(segment, 0, segment.length)).toBe(undefined);
    }
    expect(readDDPHeader(octetsOf('c140 00*12'), 0, 13)).toBe(undefined);
  });

  it('DDP-4.1-01: T decides the header length', () => {
    expect(ddpHeaderBytes(0x81)).toBe(14);
    expect(ddpHeaderBytes(0x41)).toBe(18);
  });
});
