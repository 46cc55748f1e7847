import { describe, expect, it } from 'vitest';
import type { EnhancedParameters } from '#daemon/iwarp/wire/enhanced-word';
import {
  emitStartupFrame,
  parseStartupFrame,
  privateDataMaxBytes,
  type StartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
  startupFrameSizeBytes,
} from '#daemon/iwarp/wire/startup-frame';
import { bytesOf, concat, hexOf } from '#test/support/hex';
import { readVectors } from '#test/support/vectors';

interface FrameVector {
  readonly id: string;
  readonly meaning: string;
  readonly bytes: string;
  readonly frame: Omit<StartupFrame, 'privateData' | 'enhanced'> & {
    readonly privateData: string;
    readonly enhanced?: EnhancedParameters;
  };
}

interface InvalidVector {
  readonly id: string;
  readonly meaning: string;
  readonly kind: StartupFrameKind;
  readonly fault: string;
  readonly bytes: string;
}

const vectors = readVectors<{
  readonly valid: readonly FrameVector[];
  readonly tolerated: readonly FrameVector[];
  readonly invalid: readonly InvalidVector[];
}>('mpa-startup.json');

function frameOf(vector: FrameVector): StartupFrame {
  const { privateData, enhanced, ...rest } = vector.frame;
  return { ...rest, enhanced, privateData: bytesOf(privateData) };
}

function emitted(frame: StartupFrame): Uint8Array {
  const target = new Uint8Array(startupFrameSizeBytes(frame)).fill(0xa5);
  emitStartupFrame(frame, target);
  return target;
}

const plainRequest: StartupFrame = {
  kind: 'request',
  markers: false,
  crc: true,
  rejected: false,
  revision: 1,
  enhanced: undefined,
  privateData: new Uint8Array(0),
};

const enhancedRequest: StartupFrame = {
  ...plainRequest,
  revision: 2,
  enhanced: { peerToPeer: false, rtr: { send: false, write: false, read: false }, ird: 4, ord: 8 },
};

describe('startup frames, golden', () => {
  it.each(vectors.valid)('$id: $meaning, read and written', (vector) => {
    const bytes = bytesOf(vector.bytes);
    const frame = frameOf(vector);
    expect(parseStartupFrame(bytes, frame.kind)).toEqual(frame);
    expect(hexOf(emitted(frame))).toBe(hexOf(bytes));
  });

  it.each(vectors.tolerated)('$id: $meaning, read despite reserved bits', (vector) => {
    const frame = frameOf(vector);
    expect(parseStartupFrame(bytesOf(vector.bytes), frame.kind)).toEqual(frame);
  });

  it.each(vectors.invalid)('$id: $meaning, refused at its last byte', (vector) => {
    const bytes = bytesOf(vector.bytes);
    expect(startupFrameBytesNeeded(bytes, 0, vector.kind)).toBe(20);
    expect(startupFrameBytesNeeded(bytes, bytes.length, vector.kind)).toBe(vector.fault);
  });
});

