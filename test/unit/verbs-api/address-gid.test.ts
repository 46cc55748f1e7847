import { describe, expect, it } from 'vitest';
import { addressGid } from '#verbs-api/address-gid';

describe('the GID of an address', () => {
  it.each([
    ['239.1.2.3', '0000:0000:0000:0000:0000:ffff:ef01:0203'],
    ['::1', '0000:0000:0000:0000:0000:0000:0000:0001'],
    ['::', '0000:0000:0000:0000:0000:0000:0000:0000'],
    ['ff0e::101', 'ff0e:0000:0000:0000:0000:0000:0000:0101'],
    ['fe80::1:2%lo', 'fe80:0000:0000:0000:0000:0000:0001:0002'],
    ['::ffff:10.0.0.1', '0000:0000:0000:0000:0000:ffff:0a00:0001'],
    ['1:2:3:4:5:6:7:8', '0001:0002:0003:0004:0005:0006:0007:0008'],
    ['1:2:3:4:5:6:7::', '0001:0002:0003:0004:0005:0006:0007:0000'],
  ])('%s', (address, gid) => {
    expect(addressGid(address)).toBe(gid);
  });

  it.each(['', 'here', '1.2.3', '1::2::3', '12345::'])('is EINVAL for "%s"', (address) => {
    expect(() => addressGid(address)).toThrow(`'${address}' is not an IP address`);
  });
});
