import { describe, expect, it } from 'vitest';
import { ProtocolError } from '#daemon/iwarp/wire/protocol-error';
import {
  emitTerminate,
  parseTerminate,
  TERMINATE_BYTES_MAX,
  TERMINATE_ERRORS,
  type TerminateErrorName,
  terminateErrorName,
  terminateErrorText,
  terminateSizeBytes,
} from '#daemon/iwarp/wire/terminate';
import { bytesOf, hexOf } from '#test/support/hex';
import { readVectors } from '#test/support/vectors';

interface Vector {
  readonly id: string;
  readonly bytes: string;
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
  readonly name?: TerminateErrorName;
  readonly segmentLength?: number;
  readonly ddpHeader?: string;
  readonly rdmaHeader?: string;
  readonly quirk?: string;
}

const vectors = readVectors<{
  readonly valid: readonly Vector[];
  readonly read: readonly Vector[];
  readonly unreadable: readonly string[];
}>('terminate.json');

function optional(text: string | undefined): Uint8Array | undefined {
  return text === undefined ? undefined : bytesOf(text);
}

const NAMES = Object.keys(TERMINATE_ERRORS) as TerminateErrorName[];

function triples(layer: number): string[] {
  return NAMES.map((name) => TERMINATE_ERRORS[name])
    .filter((entry) => entry.layer === layer)
    .map((entry) => ((entry.etype << 8) | entry.code).toString(16).padStart(3, '0'));
}

