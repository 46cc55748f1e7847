import { describe, expect, it } from 'vitest';
import {
  collectDevice,
  crcWarning,
  keepaliveDefaults,
  parseFpduSize,
  parseKeepalive,
  parseMpaRevision,
  parsePort,
  wholeNumber,
  wireOptions,
} from '#daemon/cli/arguments';

describe('numbers', () => {
  it('accepts both ends of its range and nothing outside', () => {
    const parse = wholeNumber(23, 65536);
    expect(parse('23')).toBe(23);
    expect(parse('65536')).toBe(65536);
    expect(() => parse('22')).toThrow('from 23 to 65536');
    expect(() => parse('65537')).toThrow('from 23 to 65536');
  });

  it.each(['', '-1', '1.5', '1e3', '0x10', ' 7', '7 ', 'NaN', '١', '9'.repeat(40)])(
    'refuses "%s"',
    (text) => {
      expect(() => wholeNumber(0, Number.MAX_SAFE_INTEGER)(text)).toThrow(
        'whole number, 0 or more',
      );
    },
  );

  it('accepts valid ports only', () => {
    expect(parsePort('1')).toBe(1);
    expect(parsePort('65535')).toBe(65535);
    expect(() => parsePort('0')).toThrow();
    expect(() => parsePort('65536')).toThrow();
  });
});

describe('wire options', () => {
  it('accepts MPA revisions 1 and 2 only', () => {
    expect(parseMpaRevision('1')).toBe(1);
    expect(parseMpaRevision('2')).toBe(2);
    expect(() => parseMpaRevision('3')).toThrow('1 or 2');
  });

  it('accepts FPDU sizes by name or in bytes', () => {
    expect(parseFpduSize('emss')).toBe('emss');
    expect(parseFpduSize('large')).toBe('large');
    expect(parseFpduSize('1460')).toBe(1460);
    expect(() => parseFpduSize('127')).toThrow();
    expect(() => parseFpduSize('65537')).toThrow();
    expect(() => parseFpduSize('huge')).toThrow('emss, large or');
  });

  it('contain only the options that were given', () => {
    expect(wireOptions({})).toBeUndefined();
    expect(wireOptions({ crc: false, mpaRevision: 1 })).toEqual({ crc: false, mpaRevision: 1 });
  });

  it('warns when CRCs are off, and only then', () => {
    expect(crcWarning({ crc: false })).toContain('RFC 5044 §4.4');
    expect(crcWarning({ crc: true })).toBeUndefined();
    expect(crcWarning(undefined)).toBeUndefined();
  });
});

describe('keepalive', () => {
  it('is a number of seconds, from which the interval between probes is derived', () => {
    expect(keepaliveDefaults(undefined)).toEqual({});
    const times = [0, 1, 30, 60, 7200].map((seconds) =>
      keepaliveDefaults(parseKeepalive(`${seconds}`)),
    );
    expect(times).toEqual([
      { keepaliveIdleMicros: 0, keepaliveIntervalMicros: 1_000_000 },
      { keepaliveIdleMicros: 1_000_000, keepaliveIntervalMicros: 1_000_000 },
      { keepaliveIdleMicros: 30_000_000, keepaliveIntervalMicros: 5_000_000 },
      { keepaliveIdleMicros: 60_000_000, keepaliveIntervalMicros: 10_000_000 },
      { keepaliveIdleMicros: 7_200_000_000, keepaliveIntervalMicros: 10_000_000 },
    ]);
  });

  it('refuses times that TCP does not support', () => {
    for (const text of ['-1', '1.5', '', 'off', '32768']) {
      expect(() => parseKeepalive(text)).toThrow('0 to 32767 seconds');
    }
  });
});

