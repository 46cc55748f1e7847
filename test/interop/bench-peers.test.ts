/** The bench and the programs that it starts: peers for comparison, and clients of many kinds. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { childrenOf, isRunning } from '../support/child-processes.ts';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';

const MAIN = fileURLToPath(new URL('../../dist/test/bench/main.js', import.meta.url));
const PATIENCE = { interval: 20 };

const folder = new CommandFolder();

afterEach(() => folder.clean());

describeWith(['bench-peers'], 'peers of the bench', () => {
  it('are measured beside raw TCP', async () => {
    const names = ['ucx-tag-lat', 'libfabric-rdm-lat', 'iperf3'];
    const words = ['bench', '--rounds', '1', '--json', '--only', ...names];
    const { status, stdout, stderr } = await folder.start(words, { TMPDIR: folder.path }).end();
    expect(status, stderr).toBe(0);
    const { results, unmeasured, failed } = JSON.parse(stdout);
    expect({ unmeasured, failed }).toEqual({ unmeasured: [], failed: [] });
    expect(results.map(({ name }: { name: string }) => name)).toEqual(names);
    for (const { measured, baselines, target } of results) {
      expect(measured.median).toBeGreaterThan(0);
      expect(baselines).toHaveLength(1);
      expect(baselines[0].ratio).toBeGreaterThan(0);
      expect(target).toBeUndefined();
    }
  });

  it.each(['SIGINT', 'SIGKILL'] as const)('end with the bench at %s', async (signal) => {
    const words = ['bench', '--rounds', '1000', '--only', 'iperf3'];
    const bench = folder.start(words, { TMPDIR: folder.path });
    const peers = () => childrenOf(bench.pid).filter(({ name }) => name === 'iperf3');
    await expect.poll(peers, PATIENCE).not.toEqual([]);
    const children = childrenOf(bench.pid);
    bench.signal(signal);
    const { status } = await bench.end();
    expect(status).toBe(signal === 'SIGINT' ? 130 : undefined);
    await expect.poll(() => children.filter(isRunning), PATIENCE).toEqual([]);
  });

  it('that fail are reported, and the other peers are measured', async () => {
    const script = folder.file('iperf3');
    writeFileSync(script, '#!/bin/sh\necho out of order >&2\nexit 1\n', { mode: 0o755 });
    const words = ['bench', '--rounds', '1', '--only', 'write-64k', 'iperf3', 'counters'];
    const path = `${folder.path}:${process.env['PATH']}`;
    const { status, stdout, stderr } = await folder.start(words, { PATH: path }).end();
    expect(status, stderr).toBe(1);
    expect(stdout).toMatch(/^counters +[0-9.]+ +ns/m);
    // A failed baseline does not suppress our own figure.
    expect(stdout).toMatch(/^write-64k +[0-9.,]+ +MB\/s/m);
    expect(stdout).toMatch(/^write-64k was not compared with iperf3, .*: it failed: /m);
    expect(stdout).toMatch(/^iperf3 FAILED: iperf3 -s .* out of order$/m);
    expect(stderr).toContain('1 of the measurements failed: iperf3');
  });

  it('that are not installed are listed and counted', async () => {
    const words = ['bench', '--rounds', '1', '--only', 'iperf3', 'ucx-put-bw', 'counters'];
    // No program but the bench itself is found.
    const { status, stdout } = await runCommand(words, { PATH: '/nonexistent' });
    expect(status).toBe(0);
    expect(stdout).toContain('2 lines skipped:\n');
    expect(stdout).toContain(
      'iperf3 was not measured: iperf3 is not installed: apt-get install iperf3',
    );
    expect(stdout).toMatch(/^ucx-put-bw was not measured: .*apt-get install ucx-utils$/m);
  });
});

describe('npm run bench -- growth', () => {
  function growth(words: readonly string[]): ChildProcess {
    const environment = { ...process.env, TMPDIR: folder.path };
    return spawn(process.execPath, [MAIN, 'growth', ...words], {
      env: environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  }

  it('prints a table of each series', async () => {
    const child = growth(['--only', 'clients', '--minutes', '1']);
    let text = '';
    child.stdout?.on('data', (bytes: Buffer) => {
      text += bytes.toString();
    });
    const [status] = await once(child, 'close');
    expect(status).toBe(0);
    expect(text).toMatch(/^clients +set-up ms each +daemon MiB/m);
    expect(text).toMatch(/^1 +[0-9.,]+ +[0-9.,]+ /m);
    expect(readdirSync(folder.path)).toEqual([]);
  });

  it('ends its processes and removes its files at Ctrl-C', async () => {
    const child = growth(['--only', 'qps']);
    let notes = '';
    child.stderr?.on('data', (bytes: Buffer) => {
      notes += bytes.toString();
    });
    await expect.poll(() => notes, PATIENCE).toContain('100 QPs');
    const children = childrenOf(child.pid ?? 0);
    expect(children.length).toBeGreaterThanOrEqual(4);
    child.kill('SIGINT');
    const [status] = await once(child, 'close');
    expect(status).toBe(130);
    expect(children.filter(isRunning)).toEqual([]);
    expect(readdirSync(folder.path)).toEqual([]);
  });
});
