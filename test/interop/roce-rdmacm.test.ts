/**
 * Unmodified programs of rdma-core that connect by rdma_cm, on RoCE devices only. They verify their
 * data if they can.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gidBytes } from '#daemon/host/host-addresses';
import { CommandFolder } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { ownAddress } from '../support/own-address.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { type EndedProgram, ShimProgram } from '../support/shim-programs.ts';

const SERVER = ownAddress(25);
const CLIENT = ownAddress(26);
/** Fixed ports of programs. */
const UDADDY_PORT = 7174;

let rig: RoceRig;
const folder = new CommandFolder();

beforeAll(async () => {
  rig = await RoceRig.start(
    { name: 'roce0', addresses: [SERVER], transport: 'roce' },
    { name: 'roce1', addresses: [CLIENT], transport: 'roce' },
  );
});

afterAll(async () => {
  await rig.stop();
  await folder.clean();
});

/** Starts a program on the devices. */
function program(...words: readonly string[]): ShimProgram {
  return new ShimProgram(words, rig.environment);
}

/** Starts a server, and waits until it listens at `port`. */
async function serving(port: number, ...words: readonly string[]): Promise<ShimProgram> {
  const server = program(...words);
  while (!rig.listens(port)) {
    if (!server.running) throw new Error(`ended instead of listening: ${server.output}`);
    await quiet(10);
  }
  return server;
}

/** Both ends of a transfer, which must both succeed. */
async function pair(
  port: number,
  server: readonly string[],
  client: readonly string[],
): Promise<{ readonly server: string; readonly client: string }> {
  const server_ = await serving(port, ...server);
  const asked = await program(...client).end();
  // A client that failed leaves a server that waits forever.
  if (asked.status !== 0) server_.signal('SIGTERM');
  const served = await server_.end();
  const output = `client:\n${asked.output}\nserver:\n${served.output}`;
  expect(asked.status, output).toBe(0);
  expect(served.status, output).toBe(0);
  return { server: served.output, client: asked.output };
}

/** Chooses a TCP port that is free, although rdma_cm's ports on RoCE are not TCP ports. */
const port = freePort;

describeWith(['rdma-programs'], 'connections by rdma_cm over RoCE', () => {
  it.each([
    ['one device', SERVER, []],
    ['two devices', SERVER, ['-I', CLIENT]],
  ] as const)('rping over %s: each end verifies what it got', async (_, address, more) => {
    const at = await port();
    const words = ['rping', '-p', String(at), '-C', '10', '-v', '-V'];
    const client = [...words, '-c', '-a', address, ...more];
    const ends = await pair(at, [...words, '-s', '-a', address], client);
    expect(ends.client.match(/^ping data: rdma-ping-\d/gm)).toHaveLength(10);
    expect(ends.server.match(/^server ping data: rdma-ping-\d/gm)).toHaveLength(10);
  });

  it('rping with large messages, and without a pause', async () => {
    const at = await port();
    const words = ['rping', '-a', SERVER, '-p', String(at), '-C', '200', '-S', '4000', '-V'];
    await pair(at, [...words, '-s'], [...words, '-c']);
  });

  it('rping to a server on every address', async () => {
    const at = await port();
    const words = ['rping', '-p', String(at), '-C', '5', '-V'];
    await pair(at, [...words, '-s'], [...words, '-c', '-a', SERVER]);
  });

  it('rping -P: a server that stays serves one client after the other', async () => {
    const at = await port();
    const words = ['rping', '-a', SERVER, '-p', String(at), '-C', '3', '-V'];
    const server = await serving(at, 'rping', '-P', '-s', '-a', SERVER, '-p', String(at), '-V');
    for (let round = 0; round < 3; round += 1) {
      const { status, output } = await program(...words, '-c').end();
      expect(status, output).toBe(0);
    }
    await server.kill();
  });

  it('rping is refused without a listener', async () => {
    const { status, output } = await program('rping', '-c', '-a', SERVER, '-p', '7999').end();
    expect(status).not.toBe(0);
    // RDMA_CM_EVENT_REJECTED: the service id is invalid.
    expect(output).toMatch(/REJECTED, error 8/);
  });

  it('ucmatose makes ten connections on one channel', async () => {
    const at = await port();
    const words = ['ucmatose', '-p', String(at), '-c', '10', '-C', '10', '-S', '512'];
    const ends = await pair(at, [...words, '-b', SERVER], [...words, '-s', SERVER, '-b', CLIENT]);
    expect(ends.client).toContain('return status 0');
    expect(ends.server).toContain('return status 0');
  });

  it('ucmatose with a type of service, and events on another channel', async () => {
    const at = await port();
    const words = ['ucmatose', '-p', String(at), ...'-c 2 -C 3 -t 20 -a 14 -m'.split(' ')];
    const ends = await pair(at, [...words, '-b', SERVER], [...words, '-s', SERVER]);
    expect(ends.client).toContain('return status 0');
  });

  it('cmtime makes and ends a hundred connections', async () => {
    const at = await port();
    const server = await serving(at, 'cmtime', '-b', SERVER, '-p', String(at));
    const words = ['cmtime', '-s', SERVER, '-b', SERVER, '-p', String(at), '-c', '100'];
    const { status, output } = await program(...words).end();
    await server.kill();
    expect(status, output).toBe(0);
    for (const step of ['resolve addr', 'connect', 'disconnect', 'destroy']) {
      expect(output).toMatch(new RegExp(`^${step} +: +[\\d.]+`, 'm'));
    }
  });

  it.each([
    ['rdma_server', 'rdma_client'],
    ['rdma_xserver', 'rdma_xclient'],
  ])('%s and %s exchange a message', async (serverName, clientName) => {
    const at = await port();
    const ends = await pair(
      at,
      [serverName, '-p', String(at)],
      [clientName, '-s', SERVER, '-p', String(at)],
    );
    expect(ends.client).toContain(`${clientName}: end 0`);
    expect(ends.server).toContain(`${serverName}: end 0`);
  });

  it('notifies a client whose peer is killed', async () => {
    const at = await port();
    const words = ['rping', '-a', SERVER, '-p', String(at), '-v'];
    const server = await serving(at, ...words, '-s', '-C', '100000000');
    const client = program(...words, '-c', '-C', '100000000');
    await client.until(/ping data/);
    await server.kill();
    const { late, output } = await client.end();
    expect(late).toBe(false);
    expect(output).toMatch(/DISCONNECT/i);
  });
});

