import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import {
  DEFAULT_TERMS,
  emitPrivateData,
  encodableSizeBytes,
  inlineThresholds,
  parsePrivateData,
} from '#verbs-api/rpcrdma/core/private-data';

const BYTES = 'f6ab0e18 01 01 03 03';
const TERMS = { remoteInvalidation: true, sendBytes: 4096, receiveBytes: 4096 };

describe('private data', () => {
  it('has identifier, version, flags and both sizes [CMPD-4-01]', () => {
    expect(hexOf(emitPrivateData(TERMS))).toBe('f6ab0e1801010303');
    expect(parsePrivateData(bytesOf(BYTES))).toEqual(TERMS);
  });

  it('has no flag but R, and ignores others [CMPD-4-02]', () => {
    expect(parsePrivateData(bytesOf('f6ab0e18 01 ff 00 00')).remoteInvalidation).toBe(true);
    expect(parsePrivateData(bytesOf('f6ab0e18 01 fe 00 00')).remoteInvalidation).toBe(false);
    expect(emitPrivateData({ ...TERMS, remoteInvalidation: false })[5]).toBe(0);
    expect(emitPrivateData(TERMS)[5]).toBe(1);
  });

  it('encodes sizes in KiB, rounded down and within the range [CMPD-4.2-01]', () => {
    const notified = [0, 1024, 5000, 262_144, 1 << 30].map(encodableSizeBytes);
    expect(notified).toEqual([1024, 1024, 4096, 262_144, 262_144]);
    const bytes = emitPrivateData({ ...TERMS, sendBytes: 5000, receiveBytes: 1 << 30 });
    expect([bytes[6], bytes[7]]).toEqual([3, 255]);
    expect(parsePrivateData(bytes)).toMatchObject({ sendBytes: 4096, receiveBytes: 262_144 });
  });

  it('makes the smaller of Send and receive the threshold, each way [CMPD-4.2-02]', () => {
    const client = { remoteInvalidation: false, sendBytes: 8192, receiveBytes: 2048 };
    const server = { remoteInvalidation: false, sendBytes: 16_384, receiveBytes: 4096 };
    expect(inlineThresholds(client, server)).toEqual({ callBytes: 4096, replyBytes: 2048 });
  });

  it('is found after the data of other layers [CMPD-5.2-01, CMPD-6-01]', () => {
    for (const before of [0, 1, 4, 7, 100]) {
      expect(parsePrivateData(bytesOf(`f6*${before} ${BYTES} 00*3`))).toEqual(TERMS);
    }
    // Cut by a byte; of other versions.
    for (const other of [BYTES.slice(0, -3), 'f6ab0e18 02 01 03 03', 'f6ab0e18 00 01 03 03']) {
      expect(parsePrivateData(bytesOf(other))).toEqual(DEFAULT_TERMS);
    }
  });

  it('that is absent means 1024 bytes and plain Sends [CMPD-5.1-01, CMPD-5.2-02]', () => {
    const defaults = { remoteInvalidation: false, sendBytes: 1024, receiveBytes: 1024 };
    expect(parsePrivateData(new Uint8Array(0))).toEqual(defaults);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        // Random bytes do not contain the four-byte identifier.
        expect(parsePrivateData(bytes)).toEqual(defaults);
      }),
    );
  });

  it('survives encoding and decoding', () => {
    const size = fc.nat(255).map((units) => (units + 1) * 1024);
    const terms = fc.record({
      remoteInvalidation: fc.boolean(),
      sendBytes: size,
      receiveBytes: size,
    });
    fc.assert(
      fc.property(terms, fc.uint8Array({ maxLength: 20 }), (notified, before) => {
        const bytes = Buffer.concat([before, emitPrivateData(notified)]);
        expect(parsePrivateData(bytes)).toEqual(notified);
      }),
    );
  });
});
