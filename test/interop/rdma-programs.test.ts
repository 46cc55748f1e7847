/**
 * qperf, fio and libfabric's ping-pong, unmodified, and the programs that cannot work over iWARP:
 * these fail with an error, and do not hang.
 */
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ADDRESS, type EndedPair, endOf, ProgramBench } from './program-bench.ts';

/** Exit status of `timeout` for a program that it ended. */
const TIMED_OUT = 124;

let bench: ProgramBench;

beforeAll(async () => {
  bench = new ProgramBench();
  await bench.start();
});

afterAll(() => bench.stop());

/** Ends the title of a test that calls `cutStreams`. */
const IN_PIECES = ', though the stream arrives in small pieces';

/** Delivers at most 1,000 bytes at a time until the end of the test. */
async function cutStreams(): Promise<void> {
  await bench.fault('add', 'slice', '--bytes', '1000');
  onTestFinished(() => bench.fault('remove', '--all'));
}

describeWith(['rdma-tools'], 'qperf over iwarpd', () => {
  /** Runs a server, and a client whose tests take one second each; returns both outcomes. */
  async function qperf(...words: readonly string[]): Promise<EndedPair> {
    const port = String(await freePort());
    const server = await bench.server(Number(port), ['qperf', '-lp', port]);
    const client = await bench.run(['qperf', '-lp', port, '-t', '1', ...words], 20);
    await bench.run(['qperf', '-lp', port, ADDRESS, 'quit'], 10);
    return { client, server: await endOf(server) };
  }

  it.each<[readonly string[], string]>([
    [['rc_bw', 'rc_lat', 'rc_bi_bw', 'rc_rdma_read_bw'], ''],
    [['rc_lat'], IN_PIECES],
  ])('measures %j of connections made by rdma_cm%s', async (tests, wire) => {
    if (wire !== '') await cutStreams();
    // Its sender ignores receives; 1024 of this size suffice while the receiver is delayed.
    const { client, server } = await qperf('-cm1', '-m', '128K', ADDRESS, ...tests);
    expect(client.status, client.output).toBe(0);
    expect(server.status, server.output).toBe(0);
    for (const test of tests) {
      const result = new RegExp(`^${test}:\\n +(bw|latency) +=  [1-9]`, 'm');
      expect(client.output).toMatch(result);
    }
  });

  it('has no Write test: the siw provider refuses immediate data', async () => {
    const { client } = await qperf('-cm1', ADDRESS, 'rc_rdma_write_bw');
    expect(client.status, client.output).toBe(1);
    expect(client.output).toContain('failed to post rdma write with immediate');
  });

  it('fails when it connects the queue pairs itself', async () => {
    const { client } = await qperf(ADDRESS, 'rc_bw');
    expect(client.status, client.output).toBe(1);
    // Both ends fail; the client reports its own reason, or that the server exited first.
    expect(client.output).toMatch(/failed to modify QP to RT[RS]: Invalid argument|^server: /m);
  });
});

