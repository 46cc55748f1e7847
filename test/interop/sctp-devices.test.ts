/** Devices of SCTP, and unmodified programs on them: within a daemon, and between two. */
import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { CMEventType } from '#contract/verbs/enums';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import { SCTP } from '#daemon/host/sctp/sctp-carrier';
import { CommandFolder, type RunningCommand, retried, runCommand } from '../support/cli-process.ts';
import { ownAddress } from '../support/own-address.ts';
import { programSeconds } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RnicNode } from '../support/rnic-node.ts';
import { SCTP_UDP_PORT, until } from '../support/sctp-pair.ts';

const A = ownAddress(41);
const B = ownAddress(42);
/** A device of TCP beside them. */
const T = ownAddress(43);
const BOTH = ['--device', `a=sctp:${A}`, '--device', `b=sctp:${B}`];

const folder = new CommandFolder();
let socket: string;

beforeEach(() => {
  socket = folder.file('iwarpd.sock');
});

afterEach(() => folder.clean());

/** A program of rdma-core that ends before its test does. */
function start(at: string, ...words: readonly string[]): RunningCommand {
  return folder.start(['run', '--socket', at, '--', 'timeout', `${programSeconds()}`, ...words]);
}

/** Runs both ends, which must succeed; returns the client's output. */
async function pair(
  server: readonly [string, readonly string[]],
  client: readonly [string, readonly string[]],
): Promise<string> {
  const serving = start(server[0], ...server[1]);
  const { status, stdout, stderr } = await start(client[0], ...retried(...client[1])).end();
  expect(status, `${stdout}${stderr}\nserver: ${serving.stdout}${serving.stderr}`).toBe(0);
  expect((await serving.end()).status).toBe(0);
  return stdout;
}

async function counted(name: string): Promise<Record<string, number>> {
  const { stdout } = await runCommand(['status', '--json', '--socket', socket]);
  const { devices } = JSON.parse(stdout) as {
    devices: { device: { name: string }; counters: Record<string, number> }[];
  };
  return Object.fromEntries(
    devices.map(({ device, counters }) => [device.name, counters[name] ?? 0]),
  );
}

/** True if the UDP port of SCTP is bound at the address. */
async function carries(address: string): Promise<boolean> {
  const probe = createSocket('udp4');
  try {
    probe.bind(SCTP_UDP_PORT, address);
    return await Promise.race([
      once(probe, 'listening').then(() => false),
      once(probe, 'error').then(() => true),
    ]);
  } catch {
    return true;
  } finally {
    probe.close();
  }
}

const PING = ['-C', '3', '-V'] as const;

describeWith(['sctp', 'rdma-programs'], 'two devices of SCTP in a daemon', () => {
  it('serve rping between them, and each to itself', async () => {
    await folder.daemon(socket, BOTH);
    expect([await carries(A), await carries(B), await carries(T)]).toEqual([true, true, false]);
    const server = ['rping', '-s', '-a', B, '-C', '3'];
    await pair([socket, server], [socket, ['rping', '-c', '-a', B, ...PING]]);
    const { a, b } = await counted('out_sends');
    expect(a).toBeGreaterThan(0);
    expect(b).toBeGreaterThan(0);
    const own = ['rping', '-c', '-a', A, '-I', A, ...PING];
    await pair([socket, ['rping', '-s', '-a', A, '-C', '3']], [socket, own]);
    expect((await counted('out_sends'))['b']).toBe(b);
  });

  it('share the wildcard address of a server with a TCP device', async () => {
    await folder.daemon(socket, [...BOTH, '--device', `t=${T}`]);
    const server = ['rping', '-s', '-C', '3'];
    const before = await counted('out_sends');
    await pair([socket, server], [socket, ['rping', '-c', '-a', B, ...PING]]);
    const between = await counted('out_sends');
    expect(between['t']).toBe(before['t']);
    expect(between['b']).toBeGreaterThan(0);
    await pair([socket, server], [socket, ['rping', '-c', '-a', T, ...PING]]);
    const after = await counted('out_sends');
    expect([after['a'], after['b']]).toEqual([between['a'], between['b']]);
    expect(after['t']).toBeGreaterThan(0);
  });

  it('refuse a connection without a listener at once', async () => {
    await folder.daemon(socket, BOTH);
    const { status, stdout, stderr } = await start(socket, 'rping', '-c', '-a', B, '-C', '1').end();
    expect([0, 124]).not.toContain(status);
    expect(`${stdout}${stderr}`).toContain('RDMA_CM_EVENT_REJECTED');
  });

  it('serve NFS over RDMA', async () => {
    await folder.daemon(socket, BOTH);
    const content = randomBytes(1_000_000);
    mkdirSync(folder.file('shared'));
    writeFileSync(folder.file('shared/file'), content);
    const where = ['--host', B, '--port', '0', '--mount-port', '0', '--socket', socket, '--json'];
    const server = folder.start(['nfs', 'serve', folder.file('shared'), ...where]);
    await server.until(/"mountPort"/);
    const { port, mountPort } = JSON.parse(server.stdout) as { port: number; mountPort: number };
    const ports = ['--port', String(port), '--mount-port', String(mountPort)];
    const copy = folder.file('copy');
    const source = `${B}:${folder.file('shared')}/file`;
    const words = ['nfs', 'cat', ...ports, '--socket', socket, source];
    const client = await runCommand(words, {}, ['sh', '-c', `"$@" > ${copy}`, 'sh']);
    expect(client.status, client.stderr).toBe(0);
    expect(readFileSync(copy).equals(content)).toBe(true);
  });

  it('are iWARP devices to programs, and SCTP devices to iwarpd', async () => {
    await folder.daemon(socket, BOTH);
    const { stdout } = await start(socket, 'ibv_devinfo', '-d', 'a').end();
    expect(stdout).toMatch(/transport:\s+iWARP/);
    const status = await runCommand(['status', '--socket', socket]);
    expect(status.stdout).toContain(`device a (emulated, iWARP over SCTP): ${A}`);
  });
});

