/** The programs of rdma-core itself, unmodified: their view of the device, and their data. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { programSeconds } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ADDRESS, endOf, ProgramBench } from './program-bench.ts';

let bench: ProgramBench;
let port: string;

beforeAll(async () => {
  bench = new ProgramBench();
  await bench.start();
});

afterAll(() => bench.stop());

beforeEach(async () => {
  port = String(await freePort());
});

/** Runs both ends, which must both succeed; returns their output. */
async function bothSucceed(
  server: readonly string[],
  client: readonly string[],
): Promise<{ readonly server: string; readonly client: string }> {
  const ends = await bench.pair(Number(port), server, client);
  expect(ends.client.status, ends.client.output).toBe(0);
  expect(ends.server.status, ends.server.output).toBe(0);
  return { server: ends.server.output, client: ends.client.output };
}

describeWith(['rdma-programs'], 'the device over iwarpd', () => {
  it('is listed by ibv_devices', async () => {
    const { status, output } = await bench.run(['ibv_devices']);
    expect(status).toBe(0);
    expect(output).toMatch(/^ +iwarp0 +\t02[0-9a-f]{14}$/m);
  });

  it('is described by ibv_devinfo: iWARP, a port that is up, a GID', async () => {
    const { status, output } = await bench.run(['ibv_devinfo', '-v']);
    expect(status).toBe(0);
    expect(output).toMatch(/hca_id:\s+iwarp0/);
    expect(output).toMatch(/transport:\s+iWARP \(1\)/);
    expect(output).toMatch(/state:\s+PORT_ACTIVE \(4\)/);
    expect(output).toMatch(/GID\[ +0\]:\s+0000:0000:0000:0000:0000:ffff:/);
  });

  it('is one of several devices of the program’s own daemon', async () => {
    const devices = ['--device', 'a=127.0.0.2', '--device', 'b=127.0.0.3'];
    const run = (...words: readonly string[]) => {
      return endOf(bench.folder.start(['run', ...devices, '--', ...words]));
    };
    const list = await run('ibv_devices');
    expect(list.output).toMatch(/^ +a +\t[\s\S]*^ +b +\t/m);
    const info = await run('ibv_devinfo', '-v', '-d', 'b');
    expect(info.output).toContain('0000:0000:0000:0000:0000:ffff:7f00:0003');
    const none = await run('ibv_devinfo', '-d', 'c');
    expect(none.status).not.toBe(0);
  });
});

describeWith(['rdma-programs'], 'programs of librdmacm over iwarpd', () => {
  it('rping pings, and each end shows and verifies the received data', async () => {
    const words = ['rping', '-a', ADDRESS, '-p', port, '-C', '10', '-v', '-V'];
    const { server, client } = await bothSucceed([...words, '-s'], [...words, '-c']);
    expect(client.match(/^ping data: rdma-ping-\d/gm)).toHaveLength(10);
    expect(server.match(/^server ping data: rdma-ping-\d/gm)).toHaveLength(10);
  });

  it('rping: two programs, each on its own daemon, talk to each other', async () => {
    const words = ['rping', '-a', ADDRESS, '-p', port, '-C', '3', '-v'];
    const run = ['run', '--fresh', '--network', 'host', '--', 'timeout', `${programSeconds()}`];
    const server = bench.folder.start([...run, ...words, '-s']);
    // The client tries for half a second; the server's daemon may take longer to start.
    let client = await endOf(bench.folder.start([...run, ...words, '-c']));
    for (let attempt = 0; client.status !== 0 && attempt < 5; attempt++) {
      client = await endOf(bench.folder.start([...run, ...words, '-c']));
    }
    expect(client.output).toContain('rdma-ping-2');
    expect((await endOf(server)).status).toBe(0);
  });

  it('ucmatose makes ten connections on one channel', async () => {
    const words = ['ucmatose', '-p', port, '-c', '10', '-C', '10'];
    const { server, client } = await bothSucceed(
      [...words, '-b', ADDRESS],
      [...words, '-s', ADDRESS],
    );
    expect(client).toContain('return status 0');
    expect(server).toContain('return status 0');
  });

  it.each([
    ['rdma_server', 'rdma_client'],
    ['rdma_xserver', 'rdma_xclient'],
  ])('%s and %s exchange a message', async (serverName, clientName) => {
    const { server, client } = await bothSucceed(
      [serverName, '-p', port],
      [clientName, '-s', ADDRESS, '-p', port],
    );
    expect(client).toContain(`${clientName}: end 0`);
    expect(server).toContain(`${serverName}: end 0`);
  });

  it('cmtime makes and ends a hundred connections', async () => {
    const server = await bench.server(Number(port), ['cmtime', '-b', ADDRESS, '-p', port]);
    const words = ['cmtime', '-s', ADDRESS, '-b', ADDRESS, '-p', port, '-c', '100'];
    const { status, output } = await bench.run(words);
    // The server serves forever.
    server.signal('SIGTERM');
    await endOf(server);
    expect(status, output).toBe(0);
    for (const step of ['resolve addr', 'connect', 'disconnect', 'destroy']) {
      expect(output).toMatch(new RegExp(`^${step} +: +[\\d.]+`, 'm'));
    }
  });

  it('rping fails without a listener', async () => {
    const { status, output } = await bench.run(['rping', '-c', '-a', ADDRESS, '-p', port], 20);
    expect(status).not.toBe(0);
    expect(output).toContain('-111');
  });
});

