import { describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import { payloadOf } from '#test/support/rpcrdma-rig';
import {
  emitCredential,
  NO_AUTH,
  parseCredential,
  type ReplyOutcome,
  readCallHeader,
  readReplyHeader,
  writeCallHeader,
  writeReplyHeader,
} from '#verbs-api/rpcrdma/core/rpc-message';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';

const USER = {
  flavor: 'sys',
  stamp: 0x5eed,
  machineName: 'host1',
  uid: 1000,
  gid: 100,
  gids: [4, 24],
} as const;
const USER_HEX =
  '00005eed' + '00000005686f737431000000' + '000003e8' + '00000064' + '000000020000000400000018';

/** xid, CALL, RPC 2, program 100003, version 3, procedure 1, AUTH_SYS, AUTH_NONE. */
const CALL_HEX =
  '11223344' +
  '00000000' +
  '00000002' +
  '000186a3' +
  '00000003' +
  '00000001' +
  `00000001${'00000024'}${USER_HEX}` +
  '0000000000000000';

describe('a call', () => {
  it('has XID, versions, procedure, credential and verifier', () => {
    const header = {
      xid: 0x1122_3344,
      program: 100003,
      version: 3,
      procedure: 1,
      credential: emitCredential(USER),
      verifier: NO_AUTH,
    };
    expect(hexOf(payloadOf((writer) => writeCallHeader(writer, header)).stream)).toBe(CALL_HEX);
    const read = readCallHeader(new XdrReader(bytesOf(CALL_HEX)));
    expect(read).toEqual(header);
    if ('rpcVersion' in read) throw new Error('version 2 is ours');
    expect(parseCredential(read.credential)).toEqual(USER);
  });

  it('is refused when it is truncated, a reply, or has a credential that is too long', () => {
    const bytes = bytesOf(CALL_HEX);
    for (let length = 0; length < bytes.length; length++) {
      expect(() => readCallHeader(new XdrReader(bytes.subarray(0, length)))).toThrow(XdrError);
    }
    const reply = bytes.slice();
    reply[7] = 1;
    expect(() => readCallHeader(new XdrReader(reply))).toThrow(XdrError);
    const long = payloadOf((writer) => {
      for (const word of [1, 0, 2, 3, 4, 5, 0, 401]) writer.uint32(word);
      writer.opaqueFixed(new Uint8Array(600));
    });
    expect(() => readCallHeader(new XdrReader(long.stream))).toThrow(XdrError);
  });

  it('of another version of RPC reports the version', () => {
    const bytes = bytesOf(CALL_HEX);
    bytes[11] = 3;
    expect(readCallHeader(new XdrReader(bytes))).toEqual({ xid: 0x1122_3344, rpcVersion: 3 });
  });

  it('has credentials of at most 16 groups and 255 bytes of name', () => {
    const gids = Array.from({ length: 17 }, (_, i) => i);
    expect(() => emitCredential({ ...USER, gids })).toThrow(RangeError);
    expect(emitCredential({ ...USER, gids: gids.slice(1) }).body.length).toBe(36 + 14 * 4);
    expect(() => emitCredential({ ...USER, machineName: 'é'.repeat(128) })).toThrow(RangeError);
    const widest = emitCredential({ ...USER, gids: gids.slice(1), machineName: 'x'.repeat(255) });
    expect(parseCredential(widest)).toMatchObject({ machineName: 'x'.repeat(255) });
    expect(widest.body.length).toBeLessThanOrEqual(400);
  });

  it('accepts credentials of unknown flavors', () => {
    expect(parseCredential({ flavor: 6, body: new Uint8Array(8) })).toBeUndefined();
    expect(() => parseCredential({ flavor: 1, body: new Uint8Array(8) })).toThrow(XdrError);
  });
});

describe('a reply', () => {
  const outcomes: readonly (readonly [ReplyOutcome, string])[] = [
    [{ status: 'success' }, '00000000' + '0000000000000000' + '00000000'],
    [{ status: 'progUnavail' }, '00000000' + '0000000000000000' + '00000001'],
    [
      { status: 'progMismatch', low: 2, high: 4 },
      '00000000' + '0000000000000000' + '00000002' + '0000000200000004',
    ],
    [{ status: 'procUnavail' }, '00000000' + '0000000000000000' + '00000003'],
    [{ status: 'garbageArgs' }, '00000000' + '0000000000000000' + '00000004'],
    [{ status: 'systemErr' }, '00000000' + '0000000000000000' + '00000005'],
    [{ status: 'rpcMismatch', low: 2, high: 2 }, '00000001' + '00000000' + '0000000200000002'],
    [{ status: 'authError', authStatus: 5 }, '00000001' + '00000001' + '00000005'],
  ];

  it.each(outcomes)('reports %j', (outcome, body) => {
    const hex = `aabbccdd00000001${body}`;
    const written = payloadOf((writer) => writeReplyHeader(writer, 0xaabb_ccdd, outcome));
    expect(hexOf(written.stream)).toBe(hex);
    const reader = new XdrReader(bytesOf(hex));
    expect(readReplyHeader(reader)).toEqual({ xid: 0xaabb_ccdd, verifier: NO_AUTH, outcome });
    reader.finish();
    for (let length = 0; length < hex.length / 2; length++) {
      const cut = new XdrReader(bytesOf(hex).subarray(0, length));
      expect(() => readReplyHeader(cut)).toThrow(XdrError);
    }
  });

  it.each([
    '0000000100000000',
    '00000001000000010000000200000000',
    '0000000100000000000000020000000200000002',
    '00000001000000000000000000000000000000000000000900000000',
  ])('is refused as %s', (hex) => {
    // A call; an undefined status, rejection and acceptance.
    const statuses = [bytesOf(hex), Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2)];
    for (const bad of statuses) expect(() => readReplyHeader(new XdrReader(bad))).toThrow(XdrError);
  });
});
