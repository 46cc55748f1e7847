/** House rules that a script can see. Each says why it is a rule. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** What installing, building and running leave behind (`.gitignore`). */
const GENERATED = new Set(['node_modules', 'dist', '.git', '.cache']);

function listFiles(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (GENERATED.has(entry.name)) return [];
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    return entry.isDirectory() ? listFiles(path) : [path];
  });
}

const files = listFiles('');
const sources = files.filter((file) => file.endsWith('.ts'));
const pureFolders = [
  'verbs-api/contract/',
  'verbs-api/rpcrdma/core/',
  'verbs-api/rpcrdma/nfs3/',
  'daemon/wire/',
  'daemon/engine/',
  'daemon/rnic/',
  'daemon/cm/',
  'daemon/faults/',
];

function matching(paths: readonly string[], pattern: RegExp): string[] {
  return paths.flatMap((file) =>
    readFileSync(join(root, file), 'utf8')
      .split('\n')
      .flatMap((line, index) =>
        pattern.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [],
      ),
  );
}

describe('the house', () => {
  it('has sources to look at', () => {
    expect(sources.length).toBeGreaterThan(50);
  });

  it('keeps its top level', () => {
    const entries = new Set(files.map((file) => file.split('/')[0] ?? ''));
    const allowed = [
      'README.md',
      'LICENSE',
      'biome.json',
      'daemon',
      'docker',
      'native-bridge',
      'package-lock.json',
      'package.json',
      'test',
      'tsconfig.json',
      'verbs-api',
      'vitest.config.ts',
    ];
    expect(
      [...entries].filter((entry) => !entry.startsWith('.') && !allowed.includes(entry)),
    ).toEqual([]);
  });

  it('has no file of 1,000 lines, since such a file holds two concepts', () => {
    const long = sources.filter(
      (file) => readFileSync(join(root, file), 'utf8').split('\n').length > 1000,
    );
    expect(long).toEqual([]);
  });

  it('has no randomness or clock in pure code, since a seed must reproduce a run', () => {
    const pure = sources.filter((file) => pureFolders.some((folder) => file.startsWith(folder)));
    expect(matching(pure, /Math\.random|\bDate\b\.|performance\.now/)).toEqual([]);
  });

  it('has no test singled out or switched off in the source', () => {
    const tests = sources.filter((file) => file.startsWith('test/'));
    expect(matching(tests, /\b(?:it|test|describe)\.(?:only|skip|todo)\(/)).toEqual([]);
  });

  it('leaves nothing for later in the source', () => {
    const others = sources.filter((file) => file !== 'test/tidy/house.test.ts');
    expect(matching(others, /\b(?:TODO|FIXME|XXX|HACK)\b/)).toEqual([]);
  });

  it('has no file of left-overs', () => {
    expect(
      sources.filter((file) => /(?:^|\/)(?:utils?|helpers?|misc|common)\.ts$/.test(file)),
    ).toEqual([]);
  });

  it('uses koffi in native-bridge alone', () => {
    const others = sources.filter(
      (file) => !file.startsWith('native-bridge/') && !file.startsWith('test/'),
    );
    expect(matching(others, /from 'koffi'/)).toEqual([]);
  });

  it('records no download address in the lock file', () => {
    expect(matching(['package-lock.json'], /"resolved": "https?:/)).toEqual([]);
  });

  it('pins every dependency exactly, so that two installs are the same', () => {
    const manifest: unknown = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
    const { dependencies, devDependencies } = manifest as Record<string, Record<string, string>>;
    const versions = Object.values({ ...dependencies, ...devDependencies });
    expect(versions.filter((version) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });
});
