import { describe, expect, it } from 'vitest';
import {
  collectDevice,
  crcWarning,
  parseFpduSize,
  parseMpaRevision,
  parsePort,
  wholeNumber,
  wireOptions,
} from '../../../daemon/cli/arguments.ts';

describe('numbers', () => {
  it('takes both ends of its range and nothing outside', () => {
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

  it('knows ports', () => {
    expect(parsePort('1')).toBe(1);
    expect(parsePort('65535')).toBe(65535);
    expect(() => parsePort('0')).toThrow();
    expect(() => parsePort('65536')).toThrow();
  });
});

describe('wire options', () => {
  it('takes MPA revisions 1 and 2 only', () => {
    expect(parseMpaRevision('1')).toBe(1);
    expect(parseMpaRevision('2')).toBe(2);
    expect(() => parseMpaRevision('3')).toThrow('1 or 2');
  });

  it('takes FPDU sizes by name or in octets', () => {
    expect(parseFpduSize('emss')).toBe('emss');
    expect(parseFpduSize('large')).toBe('large');
    expect(parseFpduSize('1460')).toBe(1460);
    expect(() => parseFpduSize('127')).toThrow();
    expect(() => parseFpduSize('65537')).toThrow();
    expect(() => parseFpduSize('huge')).toThrow('emss, large or');
  });

  it('keeps what was given only', () => {
    expect(wireOptions({})).toBeUndefined();
    expect(wireOptions({ crc: false, mpaRevision: 1 })).toEqual({ crc: false, mpaRevision: 1 });
  });

  it('warns when CRCs are off, and only then', () => {
    expect(crcWarning({ crc: false })).toContain('RFC 5044 §4.4');
    expect(crcWarning({ crc: true })).toBeUndefined();
    expect(crcWarning(undefined)).toBeUndefined();
  });
});

describe('devices', () => {
  it('reads a name and addresses of both families', () => {
    expect(collectDevice('rnic0=127.0.0.2,::1', undefined)).toEqual([
      { name: 'rnic0', addresses: ['127.0.0.2', '::1'] },
    ]);
    expect(collectDevice('rnic0', undefined)).toEqual([{ name: 'rnic0', addresses: [] }]);
  });

  it.each(['', '=127.0.0.1', 'a b=127.0.0.1', 'a/b', 'rnic0=', 'rnic0=host', 'rnic0=127.0.0.300'])(
    'refuses "%s"',
    (text) => {
      expect(() => collectDevice(text, undefined)).toThrow('NAME=ADDR[,ADDR]');
    },
  );

  it('refuses a name or an address that stands twice', () => {
    const first = collectDevice('a=127.0.0.2', undefined);
    expect(() => collectDevice('a=127.0.0.3', first)).toThrow('called a');
    expect(() => collectDevice('b=127.0.0.2', first)).toThrow('127.0.0.2');
    expect(() => collectDevice('b', collectDevice('a', undefined))).toThrow('every address');
    expect(collectDevice('b=127.0.0.3', first)).toHaveLength(2);
  });
});
