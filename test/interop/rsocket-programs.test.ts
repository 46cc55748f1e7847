/**
 * TCP programs over rsockets: rdma-core's librspreload.so turns their sockets into rsockets, and
 * `iwarpd run` gives these a device. Received bytes are compared with sent ones.
 */
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ADDRESS, type EndedPair, endOf, ProgramBench } from './program-bench.ts';

const SMALL_BYTES = 1000;
const LARGE_BYTES = 12_000_000;
const MEBIBYTE = 2 ** 20;

const LIBRARIES = '/usr/lib';

/** Where Debian has librspreload.so, below the folder of its architecture. */
function rsocketLibrary(): string {
  const paths = readdirSync(LIBRARIES).map((name) =>
    join(LIBRARIES, name, 'rsocket/librspreload.so'),
  );
  const found = paths.find((path) => existsSync(path));
  if (found === undefined) throw new Error('librdmacm1 is installed without librspreload.so');
  return found;
}

/** A program, and the files that are its standard input and output. */
interface FilteredProgram {
  readonly words: readonly string[];
  readonly input?: string;
  readonly output?: string;
}

/**
 * The program under both preloaded libraries, the shim first. The shell sets the second one, so
 * neither `iwarpd run` nor `timeout` loads it.
 */
function overRsockets({ words, input = '/dev/null', output }: FilteredProgram): string[] {
  const script = [
    'export LD_PRELOAD="$LD_PRELOAD:$1" input="$2" output="$3"',
    'shift 3',
    'exec <"$input"',
    'if [ -n "$output" ]; then exec >"$output"; fi',
    'exec "$@"',
  ].join('\n');
  return ['sh', '-c', script, 'sh', rsocketLibrary(), input, output ?? '', ...words];
}

