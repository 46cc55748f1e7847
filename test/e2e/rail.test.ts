/** Rails that fail: a transfer over two RoCE devices continues on the other, and returns. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { AsyncEventType, QPState, QPType, WCStatus } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { RunningCommand, runCommand } from '../support/cli-process.ts';
import { DaemonRig } from '../support/daemon-rig.ts';
import { quiet } from '../support/patience.ts';
import { completions, send, write } from '../support/provider-fixture.ts';
import {
  connectTo,
  exchanged,
  type RoceSide,
  readyForDatagrams,
  roceSide,
  SGID_INDEX,
} from '../support/roce-fixture.ts';

const CHUNKS = 32;
const CHUNK_BYTES = 2048;
const QKEY = 7;
const NAMES = ['roce0', 'roce1'] as const;

let rig: DaemonRig;
let provider: Provider;
let control: DaemonControl;

beforeEach(async () => {
  rig = await DaemonRig.start({ rails: { count: NAMES.length } });
  provider = await connectDaemon({ socketPath: rig.socketPath });
  control = new DaemonControl({ socketPath: rig.socketPath });
});

afterEach(async () => {
  await provider.close();
  await rig.stop();
});

const rail = (...words: readonly string[]) =>
  runCommand(['rail', ...words, '--socket', rig.socketPath]);

/** One rail of a transfer: both ends on one device. */
class Rail {
  readonly name: string;
  readonly near: RoceSide;
  readonly far: RoceSide;
  alive = false;

  constructor(name: string, near: RoceSide, far: RoceSide) {
    this.name = name;
    this.near = near;
    this.far = far;
  }

  static async open(name: string): Promise<Rail> {
    const near = await roceSide(provider, QPType.rc, {}, name);
    const made = new Rail(name, near, await roceSide(provider, QPType.rc, {}, name));
    await made.connect();
    return made;
  }

  /** Connects the queue pairs, again if they failed. */
  async connect(): Promise<void> {
    const { near, far } = this;
    for (const { qp } of [near, far]) await qp.modify({ state: QPState.RESET });
    const few = { retryCnt: 1 };
    await connectTo(far.qp, await exchanged(near), few);
    await connectTo(near.qp, await exchanged(far), few);
    this.alive = true;
  }

  /** Copies a chunk into the peer's memory; false if the rail failed. */
  async copy(chunk: number): Promise<boolean> {
    const { near, far } = this;
    const at = chunk * CHUNK_BYTES;
    near.qp.postSend(write([near.mr.sge(at, CHUNK_BYTES)], far.mr, at));
    let done: { readonly status: WCStatus } | undefined;
    await expect
      .poll(
        () => {
          [done] = near.cq.poll(1);
          return done;
        },
        { interval: 1 },
      )
      .toBeDefined();
    this.alive = done?.status === WCStatus.success;
    if (!this.alive) expect(done?.status).toBe(WCStatus.retryExcErr);
    return this.alive;
  }
}

/** Copies every chunk over the rails that are alive. Returns how many each carried. */
async function transfer(rails: readonly Rail[], seed: number): Promise<Record<string, number>> {
  const carried = Object.fromEntries(rails.map(({ name }) => [name, 0]));
  const arrived = new Uint8Array(CHUNKS * CHUNK_BYTES);
  for (const { near, far } of rails) {
    for (let index = 0; index < arrived.length; index += 1) near.mr.buffer[index] = index * seed;
    far.mr.buffer.fill(0, 0, arrived.length);
  }
  for (let chunk = 0; chunk < CHUNKS; ) {
    const alive = rails.filter((each) => each.alive);
    const one = alive[chunk % alive.length];
    if (one === undefined) throw new Error('no rail is left');
    if (!(await one.copy(chunk))) continue;
    const at = chunk * CHUNK_BYTES;
    arrived.set(one.far.mr.buffer.subarray(at, at + CHUNK_BYTES), at);
    carried[one.name] = (carried[one.name] ?? 0) + 1;
    chunk += 1;
  }
  const [first] = rails;
  expect(
    Buffer.compare(arrived, first?.near.mr.buffer.subarray(0, arrived.length) ?? arrived),
  ).toBe(0);
  return carried;
}

