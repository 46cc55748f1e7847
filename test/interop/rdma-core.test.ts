/** The programs of rdma-core itself, unmodified: the device as they see it, and what they exchange. */
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { describeWith } from './prerequisites.ts';
import { ADDRESS, endOf, freePort, ProgramBench } from './program-bench.ts';

/** 100,000 round trips of 64 octets and more, with both ends polling: minutes on a busy host. */
const ALL_SIZES_SECONDS = 580;
const ALL_SIZES_MS = 590_000;

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

/** Runs both ends, each of which has to succeed; what they printed. */
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

  it('is one of several that a daemon of the program’s own has', async () => {
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
  it('rping pings, and each end shows and verifies what it got', async () => {
    const words = ['rping', '-a', ADDRESS, '-p', port, '-C', '10', '-v', '-V'];
    const { server, client } = await bothSucceed([...words, '-s'], [...words, '-c']);
    expect(client.match(/^ping data: rdma-ping-\d/gm)).toHaveLength(10);
    expect(server.match(/^server ping data: rdma-ping-\d/gm)).toHaveLength(10);
  });

  it('rping: two daemons of the programs’ own talk to each other', async () => {
    const words = ['rping', '-a', ADDRESS, '-p', port, '-C', '3', '-v'];
    const run = ['run', '--fresh', '--', 'timeout', '30'];
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
    // The server serves for ever.
    server.signal('SIGTERM');
    await endOf(server);
    expect(status, output).toBe(0);
    for (const step of ['resolve addr', 'connect', 'disconnect', 'destroy']) {
      expect(output).toMatch(new RegExp(`^${step} +: +[\\d.]+`, 'm'));
    }
  });

  it('rping fails where nobody listens', async () => {
    const { status, output } = await bench.run(['rping', '-c', '-a', ADDRESS, '-p', port], 20);
    expect(status).not.toBe(0);
    expect(output).toContain('-111');
  });
});

describeWith(['rdma-programs'], 'rsockets over iwarpd', () => {
  /** Lines of the table that both programs print. */
  const rowsOf = (output: string) => output.match(/^\w+ +[\dkm]+ +[\dk]+ +[\dk]+ .* [\d.]+s /gm);

  it.each([
    ['rstream', '64'],
    ['rstream', '4096'],
    ['rstream', '65536'],
    ['rstream', '1048576'],
    // Both ends need the same size, since the receiver watches the last octet of it.
    ['riostream', '64'],
    ['riostream', '4096'],
    ['riostream', '65536'],
    ['riostream', '1048576'],
  ])('%s of %s octets: what came is what was sent', async (program, size) => {
    const words = [program, '-p', port, '-S', size, '-C', '10', '-I', '10', '-T', 'v'];
    const { client, server } = await bothSucceed(words, [...words, '-s', ADDRESS]);
    expect(rowsOf(client)).toHaveLength(1);
    expect(rowsOf(server)).toHaveLength(1);
  });

  it('rstream: blocking calls', async () => {
    const sizes = ['-S', '40000', '-C', '10', '-I', '10'];
    const words = ['rstream', '-p', port, ...sizes, '-T', 'b', '-T', 'v'];
    const { client } = await bothSucceed(words, [...words, '-s', ADDRESS]);
    expect(rowsOf(client)).toHaveLength(1);
  });

  it(
    'rstream streams all its sizes',
    async () => {
      const words = ['rstream', '-p', port];
      const server = await bench.server(Number(port), words, ALL_SIZES_SECONDS);
      const client = bench.program([...words, '-s', ADDRESS], ALL_SIZES_SECONDS);
      const { status, stdout } = await client.end(ALL_SIZES_MS);
      expect(status, stdout).toBe(0);
      expect((await server.end(ALL_SIZES_MS)).status).toBe(0);
      expect(rowsOf(stdout)).toHaveLength(8);
    },
    ALL_SIZES_MS,
  );
});