describeWith(['rsocket-programs'], 'TCP programs over rsockets', () => {
  let bench: ProgramBench;

  beforeAll(async () => {
    bench = new ProgramBench();
    await bench.start();
    for (const bytes of [SMALL_BYTES, LARGE_BYTES]) {
      writeFileSync(file(`${bytes}`), randomBytes(bytes));
    }
  });

  afterAll(() => bench.stop());

  function file(name: string): string {
    return bench.folder.file(name);
  }

  /** Runs a server and its client; fails unless both end with status 0. */
  async function pair(
    port: number,
    server: FilteredProgram,
    client: FilteredProgram,
  ): Promise<EndedPair> {
    const serving = await bench.server(port, overRsockets(server));
    const clientEnd = await bench.run(overRsockets(client));
    const ends = { client: clientEnd, server: await endOf(serving) };
    for (const { status, output } of [ends.client, ends.server]) expect(status, output).toBe(0);
    return ends;
  }

  /** Bytes that the device has placed in memory so far. */
  async function placedBytes(): Promise<number> {
    const { stdout, stderr } = await runCommand(['status', '--json', '--socket', bench.socketPath]);
    if (stdout === '') throw new Error(`iwarpd status: ${stderr}`);
    const { devices }: DaemonStatus = JSON.parse(stdout);
    const { counters } = devices.find(({ device }) => device.name === 'iwarp0') ?? {};
    const counted = counters?.['placed_bytes'];
    if (counted === undefined) throw new Error(`no iwarp0: ${stdout}`);
    return counted;
  }

  /** Compares two files; returns a boolean, since a diff of megabytes is unreadable. */
  function sameBytes(one: string, other: string): boolean {
    return readFileSync(file(one)).equals(readFileSync(file(other)));
  }

  /** Bytes placed before a transfer, to check that it does not fall back to TCP. */
  let before = 0;
  beforeEach(async () => {
    before = await placedBytes();
  });
  async function expectMoved(bytes: number): Promise<void> {
    expect((await placedBytes()) - before).toBeGreaterThanOrEqual(bytes);
  }

  describe.each([SMALL_BYTES, LARGE_BYTES])('%i bytes', (bytes) => {
    it('curl gets them from netcat', async () => {
      const port = await freePort();
      const head = `HTTP/1.0 200 OK\r\nContent-Length: ${bytes}\r\n\r\n`;
      writeFileSync(
        file('reply'),
        Buffer.concat([Buffer.from(head), readFileSync(file(`${bytes}`))]),
      );
      await pair(
        port,
        {
          words: ['nc.traditional', '-n', '-l', '-s', ADDRESS, '-p', `${port}`, '-q', '1'],
          input: file('reply'),
          output: file('request'),
        },
        { words: ['curl', '-sS', '-o', file('got'), `http://${ADDRESS}:${port}/`] },
      );
      expect(sameBytes('got', `${bytes}`)).toBe(true);
      expect(readFileSync(file('request'), 'utf8')).toMatch(/^GET \/ HTTP\/1\.1\r\n/);
      await expectMoved(bytes);
    });

    it('netcat sends them to netcat', async () => {
      const port = await freePort();
      await pair(
        port,
        {
          words: ['nc.traditional', '-n', '-l', '-s', ADDRESS, '-p', `${port}`],
          output: file('got'),
        },
        { words: ['nc.traditional', '-n', '-q', '0', ADDRESS, `${port}`], input: file(`${bytes}`) },
      );
      expect(sameBytes('got', `${bytes}`)).toBe(true);
      await expectMoved(bytes);
    });

    it('two socats exchange them, each direction ending on its own', async () => {
      const port = await freePort();
      const listen = `TCP-LISTEN:${port},bind=${ADDRESS},reuseaddr`;
      const reverse = [...readFileSync(file(`${bytes}`))].reverse();
      writeFileSync(file('reverse'), Uint8Array.from(reverse));
      await pair(
        port,
        { words: ['socat', '-t', '20', '-', listen], input: file('reverse'), output: file('got') },
        {
          words: ['socat', '-t', '20', '-', `TCP:${ADDRESS}:${port}`],
          input: file(`${bytes}`),
          output: file('returned'),
        },
      );
      expect(sameBytes('got', `${bytes}`)).toBe(true);
      expect(sameBytes('returned', 'reverse')).toBe(true);
      await expectMoved(2 * bytes);
    });
  });

  it('iperf3 and socat over IPv6', async () => {
    const bytes = 4 * MEBIBYTE;
    const port = await freePort();
    const common = ['iperf3', '-6', '-p', `${port}`, '-J'];
    const ends = await pair(
      port,
      { words: [...common, '-s', '-1', '-B', '::1'] },
      { words: [...common, '-c', '::1', '-n', `${bytes}`] },
    );
    expect(ends.client.output).toMatch(/"remote_host":\s*"::1"/);
    await expectMoved(bytes);
    const other = await freePort();
    const listen = `TCP6-LISTEN:${other},bind=[::1],reuseaddr`;
    await pair(
      other,
      { words: ['socat', '-u', listen, '-'], output: file('got') },
      { words: ['socat', '-u', '-', `TCP6:[::1]:${other}`], input: file(`${LARGE_BYTES}`) },
    );
    expect(sameBytes('got', `${LARGE_BYTES}`)).toBe(true);
    await expectMoved(bytes + LARGE_BYTES);
  });

  it('iperf counts at both ends what was sent', async () => {
    const port = await freePort();
    const bytes = 12 * MEBIBYTE;
    const server = ['iperf', '-s', '-P', '1', '-B', ADDRESS, '-p', `${port}`, '-y', 'C'];
    const client = ['iperf', '-c', ADDRESS, '-p', `${port}`, '-n', `${bytes}`, '-y', 'C'];
    const ends = await pair(port, { words: server }, { words: client });
    for (const { output } of [ends.client, ends.server]) {
      expect(output.split(',')[7], output).toBe(`${bytes}`);
    }
    await expectMoved(bytes);
  });

  describe('iperf3', () => {
    const BLOCK_BYTES = 2 ** 17;
    const bytes = 12 * MEBIBYTE;

    /** The two sums of a client's report. */
    function sums(output: string): { sent: number; received: number } {
      const [sent, received] = ['sum_sent', 'sum_received'].map((name) =>
        Number(new RegExp(`"${name}":\\s*\\{[^}]*?"bytes":\\s*(\\d+)`).exec(output)?.[1]),
      );
      return { sent: sent ?? Number.NaN, received: received ?? Number.NaN };
    }

    it.each([
      ['one stream', 1, []],
      ['two streams', 2, []],
      ['one stream, from the server', 1, ['-R']],
      ['two streams, from the server', 2, ['-R']],
    ] as const)('%s', async (_, streams, reverse) => {
      const port = await freePort();
      const server = ['iperf3', '-s', '-1', '-B', ADDRESS, '-p', `${port}`, '-J'];
      const options = ['-n', `${bytes}`, '-l', `${BLOCK_BYTES}`, '-P', `${streams}`, '-J'];
      const client = ['iperf3', '-c', ADDRESS, '-p', `${port}`, ...options, ...reverse];
      const ends = await pair(port, { words: server }, { words: client });
      const { sent, received } = sums(ends.client.output);
      expect(sent).toBeGreaterThanOrEqual(bytes);
      expect(received).toBeLessThanOrEqual(sent);
      // At the end iperf3 leaves data in flight unread: a block, and the buffers of both ends.
      expect(sent - received).toBeLessThanOrEqual(3 * BLOCK_BYTES * streams);
      await expectMoved(received);
    });
  });
});
