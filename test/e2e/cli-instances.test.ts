import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { until } from '../support/patience.ts';

const folder = new CommandFolder();

afterEach(async () => {
  await iwarpd('stop', '--all');
  await folder.clean();
});

const iwarpd = (...words: readonly string[]) =>
  runCommand(words, { XDG_RUNTIME_DIR: folder.path, IWARPD_SOCKET: '' });

interface ListedDaemon {
  readonly name: string | null;
  readonly state: string;
  readonly pid?: number;
  readonly socketPath: string;
  readonly devices?: readonly string[];
}

/** Instances only, since other tests may have daemons of `run`. */
async function listed(): Promise<ListedDaemon[]> {
  const { stdout } = await iwarpd('list', '--json');
  const { daemons } = JSON.parse(stdout) as { daemons: ListedDaemon[] };
  return daemons.filter(({ name }) => name !== null);
}

function isAlive(pid: number): boolean {
  return existsSync(`/proc/${pid}`) && !/\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
}

describe('a detached daemon', () => {
  it('is ready when the command returns, logs to a file, and ends by stop', async () => {
    const started = await iwarpd(
      'start',
      '--detach',
      '--instance',
      'one',
      '--device',
      'a=127.0.0.2',
    );
    expect(started).toMatchObject({ status: 0, stderr: '' });
    const [, pid = '', log = ''] = /; pid (\d+), log (.+)$/m.exec(started.stdout) ?? [];
    expect(started.stdout).toContain('rping -s --instance one`');
    expect(readFileSync(log, 'utf8')).toContain('"msg":"ready"');
    expect(statSync(log).mode & 0o077).toBe(0);
    expect(await listed()).toMatchObject([{ name: 'one', state: 'running', devices: ['a'] }]);
    const stopped = await iwarpd('stop', '--instance', 'one');
    expect(stopped.stdout).toBe(`stopped pid ${pid} at ${folder.path}/iwarpd/one.sock\n`);
    expect(isAlive(Number(pid))).toBe(false);
    expect(readFileSync(log, 'utf8')).toContain('"msg":"stopped"');
    expect(await listed()).toEqual([]);
  });

  it('prints its ready line with pid and log file as JSON', async () => {
    const { stdout } = await iwarpd(
      'start',
      '--detach',
      '--json',
      '--log-file',
      folder.file('log'),
    );
    const ready = JSON.parse(stdout) as { pid: number; logFile: string; devices: unknown[] };
    expect(ready).toMatchObject({ logFile: folder.file('log') });
    expect(isAlive(ready.pid)).toBe(true);
    expect(existsSync(ready.logFile)).toBe(true);
  });

  it('that cannot start fails the command, with its reason', async () => {
    expect((await iwarpd('start', '--detach', '--instance', 'one')).status).toBe(0);
    const second = await iwarpd('start', '--detach', '--instance', 'one');
    expect(second).toMatchObject({ status: 1, stdout: '' });
    expect(second.stderr).toMatch(
      /^iwarpd: the daemon has not started: a daemon already runs at .*\n$/,
    );
    const wrong = await iwarpd('start', '--detach', '--device', 'a=nowhere');
    expect(wrong).toMatchObject({ status: 2, stdout: '' });
    const missing = await iwarpd(
      'start',
      '--detach',
      '--network',
      'host',
      '--device',
      'a=10.254.253.1',
    );
    expect(missing.stderr).toMatch(
      /not started: device a: 10.254.253.1 is not an address of this host/,
    );
  });
});

