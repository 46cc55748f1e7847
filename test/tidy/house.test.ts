/** House rules that a script can see. Each says why it is a rule. */
import { dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { files, importsOf, pureFolders, readSource, sources } from './source-graph.ts';

/** Everything that the simulation runs: what lies below the IPC's framing and above sockets. */
const seededFolders = [
  ...pureFolders,
  'daemon/host/',
  'daemon/capture/',
  'daemon/clients/objects/',
  'daemon/ipc/verbs/',
  'daemon/host/links/',
];
/** The only files that use the clock and the randomness of the machine. */
const seededEdge = [
  // Clock, timers and randomness of a real host.
  'daemon/host/links/system.ts',
  // Tokens that name shared memory to a program.
  'daemon/clients/objects/daemon-memory.ts',
  // Looks at a real process now and then.
  'daemon/clients/objects/slow-memory.ts',
  // Remembers a real process for minutes.
  'daemon/clients/objects/stalled-programs.ts',
  // Times the implementations of a checksum, which all give the same result.
  'daemon/host/crc-engine.ts',
  // The date in a capture file, unless its maker gives one.
  'daemon/capture/pcapng-capture.ts',
];

function matching(paths: readonly string[], pattern: RegExp): string[] {
  return paths.flatMap((file) =>
    readSource(file)
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

  it('has the fixed top-level folders', () => {
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

  it('has no file of 1,000 lines: such a file holds two concepts', () => {
    const long = sources.filter((file) => readSource(file).split('\n').length > 1000);
    expect(long).toEqual([]);
  });

  /** Imports from outside of `folder` in its sources, as `file: target`. */
  const importedBy = (folder: string): string[] => {
    const inside = sources.filter((file) => file.startsWith(folder));
    const edges = inside.flatMap((file) =>
      importsOf(file, readSource(file))
        .filter(({ target }) => !target.startsWith(folder))
        .map(({ target }) => `${file}: ${target}`),
    );
    expect(edges.length).toBeGreaterThan(2);
    return edges;
  };

  it('has an rnic that imports no wire, and an iWARP wire that imports nothing of the host', () => {
    expect(importedBy('daemon/rnic/').filter((edge) => edge.includes(': daemon/iwarp/'))).toEqual(
      [],
    );
    const above = /: daemon\/(?:rnic|host|ipc|iwarp\/cm|iwarp\/engine)\//;
    expect(importedBy('daemon/iwarp/wire/').filter((edge) => above.test(edge))).toEqual([]);
    const allowed = /: daemon\/(?:iwarp\/wire\/.*|base\/.*|rnic\/wire-port)\.ts$/;
    expect(importedBy('daemon/iwarp/engine/').filter((edge) => !allowed.test(edge))).toEqual([]);
  });

  it('has two wires that do not import each other, and a RoCE wire that imports only the CRC', () => {
    const across = (folder: string, target: RegExp) =>
      importedBy(folder).filter((edge) => target.test(edge));
    expect(across('daemon/iwarp/', /: daemon\/roce\//)).toEqual([]);
    expect(across('daemon/roce/', /: daemon\/iwarp\//)).toEqual([]);
    const beneath = sources.filter((file) => file.startsWith('daemon/roce/wire/'));
    const targets = beneath.flatMap((file) => importsOf(file, readSource(file)));
    const outside = targets.filter(({ target }) => !target.startsWith('daemon/roce/wire/'));
    expect(new Set(outside.map(({ target }) => dirname(target)))).toEqual(new Set(['daemon/base']));
  });

  it('has no randomness or clock in pure code, since a seed must reproduce a run', () => {
    const pure = sources.filter((file) => pureFolders.some((folder) => file.startsWith(folder)));
    expect(matching(pure, /Math\.random|\bDate\b\.|performance\.now/)).toEqual([]);
  });

  it('uses no real clock, timer or randomness below IPC and sockets: a seed must reproduce a whole host', () => {
    const below = sources.filter(
      (file) =>
        seededFolders.some((folder) => file.startsWith(folder)) && !seededEdge.includes(file),
    );
    expect(below.length).toBeGreaterThan(100);
    const own =
      /performance\.|\bDate\b[.(]|setTimeout|setInterval|setImmediate|nextTick|node:timers|Math\.random|random(?:Int|Bytes|Fill|UUID)|getRandomValues/;
    expect(matching(below, own)).toEqual([]);
  });

  it('has two kinds of clients that share objects and do not import each other', () => {
    const across = (folder: string, target: string) =>
      importedBy(folder).filter((edge) => edge.includes(`: ${target}`));
    expect(across('daemon/ipc/verbs/', 'daemon/kernel/')).toEqual([]);
    expect(across('daemon/kernel/', 'daemon/ipc/')).toEqual([]);
    expect(across('daemon/clients/', 'daemon/kernel/')).toEqual([]);
    expect(across('daemon/clients/', 'daemon/ipc/')).toEqual([]);
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

  it('uses koffi only in native-bridge', () => {
    const others = sources.filter(
      (file) => !file.startsWith('native-bridge/') && !file.startsWith('test/'),
    );
    expect(matching(others, /from 'koffi'/)).toEqual([]);
  });

  it('records no download address in the lock file', () => {
    expect(matching(['package-lock.json'], /"resolved": "https?:/)).toEqual([]);
  });

  it('pins every dependency exactly, for reproducible installs', () => {
    const manifest: unknown = JSON.parse(readSource('package.json'));
    const { dependencies, devDependencies } = manifest as Record<string, Record<string, string>>;
    const versions = Object.values({ ...dependencies, ...devDependencies });
    expect(versions.filter((version) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([]);
  });
});
