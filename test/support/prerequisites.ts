/**
 * Prerequisites of the interop suites, and how suites skip without them.
 *
 * `packages` (beside this file) lists Debian packages by need; `.ci/test` installs them where
 * permitted. A suite whose packages are missing is skipped and counted; its title names them.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe } from 'vitest';

/** Names of the needs that `packages` lists. */
export type Need =
  | 'bench-peers'
  | 'ceph'
  | 'checkers'
  | 'chromium'
  | 'containers'
  | 'dapl'
  | 'examples'
  | 'gloo'
  | 'hwloc'
  | 'isal'
  | 'iser'
  | 'kernel-iser'
  | 'kernel-peer'
  | 'native'
  | 'nfs'
  | 'package'
  | 'tshark'
  | 'perftest'
  | 'plain-root'
  | 'pyverbs'
  | 'qemu'
  | 'rdma-programs'
  | 'rdma-tools'
  | 'rsocket-programs'
  | 'ucx'
  | 'ucx-perftest'
  | 'openmpi'
  | 'mpich'
  | 'sanitizers'
  | 'sctp'
  | 'shells'
  | 'static-programs'
  | 'strace';

/** The checkout's root, the same from the sources and from `dist`. */
export function repositoryRoot(): string {
  let directory = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(directory, 'package-lock.json'))) {
    const parent = dirname(directory);
    if (parent === directory) throw new Error('this file is not inside a checkout of iwarpd');
    directory = parent;
  }
  return directory;
}

/** Debian packages in `need` that this machine lacks; all of them if there is no dpkg. */
export function missingPackages(need: Need): string[] {
  const table = readFileSync(join(repositoryRoot(), 'test/interop/packages'), 'utf8');
  const line = table.split('\n').find((text) => text.startsWith(`${need}:`));
  if (line === undefined) throw new Error(`test/interop/packages has no line for ${need}`);
  const wanted = line
    .slice(need.length + 1)
    .trim()
    .split(/\s+/);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the format is dpkg-query's own.
  const format = '${Package} ${db:Status-Status}\n';
  const { stdout } = spawnSync('dpkg-query', ['--show', '--showformat', format, ...wanted], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const installed = new Set((stdout ?? '').split('\n'));
  return wanted.filter((name) => !installed.has(`${name} installed`));
}

/** Declares a suite that runs only where the packages of `needs` are installed. */
export function describeWith(needs: readonly Need[], title: string, body: () => void): void {
  const missing = [...new Set(needs.flatMap(missingPackages))];
  const reason = missing.length > 0 ? ` (missing packages: ${missing.join(' ')})` : '';
  describe.skipIf(missing.length > 0)(title + reason, body);
}