describe('stop and list', () => {
  it('fail, or print nothing, without a daemon', async () => {
    const stopped = await iwarpd('stop', '--instance', 'none');
    expect(stopped).toMatchObject({ status: 1, stdout: '' });
    expect(stopped.stderr).toMatch(/^iwarpd: no daemon at .*none\.sock; `iwarpd list` prints/);
    expect(await iwarpd('stop', '--all')).toMatchObject({ status: 0, stdout: 'no daemons\n' });
    expect(await listed()).toEqual([]);
  });

  it('take the name of an instance as their only argument', async () => {
    await iwarpd('start', '--detach', '--instance', 'one');
    const { status, stdout } = await iwarpd('stop', 'one');
    expect({ status, stdout }).toEqual({
      status: 0,
      stdout: expect.stringMatching(/^stopped pid \d+ at .*\/one\.sock\n$/),
    });
  });

  it('accept several instances, and stop those that exist', async () => {
    for (const name of ['one', 'two']) await iwarpd('start', '--detach', '--instance', name);
    const { status, stdout, stderr } = await iwarpd('stop', 'one', 'absent', 'two');
    expect(stdout).toMatch(
      /^stopped pid \d+ at .*\/one\.sock\nstopped pid \d+ at .*\/two\.sock\n$/,
    );
    expect(stderr).toMatch(/^iwarpd: no daemon at .*\/absent\.sock; [^\n]+\n$/);
    expect(status).toBe(1);
  });

  it('report a daemon that does not answer, and stop the others', async () => {
    const stopped = folder.start(['start', '--instance', 'held'], { XDG_RUNTIME_DIR: folder.path });
    await stopped.until(/ready/);
    await iwarpd('start', '--detach', '--instance', 'one');
    stopped.signal('SIGSTOP');
    expect((await iwarpd('list')).stdout).toMatch(/^held +- +- +\(not answering\) +\/.*\none +\d/m);
    const all = await iwarpd('stop', '--all', '--timeout', '1');
    expect(all).toMatchObject({
      status: 1,
      stdout: expect.stringMatching(/^stopped .*one\.sock\n$/),
    });
    expect(all.stderr).toMatch(
      /^iwarpd: the daemon at .*\/held\.sock \(pid \d+\) does not answer; if it is stopped \(SIGSTOP\), `kill/,
    );
    await stopped.kill();
  });

  it('ask a daemon that does not answer once', async () => {
    await iwarpd('start', '--detach', '--instance', 'one');
    let asked = 0;
    const silent = createServer((socket) => {
      asked += 1;
      socket.on('error', () => undefined);
    });
    silent.listen(join(folder.path, 'iwarpd', 'held.sock'));
    await once(silent, 'listening');
    const { status, stdout, stderr } = await iwarpd('stop', '--all', '--timeout', '1');
    silent.close();
    expect({ status, asked }).toEqual({ status: 1, asked: 1 });
    expect(stdout).toMatch(/^stopped .*one\.sock\n$/);
    expect(stderr).toContain('held.sock');
  });

  it('suggest an instance with a similar name, as every command does', async () => {
    await iwarpd('start', '--detach', '--instance', 'left');
    for (const words of [
      ['stop', 'letf'],
      ['status', '--instance', 'lefft'],
      ['run', '--instance', 'leftt', '--', 'true'],
      ['env', '--instance', 'letf'],
    ]) {
      expect((await iwarpd(...words)).stderr).toMatch(
        /^iwarpd: no daemon at [^\n]+ \(Did you mean left\?\)/,
      );
    }
    expect((await iwarpd('status', '--instance', 'other')).stderr).not.toContain('Did you mean');
  });

  it('mark a dead daemon, and stop the others with --all', async () => {
    const killed = folder.start(['start', '--instance', 'dead'], { XDG_RUNTIME_DIR: folder.path });
    await killed.until(/ready/);
    await killed.kill();
    for (const name of ['one', 'two']) await iwarpd('start', '--detach', '--instance', name);
    const states = (await listed()).map(({ name, state }) => [name, state]);
    expect(states).toEqual([
      ['dead', 'dead'],
      ['one', 'running'],
      ['two', 'running'],
    ]);
    expect((await iwarpd('list')).stdout).toMatch(/^dead +- +- +\(dead\) /m);
    expect((await iwarpd('stop', '--all')).stdout.match(/^stopped pid/gm)).toHaveLength(2);
    expect((await listed()).map(({ state }) => state)).toEqual(['dead']);
  });
});

describe('a run that is killed', () => {
  const temporary = (): Record<string, string> => ({ TMPDIR: folder.path });
  const leftovers = (): string[] =>
    readdirSync(folder.path).filter((name) => name.startsWith('iwarpd-run-'));

  it('takes its program with it, and the next run removes its folder', async () => {
    const script = 'echo "pid $$"; while :; do sleep 0.05; done';
    const run = folder.start(['run', '--fresh', '--', '/bin/sh', '-c', script], temporary());
    await run.until(/pid \d+\n/);
    const pid = Number(/pid (\d+)/.exec(run.stdout)?.[1]);
    expect(leftovers()).toHaveLength(1);
    await run.kill();
    await until('the end of the program', () => !isAlive(pid));
    expect(leftovers()).toHaveLength(1);
    // Neither of them is the folder of a dead run of this user.
    writeFileSync(folder.file(`iwarpd-run-1.1-abcdef`), '');
    execFileSync('ln', ['-s', '/', folder.file('iwarpd-run-2.1-abcdef')]);
    await runCommand(['run', '--fresh', '--', 'true'], temporary());
    expect(leftovers().sort()).toEqual(['iwarpd-run-1.1-abcdef', 'iwarpd-run-2.1-abcdef']);
  });

  it('leaves the folders of running `iwarpd run`s alone', async () => {
    const script = 'echo started; while :; do sleep 0.05; done';
    const run = folder.start(['run', '--fresh', '--', '/bin/sh', '-c', script], temporary());
    await run.until(/started/);
    await runCommand(['run', '--fresh', '--', 'true'], temporary());
    expect(leftovers()).toHaveLength(1);
    run.signal('SIGTERM');
    await run.end();
    expect(leftovers()).toEqual([]);
  });
});
