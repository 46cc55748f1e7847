/** `.ci/test` on a machine that lacks packages, with stand-ins for apt, dpkg and the test runner. */
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../support/temporary-folder.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const NEEDS = 'perftest: perftest ibverbs-utils\nshark: tshark\n';

let folder: string;

beforeEach(() => {
  folder = temporaryFolder();
  for (const name of ['.ci', 'bin', 'test/interop']) {
    mkdirSync(join(folder, name), { recursive: true });
  }
  for (const name of ['.ci/test', '.ci/other-node']) {
    copyFileSync(join(ROOT, name), join(folder, name));
  }
  writeFileSync(join(folder, 'test/interop/packages'), NEEDS);
  // Of the packages, only tshark is installed.
  program('dpkg-query', '[[ $* == *tshark ]] && echo installed');
  program('apt-get', `echo "$*" >>${folder}/installed`);
  program('sudo', 'while [[ $1 == -* ]]; do shift; done; "$@"');
  const tally = 'echo "5 passed, 0 failed, 2 skipped" >"$IWARPD_TALLY"';
  program('node', `echo "$*" >>ran; [[ $* != *vitest* ]] || ${tally}`);
});

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

  it('with --no-install lists the missing packages, names the skipped suites, and runs the rest', () => {
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

  it('with --other-node also counts the tests that ran on it', () => {
    const node = 'node_modules/node-linux-/bin';
    program('npm', `mkdir -p "$3/${node}" && cp ${folder}/bin/node "$3/${node}"`);
    const { status, stdout } = npmTest('--other-node');
    expect(stdout).toMatch(/\n16 passed, 0 failed, 6 skipped\n$/);
    expect(status).toBe(0);
  });

  it('with --other-node counts one skipped test if that Node cannot be installed', () => {
    program('npm', 'exit 1');
    const { status, stdout, stderr } = npmTest('--other-node');
    expect(stderr).toContain('test: no Node 24 to be had, so nothing is tested on it');
    expect(stdout).toMatch(/\n11 passed, 0 failed, 5 skipped\n$/);
    expect(status).toBe(0);
  });

  it.each(['guests', 'others'])('fails when the runner of the %s ends early', (part) => {
    program(
      'node',
      `[[ $IWARPD_PART == ${part} ]] || echo "5 passed, 0 failed, 2 skipped" >"$IWARPD_TALLY"`,
    );
    const { status, stdout } = npmTest();
    expect(stdout).toMatch(/\n0 passed, 1 failed, 0 skipped\n$/);
    expect(status).toBe(1);
  });
});