describe('startup frames', () => {
  it('the keys are the RFC texts [MPA-7.1.1-02, MPA-7.1.1-04]', () => {
    const key = (kind: StartupFrameKind) =>
      String.fromCharCode(...emitted({ ...plainRequest, kind }).subarray(0, 16));
    expect(key('request')).toBe('MPA ID Req Frame');
    expect(key('reply')).toBe('MPA ID Rep Frame');
  });

  it('a key wrong in any one bit is refused at that byte, not earlier [MPA-7.1.1-03]', () => {
    const good = emitted(plainRequest);
    for (let bit = 0; bit < 128; bit++) {
      const at = bit >> 3;
      const bad = good.slice();
      bad[at] = (bad[at] ?? 0) ^ (1 << (bit & 7));
      expect(startupFrameBytesNeeded(bad, at, 'request')).toBe(20);
      const fault = startupFrameBytesNeeded(bad, at + 1, 'request');
      expect(['wrong-key', 'other-key']).toContain(fault);
    }
  });

  it('PD_Length is exact for 0, 1, 511 and 512 bytes [MPA-7.1.1-18]', () => {
    for (const [size, field] of [
      [0, '0000'],
      [1, '0001'],
      [511, '01ff'],
      [512, '0200'],
    ] as const) {
      const bytes = emitted({ ...plainRequest, privateData: new Uint8Array(size) });
      expect(bytes.length).toBe(20 + size);
      expect(hexOf(bytes.subarray(18, 20))).toBe(field);
      expect(startupFrameBytesNeeded(bytes, 20, 'request')).toBe(20 + size);
    }
  });

  it('512 bytes of Private Data are written, 513 refused [MPA-7.1.1-19]', () => {
    expect(privateDataMaxBytes(false)).toBe(512);
    expect(() => emitted({ ...plainRequest, privateData: new Uint8Array(513) })).toThrow(
      RangeError,
    );
  });

  it('508 bytes fit beside the enhanced word, 509 are refused [EMPA-9-02]', () => {
    expect(privateDataMaxBytes(true)).toBe(508);
    const bytes = emitted({ ...enhancedRequest, privateData: new Uint8Array(508) });
    expect(hexOf(bytes.subarray(16, 20))).toBe('50020200');
    expect(() => emitted({ ...enhancedRequest, privateData: new Uint8Array(509) })).toThrow(
      RangeError,
    );
  });

  it('the frame has no CRC and no markers, whatever it requests [MPA-7.1-03]', () => {
    const privateData = Uint8Array.from({ length: 512 }, (_, i) => i & 0xff);
    const bytes = emitted({ ...plainRequest, markers: true, privateData });
    expect(bytes.length).toBe(532);
    expect(bytes.subarray(20)).toEqual(privateData);
  });

  it('Private Data is opaque, even when it starts like a frame [MPA-7.1.1-24]', () => {
    const privateData = concat(
      emitted(plainRequest),
      Uint8Array.from({ length: 256 }, (_, i) => i),
    );
    const bytes = emitted({ ...plainRequest, privateData });
    expect(parseStartupFrame(bytes, 'request')).toEqual({ ...plainRequest, privateData });
  });

  it('enhanced data and revision 2 go together [EMPA-6-02, EMPA-6-05]', () => {
    expect(hexOf(emitted(enhancedRequest).subarray(16, 24))).toBe('5002000400040008');
    expect(() => emitted({ ...enhancedRequest, revision: 1 })).toThrow('revision 1');
  });

  it('an unenhanced frame reserves nothing in the Private Data [EMPA-6-03]', () => {
    const bytes = emitted({ ...plainRequest, privateData: bytesOf('abcd') });
    expect(hexOf(bytes.subarray(16))).toBe('40010002abcd');
  });

  it('without A the other flags are written as zero [EMPA-9.2-14]', () => {
    const rtr = { send: true, write: true, read: true };
    const frame = { ...enhancedRequest, enhanced: { peerToPeer: false, rtr, ird: 4, ord: 8 } };
    expect(hexOf(emitted(frame).subarray(20))).toBe('00040008');
  });

  it.each([
    ['A', { peerToPeer: true, send: false, write: false, read: false }, '80000000'],
    ['A, B', { peerToPeer: true, send: true, write: false, read: false }, 'c0000000'],
    ['A, C', { peerToPeer: true, send: false, write: true, read: false }, '80008000'],
    ['A, D', { peerToPeer: true, send: false, write: false, read: true }, '80004000'],
  ])('flags %s have their own bits [EMPA-9-01]', (_name, { peerToPeer, ...rtr }, word) => {
    const frame = { ...enhancedRequest, enhanced: { peerToPeer, rtr, ird: 0, ord: 0 } };
    expect(hexOf(emitted(frame).subarray(20))).toBe(word);
  });

  it('refuses depths that do not fit their 14 bits', () => {
    const rtr = { send: false, write: false, read: false };
    const withDepths = (ird: number, ord: number) => ({
      ...enhancedRequest,
      enhanced: { peerToPeer: false, rtr, ird, ord },
    });
    expect(() => emitted(withDepths(0x4000, 0))).toThrow('IRD');
    expect(() => emitted(withDepths(0, 0x4000))).toThrow('ORD');
    expect(() => emitted(withDepths(-1, 0))).toThrow('IRD');
  });
});
