/**
 * Many unmodified programs on one daemon, killed programs and daemons, and the resources they leave
 * behind. rdma-core's rping and perftest are the programs.
 */
import { chmodSync, copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, onTestFinished } from 'vitest';
import { Role } from '#contract/protocol/ipc-frames';
import { DaemonProcess, type Footprint } from '../support/daemon-process.ts';
import { programSeconds, quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { Prng } from '../support/prng.ts';
import { ShimClient } from '../support/shim-client.ts';
import {
  type Environment,
  listens,
  ShimProgram,
  shimEnvironment,
} from '../support/shim-programs.ts';

const ADDRESS = '127.0.0.1';
/** Bytes of some dozens of pings. */
const PINGED_BYTES = 10_000;

let nextPort = 21_000;
const started: ShimProgram[] = [];

function start(environment: Environment, ...words: readonly string[]): ShimProgram {
  const program = new ShimProgram(words, environment);
  started.push(program);
  return program;
}

function startAs(user: number, environment: Environment, ...words: readonly string[]): ShimProgram {
  const program = new ShimProgram(words, environment, { user });
  started.push(program);
  return program;
}

afterEach(() => Promise.all(started.splice(0).map((program) => program.kill())));

/**
 * Without a RoCE device, which opens its UDP ports when it can: those of other daemons on this machine would
 * change the descriptors.
 */
const ONE_DEVICE = { devices: [{ name: 'iwarp0', addresses: [] }] };

/** Two programs that are connected, or about to be. */
interface Pair {
  readonly server: ShimProgram;
  readonly client: ShimProgram;
}

/** rdma-core's rping at both ends. A million pings take longer than any test here. */
async function rpings(environment: Environment, pings = 1_000_000): Promise<Pair> {
  const port = nextPort++;
  const place = ['-a', ADDRESS, '-p', `${port}`, '-C', `${pings}`];
  const server = start(environment, 'rping', '-s', ...place);
  await listens(port, server);
  return { server, client: start(environment, 'rping', '-c', ...place) };
}

async function expectSuccess({ server, client }: Pair): Promise<void> {
  expect(await client.end()).toMatchObject({ status: 0, late: false });
  expect(await server.end()).toMatchObject({ status: 0, late: false });
}

/** Processor time of a process in clock ticks (of 10 ms). */
function ticks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
    .replace(/^.*\) /, '')
    .split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** The voluntary context switches of a process's main thread. */
function voluntarySwitches(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)?.[1]);
}

/** Bytes that the daemon's devices have placed for peers. */
async function placedBytes(daemon: DaemonProcess): Promise<number> {
  const { devices } = await daemon.status();
  return devices.reduce((sum, { counters }) => sum + (counters['placed_bytes'] ?? 0), 0);
}

/** Programs with a queue pair that is connected, or about to be. */
async function connectedPrograms(daemon: DaemonProcess): Promise<number> {
  const { clients } = await daemon.status();
  return clients.filter(({ usage }) => (usage.objects['qp'] ?? 0) > 0).length;
}

/** Waits until the device has placed this many more bytes. */
async function transfers(daemon: DaemonProcess, bytes: number): Promise<void> {
  const before = await placedBytes(daemon);
  await expect
    .poll(async () => (await placedBytes(daemon)) - before, { interval: 10 })
    .toBeGreaterThan(bytes);
}

