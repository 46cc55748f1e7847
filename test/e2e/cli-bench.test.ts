import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { childrenOf, isRunning, type Process } from '../support/child-processes.ts';
import { CommandFolder, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { until } from '../support/patience.ts';

const compiled = (path: string) => fileURLToPath(new URL(`../../dist/${path}`, import.meta.url));

const folder = new CommandFolder();

afterEach(() => folder.clean());

/** Starts a bench that would take long, and waits until it has two daemons and two workers. */
async function startLongBench(): Promise<{ bench: RunningCommand; children: readonly Process[] }> {
  const words = ['bench', '--rounds', '1000', '--only', 'messages'];
  const bench = folder.start(words, { TMPDIR: folder.path });
  await bench.until(/measuring messages/, 'stderr');
  const started = () => childrenOf(bench.pid).length;
  await expect.poll(started).toBe(4);
  return { bench, children: childrenOf(bench.pid) };
}

describe('iwarpd bench', () => {
  it('measures on its own daemons, and removes their files', async () => {
    const words = ['bench', '--rounds', '1', '--json', '--only', 'write-64k', 'messages'];
    const finished = await runCommand([...words, 'ping-pong-embedded'], { TMPDIR: folder.path });
    expect(finished.status).toBe(0);
    const report = JSON.parse(finished.stdout);
    expect(report).toMatchObject({ format: 1, emulated: true, node: process.version, rounds: 1 });
    expect(report.cores).toBeGreaterThan(0);
    expect(report.crcEngine).toMatch(/crc32|table|ISA-L/);
    expect(report.results.map((each: { name: string }) => each.name)).toEqual([
      'write-64k',
      'ping-pong-embedded',
      'messages',
    ]);
    for (const result of report.results) {
      expect(result.measured.rounds).toHaveLength(1);
      expect(result.measured.median).toBeGreaterThan(0);
      expect(typeof result.met).toBe('boolean');
    }
    expect(report.results[0].baselines[0].ratio).toBeGreaterThan(0);
    expect(readdirSync(folder.path)).toEqual([]);
  });

  it('measures the native bridge against a C program, or names what is missing', async () => {
    const names = ['native-post-poll', 'native-drain'];
    const words = ['bench', '--rounds', '1', '--json', '--only', ...names];
    const finished = await runCommand(words, { TMPDIR: folder.path });
    expect(finished.status, finished.stderr).toBe(0);
    const { results, unmeasured } = JSON.parse(finished.stdout);
    const every = [...results, ...unmeasured] as { name: string }[];
    expect(every.map(({ name }) => name).sort()).toEqual(names.toSorted());
    for (const { missing } of unmeasured) expect(missing).toMatch(/apt-get install|checkout/);
    for (const { measured } of results) expect(measured.median).toBeGreaterThan(0);
    expect(readdirSync(folder.path)).toEqual([]);
  });

  it('prints a table and writes JSON to a file', async () => {
    const file = folder.file('deep/report.json');
    const words = ['bench', '--rounds', '1', '--only', 'ping-pong', '--json', file];
    const finished = await runCommand(words);
    expect(finished.stdout).toMatch(/^emulated RNIC over loopback; [0-9]+ cores? /);
    expect(finished.stdout).toMatch(/^measurement +median +unit +against +median +ratio$/m);
    expect(finished.stdout).toMatch(/^ping-pong +[0-9.,]+ +µs +raw TCP round trip/m);
    expect(JSON.parse(readFileSync(file, 'utf8')).results).toHaveLength(1);
  });

  it('ends its processes and removes its files on Ctrl-C', async () => {
    const { bench, children } = await startLongBench();
    bench.signal('SIGINT');
    expect(await bench.end()).toMatchObject({ status: 130, stdout: '' });
    expect(children.filter(isRunning)).toEqual([]);
    expect(readdirSync(folder.path)).toEqual([]);
  });

  it('leaves no process behind when it is killed', async () => {
    const { bench, children } = await startLongBench();
    await bench.kill();
    await expect.poll(() => children.filter(isRunning)).toEqual([]);
  });
});

describe('npm run bench', () => {
  it('rejects unknown options in one line', () => {
    const finished = spawnSync(process.execPath, [compiled('test/bench/main.js'), '--fast'], {
      encoding: 'utf8',
    });
    expect(finished.status).toBe(2);
    expect(finished.stderr).toMatch(/^bench: [^\n]*--only NAME[^\n]*\n$/);
  });
});

describe('npm run demo', () => {
  it('shows every message and the Terminate', () => {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [compiled('daemon/cli/demo.js')],
      { encoding: 'utf8' },
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).not.toContain('FAILED');
    expect(stdout).toMatch(/left -> right MPA Request revision 2, CRC/);
    expect(stdout).toMatch(/right -> left MPA Reply revision 2, CRC/);
    expect(stdout).toMatch(/left -> right Send QN 0 MSN 1 MO 0, 11 bytes, last/);
    expect(stdout).toMatch(/left -> right Read Request QN 1 MSN 1 MO 0, 100 bytes from STag/);
    expect(stdout).toMatch(/right -> left Read Response STag 0x[0-9a-f]{8} TO .* 100 bytes, last/);
    expect(stdout).toMatch(/left -> right Send with Invalidate QN 0 MSN 2/);
    expect(stdout).toMatch(/right -> left Terminate QN 2 MSN 1 MO 0, invalid STag \(1\/1\/0x00\)/);
  });
});

it('ends daemons that a measurement starts after it was interrupted', async () => {
  const { Rig }: typeof import('#daemon/bench/rig') = await import(compiled('daemon/bench/rig.js'));
  const before = childrenOf(process.pid).map(({ pid }) => pid);
  const rig = new Rig(undefined);
  const starting = rig.daemons();
  await rig.close();
  const started = (await starting).map(({ pid }) => pid);
  expect(before).not.toContain(started[0]);
  const left = () => childrenOf(process.pid).filter(({ pid }) => started.includes(pid));
  await until('the daemons have ended', () => left().length === 0);
});
