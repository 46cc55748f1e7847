/** `iwarpd/testing` against real daemons. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  AsyncEventType,
  QPState,
  SendFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { SGE } from '#contract/verbs/work-request';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { connect, listen } from '#verbs-api/connect';
import {
  expectCompletion,
  type PrivateDaemon,
  startPrivateDaemon,
  startTwoNodes,
  type TwoNodes,
  waitFor,
  withFault,
} from '#verbs-api/testing/index';
import { printed, startProgram } from '../support/daemon-process.ts';
import { patience } from '../support/patience.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const LONG_MS = patience(60_000);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function errorOf(promise: Promise<unknown>): Promise<Error> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error)) throw new Error('it did not reject with an error');
  return error;
}

/** A receive at the right, and a Send of `length` bytes from the left. */
function postExchange({ left, right }: TwoNodes, length = 64): void {
  right.qp.postRecv({ wrId: 7n, sgList: [right.mr.sge(0, 1024)] });
  const sgList = [left.mr.sge(0, length)];
  left.qp.postSend({ wrId: 3n, opcode: WROpcode.send, flags: SendFlag.signaled, sgList });
}

function postWrite({ left, right }: TwoNodes, sgList: SGE[], rkey: number): void {
  const remote = { remoteAddr: right.mr.address, rkey };
  left.qp.postSend({ opcode: WROpcode.rdmaWrite, flags: SendFlag.signaled, sgList, ...remote });
}

describe('a private daemon', () => {
  it('serves from a fresh private directory, on free ports, and leaves nothing behind', async () => {
    const places: string[] = [];
    let pid = 0;
    {
      await using one = await startPrivateDaemon({ http: true });
      await using other = await startPrivateDaemon({ http: true });
      for (const daemon of [one, other]) {
        const directory = dirname(daemon.socketPath);
        places.push(directory);
        expect(statSync(directory).mode & 0o777).toBe(0o700);
        expect(daemon.devices.map(({ name }) => name)).toEqual(['left', 'right']);
        expect(await daemon.control.status()).toMatchObject({ pid: daemon.pid, ready: true });
        expect((await fetch(`${daemon.url}/readyz`)).status).toBe(200);
        expect(daemon.output).toContain('"socketPath"');
      }
      expect(new Set([one.url, other.url, ...places]).size).toBe(4);
      pid = one.pid;
    }
    expect(isAlive(pid)).toBe(false);
    expect(places.filter((place) => existsSync(place))).toEqual([]);
  });

  it('has devices for every address if they name none, as an embedded provider does', async () => {
    const devices = [{ name: 'iw' }, { name: 'ro', transport: 'roce' }] as const;
    await using daemon = await startPrivateDaemon({ devices });
    expect(daemon.devices.map(({ name }) => name)).toEqual(['iw', 'ro']);
    await using client = await daemon.connect();
    await using rnic = await createEmbedded({ devices, network: 'isolated' });
    for (const provider of [client, rnic]) {
      await using listener = await listen(provider, { host: '127.0.0.9' });
      const accepting = listener.accept();
      const { port } = listener.address;
      await using connection = await connect(provider, { host: '127.0.0.9', port });
      await (await accepting).close();
      await connection.disconnected();
    }
  });

  it('that cannot start reports why, with its output', async () => {
    const devices = [{ name: 'left', addresses: ['192.0.2.77'] }];
    const error = await errorOf(startPrivateDaemon({ devices, words: ['--no-such-option'] }));
    expect(error.name).toBe('DaemonEndedError');
    expect(error.message).toMatch(/ended with status \d+; its last output:\n.*no-such-option/s);
  });

  it('ends, with its directory, when the test run is killed', async () => {
    const parent = startProgram('testing-parent');
    const [bytes]: unknown[] = await once(parent.stdout ?? parent, 'data');
    const { pid, socketPath }: { pid: number; socketPath: string } = JSON.parse(`${bytes}`);
    expect(isAlive(pid)).toBe(true);
    parent.kill('SIGKILL');
    await waitFor('the end of the daemon', () => !isAlive(pid), { timeoutMs: LONG_MS });
    expect(existsSync(dirname(socketPath))).toBe(false);
  });

  it('that dies fails everything that waits for it, with its last output', async () => {
    await using daemon = await startPrivateDaemon();
    await using nodes = await startTwoNodes({ daemon });
    const never = { timeoutMs: LONG_MS };
    const waiting = [
      expectCompletion(nodes.left.cq, {}, never),
      nodes.left.asyncEvents.next(AsyncEventType.qpFatal, never),
      daemon.waitForConnections(17, {}, never),
      daemon.waitForCounter({ counter: 'out_sends', atLeast: 9 }, never),
      daemon.waitFor('what never comes', () => false, never),
    ].map(errorOf);
    daemon.signal('SIGKILL');
    for (const error of await Promise.all(waiting)) {
      expect(error.name).toBe('DaemonEndedError');
      expect(error.message).toMatch(/^the daemon \(pid \d+\) ended by SIGKILL; its last output:\n/);
      expect(error.message).toContain('"msg":"ready"');
    }
    expect((await errorOf(daemon.reset())).name).toBe('DaemonEndedError');
    expect((await errorOf(expectCompletion(nodes.right.cq))).name).toBe('DaemonEndedError');
  });
});

