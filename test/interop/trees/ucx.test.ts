/** UCX's own tests of its transports over verbs, on a RoCE device. */
import { expect, it } from 'vitest';
import { RunningCommand } from '#test/support/cli-process';
import { describeWithTree, treePath } from './tree.ts';

const PROGRAM = 'test/gtest/gtest';
const TESTS_MS = 900_000;
/** Without these, UCX's transports over plain verbs may hang: see daemon/PEERS.md. */
const ENVIRONMENT = ['env', 'UCX_ADAPTIVE_PROGRESS=n', 'UCX_FENCE_MODE=weak'];

/**
 * Measurements, which judge nothing and take minutes; a test of arguments that a release build does not check; tests
 * that ask any device for what only mlx5 has, and fail for the error in UCX's log.
 */
const LEFT_OUT = '*test_uct_perf*:*test_uct_loopback*:*get_size_limit*:*test_uct_ib_sl*';

interface Transport {
  readonly transport: string;
  /** Tests that pass at least: a busy machine skips some. */
  readonly passing: number;
  readonly failing: readonly string[];
}

const TRANSPORTS: readonly Transport[] = [
  {
    transport: 'rc_verbs',
    passing: 160,
    failing: [
      // Expects a key for flushes in the address, which UCX has for mlx5 only.
      'test_rc_iface_flush_remote.size_no_flush_remote/0',
      // Set options of ECE, which plain RoCE devices, rxe's too, do not have.
      'test_rc_ece.ece_0/0',
      'test_rc_ece.ece_custom/0',
      'test_rc_ece.ece_inf/0',
    ],
  },
  {
    transport: 'ud_verbs',
    passing: 110,
    failing: [],
  },
];

describeWithTree('ucx', [PROGRAM], "UCX's own tests", () => {
  it.each(TRANSPORTS)(
    '$transport passes, but for known faults',
    async ({ transport, passing, failing }) => {
      const run = ['run', '--fresh', '--device', 'roce0=roce:127.0.0.1', '--', ...ENVIRONMENT];
      const filter = `--gtest_filter=${transport}/*-${LEFT_OUT}`;
      const tests = new RunningCommand([...run, treePath('ucx', PROGRAM), filter]);
      const { stdout, stderr } = await tests.end(TESTS_MS);
      const report = `${stdout}${stderr}`;
      const passed: string[] = [];
      const failed: string[] = [];
      for (const each of report.split(/^(?=\[ RUN +\] )/m).slice(1)) {
        const name = /^\[ RUN +\] \w+\/(\S+)/.exec(each)?.[1] ?? '';
        if (!/^\[ +OK +\]/m.test(each)) failed.push(name);
        // A test that skips itself is reported as passed, too.
        else if (!/^\[ +SKIP +\]/m.test(each)) passed.push(name);
      }
      expect(failed.sort(), report).toEqual([...failing].sort());
      // UCX counts descriptors after each test, and allows some to leak.
      expect(report).not.toMatch(/\d+ leaked/);
      expect(passed.length, report).toBeGreaterThanOrEqual(passing);
    },
  );
});
