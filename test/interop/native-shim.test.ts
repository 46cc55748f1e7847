/**
 * The native bridge over the shim: koffi drives the distribution's libibverbs, librdmacm and siw
 * provider, under which the daemon plays the kernel. A test process cannot be preloaded, so the
 * compliance suite runs in a separate process, and this file reports each of its tests.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { startDaemon } from '#daemon/main/daemon';
import { describeWith, missingPackages, repositoryRoot } from '../support/prerequisites.ts';
import { DEVICE, SMALL_DEVICE, SMALL_PROFILE, SMALL_WIRE } from '../support/provider-fixture.ts';
import { ShimProgram, shimEnvironment } from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { compiledTest } from './kernel-peer/inner-suite.ts';

/** Minimum number of tests in a complete compliance suite. */
const TESTS_MIN = 120;

const SUITES = ['native-suite.ts', 'native-memory-suite.ts', 'native-soak-suite.ts'];

interface InnerTest {
  readonly fullName: string;
  readonly status: string;
  readonly failureMessages: readonly string[] | null;
}

/** Runs the suite with two devices of a daemon of this process. */
async function runOverShim() {
  const directory = temporaryFolder();
  const socketPath = join(directory, 's');
  const report = join(directory, 'report.json');
  const daemon = await startDaemon({
    socketPath,
    devices: [
      { name: DEVICE.name, addresses: [...DEVICE.addresses] },
      {
        name: SMALL_DEVICE.name,
        addresses: [...SMALL_DEVICE.addresses],
        profile: SMALL_PROFILE,
        wire: SMALL_WIRE,
      },
    ],
    logLevel: 'silent',
  });
  try {
    const suites = SUITES.map((name) => join(repositoryRoot(), 'test/compliance', name));
    const run = compiledTest('interop/kernel-peer/inner-run.js');
    const program = new ShimProgram(
      [process.execPath, run, report, ...suites],
      await shimEnvironment(socketPath),
    );
    const { status, output } = await program.end();
    const text = await readFile(report, 'utf8').catch(() => '{"testResults":[]}');
    const { testResults } = JSON.parse(text) as {
      testResults: readonly { assertionResults: readonly InnerTest[] }[];
    };
    return {
      tests: testResults.flatMap(({ assertionResults }) => assertionResults),
      status,
      output,
    };
  } finally {
    await daemon.stop();
  }
}

// Before the tests are declared, since each of the inner run's becomes one of them.
const inner = missingPackages('native').length === 0 ? await runOverShim() : undefined;

describeWith(['native'], 'the native bridge over the shim', () => {
  it('runs the whole suite to an end without a complaint', () => {
    expect(inner?.status, inner?.output).toBe(0);
    expect(inner?.tests.length, inner?.output).toBeGreaterThan(TESTS_MIN);
  });

  for (const { fullName, status, failureMessages } of inner?.tests ?? []) {
    it(fullName, () => {
      expect(status, failureMessages?.join('\n')).toBe('passed');
    });
  }
});
