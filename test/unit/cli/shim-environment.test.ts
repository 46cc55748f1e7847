import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import {
  checkShim,
  exportLines,
  preloadList,
  valgrindVariables,
} from '#daemon/console/shim-environment';

describe('LD_PRELOAD', () => {
  it('keeps earlier preloaded libraries, with ours first and once', () => {
    expect(preloadList('/s.so', undefined)).toBe('/s.so');
    expect(preloadList('/s.so', '')).toBe('/s.so');
    expect(preloadList('/s.so', '/a.so /b.so')).toBe('/s.so:/a.so:/b.so');
    expect(preloadList('/s.so', '/a.so:/s.so')).toBe('/s.so:/a.so');
  });

  it('refuses a library that is missing, or whose path it cannot hold', () => {
    expect(() => checkShim('/s.so', true)).not.toThrow();
    expect(() => checkShim('/s.so', false)).toThrow(/no preload library .*setup-preload/);
    expect(() => checkShim('/a folder/s.so', true)).toThrow(/space or colon/);
    expect(() => checkShim('/a:b/s.so', true)).toThrow(/space or colon/);
  });
});

describe('VALGRIND_OPTS', () => {
  it('names the suppressions first and once, before the options that the user set', () => {
    const options = '--suppressions=/v.supp';
    expect(valgrindVariables('/v.supp', undefined)).toEqual({ VALGRIND_OPTS: options });
    const more = { VALGRIND_OPTS: `${options} -q` };
    expect(valgrindVariables('/v.supp', '-q')).toEqual(more);
    expect(valgrindVariables('/v.supp', `${options} -q`)).toEqual(more);
  });

  it('stays unchanged without suppressions, or if their path has a space', () => {
    expect(valgrindVariables(undefined, '-q')).toEqual({});
    expect(valgrindVariables('/a folder/v.supp', '-q')).toEqual({});
  });
});

describe('export lines', () => {
  it('give a shell exactly the values', () => {
    const value = "/it's a $HOME `place`/x";
    const lines = exportLines({ PLAIN: '/a/b.so:/c', ODD: value });
    expect(lines[0]).toBe('export PLAIN=/a/b.so:/c');
    const script = `${lines.join('\n')}\nprintf %s "$ODD"`;
    expect(spawnSync('/bin/sh', ['-c', script], { encoding: 'utf8' }).stdout).toBe(value);
  });
});
