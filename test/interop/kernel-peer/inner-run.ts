/**
 * Runs suites inside a guest, where the test runner of the checkout works as it does on the host.
 *
 *   inner-run.js REPORT FILE...   runs these files of suites, whatever their names, one after the
 *                                 other, and leaves vitest's JSON report at REPORT
 */
import { join } from 'node:path';
import { startVitest } from 'vitest/node';

const [report, ...files] = process.argv.slice(2);
if (report === undefined || files.length === 0) throw new Error('inner-run REPORT FILE...');

/** A guest is an emulated machine of one processor: a second's work here takes many there. */
process.env['IWARPD_PATIENCE'] = '10';

const vitest = await startVitest('test', [], {
  config: false,
  watch: false,
  include: files,
  reporters: ['verbose', 'json'],
  outputFile: { json: report },
  fileParallelism: false,
  isolate: false,
  pool: 'threads',
  // Node loads these: transforming hundreds of modules takes an emulated processor a minute.
  server: { deps: { external: [/\/dist\//] } },
  setupFiles: [join(import.meta.dirname, '../../support/patience-setup.js')],
});
await vitest.close();
