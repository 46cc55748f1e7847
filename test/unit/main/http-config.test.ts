import { hostname } from 'node:os';
import { describe, expect, it } from 'vitest';
import { type DaemonOptions, parseDaemonConfig } from '../../../daemon/main/config.ts';

const TOKEN = '0123456789abcdef';

function parsed(http: unknown, environment: Record<string, string> = {}) {
  const options = { socketPath: '/run/x/s', http } as DaemonOptions;
  return parseDaemonConfig(options, environment).http;
}

describe('the option http', () => {
  it('is off by default, and loopback when it is on', () => {
    expect(parseDaemonConfig({ socketPath: '/s' }, {}).http).toBeUndefined();
    const names = new Set(['localhost', hostname().toLowerCase()]);
    const expected = { address: '127.0.0.1', port: 0, token: undefined, hostNames: names };
    expect(parsed({})).toEqual(expected);
    expect(parsed({ address: 'localhost' })).toEqual(expected);
  });

  it('takes names in any case', () => {
    expect(parsed({ hostNames: ['Node1.Example'] })?.hostNames).toContain('node1.example');
  });

  it('takes its token from the environment, unless it has one', () => {
    expect(parsed({}, { IWARPD_HTTP_TOKEN: TOKEN })?.token).toBe(TOKEN);
    const own = `${TOKEN}-own`;
    expect(parsed({ token: own }, { IWARPD_HTTP_TOKEN: TOKEN })?.token).toBe(own);
    expect(parsed({}, { IWARPD_HTTP_TOKEN: '' })?.token).toBeUndefined();
  });

  it.each(['0.0.0.0', '::', '10.0.0.1', 'fe80::1', '::ffff:10.0.0.1'])(
    'needs a token on %s',
    (address) => {
      expect(() => parsed({ address })).toThrow(/token/);
      expect(parsed({ address, token: TOKEN })?.token).toBe(TOKEN);
    },
  );

  it.each(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'])('needs none on %s', (address) => {
    expect(parsed({ address })?.token).toBeUndefined();
  });

  it.each([
    [{ address: 'example.org' }, /http\.address/],
    [{ address: '' }, /http\.address/],
    [{ address: 'localhost.evil.example' }, /http\.address/],
    [{ port: -1 }, /http\.port/],
    [{ port: 65_536 }, /http\.port/],
    [{ token: 'short' }, /http\.token.*16/],
    [{ token: 'with a space in it, but long' }, /http\.token.*ASCII/],
    [{ token: 'ünïcödé-töken-long-enough' }, /http\.token.*ASCII/],
    [{ hostname: 'x' }, /http\.hostname/],
    [true, /http/],
  ])('refuses %j, naming the field', (http, named) => {
    expect(() => parsed(http)).toThrow(named);
  });
});