describe('two nodes', () => {
  let daemon: PrivateDaemon;

  beforeEach(async () => {
    daemon = await startPrivateDaemon();
  });

  afterEach(() => daemon.stop());

  it('are connected, and have memory that the other reaches', async () => {
    await using nodes = await startTwoNodes({ daemon, memoryBytes: 4096 });
    const { left, right } = nodes;
    await daemon.waitForConnections(1, { device: 'left' });
    await daemon.waitForConnections(2);
    left.mr.buffer.fill(0x5a);
    postWrite(nodes, [left.mr.sge()], right.mr.rkey);
    await expectCompletion(left.cq, { opcode: WCOpcode.rdmaWrite });
    postExchange(nodes);
    const arrival = { opcode: WCOpcode.recv, wrId: 7, byteLen: 64, qpNum: right.qp.qpNum };
    const wc = await expectCompletion(right.cq, arrival);
    expect(wc.wrId).toBe(7n);
    expect(right.mr.buffer[4095]).toBe(0x5a);
    await nodes.close();
    await daemon.waitForConnections(0);
    await daemon.reset();
  });

  it('bring their own daemon, which ends with them', async () => {
    const nodes = await startTwoNodes({ daemon: { logLevel: 'warn' } });
    const { pid } = nodes.daemon;
    postExchange(nodes);
    await expectCompletion(nodes.right.cq);
    await nodes.close();
    await nodes.close();
    expect(isAlive(pid)).toBe(false);
  });

  it('take the iWARP devices of a daemon that has one of RoCE', async () => {
    const devices = [
      { name: 'roce0', transport: 'roce', addresses: ['127.0.0.2'] },
      { name: 'one', addresses: ['127.0.0.2'] },
      { name: 'other', addresses: ['127.0.0.3'] },
    ] as const;
    await using nodes = await startTwoNodes({ daemon: { devices } });
    const { daemon, left, right } = nodes;
    expect([left.name, right.name]).toEqual(['one', 'other']);
    expect(daemon.devices.map(({ transport }) => transport)).toEqual(['roce', 'iwarp', 'iwarp']);
    postExchange(nodes);
    await expectCompletion(right.cq);
    const context = await left.provider.open('roce0');
    const pd = await context.allocPD();
    const [, entry] = await context.queryGidTable();
    await pd.createAH({ grh: { dgid: entry?.gid ?? '', sgidIndex: 1 } });
    expect((await errorOf(daemon.reset({ graceMs: 1 }))).message).toMatch(/, 1 ah, /);
  });

  it('need two devices and otherwise leave nothing behind', async () => {
    const devices = [{ name: 'only', addresses: ['127.0.0.2'] }];
    await using one = await startPrivateDaemon({ devices });
    await expect(startTwoNodes({ daemon: one })).rejects.toThrow(/two iWARP devices/);
    await one.reset();
  });

  it('report what arrived instead of the expected completion', async () => {
    await using nodes = await startTwoNodes({ daemon });
    const { left, right } = nodes;
    postExchange(nodes);
    const other = { opcode: WCOpcode.recvImmediate, wrId: 8n, byteLen: 65 };
    const wrong = await errorOf(expectCompletion(right.cq, other));
    expect(wrong.message.split('\n')).toEqual([
      'expected the completion: status success, opcode recvImmediate, wrId 8, byteLen 65',
      `but got: status success, opcode recv, wrId 7, byteLen 64, qpNum ${right.qp.qpNum}`,
      '  opcode: expected recvImmediate, got recv',
      '  wrId: expected 8, got 7',
      '  byteLen: expected 65, got 64',
      '  no asynchronous events came',
    ]);
    expect(wrong).toMatchObject({ name: 'CompletionMismatchError', actual: { wrId: 7n } });
    await expectCompletion(left.cq, { opcode: WCOpcode.send, wrId: 3 });
    const none = await errorOf(expectCompletion(left.cq, {}, { timeoutMs: 50 }));
    expect(none.message).toContain('but got: none\n  none within 50 ms');
  });

  it('report the asynchronous events that explain a failed completion', async () => {
    await using nodes = await startTwoNodes({ daemon });
    const { left, right } = nodes;
    postWrite(nodes, [left.mr.sge(0, 8)], (right.mr.rkey ^ 0xff) >>> 0);
    await right.asyncEvents.next(AsyncEventType.qpAccessErr);
    right.qp.postRecv([1n, 2n].map((wrId) => ({ wrId, sgList: [right.mr.sge()] })));
    const error = await errorOf(expectCompletion(right.cq, { wrId: 1n }));
    expect(error.message).toContain('got wrFlushErr (Work Request Flushed Error)');
    expect(error.message).toContain(`asynchronous events: qpAccessErr of QP ${right.qp.qpNum} (`);
    await expectCompletion(right.cq, { status: WCStatus.wrFlushErr, wrId: 2n });
    const coming = right.asyncEvents.next(AsyncEventType.portErr, { timeoutMs: 20 });
    const missing = await errorOf(coming);
    expect(missing.message).toMatch(/^waited 20 ms for the asynchronous event portErr; .*qpAccess/);
  });
});