describeWith(['rdma-programs'], 'unmodified programs on one daemon', () => {
  let daemon: DaemonProcess;
  let environment: Environment;
  let idle: Footprint;
  let daemonPid: number;

  beforeAll(async () => {
    daemon = await DaemonProcess.start(ONE_DEVICE);
    environment = await shimEnvironment(daemon.socketPath);
    await expectSuccess(await rpings(environment, 10));
    idle = await daemon.atRest();
    daemonPid = (await daemon.status()).pid;
    expect(idle).toMatchObject({ clients: 0, sharedMappings: 0 });
  });

  afterAll(() => daemon.clean());

  /** Waits until the daemon holds only its resources without programs. */
  async function release(): Promise<void> {
    expect(await daemon.settled(idle)).toEqual(idle);
  }

  /** Kills a program, and waits until the daemon has forgotten it. */
  async function killed(victim: ShimProgram): Promise<void> {
    const { pid } = victim;
    expect(await victim.kill()).toMatchObject({ signal: 'SIGKILL', late: false });
    const pids = async () => (await daemon.status()).clients.map((client) => client.pid);
    await expect.poll(pids, { interval: 20 }).not.toContain(pid);
  }

  it('serves 32 at once', async () => {
    const pairs = await Promise.all(Array.from({ length: 16 }, () => rpings(environment, 300)));
    // Each has its own mapping for its rings, once it is connected.
    const held = async () => {
      const { clients, sharedMappings } = await daemon.footprint();
      return { clients, mapped: sharedMappings >= 32 };
    };
    await expect.poll(held, { interval: 20 }).toEqual({ clients: 32, mapped: true });
    await Promise.all(pairs.map(expectSuccess));
    await release();
  });

  it('uses no CPU while a program is blocked', async () => {
    const port = nextPort++;
    const waiting = start(environment, 'rping', '-s', '-a', ADDRESS, '-p', `${port}`);
    await listens(port, waiting);
    const { server, client } = await rpings(environment);
    await transfers(daemon, PINGED_BYTES);
    // The server then waits for the completion of a receive.
    client.signal('SIGSTOP');
    await quiet(300);
    const pids = [waiting.pid, server.pid, daemonPid];
    const before = pids.map(ticks);
    await quiet(1000);
    const used = pids.map((pid, index) => ticks(pid) - (before[index] ?? 0));
    expect(used.slice(0, 2)).toEqual([0, 0]);
    expect(used[2]).toBeLessThanOrEqual(3);
    client.signal('SIGCONT');
    await transfers(daemon, PINGED_BYTES);
  });

  it.each([
    { how: 'leaves the core to others', wish: {}, fewest: 100, most: Number.POSITIVE_INFINITY },
    { how: 'spins on request', wish: { IWARPD_POLL: 'spin' }, fewest: 0, most: 20 },
  ])('$how while a program polls without result', async ({ wish, fewest, most }) => {
    const port = nextPort++;
    const place = `-R -F -d iwarp0 -p ${port} -D ${programSeconds()} -s 65536`.split(' ');
    const polling = { ...environment, ...wish };
    const server = start(polling, 'ib_write_bw', ...place);
    await listens(port, server);
    // The server of RDMA Writes polls for the end of the test.
    const client = start(environment, 'ib_write_bw', ...place, ADDRESS);
    await transfers(daemon, 256 * 65_536);
    const before = voluntarySwitches(server.pid);
    await transfers(daemon, 4096 * 65_536);
    const switches = voluntarySwitches(server.pid) - before;
    expect(switches).toBeGreaterThanOrEqual(fewest);
    expect(switches).toBeLessThanOrEqual(most);
    await killed(client);
    await server.kill();
    await release();
  });

  it('frees everything of a killed rping and notifies its peer', async () => {
    for (let round = 0; round < 12; round++) {
      const { server, client } = await rpings(environment);
      // From the first steps of a connection to the middle of transfers.
      if (round >= 6) await transfers(daemon, PINGED_BYTES);
      else await quiet(10 + 16 * round);
      const [victim, peer] = round % 2 === 0 ? [client, server] : [server, client];
      await killed(victim);
      if (round >= 6) {
        const { output, late } = await peer.end();
        expect({ late, output }).toMatchObject({ late: false });
        expect(output).toMatch(/DISCONNECT EVENT/);
      } else {
        await peer.kill();
      }
      await release();
    }
  });

  it('frees everything of a killed ib_write_bw, and flushes its peer', async () => {
    for (let round = 0; round < 4; round++) {
      const port = nextPort++;
      const place = ['-R', '-F', '-d', 'iwarp0', '-p', `${port}`, '-D', '20', '-s', '65536'];
      const server = start(environment, 'ib_write_bw', ...place);
      await listens(port, server);
      const client = start(environment, 'ib_write_bw', ...place, ADDRESS);
      await transfers(daemon, 16 * 65_536);
      if (round % 2 === 0) {
        await killed(client);
        // It never polls, and learns of the end from its connection.
        expect(await server.end()).toMatchObject({ late: false, status: expect.any(Number) });
      } else {
        await killed(server);
        const { output, ...ended } = await client.end();
        expect(ended).toMatchObject({ late: false, status: 1 });
        expect(output).toMatch(/Completion with error at client/);
        expect(output).toMatch(/Failed status 5:/);
      }
      await release();
    }
  });

  it.each([Role.uverbs, Role.rdmaCm, Role.netlink, Role.event])(
    'closes only the connection that sends garbage in role %i',
    async (role) => {
      const pair = await rpings(environment);
      await transfers(daemon, PINGED_BYTES);
      const prng = new Prng(role);
      for (let round = 0; round < 20; round++) {
        const stranger = await ShimClient.uverbs(daemon.socketPath, role);
        stranger.send(Uint8Array.from({ length: 200 }, () => prng.below(256)));
        await stranger.closed();
        stranger.close();
      }
      expect([pair.server.running, pair.client.running]).toEqual([true, true]);
      await transfers(daemon, PINGED_BYTES);
      await pair.client.kill();
      expect(await pair.server.end()).toMatchObject({ late: false });
      await release();
    },
  );
});

describeWith(['rdma-programs'], 'rping -C 100, 100 runs in a row', () => {
  it('leaves memory, descriptors and mappings of the daemon where they were', async () => {
    const daemon = await DaemonProcess.start({ ...ONE_DEVICE, logLevel: 'error' });
    onTestFinished(() => daemon.clean());
    const environment = await shimEnvironment(daemon.socketPath);
    // The first client's memory starts the thread that guards copies, which stays.
    await expectSuccess(await rpings(environment, 1));
    const idle = await daemon.atRest();
    const resident: number[] = [];
    for (let run = 1; run <= 100; run++) {
      await expectSuccess(await rpings(environment, 100));
      if (run % 5 === 0) resident.push(await daemon.residentKiB());
    }
    expect(await daemon.settled(idle)).toEqual(idle);
    // In the first runs, code is compiled and the heap finds its size.
    const growth = Math.min(...resident.slice(-6)) - Math.min(...resident.slice(6, 12));
    expect(growth, resident.join(' ')).toBeLessThan(8 * 1024);
  });
});

