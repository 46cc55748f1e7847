import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CommandFolder, commandWords, runCommand } from '../support/cli-process.ts';
import { until } from '../support/patience.ts';

const hasNpx = spawnSync('npx', ['--version']).status === 0;

const folder = new CommandFolder();
let npx: ChildProcess | undefined;

beforeEach(() => {
  mkdirSync(folder.file('node_modules/.bin'), { recursive: true });
  writeFileSync(folder.file('package.json'), '{"name":"project","private":true}');
  const [, main = ''] = commandWords([]);
  symlinkSync(main, folder.file('node_modules/.bin/iwarpd'));
});

afterEach(async () => {
  npx?.kill('SIGKILL');
  npx = undefined;
  await runCommand(['stop', '--all'], { XDG_RUNTIME_DIR: folder.path });
  await folder.clean();
});

/** `npx iwarpd WORDS &`, in a project that has the package. */
function start(...words: readonly string[]): ChildProcess {
  npx = spawn('npx', ['iwarpd', ...words], {
    cwd: folder.path,
    // Without asking a registry, and without npm's variables if the tests run under npm.
    env: { PATH: process.env['PATH'], HOME: folder.path, XDG_RUNTIME_DIR: folder.path },
    stdio: 'ignore',
  });
  return npx;
}

/** The pid that a daemon has published. */
async function daemonPid(): Promise<number> {
  const file = folder.file('iwarpd/one.sock.run');
  await until('a daemon', () => existsSync(file));
  return (JSON.parse(readFileSync(file, 'utf8')) as { pid: number }).pid;
}

function hasEnded(pid: number): boolean {
  return !existsSync(`/proc/${pid}`) || /\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
}

describe.skipIf(!hasNpx)(`signals through npx${hasNpx ? '' : ' (there is no npx)'}`, () => {
  it('SIGTERM shuts a daemon down cleanly', async () => {
    const child = start('start', '--instance', 'one');
    const pid = await daemonPid();
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
    await until('the end of the daemon', () => hasEnded(pid));
    // A killed daemon would have left its socket.
    expect(existsSync(folder.file('iwarpd/one.sock'))).toBe(false);
  });

  it('SIGTERM ends a capture, whose file is complete', async () => {
    await folder.daemon(folder.file('iwarpd/one.sock'));
    const file = folder.file('traffic.pcapng');
    const child = start('capture', '--instance', 'one', '-w', file);
    await until('a capture', () => existsSync(file));
    child.kill('SIGTERM');
    // An interface statistics block, which ends a complete file.
    await until('its end', () => readFileSync(file).includes(Buffer.from([5, 0, 0, 0])));
  });
});
