import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SHIM_PATH } from '../../daemon/cli/shim-environment.ts';
import { CommandFolder, runCommand } from './cli-process.ts';

/** The build makes the library in dist/, wherever this file is run from. */
const SHIM = SHIM_PATH.replace(/(\/dist)?\/native-bridge\//, '/dist/native-bridge/');
const built = existsSync(SHIM);
const reason = built ? '' : ' (no preload library: no C compiler when this was built)';

let folder: CommandFolder;
let socket: string;

beforeEach(() => {
  folder = new CommandFolder();
  socket = folder.file('d/iwarpd.sock');
});

afterEach(() => folder.clean());

const run = (...words: readonly string[]) => runCommand(['run', '--socket', socket, ...words]);

/** Folders of private daemons. */
function privateFolders(): string[] {
  return readdirSync(tmpdir()).filter((name) => name.startsWith('iwarpd-run-'));
}

describe.skipIf(!built)(`iwarpd run${reason}`, () => {
  it('sets the environment for the program and its children', async () => {
    const inner = 'echo "$LD_PRELOAD $IWARPD_SOCKET"; ls "$SYSFS_PATH/class/infiniband"';
    const { status, stdout, stderr } = await run('--', '/bin/sh', '-c', `/bin/sh -c '${inner}'`);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const [environment = '', device] = stdout.split('\n');
    expect(environment.split(' ')[0]).toBe(SHIM);
    expect(device).toBe('iwarp0');
  });

  it('starts a daemon of the program’s own, which leaves nothing behind', async () => {
    const before = privateFolders();
    const { stdout } = await run('--', '/bin/sh', '-c', 'echo "$IWARPD_SOCKET"');
    expect(stdout).toMatch(/iwarpd-run-.*iwarpd\.sock\n$/);
    const left = privateFolders().filter((name) => stdout.includes(name));
    expect(left).toEqual([]);
    expect(before.some((name) => stdout.includes(name))).toBe(false);
  });

  it('uses the daemon that runs, except for a program that wants its own', async () => {
    await folder.daemon(socket);
    const print = [
      '--',
      '/bin/sh',
      '-c',
      'echo "$IWARPD_SOCKET"; ls "$SYSFS_PATH/class/infiniband"',
    ];
    expect((await run(...print)).stdout).toBe(`${socket}\niwarp0\n`);
    expect((await run('--fresh', ...print)).stdout).toMatch(/iwarpd-run-/);
    const device = await run('--device', 'mine=127.0.0.2', ...print);
    expect(device.stdout).toMatch(/iwarpd-run-.*\nmine\n$/s);
  });

  it('passes arguments on as they are, with and without --', async () => {
    const script = ['/bin/sh', '-c', 'printf "<%s>" "$@"', 'sh', '--fresh', '-x', '--', 'a b'];
    expect((await run(...script)).stdout).toBe('<--fresh><-x><--><a b>');
    expect((await run('--', ...script)).stdout).toBe('<--fresh><-x><--><a b>');
  });

  it('ends with the status of the program', async () => {
    expect(await run('--', '/bin/sh', '-c', 'exit 7')).toMatchObject({ status: 7, stderr: '' });
  });

  it('ends by the signal that ended the program', async () => {
    expect((await run('--', '/bin/sh', '-c', 'kill -TERM $$')).signal).toBe('SIGTERM');
    expect((await run('--', '/bin/sh', '-c', 'kill -KILL $$')).signal).toBe('SIGKILL');
    expect((await run('--', '/bin/sh', '-c', 'kill -SEGV $$')).status).toBe(128 + 11);
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR1'] as const)(
    'passes %s on to the program',
    async (signal) => {
      const name = signal.slice(3);
      const script = `trap 'echo caught; exit 3' ${name}; echo ready; while :; do sleep 0.05; done`;
      const command = folder.start(['run', '--socket', socket, '--', '/bin/sh', '-c', script]);
      await command.until(/ready/);
      command.signal(signal);
      expect(await command.end()).toMatchObject({ status: 3, stdout: 'ready\ncaught\n' });
    },
  );

  it('tells a program that is not there, or no program, by the status of a shell', async () => {
    const missing = await run('--', 'no-such-program-anywhere');
    expect(missing).toMatchObject({ status: 127, stdout: '' });
    expect(missing.stderr).toMatch(/^iwarpd: there is no program no-such-program-anywhere\n$/);
    writeFileSync(folder.file('text'), 'text');
    expect((await run('--', folder.file('text'))).status).toBe(126);
  });

  it('says in one line that a program is out of its reach', async () => {
    const octets = readFileSync(process.execPath).subarray(0, 4096);
    // Without segments there is none that names a dynamic loader.
    octets.writeUInt16LE(0, 56);
    writeFileSync(folder.file('static'), octets, { mode: 0o755 });
    const { stderr } = await run('--', folder.file('static'));
    expect(stderr.split('\n')[0]).toMatch(/^iwarpd: .*static is statically linked/);
  });

  it('leaves a program that uses no RDMA alone', async () => {
    const script = 'seq 1 1000 | sort -n | tail -n 1; : > /dev/null; cat /proc/self/comm';
    expect((await run('--', '/bin/sh', '-c', script)).stdout).toBe('1000\ncat\n');
  });
});

describe.skipIf(!built)(`iwarpd env${reason}`, () => {
  it('prints what run sets, for a shell', async () => {
    await folder.daemon(socket);
    const { status, stdout, stderr } = await runCommand(['env', '--socket', socket]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toContain(`export LD_PRELOAD=${SHIM}\n`);
    expect(stdout).toContain(`export IWARPD_SOCKET=${socket}\n`);
    expect(stdout).toMatch(/^export SYSFS_PATH=.*\n/m);
  });

  it('says that no daemon runs', async () => {
    const { status, stderr } = await runCommand(['env', '--socket', socket]);
    expect(status).toBe(0);
    expect(stderr).toMatch(/^iwarpd: no daemon runs at .*iwarpd start\n$/);
  });
});
