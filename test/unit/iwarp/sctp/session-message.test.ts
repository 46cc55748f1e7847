/** Golden bytes are derived by hand from RFC 5043 §5.2.3 and RFC 6581 §7, §9. */
import { describe, expect, it } from 'vitest';
import {
  checkSessionMessage,
  emitSessionMessage,
  PayloadProtocol,
  parseSessionMessage,
  type SessionFunction,
  type SessionMessage,
  sessionMessageBytes,
} from '#daemon/iwarp/sctp/session-message';
import type { EnhancedParameters } from '#daemon/iwarp/wire/enhanced-word';
import { bytesOf, hexOf, NO_BYTES } from '#test/support/hex';

const HELLO = bytesOf('68656c6c6f');
/** A, C and D set, IRD 16, ORD 8: 8010C008. */
const WORD: EnhancedParameters = {
  peerToPeer: true,
  rtr: { send: false, write: true, read: true },
  ird: 16,
  ord: 8,
};

function message(
  code: SessionFunction,
  enhanced: EnhancedParameters | undefined = undefined,
  privateData: Uint8Array = NO_BYTES,
): SessionMessage {
  return { function: code, enhanced, privateData };
}

const GOLDEN: readonly (readonly [name: string, hex: string, ssn: number, SessionMessage])[] = [
  ['Initiate', '0000 0001 68656c6c6f', 0, message(1, undefined, HELLO)],
  ['Accept', '0000 0002 68656c6c6f', 0, message(2, undefined, HELLO)],
  ['Reject', '0000 0003 68656c6c6f', 0, message(3, undefined, HELLO)],
  ['Terminate', '0102 0004', 0x102, message(4)],
  ['Enhanced Initiate', '0000 0005 8010c008 68656c6c6f', 0, message(5, WORD, HELLO)],
  ['Enhanced Accept', '0000 0006 8010c008', 0, message(6, WORD)],
  ['Enhanced Reject', 'ffff 0007 8010c008 68656c6c6f', 0xffff, message(7, WORD, HELLO)],
];

describe('a session control message', () => {
  it.each(GOLDEN)(
    '%s is %s [SCTP-5.2.3-01, SCTP-5.2.3-02, SCTPE-7-01, SCTPE-7-02, SCTPE-9-01]',
    (_name, hex, ssn, value) => {
      const bytes = bytesOf(hex);
      expect(parseSessionMessage(bytes)).toEqual(value);
      expect(sessionMessageBytes(value)).toBe(bytes.length);
      const target = new Uint8Array(bytes.length + 4).fill(0xa5);
      emitSessionMessage(value, ssn, target, 2);
      expect(hexOf(target)).toBe(`a5a5${hexOf(bytes)}a5a5`);
    },
  );

  it('differs from a segment by payload protocol 17 instead of 16 [SCTP-5.2-01]', () => {
    expect(PayloadProtocol).toEqual({ segment: 16, sessionControl: 17 });
  });

  it('may have no private data [SCTP-5.2.3-03]', () => {
    for (const code of [1, 2, 3] as const) {
      const value = message(code);
      expect(sessionMessageBytes(value)).toBe(4);
      expect(parseSessionMessage(bytesOf(`0000 000${code}`))).toEqual(value);
    }
  });

  it('has at most 512 bytes of private data, and a Terminate none [SCTP-5.2.3-04]', () => {
    expect(() => checkSessionMessage(message(1, undefined, new Uint8Array(512)))).not.toThrow();
    expect(() => checkSessionMessage(message(1, undefined, new Uint8Array(513)))).toThrow(
      RangeError,
    );
    expect(parseSessionMessage(bytesOf('0000 0001 00*512'))).toMatchObject({ function: 1 });
    expect(parseSessionMessage(bytesOf('0000 0001 00*513'))).toBe('private-data');
    expect(parseSessionMessage(bytesOf('0000 0004 00'))).toBe('terminate-data');
  });

  it('has at most 508 bytes after the enhanced word [SCTPE-7-03]', () => {
    expect(() => checkSessionMessage(message(5, WORD, new Uint8Array(508)))).not.toThrow();
    expect(() => checkSessionMessage(message(5, WORD, new Uint8Array(509)))).toThrow(RangeError);
    expect(parseSessionMessage(bytesOf('0000 0005 8010c008 00*508'))).toMatchObject({
      function: 5,
    });
    expect(parseSessionMessage(bytesOf('0000 0005 8010c008 00*509'))).toBe('private-data');
  });

  it('that rejects may lack the enhanced word, unlike all others [SCTPE-7-04]', () => {
    expect(parseSessionMessage(bytesOf('0000 0007'))).toEqual(message(7));
    for (const hex of ['0000 0005', '0000 0006', '0000 0007 8010c0', '0000 0005 8010c0']) {
      expect(parseSessionMessage(bytesOf(hex))).toBe('enhanced');
    }
  });

  it.each(['0000', '0008', 'ffff', '0100'])('has no function code %s [SCTP-5.2.3-02]', (code) => {
    expect(parseSessionMessage(bytesOf(`0000 ${code}`))).toBe('function');
  });

  it('is at least four bytes long', () => {
    for (const hex of ['', '00', '0000', '000000']) {
      expect(parseSessionMessage(bytesOf(hex))).toBe('short');
    }
  });

  it('that is not peer-to-peer has no RTR flags [SCTPE-9.2-01]', () => {
    const plain: EnhancedParameters = {
      peerToPeer: false,
      rtr: { send: false, write: false, read: false },
      ird: 0x3fff,
      ord: 1,
    };
    expect(parseSessionMessage(bytesOf('0000 0005 7fffc001'))).toEqual(message(5, plain));
  });
});