describe('a transfer over two rails', () => {
  it('continues on the other when one loses every packet, and uses it again', async () => {
    const rails = await Promise.all(NAMES.map((name) => Rail.open(name)));
    expect(await transfer(rails, 3)).toEqual({ roce0: CHUNKS / 2, roce1: CHUNKS / 2 });
    const { stdout } = await rail('down', 'roce1', '--silent');
    expect(stdout).toMatch(
      /^roce1 loses every packet until `iwarpd rail up roce1` \(fault \d+\)\n$/,
    );
    expect(await transfer(rails, 5)).toEqual({ roce0: CHUNKS, roce1: 0 });
    expect(rails.map(({ alive }) => alive)).toEqual([true, false]);
    expect((await rail('up', 'roce1')).stdout).toBe('roce1 is up\n');
    await rails[1]?.connect();
    expect(await transfer(rails, 7)).toEqual({ roce0: CHUNKS / 2, roce1: CHUNKS / 2 });
  });

  it('is told when a port goes down for a time, and when it is up again', async () => {
    const rails = await Promise.all(NAMES.map((name) => Rail.open(name)));
    const events = rails[1]?.near.context.asyncEvents()[Symbol.asyncIterator]();
    const next = async () => (await events?.next())?.value?.type;
    await rail('down', 'roce1', '--for', '300ms');
    expect(await next()).toBe(AsyncEventType.portErr);
    expect(await next()).toBe(AsyncEventType.portActive);
    expect(await control.faults()).toEqual([]);
    if (rails[1]?.alive === true) await rails[1].connect();
    expect(await transfer(rails, 9)).toEqual({ roce0: CHUNKS / 2, roce1: CHUNKS / 2 });
  });
});

describe('work in flight on a rail that goes down', () => {
  /** Statuses of the next `count` completions. */
  async function statuses({ cq }: RoceSide, count: number): Promise<WCStatus[]> {
    const found: WCStatus[] = [];
    await expect.poll(() => found.push(...cq.poll(count).map(({ status }) => status))).toBe(count);
    return found;
  }

  it.each([
    ['port-down', 'down'],
    ['drop', 'active'],
  ] as const)(
    '%s: completes if the rail is up in time, and fails otherwise',
    async (kind, state) => {
      const { near, far } = await Rail.open('roce0');
      const patient = { timeout: 16, retryCnt: 7 };
      for (const { qp } of [near, far]) await qp.modify({ state: QPState.RESET });
      await connectTo(far.qp, await exchanged(near), patient);
      await connectTo(near.qp, await exchanged(far), patient);
      near.mr.buffer.fill(7, 0, CHUNK_BYTES);
      await control.addFault({ kind, device: 'roce0', ms: 100 });
      expect(await near.context.queryPort()).toMatchObject({ state });
      near.qp.postSend(write([near.mr.sge(0, CHUNK_BYTES)], far.mr, 0));
      expect(await statuses(near, 1)).toEqual([WCStatus.success]);
      expect(far.mr.buffer.subarray(0, CHUNK_BYTES).every((byte) => byte === 7)).toBe(true);

      const other = await Rail.open('roce0');
      await control.addFault({ kind, device: 'roce0' });
      for (let at = 0; at < 2; at += 1) {
        other.near.qp.postSend(write([other.near.mr.sge(0, CHUNK_BYTES)], other.far.mr, 0));
      }
      expect(await statuses(other.near, 2)).toEqual([WCStatus.retryExcErr, WCStatus.wrFlushErr]);
      expect(await other.near.qp.query()).toMatchObject({ state: QPState.ERR });
      expect(await other.far.qp.query()).toMatchObject({ state: QPState.RTS });
    },
  );

  it.each(['port-down', 'drop'] as const)('%s: completes on UC, and is lost', async (kind) => {
    const [near, far] = [await roceSide(provider, QPType.uc), await roceSide(provider, QPType.uc)];
    await connectTo(far.qp, await exchanged(near));
    await connectTo(near.qp, await exchanged(far));
    near.mr.buffer.fill(7, 0, CHUNK_BYTES);
    await control.addFault({ kind, device: 'roce0' });
    near.qp.postSend(write([near.mr.sge(0, CHUNK_BYTES)], far.mr, 0));
    expect(await statuses(near, 1)).toEqual([WCStatus.success]);
    expect(far.mr.buffer.subarray(0, CHUNK_BYTES).every((byte) => byte === 0)).toBe(true);
  });

  it.each(['port-down', 'drop'] as const)(
    '%s: completes on UD, and is lost; the receive is for the next one',
    async (kind) => {
      const [near, far] = [
        await roceSide(provider, QPType.ud),
        await roceSide(provider, QPType.ud),
      ];
      for (const { qp } of [near, far]) await readyForDatagrams(qp, QKEY);
      const { qpNum, gid } = await exchanged(far);
      const ah = await near.pd.createAH({ grh: { dgid: gid, sgidIndex: SGID_INDEX } });
      const ud = { ah, remoteQpNum: qpNum, remoteQkey: QKEY };
      const datagram = { ...send([near.mr.sge(0, 8)]), ud };
      far.qp.postRecv({ wrId: 5, sgList: [far.mr.sge(0, 64)] });
      const fault = await control.addFault({ kind, device: 'roce0' });
      near.qp.postSend(datagram);
      expect(await statuses(near, 1)).toEqual([WCStatus.success]);
      expect(far.cq.poll()).toEqual([]);
      await control.removeFault(fault.id);
      near.qp.postSend(datagram);
      expect(await completions(far.cq)).toMatchObject([{ wrId: 5n, status: WCStatus.success }]);
    },
  );

  it.each(['port-down', 'drop'] as const)(
    '%s: leaves receives posted, except those of a queue pair that fails',
    async (kind) => {
      const { near, far } = await Rail.open('roce0');
      for (const { qp, mr } of [near, far]) qp.postRecv({ wrId: 6, sgList: [mr.sge(0, 64)] });
      await control.addFault({ kind, device: 'roce0' });
      near.qp.postSend(send([near.mr.sge(0, 8)]));
      expect(await statuses(near, 2)).toEqual([WCStatus.retryExcErr, WCStatus.wrFlushErr]);
      expect(await far.qp.query()).toMatchObject({ state: QPState.RTS });
      expect(far.cq.poll()).toEqual([]);
    },
  );
});

