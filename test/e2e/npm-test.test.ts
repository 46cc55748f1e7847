/** `.ci/test` on a machine that lacks packages, with stand-ins for apt, dpkg and the test runner. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const NEEDS = 'perftest: perftest ibverbs-utils\nshark: tshark\n';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'iwarpd-npm-test-'));
  for (const name of ['.ci', 'bin', 'test/interop']) {
    mkdirSync(join(folder, name), { recursive: true });
  }
  copyFileSync(join(ROOT, '.ci/test'), join(folder, '.ci/test'));
  writeFileSync(join(folder, 'test/interop/packages'), NEEDS);
  // Of the packages, tshark alone is installed.
  program('dpkg-query', '[[ $* == *tshark ]] && echo installed');
  program('apt-get', `echo "$*" >>${folder}/installed`);
  program('sudo', 'while [[ $1 == -* ]]; do shift; done; "$@"');
  const tally = 'echo "5 passed, 0 failed, 2 skipped" >"$IWARPD_TALLY"';
  program('node', `echo "$*" >>ran; [[ $* != *vitest* ]] || ${tally}`);
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

function program(name: string, script: string): void {
  const path = join(folder, 'bin', name);
  writeFileSync(path, `#!/usr/bin/env bash\n${script}\n`);
  chmodSync(path, 0o755);
}

function npmTest(...words: string[]) {
  const env = { ...process.env, PATH: `${folder}/bin:${process.env['PATH'] ?? ''}` };
  return spawnSync('bash', [join(folder, '.ci/test'), ...words], { env, encoding: 'utf8' });
}

describe('npm test', () => {
  it('installs the packages that suites lack', () => {
    const { status, stderr } = npmTest();
    expect(status).toBe(0);
    expect(stderr).toContain('test: installing ibverbs-utils perftest\n');
    expect(existsSync(join(folder, 'installed'))).toBe(true);
  });

  it('with --no-install lists them, names the suites that go without, and runs the rest', () => {
    const { status, stdout, stderr } = npmTest('--no-install');
    expect(stderr).toBe(
      'test: --no-install: not installing ibverbs-utils perftest\n' +
        'test: skipping what needs perftest; missing packages: perftest ibverbs-utils\n',
    );
    expect(existsSync(join(folder, 'installed'))).toBe(false);
    expect(existsSync(join(folder, 'ran'))).toBe(true);
    expect(stdout).toMatch(/\n11 passed, 0 failed, 4 skipped\n$/);
    expect(status).toBe(0);
  });
});