describe('devices', () => {
  it('reads a name and addresses of both families', () => {
    expect(collectDevice('rnic0=127.0.0.2,::1', undefined)).toEqual([
      { name: 'rnic0', addresses: ['127.0.0.2', '::1'] },
    ]);
    expect(collectDevice('rnic0', undefined)).toEqual([{ name: 'rnic0', addresses: [] }]);
  });

  it.each([
    ['a=roce:127.0.0.2,fe80::1', 'roce', ['127.0.0.2', 'fe80::1']],
    ['a=roce:fd00::1', 'roce', ['fd00::1']],
    ['a=roce', 'roce', []],
    ['a=iwarp:127.0.0.2', 'iwarp', ['127.0.0.2']],
    ['a=iwarp', 'iwarp', []],
    // An IPv6 address that begins with letters is not a kind.
    ['a=face::1', undefined, ['face::1']],
  ])('reads the kind of "%s"', (text, transport, addresses) => {
    const [device] = collectDevice(text, undefined);
    expect(device).toEqual({
      name: 'a',
      addresses,
      ...(transport === undefined ? {} : { transport }),
    });
  });

  it('accepts one address on an iWARP and a RoCE device, and refuses it on two of either', () => {
    const both = collectDevice('b=roce:127.0.0.2', collectDevice('a=127.0.0.2', undefined));
    expect(both.map((each) => 'transport' in each && each.transport)).toEqual([false, 'roce']);
    expect(() => collectDevice('c=roce:127.0.0.2', both)).toThrow(
      'two RoCE devices have the address 127.0.0.2',
    );
    expect(() => collectDevice('c=iwarp:127.0.0.2', both)).toThrow(
      'two iWARP devices have the address 127.0.0.2',
    );
    expect(() => collectDevice('b=roce', collectDevice('a=roce', undefined))).toThrow(
      'two RoCE devices serve every address; give one of them addresses',
    );
  });

  it('reads native devices beside emulated ones', () => {
    const emulated = collectDevice('a=127.0.0.2', undefined);
    expect(collectDevice('fast=native:siw0', emulated)).toEqual([
      { name: 'a', addresses: ['127.0.0.2'] },
      { name: 'fast', native: 'siw0', addresses: [] },
    ]);
  });

  it.each([
    ['', 'bad device name'],
    ['=127.0.0.1', 'bad device name'],
    ['a b=127.0.0.1', "bad device name 'a b'"],
    ['a/b', "bad device name 'a/b'"],
    ['rnic0=', "'' is not an IP address"],
    ['rnic0=host', "'host' is not an IP address"],
    ['rnic0=127.0.0.300', "'127.0.0.300' is not an IP address"],
    ['rnic0=0.0.0.0', "'0.0.0.0' is a wildcard"],
    ['rnic0=roce:', "no address after 'roce:'; write rnic0=roce to serve all addresses"],
    ['rnic0=roce:host', "'host' is not an IP address"],
    ['rnic0=roce:127.0.0.2,', "'' is not an IP address"],
    ['rnic0=roce:127.0.0.2,127.0.0.2', 'two RoCE devices have the address 127.0.0.2'],
    [
      'rnic0=foo:127.0.0.2',
      "no kind of device is called 'foo:'; there are iwarp:, roce:, sctp:, kernel-sctp:, kernel-sctp-udp:, native:",
    ],
    ['rnic0=ROCE:127.0.0.2', "no kind of device is called 'ROCE:'"],
  ])('refuses "%s"', (text, reason) => {
    expect(() => collectDevice(text, undefined)).toThrow(reason);
  });

  it('refuses a name or an address that appears twice', () => {
    const first = collectDevice('a=127.0.0.2', undefined);
    expect(() => collectDevice('a=127.0.0.3', first)).toThrow('called a');
    expect(() => collectDevice('b=127.0.0.2', first)).toThrow('127.0.0.2');
    expect(() => collectDevice('b', collectDevice('a', undefined))).toThrow('every address');
    expect(collectDevice('b=127.0.0.3', first)).toHaveLength(2);
  });
});