describeWith(['rdma-tools'], 'fio over iwarpd', () => {
  const BYTES = 2 ** 20;

  /**
   * fio's rdma engine on both sides. The receiver has a receive for every message: a sender does
   * not wait for it, and an iWARP stream ends when none is posted.
   */
  async function fio(verb: string, receiver = '', sender = ''): Promise<EndedPair> {
    const port = await freePort();
    const name = `${verb}-${port}`;
    const common = `[job]\nioengine=rdma\nport=${port}\nbs=16k\nsize=${BYTES}\n`;
    const [serving, asking] = [
      bench.folder.file(`${name}.server`),
      bench.folder.file(`${name}.client`),
    ];
    writeFileSync(serving, `${common}rw=read\niodepth=256\n${receiver}`);
    const target = `hostname=${ADDRESS}\nverb=${verb}`;
    writeFileSync(asking, `${common}rw=write\niodepth=4\n${target}\n${sender}`);
    const options = ['--output-format=json', '--aux-path', bench.folder.path];
    return await bench.pair(port, ['fio', ...options, serving], ['fio', ...options, asking]);
  }

  /** Bytes that a job has moved, and its error number. */
  function resultOf(output: string, direction: 'read' | 'write'): { error: number; bytes: number } {
    const text = output.slice(output.indexOf('{\n'));
    const error = Number(/"error" : (\d+)/.exec(text)?.[1]);
    const bytes = Number(new RegExp(`"${direction}" : \\{\\s+"io_bytes" : (\\d+)`).exec(text)?.[1]);
    return { error, bytes };
  }

  it.each(['write', 'read'])('%s', async (verb) => {
    const { client, server } = await fio(verb);
    expect(client.status, client.output).toBe(0);
    expect(server.status, server.output).toBe(0);
    expect(resultOf(client.output, 'write')).toEqual({ error: 0, bytes: BYTES });
  });

  it.each(['', IN_PIECES])(
    'send: every block carries a checksum that the receiver verifies%s',
    async (wire) => {
      if (wire !== '') await cutStreams();
      const verify = 'verify=crc32c\nverify_fatal=1\n';
      const { client, server } = await fio('send', verify, `${verify}do_verify=0\n`);
      expect(client.status, client.output).toBe(0);
      expect(server.status, server.output).toBe(0);
      expect(resultOf(client.output, 'write')).toEqual({ error: 0, bytes: BYTES });
      expect(resultOf(server.output, 'read')).toEqual({ error: 0, bytes: BYTES });
    },
  );

  it('send: the receiver refuses blocks that carry none', async () => {
    const { server } = await fio('send', 'verify=crc32c\nverify_fatal=1\n');
    expect(server.status, server.output).not.toBe(0);
    expect(server.output).toContain('verify: bad');
  });
});

describeWith(['rdma-tools'], 'fi_pingpong over iwarpd', () => {
  it.each<[number, string]>([
    [64, ''],
    [65536, ''],
    [65536, IN_PIECES],
  ])('messages of %i bytes, checked%s', async (size, wire) => {
    if (wire !== '') await cutStreams();
    const port = await freePort();
    const words = ['fi_pingpong', '-p', 'verbs', '-e', 'msg', '-I', '50', '-S', String(size), '-c'];
    const client = [...words, '-P', String(port), ADDRESS];
    const ends = await bench.pair(port, [...words, '-B', String(port)], client);
    for (const { status, output } of [ends.client, ends.server]) {
      expect(status, output).toBe(0);
      expect(output).toMatch(/^(64|64k) +50 +=50 /m);
    }
  });
});

describeWith(['rdma-tools'], 'what iWARP cannot do fails', () => {
  let iwarp: ProgramBench;

  beforeAll(async () => {
    iwarp = new ProgramBench();
    await iwarp.start(['--device', 'iwarp0']);
  });

  afterAll(() => iwarp.stop());

  describe.each([['ibv_rc_pingpong', 'Failed to modify QP to RTS']])('%s', (program, reason) => {
    it('is reported at the end that connects first', async () => {
      const port = await freePort();
      const words = [program, '-d', 'iwarp0', '-p', String(port)];
      const { client, server } = await bench.pair(port, words, [...words, ADDRESS]);
      for (const { status } of [client, server]) expect(status).toBe(1);
      expect(server.output).toContain(reason);
    });
  });

  it.each([
    ['unreliable datagrams', ['udaddy', '-s', ADDRESS], 'Operation not supported'],
    ['multicast', ['mckey', '-m', '239.1.1.1', '-b', ADDRESS], 'Operation not supported'],
    [
      'unreliable datagrams of ibv_ud_pingpong',
      ['ibv_ud_pingpong', '-d', 'iwarp0'],
      "Couldn't create QP",
    ],
    ['unreliable connections', ['ibv_uc_pingpong', '-d', 'iwarp0'], "Couldn't create QP"],
  ] as const)('%s', async (_, words, reason) => {
    const { status, output } = await iwarp.run(words, 10);
    expect(status).not.toBe(0);
    expect(status, output).not.toBe(TIMED_OUT);
    expect(output).toContain(reason);
  });
});
