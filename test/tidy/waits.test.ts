/** Tests wait for events with one patience and assert no durations: a busy machine fails none. */
import { describe, expect, it } from 'vitest';
import { readSource, sources } from './source-graph.ts';

/** Measures and limits by the clock: their names, and the patterns that find them. */
const BY_THE_CLOCK: Readonly<Record<string, RegExp>> = {
  'a limit of its own':
    /\b(?:timeout|timeoutMs|testTimeout|hookTimeout): \d[\d_]{2,}|^ *\}, \d[\d_]{2,}\);/m,
  'a signal of its own': /\bAbortSignal\.timeout\(/,
  'the time of day': /\bDate\.now\(\)/,
  'a clock': /\bperformance\.now\(\)/,
  'a sleep': /=> setTimeout\((?:resolve|done)\b|\bsetTimeout as\b|import \{ setTimeout \}/,
};

/** Folders about speed or an endless search, which decide no verdict of the suite. */
const FOLDERS = ['test/bench/', 'test/examples/'];

/** Files that use the clock, each with the reason. */
const EXCUSED: Readonly<Record<string, string>> = {
  'test/compliance/native-soak-suite.ts': 'gives a round of random events a moment',
  'test/compliance/notifications.ts': 'a wait that must end by its signal',
  'test/e2e/host-peers.test.ts': 'a timeout does not come early',
  'test/e2e/host-trace.test.ts': 'the clock of a trace',
  'test/e2e/cli-control.test.ts':
    'the time of a start, with patience; a timeout does not come early',
  'test/e2e/faults.test.ts':
    'a delay is as long as asked for; waits that must end by their signals',
  'test/e2e/trace.test.ts': "a record's time of day",
  'test/fuzz/batch.ts': 'measures the own time of an input, without that of others',
  'test/fuzz/long-run.ts': 'runs for a time that its user chose',
  'test/fuzz/targets/ipc-commands.ts': 'an argument of a command that is answered at once',
  'test/fuzz/targets/sockets.ts': 'waits without timers of its target',
  'test/fuzz/worker.ts': 'reports what a unit of work took',
  'test/interop/containers/pod.ts': "a kubelet's own limit of a probe",
  'test/interop/faults.test.ts': 'a delay is as long as asked for',
  'test/interop/page.test.ts': 'the time to the first data, with patience',
  'test/interop/user-shares.test.ts': 'the latency that another user notices',
  'test/kill/campaign.ts': 'ends come in time, plus the lateness that it measures',
  'test/kill/endpoint.ts': 'the time of day of an end',
  'test/kill/main.ts': 'reports how long it ran',
  'test/property/native-hostile-rings.test.ts': 'an argument of a command that is answered at once',
  'test/sim/main.ts': 'reports how long it ran',
  'test/sim/operations.ts': 'an argument of a command that is answered at once',
  'test/sim/packets/packet-operations.ts': 'an argument of a command that is answered at once',
  'test/support/control-target.ts': 'the clock of a daemon',
  'test/support/patience.ts': 'the one place for it',
  'test/unit/clients/user-rights.test.ts': 'an argument of a command that is answered at once',
  'test/unit/http/metrics.test.ts': "a daemon's time of day",
  'test/unit/ipc/client-objects.test.ts': 'an argument of a command that is answered at once',
  'test/unit/ipc/roce-commands.test.ts': 'an argument of a command that is answered at once',
  'test/unit/ipc/tap-stream.test.ts': "a record's time of day",
  'test/unit/libc/file-times.test.ts': "a file's time of day",
  'test/unit/native/provider-parts.test.ts': 'keeps the processor busy for a while',
};

/** The folder whose container helper scales the limits of its programs. */
const SCALED_BY_CALLEE = 'test/interop/containers/';

const tests = sources.filter(
  (file) => file.startsWith('test/') && !FOLDERS.some((folder) => file.startsWith(folder)),
);

/** Constants that are plain numbers and used as limits: the patience must scale them. */
function limitsByName(text: string): string[] {
  const names = [...text.matchAll(/^(?:export )?const (\w+) = \d[\d_]{2,};$/gm)];
  return names
    .map(([, name = '']) => name)
    .filter((name) =>
      new RegExp(
        `(?:[tT]imeout|timeoutMs): ${name}\\b|^ *\\}, ${name}\\);|^ {4}${name},\\n {2}\\);`,
        'm',
      ).test(text),
    );
}

function usersOfTheClock(texts: ReadonlyMap<string, string>): string[] {
  return [...texts].flatMap(([file, text]) =>
    Object.entries(BY_THE_CLOCK).some(([, spelling]) => spelling.test(text)) ? [file] : [],
  );
}

describe('waits', () => {
  it('take their timeouts from the shared patience, except those with a reason', () => {
    const texts = new Map(tests.map((file) => [file, readSource(file)]));
    const found = usersOfTheClock(texts).filter((file) => file !== 'test/tidy/waits.test.ts');
    expect(found.sort()).toEqual(Object.keys(EXCUSED).sort());
    const named = [...texts].filter(
      ([file, text]) => !file.startsWith(SCALED_BY_CALLEE) && limitsByName(text).length > 0,
    );
    expect(named.map(([file]) => file)).toEqual([]);
  });

  it('are found when a constant names the limit', () => {
    expect(limitsByName("const LIMIT_MS = 30_000;\nit('x', { timeout: LIMIT_MS }, f);")).toEqual([
      'LIMIT_MS',
    ]);
    expect(limitsByName('const LIMIT_MS = 30_000;\n  }, LIMIT_MS);\n')).toEqual(['LIMIT_MS']);
    expect(limitsByName('const LIMIT_MS = 9_000;\n}, patience(LIMIT_MS));\n')).toEqual([]);
  });

  it('are found however they are spelled', () => {
    const texts = new Map([
      ['a', "it('waits', { timeout: 60_000 }, async () => {});"],
      ['b', "it('waits', async () => {\n  }, 5000);\n"],
      ['c', 'await wait({ signal: AbortSignal.timeout(PATIENCE_MS) });'],
      ['d', 'expect(performance.now() - start).toBeLessThan(500);'],
      ['e', "import { setTimeout as sleep } from 'node:timers/promises';"],
      ['f', 'const deadline = Date.now() + 1;'],
      ['g', 'qp.modify({ timeout: 14 }); await until("it", () => true);'],
    ]);
    expect(usersOfTheClock(texts)).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  });
});
