import { describe, expect, it } from 'vitest';
import {
  ATOMIC_REQUEST_BYTES,
  ATOMIC_RESPONSE_BYTES,
  type AtomicRequest,
  IMMEDIATE_BYTES,
  isAtomicOpcode,
  readAtomicRequest,
  writeAtomicRequest,
  writeAtomicResponse,
  writeImmediate,
} from '#daemon/iwarp/wire/atomic-header';
import { bytesOf, hexOf } from '#test/support/hex';
import { readVectors } from '#test/support/vectors';

interface Vectors {
  readonly atomicRequests: readonly {
    readonly bytes: string;
    readonly request: AtomicRequest;
    readonly canonical?: boolean;
  }[];
  readonly atomicResponses: readonly {
    readonly bytes: string;
    readonly identifier: number;
    readonly originalHi: number;
    readonly originalLo: number;
  }[];
  readonly immediates: readonly {
    readonly bytes: string;
    readonly hi: number;
    readonly lo: number;
  }[];
}

const vectors = readVectors<Vectors>('rdmap.json');

describe('headers of RFC 7306', () => {
  it('Atomic Requests [RDMAPX-5.2.1-01, RDMAPX-5.2.1-02, RDMAPX-5.2.1-03]', () => {
    for (const { bytes, request, canonical = true } of vectors.atomicRequests) {
      const read = { ...request, operation: -1, toHi: -1, compareMaskLo: -1 };
      readAtomicRequest(bytesOf(`00 ${bytes}`), 1, read);
      expect(read).toEqual(request);
      const target = new Uint8Array(ATOMIC_REQUEST_BYTES + 2).fill(0xa5);
      writeAtomicRequest(request, target, 1);
      const golden = canonical ? bytes : bytes.replace('fffffff2', '00000002');
      expect(hexOf(target)).toBe(`a5${hexOf(bytesOf(golden))}a5`);
    }
  });

  it('an Atomic Request Header that is cut is not read past its end [RDMAPX-5.2.1-01]', () => {
    const [first] = vectors.atomicRequests;
    const request = { ...(first?.request as AtomicRequest) };
    expect(() => readAtomicRequest(new Uint8Array(51), 0, request)).toThrow(RangeError);
  });

  it('an Atomic Response Header has 12 bytes [RDMAPX-5.2.2-01, RDMAPX-4-01]', () => {
    expect(ATOMIC_RESPONSE_BYTES).toBe(12);
    for (const { bytes, identifier, originalHi, originalLo } of vectors.atomicResponses) {
      const target = new Uint8Array(ATOMIC_RESPONSE_BYTES + 1).fill(0xa5);
      writeAtomicResponse(target, 0, identifier, originalHi, originalLo);
      expect(hexOf(target)).toBe(`${hexOf(bytesOf(bytes))}a5`);
    }
  });

  it('Immediate Data has 8 bytes [RDMAPX-6.2-01, RDMAPX-6.1-01]', () => {
    for (const { bytes, hi, lo } of vectors.immediates) {
      const target = new Uint8Array(IMMEDIATE_BYTES + 1).fill(0xa5);
      writeImmediate(target, 0, hi, lo);
      expect(hexOf(target)).toBe(`${bytes}a5`);
    }
  });

  it('the assigned atomic operations are 0 and 2 [RDMAPX-5.2.1-02, RDMAPX-10-01]', () => {
    const assigned = Array.from({ length: 16 }, (_, code) => code).filter(isAtomicOpcode);
    expect(assigned).toEqual([0, 2]);
  });
});
