/**
 * `iwarpd nfs serve --rpcbind` and a real rpcbind, in a private network namespace: the host's is
 * not involved.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CommandFolder } from '../support/cli-process.ts';
import { patience } from '../support/patience.ts';
import { missingPackages, repositoryRoot } from '../support/prerequisites.ts';

const MAIN = join(repositoryRoot(), 'dist/daemon/cli/main.js');
/** In its own PID namespace, so all processes of a script end with it. */
const APART = ['--net', '--mount', '--pid', '--fork', '--kill-child'];
const SCRIPT_TIMEOUT_MS = 50_000;

/** Runs a script that has loopback, /run and all ports for itself. */
function inOwnNetwork(script: string) {
  const lines = [
    'ip link set lo up',
    'mount -t tmpfs run /run && mkdir /run/rpcbind',
    'rpcbind -f & bind=$!',
    'for i in $(seq 100); do [ -S /run/rpcbind.sock ] && break; sleep 0.05; done',
    `serve() { exec node ${MAIN} nfs serve "$@" --embedded --rpcbind --host 127.0.0.1; }`,
    'ready() { for i in $(seq 200); do grep -q "$2" "$1" && return; sleep 0.05; done; cat "$1"; }',
    script,
    'kill $bind; wait',
  ];
  const options = { encoding: 'utf8', timeout: patience(SCRIPT_TIMEOUT_MS) } as const;
  return spawnSync('unshare', [...APART, 'bash', '-c', lines.join('\n')], options);
}

function obstacle(): string {
  const missing = missingPackages('nfs');
  if (missing.length > 0) return ` (missing packages: ${missing.join(' ')})`;
  const { status } = spawnSync('unshare', [...APART, 'true']);
  return status === 0 ? '' : ' (this user may make no network with unshare)';
}

const reason = obstacle();

describe.skipIf(reason !== '')(`a server that rpcbind knows${reason}`, () => {
  const folder = new CommandFolder();
  let directory: string;

  beforeAll(() => {
    directory = folder.file('export');
    mkdirSync(directory);
  });
  afterAll(() => folder.clean());

  it('is found by rpcinfo and showmount, until it ends [RPCR-10-02, RPCR-12-01, RPCR-12-03]', () => {
    const log = folder.file('log');
    const { stdout, stderr } = inOwnNetwork(`
      serve ${directory} --port 20049 --mount-port 20048 > ${log} & ours=$!
      ready ${log} ^ready
      echo "== while it serves"; rpcinfo; showmount -e 127.0.0.1
      kill $ours; wait $ours; echo "== ended with $?"
      rpcinfo`);
    const [, serving = '', after = ''] = stdout.split('== ');
    expect(serving, stderr).toMatch(/^ +100003 +3 +rdma +127\.0\.0\.1\.78\.81 /m);
    expect(serving).toMatch(/^ +100005 +3 +tcp +127\.0\.0\.1\.78\.80 /m);
    expect(serving).toContain(`${directory} `);
    expect(after).toMatch(/^ended with 0$/m);
    expect(after).toContain('portmapper');
    expect(after).not.toMatch(/^ +10000[35] /m);
  });

  it('finds MOUNT for our client, on a port that only rpcbind knows [NFSR-5667.6-01]', () => {
    const log = folder.file('any');
    const { stdout, stderr } = inOwnNetwork(`
      touch ${directory}/file
      serve ${directory} --port 20049 --mount-port 0 > ${log} & ours=$!
      ready ${log} ^ready
      node ${MAIN} nfs ls 127.0.0.1:/ --embedded
      kill $ours; wait $ours`);
    expect(stdout, stderr).toContain('file\n');
  });

  it('serves nothing if rpcbind has the program elsewhere, or does not run', () => {
    const [log, other] = [folder.file('first'), folder.file('other')];
    const { stdout, stderr } = inOwnNetwork(`
      serve ${directory} --port 20049 --mount-port 20048 > ${log} & ours=$!
      ready ${log} ^ready
      (serve ${directory} --port 20050 --mount-port 20051) 2> ${other}; echo "== $?"; cat ${other}
      echo "== what stays"; rpcinfo
      kill $ours; wait $ours; kill $bind; wait $bind
      (serve ${directory} --port 20049 --mount-port 20048) 2> ${other}; echo "== $?"; cat ${other}`);
    const [, taken = '', stays = '', alone = ''] = stdout.split('== ');
    expect(taken, stderr).toMatch(
      /^1\n.*cannot serve .*: rpcbind has program 100003 version 3 on rdma/,
    );
    expect(stays).toMatch(/^ +100003 +3 +rdma +127\.0\.0\.1\.78\.81 /m);
    expect(alone).toMatch(/^1\n.*cannot serve .*: no rpcbind listens at \/run\/rpcbind\.sock/);
  });
});