it('an iWARP device that goes down says so; a silent one delivers everything later', async () => {
  const other = await DaemonRig.start({ devices: [{ name: 'iwarp0', addresses: ['127.0.0.1'] }] });
  onTestFinished(() => other.stop());
  const { socketPath } = other;
  await using rnic = await connectDaemon({ socketPath });
  await using listener = await listen(rnic, { host: '127.0.0.1' });
  const accepting = listener.accept({ messages: true });
  const { port } = listener.address;
  await using near = await connect(rnic, { host: '127.0.0.1', port, messages: true });
  await using far = await accepting;
  const events = near.context.asyncEvents()[Symbol.asyncIterator]();
  const { stdout } = await runCommand(['rail', 'down', 'iwarp0', '--socket', socketPath]);
  expect(stdout).toMatch(/^iwarp0 is down until /);
  expect(await events.next()).toMatchObject({ value: { type: AsyncEventType.portErr } });
  expect(await near.context.queryPort()).toMatchObject({ state: 'down' });
  const received = far.messages()[Symbol.asyncIterator]();
  const arrived = async () => Buffer.from((await received.next()).value ?? []).toString();
  await near.send('arrives');
  expect(await arrived()).toBe('arrives');

  const silent = ['rail', 'down', 'iwarp0', '--silent', '--socket', socketPath];
  expect((await runCommand(silent)).stdout).toMatch(/^iwarp0 delivers nothing until /);
  expect(await events.next()).toMatchObject({ value: { type: AsyncEventType.portActive } });
  const sending = near.send('arrives later');
  const waiting = arrived();
  const early = await Promise.race([waiting, quiet(50)]);
  expect(early).toBe(undefined);
  await runCommand(['rail', 'up', 'iwarp0', '--socket', socketPath]);
  expect(await waiting).toBe('arrives later');
  await sending;
});