describeWith(['rdma-programs'], 'a daemon that is killed under unmodified programs', () => {
  it('returns errors to them instead of hanging', async () => {
    const daemon = await DaemonProcess.start();
    onTestFinished(() => daemon.clean());
    const environment = await shimEnvironment(daemon.socketPath);
    const port = nextPort++;
    const waiting = start(environment, 'rping', '-s', '-a', ADDRESS, '-p', `${port}`);
    await listens(port, waiting);
    const pair = await rpings(environment);
    const other = await rpings(environment);
    await expect.poll(() => connectedPrograms(daemon)).toBe(4);
    await daemon.end('SIGKILL');
    for (const program of [waiting, pair.server, pair.client, other.server, other.client]) {
      const { status, late, output } = await program.end();
      expect({ late, failed: status !== 0, output }).toMatchObject({ late: false, failed: true });
      expect(output).toMatch(
        /device removal|Input\/output error|Failed to get cq event|No such device/,
      );
    }
    // Later programs see a machine without devices.
    const late = await start(environment, 'ibv_devices').end();
    expect(late.output).not.toContain('iwarp0');
  });
});

describeWith(
  ['perftest', 'rdma-programs'],
  'a daemon that is killed under programs that poll',
  () => {
    // All of them look for completions in memory, and some make no call that could fail.
    it.each(['ib_write_bw', 'ib_read_bw -q 2', 'ib_send_bw -b', 'ib_send_lat', 'ib_read_lat'])(
      'returns errors to %s instead of hanging',
      async (words) => {
        const daemon = await DaemonProcess.start();
        onTestFinished(() => daemon.clean());
        const environment = await shimEnvironment(daemon.socketPath);
        const port = nextPort++;
        const place = `${words} -R -F -d iwarp0 -p ${port} -D 25 -s 4096`.split(' ');
        const server = start(environment, ...place);
        await listens(port, server);
        const client = start(environment, ...place, ADDRESS);
        await transfers(daemon, 16 * 4096);
        await daemon.end('SIGKILL');
        for (const program of [client, server]) {
          const { status, late, output } = await program.end();
          expect({ late, output }).toMatchObject({ late: false });
          expect(status, output).not.toBe(0);
        }
      },
    );

    it('is shown by ibv_asyncwatch', async () => {
      const daemon = await DaemonProcess.start();
      onTestFinished(() => daemon.clean());
      const environment = await shimEnvironment(daemon.socketPath);
      const watch = start(environment, 'stdbuf', '-oL', 'ibv_asyncwatch');
      // Before that it only looks for the device, and would find none.
      await expect.poll(() => watch.output).toContain('async event FD');
      await daemon.end('SIGKILL');
      const { late, output } = await watch.end();
      expect(late, output).toBe(false);
      expect(output).toContain('IBV_EVENT_DEVICE_FATAL');
    });
  },
);

/** A user with the fewest rights: "nobody" of every distribution. */
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
const rootReason = isRoot ? '' : ' (only root can start programs of other users)';

describeWith(['rdma-programs'], `programs of another user${rootReason}`, () => {
  let daemon: DaemonProcess | undefined;

  afterEach(() => daemon?.clean());

  /** A daemon whose socket every user can reach in the file system, and the environment for it. */
  async function reachable(allowOtherUsers: boolean): Promise<Environment> {
    daemon = await DaemonProcess.start({ allowOtherUsers });
    const environment = await shimEnvironment(daemon.socketPath);
    // The checkout may be in a folder that only its owner can access.
    const shim = join(daemon.directory, 'preload.so');
    copyFileSync(environment['LD_PRELOAD'] ?? '', shim);
    chmodSync(daemon.directory, 0o755);
    chmodSync(daemon.socketPath, 0o666);
    return { ...environment, LD_PRELOAD: shim };
  }

  it.runIf(isRoot)('are refused', async () => {
    const environment = await reachable(false);
    const own = await start(environment, 'ibv_devinfo').end();
    expect(own).toMatchObject({ status: 0, output: expect.stringContaining('iwarp0') });
    const { status, output } = await startAs(NOBODY, environment, 'ibv_devinfo').end();
    expect(output).not.toContain('iwarp0');
    expect(status).not.toBe(0);
    expect(daemon?.log).toMatch(/may not use the daemon/);
  });

  it.runIf(isRoot)('are served if the operator allows it', async () => {
    const environment = await reachable(true);
    const port = nextPort++;
    const place = ['-a', ADDRESS, '-p', `${port}`, '-C', '100', '-V'];
    const server = startAs(NOBODY, environment, 'rping', '-s', ...place);
    await listens(port, server);
    const client = start(environment, 'rping', '-c', ...place);
    await expectSuccess({ server, client });
  });
});
