/**
 * UCX's own tests of its transports over verbs, on a RoCE device. They also count the descriptors that each test leaves
 * open.
 */
import { expect, it } from 'vitest';
import { RunningCommand } from '#test/support/cli-process';
import { describeWithTree, treePath } from './tree.ts';

const PROGRAM = 'test/gtest/gtest';
const TESTS_MS = 900_000;
/** See daemon/PEERS.md: without these, UCX may hang on any device of its generic transports. */
const ENVIRONMENT = ['env', 'UCX_ADAPTIVE_PROGRESS=n', 'UCX_FENCE_MODE=weak'];

interface Transport {
  readonly transport: string;
  /** Tests that pass. */
  readonly passing: number;
  /** Tests that fail on any device. */
  readonly failing: readonly string[];
}

const TRANSPORTS: readonly Transport[] = [
  { transport: 'rc_verbs', passing: 0, failing: [] },
  { transport: 'ud_verbs', passing: 0, failing: [] },
];

describeWithTree('ucx', [PROGRAM], "UCX's own tests", () => {
  it.each(TRANSPORTS)('$transport passes', async ({ transport, passing, failing }) => {
    const run = ['run', '--fresh', '--device', 'roce0=roce:127.0.0.1', '--', ...ENVIRONMENT];
    // Without its measurement, which judges nothing.
    const filter = `--gtest_filter=${transport}/*-*test_uct_perf*`;
    const tests = new RunningCommand([...run, treePath('ucx', PROGRAM), filter]);
    const { stdout, stderr } = await tests.end(TESTS_MS);
    const report = `${stdout}${stderr}`;
    const named = (outcome: string): string[] =>
      [...report.matchAll(/^\[ *(OK|FAILED) *\] (\S+\/\d+)/gm)]
        .filter(([, each]) => each === outcome)
        .map(([, , name = '']) => name);
    expect([...new Set(named('FAILED'))], report).toEqual(failing);
    // A test that skips itself is reported as passed, too.
    const skipped = report.match(/^\[ +SKIP \]/gm)?.length ?? 0;
    expect(named('OK').length - skipped, report).toBe(passing);
  });
});