describe('iwarpd rail', () => {
  it('replaces an earlier command, and takes up what it took down only', async () => {
    await control.addFault({ kind: 'drop', device: 'roce0', every: 1_000_000 });
    await rail('down', 'roce0');
    const silent = JSON.parse((await rail('down', 'roce0', '--silent', '--json')).stdout);
    expect(silent.spec).toEqual({ kind: 'drop', device: 'roce0' });
    expect((await control.faults()).map(({ spec }) => spec.kind)).toEqual(['drop', 'drop']);
    const up = JSON.parse((await rail('up', 'roce0', '--json')).stdout);
    expect(up.removed.map(({ id }: { readonly id: number }) => id)).toEqual([silent.id]);
    expect((await rail('up', 'roce0')).stdout).toBe('roce0 is up; it was not down\n');
    expect(await control.faults()).toHaveLength(1);
  });

  it('plays a time line, and then all is up', async () => {
    const file = join(rig.directory, 'line.txt');
    const lines = [
      '# a comment',
      '',
      '200ms up roce0',
      '0 down roce0',
      '10ms down roce1 --silent --for 2m',
    ];
    writeFileSync(file, lines.join('\n'));
    const playing = new RunningCommand(['rail', 'play', file, '--socket', rig.socketPath]);
    await playing.until(/roce0 is up/);
    expect((await control.faults()).map(({ spec }) => spec)).toEqual([
      { kind: 'drop', device: 'roce1', ms: 120_000 },
    ]);
    playing.signal('SIGINT');
    const { stdout, status } = await playing.end();
    expect(status).toBe(130);
    expect(stdout.replaceAll(/ \(fault \d+\)/g, '')).toBe(
      [
        'roce0 is down until `iwarpd rail up roce0`',
        'roce1 loses every packet for 120 s',
        'roce0 is up',
        '',
      ].join('\n'),
    );
    expect(await control.faults()).toEqual([]);
    writeFileSync(file, '0 down roce1 --for 10ms');
    const twice = await rail('play', file, '--times', '2');
    expect(twice.stdout.match(/roce1 is down for 0.01 s/g)).toHaveLength(2);
  });

  it('takes all up when the reader of its output is gone', async () => {
    const file = join(rig.directory, 'line.txt');
    writeFileSync(file, '0 down roce0\n0s down roce1 --silent\n500ms down roce0\n20m up roce1');
    const playing = new RunningCommand(['rail', 'play', file, '--socket', rig.socketPath]);
    await playing.until(/roce1 loses/);
    playing.closeStdout();
    expect(await playing.end()).toMatchObject({ status: 0, stderr: '' });
    expect(await control.faults()).toEqual([]);
  });

  it('does not call a rail up that another fault holds down', async () => {
    // Of both devices, it takes the first down.
    await control.addFault({ kind: 'port-down', once: true });
    expect((await rail('up', 'roce1')).stdout).toBe('roce1 is up; it was not down\n');
    const up = await rail('up', 'roce0');
    expect(up).toMatchObject({
      status: 1,
      stderr:
        'iwarpd: roce0 is still down by another fault: find it with `iwarpd fault list`, and remove it\n',
    });
  });

  it.each([
    ['down roce0', /line\.txt:1: 'down' must be a time of 1ms to 60m/],
    ['1s drop roce0', /line\.txt:1: write TIME down DEVICE/],
    ['0 up roce0\n1s up roce0 --silent', /line\.txt:2: write TIME/],
    ['1s down roce0 --loud', /unknown option '--loud'/],
    ['1s down roce0 --for', /'' must be a time/],
    ['1s down roce9', /no device roce9/],
    ['# nothing', /line\.txt has no steps: write TIME/],
  ])('rejects the time line %j', async (text, reason) => {
    const file = join(rig.directory, 'line.txt');
    writeFileSync(file, text);
    const { status, stderr } = await rail('play', file);
    expect([status, stderr]).toEqual([1, expect.stringMatching(reason)]);
  });

  it.each([
    [['play', '/nonexistent/line.txt'], /cannot read \/nonexistent\/line\.txt: no such file/],
    [['play', '/dev/zero'], /cannot read \/dev\/zero: it has more than 16 MiB/],
    [['down', 'roce7'], /no device roce7.*; the daemon has roce0, roce1/],
    [['up', 'roce7'], /no device roce7.*; the daemon has roce0, roce1/],
    [
      ['down', 'roce0', '--for', '2h'],
      /must be a time of 1ms to 60m, with its unit: 7s, 200ms, 2m/,
    ],
    [['down', 'roce0', '--for', '0s'], /must be a time of 1ms to 60m/],
    [['down'], /missing required argument 'DEVICE'/],
  ])('rejects %j', async (words, reason) => {
    const { status, stderr } = await rail(...words);
    expect(status).not.toBe(0);
    expect(stderr).toMatch(reason);
  });
});