describe('waiting', () => {
  // With vitest's own 5 s for this test, whose error would not name the condition.
  it('without a timeout ends before a test does', async () => {
    const never = waitFor('what never comes', () => false);
    await expect(never).rejects.toThrow(/^waited \d+ ms for what never comes/);
  });

  it('for connections, counters and conditions ends at its deadline and reports what it found', async () => {
    await using nodes = await startTwoNodes();
    const { daemon, left } = nodes;
    // Long enough for a busy daemon to answer.
    const ms = patience(50);
    const soon = { timeoutMs: ms };
    // Without its own limit, it ends before vitest would end the test.
    const unlimited = errorOf(daemon.waitFor('snow', () => undefined));
    expect((await errorOf(daemon.waitForConnections(3, {}, soon))).message).toBe(
      `waited ${ms} ms for 3 connections that are established: there are 2, and 0 in other phases`,
    );
    const [counter = ''] = Object.keys((await daemon.control.devices())[0]?.counters ?? {});
    const goal = { counter, atLeast: 1e15, device: 'left' };
    const text = `waited ${ms} ms for counter ${counter} of left at 1000000000000000: it is `;
    const late = await errorOf(daemon.waitForCounter(goal, soon));
    expect(late.message.replace(/\d+$/, '')).toBe(text);
    await expect(daemon.waitForCounter({ counter: 'none', atLeast: 1 })).rejects.toThrow(
      `no counter none of any device; there are ${counter}`,
    );
    await expect(daemon.waitFor('rain', () => undefined, soon)).rejects.toThrow(/for rain$/);
    expect(await daemon.waitFor('a number', () => 4)).toBe(4);
    const [, waited = ''] = /^waited (\d+) ms for snow$/.exec((await unlimited).message) ?? [];
    expect(Number(waited)).toBeGreaterThan(1000);
    expect(Number(waited)).toBeLessThan(5000);
    const reason = new Error('enough');
    const given = { signal: AbortSignal.abort(reason) };
    await expect(expectCompletion(left.cq, {}, given)).rejects.toBe(reason);
    daemon.signal('SIGSTOP');
    const silent = await errorOf(daemon.waitForConnections(0, {}, soon));
    daemon.signal('SIGCONT');
    expect(silent.message).toBe(`waited ${ms} ms for the daemon, which did not answer`);
  });

  it('for a counter sees the traffic of the test', async () => {
    await using nodes = await startTwoNodes();
    const { daemon, left } = nodes;
    const sends = { counter: 'out_sends', atLeast: 2, device: 'left' };
    const reached = daemon.waitForCounter(sends, { timeoutMs: LONG_MS });
    postExchange(nodes);
    await expectCompletion(left.cq);
    postExchange(nodes);
    await reached;
  });
});

