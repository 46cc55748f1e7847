/** Work requests, frames and completions as an operator sees them: `iwarpd trace` and `GET /trace`. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Refusal } from '#contract/protocol/refusals';
import {
  TRACE_SAMPLES_MAX,
  type TraceRecord,
  type TraceSample,
} from '#contract/protocol/trace-sample';
import { OPERATIONS } from '#daemon/control/operations';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import {
  CommandFolder,
  type RunningCommand,
  refusedWords,
  runCommand,
} from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { fetchWith, madeToken } from '../support/http-token.ts';

const CLIENT = '127.0.0.2';
const SERVER = '127.0.0.3';

type Line = Omit<TraceRecord, 'micros' | 'kind'> &
  Partial<Omit<Refusal, 'device'>> & {
    readonly time: string;
    readonly kind: TraceRecord['kind'] | 'refusal';
  };

const folder = new CommandFolder();
let socket: string;
let url: string;
let daemon: RunningCommand;

beforeEach(async () => {
  socket = folder.file('d/s');
  const devices = ['--device', `a=${CLIENT}`, '--device', `b=${SERVER}`];
  daemon = await folder.daemon(socket, [...devices, '--no-native', '--http', '127.0.0.1:0']);
  url = /http:\/\/127\.0\.0\.1:[0-9]+/.exec(daemon.stdout)?.[0] ?? '';
});

afterEach(() => folder.clean());

/** A server on device b that takes any number of clients; its port. */
async function server(): Promise<string> {
  const port = String(await freePort(SERVER));
  const words = ['rping', '-s', '-P', '-d', '-a', SERVER, '-p', port, '--socket', socket];
  await folder.start(words).until(/listening/, 'stderr');
  return port;
}

async function ping(port: string, count = 1): Promise<void> {
  const place = ['-a', SERVER, '-p', port, '-I', CLIENT, '--socket', socket];
  const { status, stderr } = await runCommand(['rping', '-c', '-C', String(count), ...place]);
  expect(status, stderr).toBe(0);
}

async function trace(...words: readonly string[]): Promise<RunningCommand> {
  const command = folder.start(['trace', '--socket', socket, ...words]);
  await command.until(/tracing/, 'stderr');
  return command;
}

