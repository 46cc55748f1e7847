import { describe, expect, it } from 'vitest';
import { GRH_BYTES, gidBytes, gidText, parseGrh } from '#contract/verbs/gid';
import { bytesOf } from '#test/support/hex';

const FIRST = 'fe80:0000:0000:0000:0211:22ff:fe33:4455';
const SECOND = '2001:0db8:0000:0000:0000:0000:0000:0007';

describe('a GID', () => {
  it('is eight groups of hex digits, whose leading zeros may be absent', () => {
    expect(gidText(gidBytes(FIRST))).toBe(FIRST);
    expect(gidText(gidBytes('2001:DB8:0:0:0:0:0:7'))).toBe(SECOND);
  });

  it.each([
    '',
    '::1',
    '127.0.0.1',
    `${FIRST}:0000`,
    FIRST.replace('fe80', 'fe80 '),
    FIRST.replace('fe80', 'ffe80'),
    FIRST.replace('fe80', '-001'),
  ])('is not %j', (text) => {
    expect(() => gidBytes(text)).toThrow('a GID has eight groups of hex digits');
  });
});

describe('a GRH', () => {
  it('is an IPv6 header', () => {
    const buffer = new Uint8Array(GRH_BYTES + 4);
    buffer.set(bytesOf('6a1bcdef 0014 1b 3f'.replaceAll(' ', '')));
    buffer.set(gidBytes(FIRST), 8);
    buffer.set(gidBytes(SECOND), 24);
    expect(parseGrh(buffer)).toEqual({
      sgid: FIRST,
      dgid: SECOND,
      trafficClass: 0xa1,
      flowLabel: 0xbcdef,
      hopLimit: 0x3f,
    });
  });

  it('ends with an IPv4 header, whatever is before it', () => {
    const buffer = new Uint8Array(GRH_BYTES).fill(0xa5);
    buffer.set([0x45, 2, 0, 48, 0, 0, 0x40, 0, 9, 17, 0, 0, 127, 0, 0, 1, 224, 0, 0, 5], 20);
    expect(parseGrh(buffer)).toEqual({
      sgid: '0000:0000:0000:0000:0000:ffff:7f00:0001',
      dgid: '0000:0000:0000:0000:0000:ffff:e000:0005',
      trafficClass: 2,
      flowLabel: 0,
      hopLimit: 9,
    });
  });

  it('is neither in a buffer that is too short, nor in other bytes', () => {
    expect(() => parseGrh(new Uint8Array(GRH_BYTES - 1))).toThrow('a GRH has 40 bytes, not 39');
    expect(() => parseGrh(new Uint8Array(GRH_BYTES))).toThrow('does not begin with a GRH');
  });
});
