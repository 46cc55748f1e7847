/** rdma-core's own tests as Debian packages them: unpacked, run, and their outcomes by name. */
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect } from 'vitest';

/** The tests as the package carries them, in part compressed. */
export const PACKAGED_TESTS = '/usr/share/doc/rdma-core/tests';
/** The interpreter that the package's extension modules are built for. */
export const PYTHON = '/usr/bin/python3';
/** Outcomes of a module's tests, by the runner's names. */
export interface Outcomes {
  readonly ok: readonly string[];
  readonly broken: readonly string[];
  readonly skipped: readonly string[];
  readonly output: string;
}

/** Lays the tests out as a package that Python can import. */
export function unpackTests(target: string): void {
  cpSync(PACKAGED_TESTS, target, { recursive: true, dereference: true });
  for (const name of readdirSync(target)) {
    if (!name.endsWith('.gz')) continue;
    const path = join(target, name);
    writeFileSync(path.slice(0, -3), gunzipSync(readFileSync(path)));
    rmSync(path);
  }
}

/** Outcomes printed by the runner: a name, perhaps a description and output of the test, the outcome. */
export function outcomes(output: string): Outcomes {
  if (!/^Ran \d+ tests? in /m.test(output)) throw new Error(`did not finish: ${output}`);
  const list = output.slice(0, output.search(/^(=====|-----)/m));
  const found = { ok: [] as string[], broken: [] as string[], skipped: [] as string[] };
  for (const part of list.split(/^(?=test_\w+ \()/m)) {
    const name = /^test_\w+/.exec(part)?.[0];
    const outcome = /(?:^|\.\.\. )(ok|FAIL|ERROR|skipped '.*')$/m.exec(part)?.[1];
    if (name === undefined || outcome === undefined) continue;
    if (outcome === 'ok') found.ok.push(name);
    else (outcome.startsWith('skipped') ? found.skipped : found.broken).push(name);
  }
  const total = Number(/^Ran (\d+) tests? in /m.exec(output)?.[1]);
  expect(found.ok.length + found.broken.length + found.skipped.length).toBe(total);
  return { ...found, output };
}