describeWith(['rdma-programs'], 'datagrams by rdma_cm over RoCE', () => {
  it.each([
    ['one device', []],
    ['two devices', ['-b', CLIENT]],
  ])('udaddy over %s', async (_, more) => {
    const words = ['udaddy', '-c', '3', '-C', '10', '-S', '200'];
    const ends = await pair(
      UDADDY_PORT,
      [...words, '-b', SERVER],
      [...words, '-s', SERVER, ...more],
    );
    expect(ends.client).toContain('data transfers complete');
    expect(ends.client).toContain('return status 0');
    expect(ends.server).toContain('return status 0');
  });

  it('udaddy finds no service', async () => {
    const { status, output } = await program('udaddy', '-s', SERVER).end();
    expect(status).not.toBe(0);
    expect(output).toMatch(/UNREACHABLE, error: 1/);
  });

  it('two mckey programs receive from each other', async () => {
    const words = ['mckey', '-m', '239.7.3.1', '-C', '10', '-S', '200'];
    const receiver = program(...words, '-b', SERVER);
    const group = gidBytes('239.7.3.1');
    await expect.poll(() => rig.host.multicastGroups.members(group).size).toBe(1);
    const sent = await program(...words, '-b', CLIENT, '-s').end();
    expect(sent.status, sent.output).toBe(0);
    const received = await receiver.end();
    expect(received.status, received.output).toBe(0);
    expect(received.output).toContain('receiving data transfers');
    expect(received.output).toContain('return status 0');
  });
});

/** Sizes, transfers and rounds of rstream. */
const STREAMS = [
  ['64', '1', '500'],
  ['4096', '1', '300'],
  ['65536', '1', '100'],
  ['1048576', '1', '20'],
  ['64', '5000', '1'],
  ['65536', '200', '1'],
] as const;

describeWith(['rdma-programs'], 'rsockets over RoCE', () => {
  it.each(STREAMS)('rstream: %s bytes, %s times each way, %s rounds', async (...counts) => {
    const [size, transfers, rounds] = counts;
    const at = await port();
    const words = ['rstream', '-p', String(at), '-S', size, '-C', transfers, '-I', rounds];
    const verified = [...words, '-T', 'v'];
    const ends = await pair(at, verified, [...verified, '-s', SERVER]);
    expect(ends.client).toMatch(/^\w+ +[\dkm]+ +[\dk]+ +[\dk]+ .* [\d.]+s /m);
  });

  it('rstream: blocking calls', async () => {
    const at = await port();
    const sizes = ['-S', '40000', '-C', '10', '-I', '10'];
    const words = ['rstream', '-p', String(at), ...sizes, '-T', 'b', '-T', 'v'];
    await pair(at, words, [...words, '-s', SERVER]);
  });

  it('rcopy copies a file', async () => {
    const at = await port();
    const [source, target] = [folder.file('source'), folder.file('target')];
    writeFileSync(source, Buffer.from(Array.from({ length: 300_000 }, (_, n) => (n * 7) & 0xff)));
    const server = await serving(at, 'rcopy', '-p', String(at));
    const copied = await program('rcopy', source, `${SERVER}:${target}`, '-p', String(at)).end();
    await server.kill();
    expect(copied.status, copied.output).toBe(0);
    expect(readFileSync(target).equals(readFileSync(source))).toBe(true);
  });
});

describe('a daemon of a RoCE device with every address', () => {
  let everywhere: RoceRig;

  beforeAll(async () => {
    everywhere = await RoceRig.start({ name: 'roce0', addresses: [], transport: 'roce' });
  });

  afterAll(() => everywhere.stop());

  it.each(['127.0.0.1', '::1'])('serves rping at %s', async (address) => {
    const at = await port();
    const words = ['rping', '-a', address, '-p', String(at), '-C', '5', '-V'];
    const { environment } = everywhere;
    const server = new ShimProgram([...words, '-s'], environment);
    while (!everywhere.listens(at) && server.running) await quiet(10);
    const client = new ShimProgram([...words, '-c'], environment);
    const ends: EndedProgram[] = [await client.end(), await server.end()];
    for (const { status, output } of ends) expect(status, output).toBe(0);
  });
});