describeWith(['sctp', 'perftest'], 'perftest over SCTP', () => {
  it.each([
    'ib_write_bw',
    'ib_send_bw',
    'ib_read_bw',
    'ib_write_lat',
    'ib_send_lat',
    'ib_read_lat',
  ])('%s -R', async (program) => {
    await folder.daemon(socket, BOTH);
    const words = [program, '-R', '-F', '-s', '65536', '-n', '100'];
    const stdout = await pair([socket, words], [socket, [...words, B]]);
    expect(stdout).toMatch(/^ 65536 +100 +\d/m);
  });
});

async function daemonAt(address: string): Promise<string> {
  const at = folder.file(`${address}.sock`);
  await folder.daemon(at, ['--device', `d=sctp:${address}`]);
  return at;
}

describeWith(['sctp', 'perftest'], 'perftest over SCTP between two daemons', () => {
  it.each(['ib_write_bw', 'ib_send_bw', 'ib_read_bw'])('%s -R', async (program) => {
    const [here, there] = [await daemonAt(A), await daemonAt(B)];
    const words = [program, '-R', '-F', '-s', '65536', '-n', '100'];
    const stdout = await pair([there, words], [here, [...words, B]]);
    expect(stdout).toMatch(/^ 65536 +100 +\d/m);
  });
});

describeWith(['sctp', 'rdma-programs'], 'two daemons with a device of SCTP each', () => {
  const stream = ['-S', '4096', '-C', '50'];
  describe.each([
    ['rping', ['rping', '-s', '-C', '10'], ['rping', '-c', '-C', '10', '-V'], ['-a', '-a']],
    ['ucmatose', ['ucmatose', '-C', '5'], ['ucmatose', '-C', '5'], ['-b', '-s']],
    ['rstream', ['rstream', ...stream], ['rstream', ...stream], ['-b', '-s']],
    ['riostream', ['riostream', ...stream], ['riostream', ...stream], ['-b', '-s']],
  ] as const)('%s', (_, server, client, [near, far]) => {
    it('connects one with the other', async () => {
      const [here, there] = [await daemonAt(A), await daemonAt(B)];
      await pair([there, [...server, near, B]], [here, [...client, far, B]]);
    });
  });

  it('notice when the other is killed, although nothing is sent', async () => {
    const at = folder.file('b.sock');
    const daemon = await folder.daemon(at, ['--device', `d=sctp:${B}`]);
    start(at, 'rping', '-s', '-a', B, '-C', '1000000', '-p', '7199');
    const devices = [{ name: 'a', addresses: [A], lowerLayer: 'sctp' as const }];
    const node = new RnicNode({ carriers: [SCTP], devices });
    onTestFinished(() => node.host.close());
    let event: HostCmEvent;
    let id: HostId;
    do {
      id = await node.connect(node.channel(), { address: B, port: 7199 });
      await until('an answer', () => node.eventsOf(id).length > 0);
      event = await node.event(id);
    } while (event.type === CMEventType.rejected);
    expect(event.type).toBe(CMEventType.established);
    await daemon.kill();
    await until('the end', () => node.eventsOf(id).length > 0);
    expect(await node.event(id)).toMatchObject({
      type: CMEventType.disconnected,
      error: 'ECONNRESET',
    });
  });

  it('do not start at one address: the UDP port belongs to the first', async () => {
    await daemonAt(A);
    const second = ['start', '--socket', folder.file('other.sock'), '--device', `d=sctp:${A}`];
    const { status, stderr } = await runCommand(second);
    expect(status).not.toBe(0);
    expect(stderr).toContain(
      `no SCTP for d: UDP port ${SCTP_UDP_PORT} of ${A}, which carries SCTP, is taken`,
    );
  });
});