describe('reset between tests', () => {
  it('names leaked objects and their owners, and restores a clean daemon', async () => {
    await using daemon = await startPrivateDaemon();
    const nodes = await startTwoNodes({ daemon });
    const { left } = nodes;
    await daemon.control.addFault({ kind: 'delay', ms: 1 } as const);
    const error = await errorOf(daemon.reset({ graceMs: 20 }));
    expect(error.name).toBe('LeakError');
    expect(error.message).toMatch(/^objects were not released:\n {2}\S+ \(this process\): /);
    expect(error.message).toContain(`QP ${left.qp.qpNum} of left in RTS`);
    const key = left.mr.rkey.toString(16).padStart(8, '0');
    expect(error.message).toContain(`MR 0x${key} of left, 65536 bytes`);
    expect(error.message.split('\n')).toHaveLength(3);
    await nodes.close();

    expect(await daemon.reset()).toMatchObject({ leaks: [], clients: 0, faults: 0 });
    await using next = await startTwoNodes({ daemon });
    postExchange(next);
    await expectCompletion(next.right.cq);
    expect((await next.left.qp.query()).state).toBe(QPState.RTS);
    expect(await daemon.reset({ allowLeaks: true })).toMatchObject({ clients: 2 });
  });

  it('gives exiting programs time to finish', async () => {
    await using daemon = await startPrivateDaemon({ http: true });
    const nodes = await startTwoNodes({ daemon });
    const reset = daemon.reset({ graceMs: 20_000 });
    const asked = await Promise.race([reset, daemon.control.clients()]);
    expect(asked).toMatchObject([{ usage: { objects: { qp: 1 } } }, {}]);
    await nodes.close();
    expect((await reset).leaks).toEqual([]);
  });

  it('names another program by its pid', async () => {
    await using daemon = await startPrivateDaemon();
    const program = startProgram('testing-leaker', daemon.socketPath);
    try {
      await printed(program, 'holding');
      const error = await errorOf(daemon.reset({ graceMs: 1 }));
      expect(error.message).toContain(`node (pid ${program.pid}): 1 context, 1 pd,`);
      expect(error.message).toContain('of left, 4321 bytes');
    } finally {
      program.kill('SIGKILL');
    }
  });

  it('names a program that was killed while it held objects, once', async () => {
    await using daemon = await startPrivateDaemon();
    const kill = async (): Promise<number | undefined> => {
      const program = startProgram('testing-leaker', daemon.socketPath);
      await printed(program, 'holding');
      const ended = once(program, 'exit');
      program.kill('SIGKILL');
      await ended;
      return program.pid;
    };
    const pid = await kill();
    const error = await errorOf(daemon.reset());
    expect(error.name).toBe('LeakError');
    const begin = `programs ended without releasing objects:\n  node (pid ${pid}): 1 context, `;
    expect(error.message.slice(0, begin.length)).toBe(begin);
    expect(await daemon.reset()).toMatchObject({ endedHolding: [] });
    const other = await kill();
    const report = await daemon.reset({ allowLeaks: true });
    expect(report).toMatchObject({ leaks: [], endedHolding: [{ pid: other }] });
  });

  it('is clean after withFault', async () => {
    await using daemon = await startPrivateDaemon();
    {
      await using nodes = await startTwoNodes({ daemon });
      await withFault({ kind: 'delay', ms: 5 }, () => postExchange(nodes), daemon);
      await expectCompletion(nodes.right.cq, { byteLen: 64 });
    }
    expect(await daemon.reset()).toMatchObject({ leaks: [], faults: 0 });
  });
});

