import { rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type DaemonConfigInput, parseDaemonConfig } from '#daemon/main/config';
import { temporaryFolder } from '#test/support/temporary-folder';

const TOKEN = '0123456789abcdef';

function parsed(http: unknown, environment: Record<string, string> = {}) {
  return parseDaemonConfig({ socketPath: '/run/x/s', http } as DaemonConfigInput, environment).http;
}

describe('the option http', () => {
  it('is off by default, and loopback when it is on', () => {
    expect(parseDaemonConfig({ socketPath: '/s' }, {}).http).toBeUndefined();
    const names = new Set(['localhost', hostname().toLowerCase()]);
    const expected = { address: '127.0.0.1', port: 0, token: { kind: 'made' }, hostNames: names };
    expect(parsed({})).toEqual(expected);
    expect(parsed({ address: 'localhost' })).toEqual(expected);
  });

  it('accepts names in any case', () => {
    expect(parsed({ hostNames: ['Node1.Example'] })?.hostNames).toContain('node1.example');
  });

  it('uses the given token, else the one in the environment, else generates one', () => {
    const given = (value: string) => ({ kind: 'given', value });
    expect(parsed({}, { IWARPD_HTTP_TOKEN: TOKEN })?.token).toEqual(given(TOKEN));
    const own = `${TOKEN}-own`;
    expect(parsed({ token: own }, { IWARPD_HTTP_TOKEN: TOKEN })?.token).toEqual(given(own));
    expect(parsed({}, { IWARPD_HTTP_TOKEN: '' })?.token).toEqual({ kind: 'made' });
  });

  it('reads its token from a file, which must not be empty', () => {
    const file = join(temporaryFolder(), 'token');
    writeFileSync(file, ` ${TOKEN}\n`);
    const token = { kind: 'given', value: TOKEN, file };
    expect(parsed({ tokenFile: file })?.token).toEqual(token);
    writeFileSync(file, '\n');
    expect(() => parsed({ tokenFile: file })).toThrow(`the token file '${file}' is empty`);
    rmSync(file);
    expect(() => parsed({ tokenFile: file })).toThrow(
      `cannot read the token file ${file} (ENOENT)`,
    );
  });

  it.each(['0.0.0.0', '::', '10.0.0.1', 'fe80::1', '::ffff:10.0.0.1'])(
    'requires a token on %s',
    (address) => {
      expect(() => parsed({ address, noToken: true })).toThrow(/needs a token/);
      expect(parsed({ address })?.token).toEqual({ kind: 'made' });
    },
  );

  it.each(['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'])(
    'needs no token on %s on request, whatever the environment contains',
    (address) => {
      const environment = { IWARPD_HTTP_TOKEN: TOKEN };
      expect(parsed({ address, noToken: true }, environment)?.token).toEqual({ kind: 'none' });
    },
  );

  it.each([
    [{ address: 'example.org' }, /http\.address/],
    [{ address: '' }, /http\.address/],
    [{ address: 'localhost.evil.example' }, /http\.address/],
    [{ port: -1 }, /http\.port/],
    [{ port: 65_536 }, /http\.port/],
    [{ token: TOKEN, noToken: true }, /http\.noToken/],
    [{ tokenFile: '/x', noToken: true }, /http\.noToken/],
    [{ token: 'short' }, /http\.token.*16/],
    [{ token: 'with a space in it, but long' }, /http\.token.*ASCII/],
    [{ token: 'ünïcödé-töken-long-enough' }, /http\.token.*ASCII/],
    [{ hostname: 'x' }, /http\.hostname/],
    [true, /http/],
  ])('refuses %j, naming the field', (http, named) => {
    expect(() => parsed(http)).toThrow(named);
  });
});
