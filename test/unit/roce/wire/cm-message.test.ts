/** Messages of connection management, against bytes written by hand from the specification. */
import { describe, expect, it } from 'vitest';
import { type CmMessageName, parseCmMessage, writeCmMessage } from '#daemon/roce/wire/cm-message';
import { parseIpRequest, writeIpRequest } from '#daemon/roce/wire/ip-request';
import { CM_MESSAGES } from '#test/support/cm-messages';
import { bytesOf, hexOf } from '#test/support/hex';
import { counted } from '#test/support/pattern';

const TRANSACTION = { hi: 0xf1f2f3f4, lo: 0xf5f6f7f8 };
const NAMES = Object.keys(CM_MESSAGES) as CmMessageName[];
const header = (attribute: string) => `01070203 0000 0000 f1f2f3f4f5f6f7f8 ${attribute} 0000 00*4`;
const ids = 'f1020304 e1020304';

const GOLDEN: Readonly<Record<CmMessageName, string>> = {
  REQ: `${header('0010')} 01020304 00*4 0000000001061b39 0211223344556677 00*4 81828384 a1b2c3 10
    000000 0e 000000 a3 fd0e0f 9f ffff 56 f8 ffff fffe 00*10 ffff 0a010001 00*10 ffff 0a010002
    f2345003 68 40 98 98 00*44 00 40 9c40 00*12 0a010001 00*12 0a010002 ${hexOf(counted(56, 0x61))}`,
  MRA: `${header('0011')} ${ids} 40 c0 ${hexOf(counted(222, 1))}`,
  REJ: `${header('0012')} ${ids} 80 90 001c ${hexOf(counted(72, 0x80))} ${hexOf(counted(148, 3))}`,
  REP: `${header('0013')} ${ids} 91929394 b1b2b3 00 000000 00 c1c2c3 00 05 fa 7d f0
    0288990011223344 ${hexOf(counted(196, 9))}`,
  RTU: `${header('0014')} 00000007 ffffffff ${hexOf(counted(224, 5))}`,
  DREQ: `${header('0015')} 80000000 00000001 d1d2d3 00 ${hexOf(counted(220, 6))}`,
  DREP: `${header('0016')} 7fffffff 00000002 ${hexOf(counted(224, 8))}`,
  SIDR_REQ: `${header('0017')} 31323334 ffff 0000 8000000001111b39 ${hexOf(counted(216, 2))}`,
  SIDR_REP: `${header('0018')} 31323334 02 01 0000 e1e2e3 00 8000000001111b39 01234567
    ${hexOf(counted(72, 0x40))} ${hexOf(counted(136, 4))}`,
};

describe.each(NAMES)('a %s', (name) => {
  const golden = bytesOf(GOLDEN[name]);

  it('has 256 bytes, each in its place of the specification', () => {
    expect(golden).toHaveLength(256);
    expect(hexOf(writeCmMessage(name, TRANSACTION, CM_MESSAGES[name]))).toBe(hexOf(golden));
  });

  it('is read with the values that were written', () => {
    expect(parseCmMessage(golden)).toEqual({
      name,
      transaction: TRANSACTION,
      fields: CM_MESSAGES[name],
    });
  });

  it('is read with any bits, and written back unchanged except reserved ones', () => {
    const read = parseCmMessage(Uint8Array.from(golden).fill(0xff, 24));
    if (typeof read === 'string') throw new Error(read);
    expect(parseCmMessage(writeCmMessage(read.name, read.transaction, read.fields))).toEqual(read);
  });
});

describe('a MAD', () => {
  const changed = (at: number, value: number): Uint8Array => {
    const mad = bytesOf(GOLDEN.RTU);
    mad[at] = value;
    return mad;
  };

  it.each([
    ['another base version', changed(0, 2), 'malformed'],
    ['another length', bytesOf(GOLDEN.RTU).subarray(0, 255), 'malformed'],
    ['no bytes', new Uint8Array(), 'malformed'],
    ['another class', changed(1, 4), 'class'],
    ['another version of the class', changed(2, 1), 'class'],
    ['a method that asks', changed(3, 1), 'message'],
    ['a response', changed(3, 0x83), 'message'],
    ['an attribute that is no message', changed(17, 0x1f), 'message'],
  ])('with %s is refused', (_, mad, refusal) => {
    expect(parseCmMessage(mad)).toBe(refusal);
  });

  it('rejects bytes longer than their field', () => {
    const write = () => writeCmMessage('RTU', TRANSACTION, { privateData: new Uint8Array(225) });
    expect(write).toThrow(RangeError);
  });
});

describe('the header of rdma_cm before private data', () => {
  const addresses = {
    sourcePort: 7174,
    source: bytesOf('fd00 00*13 01'),
    destination: bytesOf('fd00 00*13 02'),
  };

  it('holds IPv6 addresses', () => {
    const bytes = writeIpRequest(addresses, Uint8Array.of(9));
    expect(hexOf(bytes)).toBe(hexOf(bytesOf('00 60 1c06 fd00 00*13 01 fd00 00*13 02 09')));
    expect(parseIpRequest(bytes)).toEqual(addresses);
  });

  it.each([
    ['is shorter', '00 40 1c06 00*31'],
    ['has another version', '01 40 1c06 00*32'],
    ['has another IP version', '00 50 1c06 00*32'],
  ])('is rejected when it %s', (_, text) => {
    expect(parseIpRequest(bytesOf(text))).toBeUndefined();
  });
});