describe('the README of the helpers', () => {
  const readme = readFileSync(join(ROOT, 'verbs-api/testing/README.md'), 'utf8');
  const [, example = ''] = /^```ts\n([\s\S]*?)^```/m.exec(readme) ?? [];

  /** Runs Node on `words` in a folder inside the package, so the package is found by name. */
  function runIn(files: Readonly<Record<string, string>>, words: (folder: string) => string[]) {
    mkdirSync(join(ROOT, '.cache'), { recursive: true });
    const folder = temporaryFolder(join(ROOT, '.cache'));
    // A test runner inside another one takes its parent's settings from these variables.
    const inherited = Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_)/.test(name));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const { status, stdout, stderr } = spawnSync(process.execPath, words(folder), {
      cwd: folder,
      encoding: 'utf8',
      env: { ...Object.fromEntries(inherited), NO_COLOR: '1' },
      timeout: LONG_MS,
    });
    return { status, output: `${stdout}${stderr}` };
  }

  it('has an example that compiles under strict and passes in vitest', () => {
    const language = { target: 'ES2022', lib: ['ES2023', 'ESNext.Disposable'], types: ['node'] };
    const checks = { strict: true, noEmit: true, skipLibCheck: true };
    const compilerOptions = { module: 'NodeNext', ...language, ...checks };
    const files = {
      'example.test.ts': example,
      'tsconfig.json': JSON.stringify({ compilerOptions, files: ['example.test.ts'] }),
      'vitest.config.mjs': `export default { test: { include: ['*.test.ts'] } };`,
    };
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    expect(runIn(files, () => [tsc, '-p', '.'])).toEqual({ status: 0, output: '' });
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const run = runIn(files, (folder) => [vitest, 'run', '--root', folder]);
    expect(run.output).toMatch(/Tests +2 passed/);
    expect(run.status, run.output).toBe(0);
  });

  it('is right about node:test, which ends on its own and shows the expected completion', () => {
    const text = `
        import { test } from 'node:test';
        import { expectCompletion, startPrivateDaemon, startTwoNodes } from 'iwarpd/testing';
        const daemon = await startPrivateDaemon();
        const nodes = await startTwoNodes({ daemon });
        test('nothing comes', () => expectCompletion(nodes.left.cq, { wrId: 5 }, { timeoutMs: 20 }));
        test('it is clean', async () => { await nodes.close(); await daemon.reset(); });`;
    const run = runIn({ 'plain.test.mjs': text }, () => ['--test', 'plain.test.mjs']);
    expect(run.output).toContain('expected the completion: status success, wrId 5');
    expect(run.output).toMatch(/pass 1\n.*fail 1\n/s);
    expect(run.status).toBe(1);
  });
});