/**
 * By default, rstream and riostream stream each of these sizes in two ways: one transfer each way,
 * 100,000 times (fewer for larger sizes); then that many transfers one way and back, once. Both
 * ends poll without a pause, so on two cores the daemon must wait for time slices, which takes
 * minutes. Here the same sizes are streamed in the same two ways, but fewer times.
 *
 * Both ends need the same counts. riostream's receiver watches the last byte of its own size. A
 * sender with a larger size writes past the receiver's mapping, so the stream is terminated and the
 * receiver waits forever, over the kernel's siw, too. rstream grants its peer every receive that it
 * has posted, although grants also need receives. If the counts differ, a peer sends much without
 * reading, and its stream is terminated, since iWARP does not wait for a receive.
 */
const STREAMS = [
  ['64', '1', '2000'],
  ['4096', '1', '1000'],
  ['65536', '1', '200'],
  ['1048576', '1', '40'],
  ['64', '20000', '1'],
  ['4096', '3000', '1'],
  ['65536', '300', '1'],
  ['1048576', '40', '1'],
] as const;

/** The exit status of rstream when `poll` reports a hang-up: it returns the revents. */
const HUNG_UP = 16;

describeWith(['rdma-programs'], 'rsockets over iwarpd', () => {
  /** Lines of the table that both programs print. */
  const rowsOf = (output: string) => output.match(/^\w+ +[\dkm]+ +[\dk]+ +[\dk]+ .* [\d.]+s /gm);

  describe.each(['rstream', 'riostream'])('%s', (program) => {
    it.each(STREAMS)('%s bytes, %s times each way, %s rounds: verified', async (...counts) => {
      const [size, transfers, rounds] = counts;
      const words = [program, '-p', port, '-S', size, '-C', transfers, '-I', rounds, '-T', 'v'];
      const { client, server } = await bothSucceed(words, [...words, '-s', ADDRESS]);
      expect(rowsOf(client)).toHaveLength(1);
      expect(rowsOf(server)).toHaveLength(1);
    });
  });

  it('rstream: blocking calls', async () => {
    const sizes = ['-S', '40000', '-C', '10', '-I', '10'];
    const words = ['rstream', '-p', port, ...sizes, '-T', 'b', '-T', 'v'];
    const { client } = await bothSucceed(words, [...words, '-s', ADDRESS]);
    expect(rowsOf(client)).toHaveLength(1);
  });

  it('rstream: calls that follow poll', async () => {
    const sizes = ['-S', '4096', '-C', '10', '-I', '10'];
    const words = ['rstream', '-p', port, ...sizes, '-T', 'a', '-T', 'v'];
    const { client, server } = await bench.pair(Number(port), words, [...words, '-s', ADDRESS]);
    expect(server.status, server.output).toBe(0);
    expect(rowsOf(server.output)).toHaveLength(1);
    // The server exits once it has sent everything. If the client notices that together with the
    // last data, as it usually does over siw, it takes the hang-up for an error.
    expect([0, HUNG_UP], client.output).toContain(client.status);
    if (client.status === 0) expect(rowsOf(client.output)).toHaveLength(1);
  });
});

const ADDRESS_IPV6 = '::1';

describeWith(['rdma-programs'], 'programs over IPv6', () => {
  it('rping, to a server on every address, by either family', async () => {
    const words = ['rping', '-p', port, '-C', '5', '-V'];
    for (const address of [ADDRESS_IPV6, ADDRESS]) {
      await bothSucceed([...words, '-s', '-a', '::0'], [...words, '-c', '-a', address]);
    }
  });

  it('ucmatose', async () => {
    const words = ['ucmatose', '-f', 'ipv6', '-p', port, '-C', '3'];
    const { client } = await bothSucceed(
      [...words, '-b', ADDRESS_IPV6],
      [...words, '-s', ADDRESS_IPV6],
    );
    expect(client).toContain('return status 0');
  });

  it('rstream: verified', async () => {
    const words = ['rstream', '-f', 'ipv6', '-p', port, '-S', '40000', '-C', '10', '-T', 'v'];
    const { client } = await bothSucceed(
      [...words, '-b', ADDRESS_IPV6],
      [...words, '-s', ADDRESS_IPV6],
    );
    expect(client).toMatch(/^custom +39k /m);
  });

  it('rping fails without a listener', async () => {
    const { status, output } = await bench.run(['rping', '-c', '-a', ADDRESS_IPV6, '-p', port], 20);
    expect(status).not.toBe(0);
    expect(output).toContain('-111');
  });
});
