import { describe, expect, it } from 'vitest';
import {
  addressFamily,
  addressOwner,
  canonicalAddress,
  isLoopback,
  isWildcard,
} from '#base/address';

describe('canonical addresses', () => {
  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['010.000.001.255', '10.0.1.255'],
    ['::', '::'],
    ['::1', '::1'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['FD00:0:0:1:0:0:0:A', 'fd00:0:0:1::a'],
    ['2001:db8::1:0:0:1', '2001:db8::1:0:0:1'],
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8'],
    ['1:0:3:4:5:6:7:8', '1:0:3:4:5:6:7:8'],
    ['1::', '1::'],
    ['::ffff:127.0.0.1', '127.0.0.1'],
    ['::FFFF:7f00:2', '127.0.0.2'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221'],
    ['fe80::1%eth0', 'fe80::1%eth0'],
    ['fe80::1%', 'fe80::1'],
  ])('%s is %s', (text, canonical) => {
    expect(canonicalAddress(text)).toBe(canonical);
    expect(canonicalAddress(canonical)).toBe(canonical);
  });

  it.each([
    '',
    'localhost',
    '1.2.3',
    '1.2.3.4.5',
    '1.2.3.256',
    '1.2.3.-4',
    '1.2.3.4 ',
    ':',
    ':::',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '1:2:3:4:5:6:7::8',
    '12345::',
    'g::',
    '::1.2.3',
    '1.2.3.4::',
    '::1.2.3.4:5',
  ])('%j is not an address', (text) => {
    expect(canonicalAddress(text)).toBeUndefined();
  });

  it('recognise families, wildcards and loopback', () => {
    expect([addressFamily('1.2.3.4'), addressFamily('::')]).toEqual([4, 6]);
    expect(['0.0.0.0', '::', '::1', '0.0.0.1'].map(isWildcard)).toEqual([true, true, false, false]);
    expect(['127.9.9.9', '::1', '::', '128.0.0.1', '1270::'].map(isLoopback)).toEqual([
      true,
      true,
      false,
      false,
      false,
    ]);
  });
});

describe('the owner of an address', () => {
  it('is an IPv4 address itself, loopback too', () => {
    expect(addressOwner('127.0.0.1')).not.toBe(addressOwner('127.0.0.2'));
    expect(addressOwner('192.0.2.1')).toBe('192.0.2.1');
  });

  it('has a whole /64 of IPv6', () => {
    expect(addressOwner('2001:db8:0:1::1')).toBe(addressOwner('2001:db8:0:1:ffff::2'));
    expect(addressOwner('2001:db8:0:1::1')).not.toBe(addressOwner('2001:db8:0:2::1'));
    expect(addressOwner('fe80::1%eth0')).toBe(addressOwner('fe80::2'));
  });
});
