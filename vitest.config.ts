import { defineConfig } from 'vitest/config';
import { FileOrder, partOfRun } from './test/support/file-order.ts';
import { patience } from './test/support/patience.ts';

/** Suites that start processes, guests and containers, and so depend on the machine's load. */
const PROCESSES = ['test/e2e/**/*.test.ts', 'test/interop/**/*.test.ts'];

/**
 * Attempts after a failed one, in CI only. The tally names each test that needed one. Everything
 * else runs once: a failing seed, property or fuzz input must not get a second chance.
 */
const RETRIES = process.env['CI'] === 'true' ? 1 : 0;

/** Suites of single modules, which leave nothing behind: a worker loads the modules once for all. */
const MODULES = [
  'test/conformance/**/*.test.ts',
  'test/property/**/*.test.ts',
  'test/unit/**/*.test.ts',
];

const part = partOfRun();

const processes = {
  extends: true as const,
  test: {
    name: 'processes',
    // A worker runs many files: to start one takes a quarter of a second of processor time.
    isolate: false,
    include: part.include.length > 0 ? [...part.include] : PROCESSES,
    exclude: [...part.exclude],
    retry: RETRIES,
    setupFiles: ['test/support/environment-setup.ts', 'test/support/watched-turns.ts'],
  },
};

export default defineConfig({
  // `#…` of package.json means the sources here.
  resolve: { conditions: ['iwarpd-source'] },
  ssr: { resolve: { conditions: ['iwarpd-source'] } },
  test: {
    passWithNoTests: false,
    setupFiles: ['test/support/patience-setup.ts'],
    // How long an ending worker may take to clean up.
    teardownTimeout: patience(),
    // For two cores, which are what a small CI machine has.
    maxWorkers: part.workers,
    sequence: { sequencer: FileOrder },
    projects:
      part.include.length > 0
        ? [processes]
        : [
            processes,
            {
              extends: true,
              test: { name: 'modules', include: MODULES, isolate: false },
            },
            {
              extends: true,
              test: {
                name: 'in-process',
                include: ['test/**/*.test.ts'],
                exclude: [...PROCESSES, ...MODULES],
              },
            },
          ],
  },
});