/** The lines of a trace that stops once the connections have ended. */
async function linesOf(command: RunningCommand, until: RegExp): Promise<Line[]> {
  await command.until(until);
  command.signal('SIGINT');
  const { status, stdout } = await command.end();
  expect(status).toBe(0);
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

/** Both ends have flushed two remaining receives each. */
const FLUSHED = /(?:[\s\S]*FLUSH_ERR){4}/;

function expectOrder(lines: readonly Line[], wanted: readonly Partial<Line>[]): void {
  let begin = 0;
  for (const each of wanted) {
    const fields = Object.entries(each);
    const found = lines
      .slice(begin)
      .findIndex((line) => fields.every(([name, value]) => Reflect.get(line, name) === value));
    expect(found, JSON.stringify(each)).toBeGreaterThanOrEqual(0);
    begin += found + 1;
  }
}

describe('iwarpd trace', () => {
  it('shows work requests, their frames and their completions', async () => {
    const port = await server();
    const tracing = await trace('--json');
    await ping(port);
    const lines = await linesOf(tracing, FLUSHED);
    expectOrder(lines, [
      { kind: 'wqe', device: 'b', opcode: 'RDMA_READ', bytes: 64 },
      { kind: 'fpdu', opcode: 'Read Request' },
      { kind: 'fpdu', opcode: 'Read Response', bytes: 64 },
      { kind: 'cqe', device: 'b', opcode: 'RDMA_READ', status: 'IBV_WC_SUCCESS', bytes: 64 },
    ]);
    // A Send completes when it is framed, TCP gets it right after; its receiver sees it later.
    expectOrder(lines, [
      { kind: 'wqe', device: 'a', opcode: 'SEND', bytes: 16 },
      { kind: 'fpdu', opcode: 'Send', bytes: 16 },
      { kind: 'wqe', device: 'b', opcode: 'RECV' },
      { kind: 'cqe', device: 'b', opcode: 'RECV', bytes: 16 },
    ]);
    expectOrder(lines, [
      { kind: 'wqe', device: 'b', opcode: 'RDMA_WRITE', bytes: 64 },
      { kind: 'fpdu', opcode: 'Write', bytes: 64 },
      { kind: 'wqe', device: 'a', opcode: 'RECV' },
    ]);
    const times = lines.map(({ time }) => time);
    expect(times).toEqual([...times].sort());
    expectPaired(lines);
    // Frames of a link name the queue pairs at both ends.
    const ends = { device: 'a', qpn: 1, peerDevice: 'b', peerQpn: 1 };
    const swapped = { device: 'b', qpn: 1, peerDevice: 'a', peerQpn: 1 };
    const fpdus = lines.filter(({ kind }) => kind === 'fpdu');
    expect(fpdus.length).toBeGreaterThanOrEqual(7);
    for (const fpdu of fpdus) expect([ends, swapped]).toContainEqual(endsOf(fpdu));
  });

  it('prints a line for each; the queue pair replaces the addresses of an FPDU', async () => {
    const port = await server();
    const tracing = await trace('--only', 'wqe,cqe');
    await ping(port);
    await tracing.until(FLUSHED);
    tracing.signal('SIGINT');
    const { stdout } = await tracing.end();
    const lines = stdout.trimEnd().split('\n');
    for (const line of lines) expect(line).toMatch(/^[\d:.]{12} {2}[ab] QP 1 {2}(?:WQE|CQE) /);
    const place = 'STag 0x[0-9a-f]{8} TO 0x[0-9a-f]{16}';
    for (const text of [
      'a QP 1  WQE SEND wr_id 0x0, 16 bytes, inline, signaled$',
      `b QP 1  WQE RDMA_READ wr_id 0x0, 64 bytes from ${place}, signaled$`,
      'b QP 1  CQE RDMA_READ wr_id 0x0, IBV_WC_SUCCESS, 64 bytes$',
      `b QP 1  WQE RDMA_WRITE wr_id 0x0, 64 bytes to ${place}, signaled$`,
      'a QP 1  WQE RECV wr_id 0x0, room for 16 bytes$',
      'a QP 1  CQE RECV wr_id 0x1, IBV_WC_WR_FLUSH_ERR, 0 bytes$',
    ]) {
      expect(stdout).toMatch(new RegExp(text, 'm'));
    }
  });

  it('is narrowed to a queue pair, even to a future one', async () => {
    const port = await server();
    const tracing = await trace('--json', '--qp', '2', '--device', 'a');
    await ping(port);
    await ping(port);
    const lines = await linesOf(tracing, /(?:[\s\S]*FLUSH_ERR){2}/);
    expect(new Set(lines.map(({ kind }) => kind))).toEqual(
      new Set(['wqe', 'cqe', 'mpa', 'fpdu', 'end']),
    );
    // The end reported as ours may be the other one.
    for (const { qpn, peerQpn } of lines) expect([qpn, peerQpn]).toContain(2);
    for (const { kind, device } of lines) if (kind === 'wqe') expect(device).toBe('a');
  });

  it('shows the work of the selected connections, and no other', async () => {
    const [quiet, watched] = [await server(), await server()];
    const tracing = await trace('--json', '--port', watched, '--only', 'wqe,end');
    await ping(quiet);
    await ping(watched);
    const lines = await linesOf(tracing, /(?:[\s\S]*"end"){2}/);
    expect(new Set(lines.map(({ kind }) => kind))).toEqual(new Set(['wqe', 'end']));
    for (const { qpn } of lines) expect(qpn).toBe(2);
  });

  it('shows refusals among the rest, as the daemon records them', async () => {
    const tracing = await trace('--json');
    const plain = await trace('--only', 'refusal');
    const elsewhere = await trace('--json', '--device', 'b');
    const words = ['run', '--socket', socket, '--', ...refusedWords([0, 2 ** 30])];
    expect((await runCommand(words)).status).toBe(3);
    const port = await server();
    await ping(port);
    const lines = await linesOf(tracing, FLUSHED);
    expectOrder(lines, [
      { kind: 'refusal', device: 'a', code: 'EINVAL', sentence: 'cqe must be 1 to 1048576, not 0' },
      { kind: 'refusal', device: 'a', code: 'EINVAL', verb: 'createCQ', api: 'typescript' },
      { kind: 'wqe', device: 'b', opcode: 'RDMA_READ' },
    ]);
    const [first] = lines.filter(({ kind }) => kind === 'refusal');
    expect(first).toMatchObject({ program: 'node', times: 1 });
    expect(first?.text).toMatch(/^REFUSAL node\[\d+\] createCQ: EINVAL: cqe must be 1 to /);
    await plain.until(/^[\d:.]{12} {2}a {2}REFUSAL node\[\d+\] createCQ: EINVAL: .*, not 0\n/);
    const others = await linesOf(elsewhere, /(?:[\s\S]*FLUSH_ERR){2}/);
    expect(others.filter(({ device }) => device === 'a')).not.toContainEqual(
      expect.objectContaining({ kind: 'refusal' }),
    );
  });

  it('rejects unknown kinds', async () => {
    const { status, stderr } = await runCommand(['trace', '--only', 'wqe,packets']);
    expect(status).not.toBe(0);
    expect(stderr).toContain(
      'must be a comma-separated list of wqe, cqe, mpa, fpdu, packet, end, refusal',
    );
  });
});

describe('GET /trace', () => {
  async function sample(query: string): Promise<TraceSample> {
    const response = await fetchWith(madeToken(socket), `${url}/trace?${query}`);
    expect(response.status).toBe(200);
    return OPERATIONS.recordTrace.reply.parse(await response.json());
  }

  it('answers with the records of that time', async () => {
    const port = await server();
    const sampling = sample('limit=20&ms=10000');
    await ping(port);
    const { records } = await sampling;
    expect(new Set(records.map(({ kind }) => kind))).toEqual(
      new Set(['wqe', 'cqe', 'mpa', 'fpdu']),
    );
    const times = records.map(({ micros }) => micros);
    expect(times).toEqual([...times].sort((one, other) => one - other));
    expect(Math.abs((times[0] ?? 0) / 1000 - Date.now())).toBeLessThan(60_000);
  });

  it('answers as soon as there are enough records', async () => {
    const port = await server();
    const sampling = sample('limit=5&ms=10000&device=b&qp=1');
    await ping(port, 3);
    const { records } = await sampling;
    expect(records).toHaveLength(5);
    const other = await sample('ms=1&device=b&qp=77');
    expect(other).toEqual({ records: [], lost: 0 });
  });

  it('is the same over the socket', async () => {
    const port = await server();
    const sampling = new DaemonControl({ socketPath: socket }).recordTrace({
      limit: 3,
      ms: 10_000,
    });
    await ping(port);
    const { records } = await sampling;
    expect(records.map(({ kind }) => kind)).toEqual(['mpa', 'mpa', 'fpdu']);
  });

  it('limits concurrent samples', async () => {
    const port = await server();
    const running = Array.from({ length: TRACE_SAMPLES_MAX }, () => sample('limit=1&ms=10000'));
    await expect
      .poll(async () => (await fetchWith(madeToken(socket), `${url}/trace?ms=1`)).status)
      .toBe(409);
    await expect(
      new DaemonControl({ socketPath: socket }).recordTrace({ ms: 1 }),
    ).rejects.toMatchObject({ code: 'EBUSY' });
    await ping(port);
    for (const { records } of await Promise.all(running)) expect(records).toHaveLength(1);
    expect((await fetchWith(madeToken(socket), `${url}/trace?ms=1`)).status).toBe(200);
  });

  it.each([
    ['limit=0', 'query limit'],
    ['limit=10001', 'query limit'],
    ['ms=x', 'query ms'],
    ['ms=10001', 'query ms'],
    ['device=c', 'query device'],
    ['qp=-1', 'query qp'],
    ['kind=wqe', 'query kind'],
  ])('refuses %s', async (query, field) => {
    const response = await fetchWith(madeToken(socket), `${url}/trace?${query}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { field } });
  });

  it('does not delay a daemon that stops', async () => {
    const sampling = new DaemonControl({ socketPath: socket }).recordTrace({ ms: 10_000 });
    const outcome = sampling.then(
      ({ records }) => records.length,
      () => 'cut',
    );
    await expect.poll(async () => await statusOf(socket)).toBeGreaterThan(0);
    daemon.signal('SIGTERM');
    expect((await daemon.end()).status).toBe(0);
    expect([0, 'cut']).toContain(await outcome);
  });
});

async function statusOf(socketPath: string): Promise<number> {
  return (await new DaemonControl({ socketPath }).status()).pid;
}

function endsOf({ device, qpn, peerDevice, peerQpn }: Line) {
  return { device, qpn, peerDevice, peerQpn };
}

/** Every completion follows a distinct request. */
function expectPaired(lines: readonly Line[]): void {
  const open: string[] = [];
  for (const { kind, device, qpn, opcode, wrId } of lines) {
    const name = `${device} ${qpn} ${opcode} ${wrId}`;
    if (kind === 'wqe') open.push(name);
    if (kind !== 'cqe') continue;
    expect(open).toContain(name);
    open.splice(open.indexOf(name), 1);
  }
  expect(open).toEqual([]);
}