describe('Terminate', () => {
  it('read [RDMAP-4.8-01, RDMAP-4.8-02, RDMAP-4.8-13, RDMAP-4.8-04, RDMAP-4.8-26, RDMAP-4.8-35]', () => {
    for (const vector of [...vectors.valid, ...vectors.read]) {
      const bytes = bytesOf(`ff ff ${vector.bytes}`);
      // Followed by bytes that must not be read.
      const padded = bytesOf(`ff ff ${vector.bytes} 77*64`);
      const terminate = parseTerminate(padded, 2, bytes.length - 2);
      const { text, ...rest } = terminate ?? { text: '' };
      expect(rest, vector.bytes).toEqual({
        layer: vector.layer,
        etype: vector.etype,
        code: vector.code,
        name: vector.name,
        segmentLength: vector.segmentLength,
        ddpHeader: optional(vector.ddpHeader),
        rdmaHeader: optional(vector.rdmaHeader),
        quirk: vector.quirk,
      });
      expect(text).not.toBe('');
    }
  });

  it('written byte for byte [RDMAP-4.8-03, RDMAP-4.8-05, RDMAP-4.8-07, RDMAP-4.8-12]', () => {
    for (const vector of vectors.valid) {
      const header = {
        layer: vector.layer,
        etype: vector.etype,
        code: vector.code,
        segmentLength: vector.segmentLength,
        ddpHeader: optional(vector.ddpHeader),
        rdmaHeader: optional(vector.rdmaHeader),
      };
      const golden = bytesOf(vector.bytes);
      expect(terminateSizeBytes(header)).toBe(golden.length);
      expect([4, 20, 24, 52]).toContain(golden.length);
      const target = new Uint8Array(golden.length + 2).fill(0xa5);
      expect(emitTerminate(header, target, 1)).toBe(golden.length);
      expect(hexOf(target)).toBe(`a5${hexOf(golden)}a5`);
    }
    expect(TERMINATE_BYTES_MAX).toBe(52);
  });

  it('fewer than 4 bytes are not a Terminate [RDMAP-5.4-04]', () => {
    for (const bytes of vectors.unreadable) {
      expect(parseTerminate(bytesOf(`${bytes} 00*60`), 0, bytes.length / 2)).toBe(undefined);
    }
  });

  it('any length with any of M, D, R is read, and no byte after it [RDMAP-4.8-13]', () => {
    for (const length of [4, 5, 6, 20, 23, 24, 51, 52, 60]) {
      for (let bits = 0; bits < 8; bits++) {
        for (const first of ['41', 'c1']) {
          const bytes = bytesOf(
            `1201${(bits << 5).toString(16).padStart(2, '0')}00 0016 ${first}*60`,
          );
          const terminate = parseTerminate(bytes, 0, length);
          expect(terminate?.name).toBe('ddpInvalidQn');
          const ddpBytes = terminate?.ddpHeader?.length ?? 0;
          const rdmaBytes = terminate?.rdmaHeader?.length ?? 0;
          expect(6 + ddpBytes + rdmaBytes).toBeLessThanOrEqual(Math.max(6, length));
          if ((bits & 2) === 0) expect(ddpBytes).toBe(0);
        }
      }
    }
  });

  it('layer 0 has these codes and no other [IANA-3.1-01, RDMAP-4.8-14, RDMAP-4.8-21]', () => {
    const codes = '000 100 101 102 103 104 109 1ff 205 206 207 208 209 2ff'.split(' ');
    expect(triples(0)).toEqual(codes);
    expect(terminateErrorName(0, 0, 0x77)).toBe('rdmapLocalCatastrophic');
    expect(terminateErrorName(0, 1, 0x05)).toBe(undefined);
  });

  it('layer 1 has these codes and no other [IANA-3.2-01, DDP-7.2-01, DDP-7.2-02, DDP-7.2-03, DDP-7.2-04, RDMAP-4.8-28]', () => {
    expect(triples(1)).toEqual('000 100 101 102 103 104 201 202 203 204 205 206'.split(' '));
    expect(terminateErrorName(1, 2, 0)).toBe(undefined);
  });

  it('layer 2 has the seven codes of MPA [IANA-3.3-01, RDMAP-4.8-28]', () => {
    expect(triples(2)).toEqual(['001', '002', '003', '004', '005', '006', '007']);
  });

  it('layer 1 type 3 is shown as reserved, and never sent [DDP-7.2-06]', () => {
    expect(terminateErrorText(1, 3, 0x12)).toBe('reserved for the lower layer (1/3/0x12)');
    expect(NAMES.some((name) => TERMINATE_ERRORS[name].etype === 3)).toBe(false);
    expect(terminateErrorText(7, 7, 0x12)).toBe('undefined error (7/7/0x12)');
  });

  it('reads bytes valid in both bit orders as the RFC specifies', () => {
    // Layer 2, type 0, code 6: MPA's insufficient IRD, though siw could mean an unexpected opcode.
    expect(parseTerminate(bytesOf('20060000'), 0, 4)?.name).toBe('mpaInsufficientIrd');
    // siw sets no other reserved bits.
    expect(parseTerminate(bytesOf('20060b00'), 0, 4)?.name).toBe('mpaInsufficientIrd');
    // siw sets M and D at the low end, which the RFC keeps zero.
    const siw = parseTerminate(bytesOf('20060300 0010 4143 00*16'), 0, 24);
    expect(siw?.name).toBe('rdmapUnexpectedOpcode');
    expect(siw?.quirk).toBe('siw-terminate-bit-order');
  });
});

describe('ProtocolError', () => {
  it('takes its numbers only from the table [IANA-3.1-01, IANA-3.2-01, IANA-3.3-01]', () => {
    for (const name of NAMES) {
      const error = new ProtocolError(name, 'why');
      const { layer, etype, code, text, sendable } = TERMINATE_ERRORS[name];
      expect({ ...error }).toEqual({
        name,
        layer,
        etype,
        code,
        text: `${text}: why`,
        sendable,
        quirk: undefined,
      });
      expect(Object.isFrozen(error)).toBe(true);
    }
  });

  it('a lost connection and a failed startup forbid a Terminate [RDMAP-6.2.1-01]', () => {
    const forbidden = NAMES.filter((name) => !TERMINATE_ERRORS[name].sendable);
    expect(forbidden).toEqual(['mpaConnectionLost', 'mpaInvalidFrame']);
  });
});
