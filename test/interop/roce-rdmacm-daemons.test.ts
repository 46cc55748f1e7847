/** rdma_cm on the RoCE devices of daemons: which device it chooses, two daemons, and one that is killed. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CommandFolder, type RunningCommand, retried, runCommand } from '../support/cli-process.ts';
import { networkNamespace } from '../support/network-namespace.ts';
import { ownAddress } from '../support/own-address.ts';
import { programSeconds } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';

const folder = new CommandFolder();
let socket: string;

beforeEach(() => {
  socket = folder.file('iwarpd.sock');
});

afterEach(() => folder.clean());

const DEVICES = [`roce0=roce:${ownAddress(20)}`, `iwarp0=${ownAddress(21)}`].flatMap((device) => [
  '--device',
  device,
]);

/** In a network namespace of our own; undefined where that is not permitted. */
const apart = networkNamespace('true');

/** Time limit, in seconds, of a program that its test does not end. */
const LIMIT = `${programSeconds()}`;

/** The words that run a program on a daemon. */
function on(at: string, ...words: readonly string[]): string[] {
  return ['run', '--socket', at, '--', ...words];
}

/** Sends that each device has posted. */
async function sends(): Promise<Record<string, number>> {
  const { stdout } = await runCommand(['status', '--json', '--socket', socket]);
  const { devices } = JSON.parse(stdout) as {
    devices: { device: { name: string }; counters: Record<string, number> }[];
  };
  return Object.fromEntries(
    devices.map(({ device, counters }) => [device.name, counters['out_sends'] ?? 0]),
  );
}

/** Runs a server and a client that verify their data. */
async function rping(
  server: readonly string[],
  address: string,
  more: readonly string[] = [],
): Promise<void> {
  const serving = folder.start(on(socket, 'timeout', LIMIT, 'rping', '-s', '-C', '3', ...server));
  const client = ['rping', '-c', '-a', address, '-C', '3', '-V', ...more];
  const { status, stdout, stderr } = await runCommand(on(socket, ...retried(...client)));
  expect(status, `${stdout}${stderr}`).toBe(0);
  expect((await serving.end()).status).toBe(0);
}

describeWith(['rdma-programs'], 'the device that rdma_cm chooses', () => {
  it('is the RoCE device at every address, if it is the only one', async () => {
    await folder.daemon(socket, ['--device', 'roce0=roce']);
    await rping(['-a', '127.0.0.1'], '127.0.0.1');
    await rping([], '127.0.0.1');
    expect((await sends())['roce0']).toBeGreaterThan(0);
  });

  it('is the device with that address', async () => {
    await folder.daemon(socket, DEVICES);
    await rping(['-a', ownAddress(20)], ownAddress(20));
    const first = await sends();
    expect([first['roce0'] !== 0, first['iwarp0']]).toEqual([true, 0]);
    await rping(['-a', ownAddress(21)], ownAddress(21));
    const second = await sends();
    expect(second['roce0']).toBe(first['roce0']);
    expect(second['iwarp0']).toBeGreaterThan(0);
  });

  it.skipIf(apart === undefined)(
    'is the iWARP device on a host with only loopback (needs a network namespace)',
    async () => {
      const within = [...(apart ?? []), 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh'];
      const server = `timeout ${LIMIT} rping -s -a 127.0.0.1 -C 3 & server=$!`;
      const client = retried('timeout', '5', 'rping', '-c', '-a', '127.0.0.1', '-C', '3', '-V');
      const script = `${server}; "$@" && wait $server && iwarpd_counts`;
      const counts =
        'iwarpd_counts() { cat /sys/class/infiniband/roce0/ports/1/hw_counters/sent_pkts; }';
      const program = ['bash', '-c', `${counts}; ${script}`, 'bash', ...client];
      const words = ['run', '--fresh', '--', ...program];
      const { status, stdout, stderr } = await runCommand(words, {}, within);
      expect([status, stdout.trim().split('\n').at(-1)], stderr).toEqual([0, '0']);
    },
  );

  it('is either for a server on every address', async () => {
    await folder.daemon(socket, DEVICES);
    await rping([], ownAddress(20));
    await rping([], ownAddress(21));
    const { roce0, iwarp0 } = await sends();
    expect(roce0).toBeGreaterThan(0);
    expect(iwarp0).toBeGreaterThan(0);
  });

  it('is the RoCE device for datagrams, which iWARP does not have', async () => {
    await folder.daemon(socket);
    const server = folder.start(on(socket, 'timeout', LIMIT, 'udaddy', '-b', '127.0.0.1'));
    const client = on(socket, ...retried('udaddy', '-s', '127.0.0.1'));
    const { status, stdout, stderr } = await runCommand(client);
    expect(status, `${stdout}${stderr}`).toBe(0);
    expect((await server.end()).status).toBe(0);
    const { roce0, iwarp0 } = await sends();
    expect(roce0).toBeGreaterThan(0);
    expect(iwarp0).toBe(0);
  });
});

describeWith(['rdma-programs'], 'a daemon that is killed', () => {
  /** Whether rping reaches its data phase. */
  async function pings(program: RunningCommand): Promise<boolean> {
    return await program.until(/ping data/).then(
      () => true,
      () => false,
    );
  }

  it('leaves no program of rdma_cm waiting', async () => {
    const daemon = await folder.daemon(socket, ['--device', `roce0=roce:${ownAddress(24)}`]);
    const words = ['timeout', LIMIT, 'rping', '-a', ownAddress(24), '-C', '100000000', '-v'];
    const server = folder.start(on(socket, ...words, '-s'));
    let client = folder.start(on(socket, ...words, '-c'));
    // Until the server listens, the client is refused.
    while (!(await pings(client))) client = folder.start(on(socket, ...words, '-c'));
    await daemon.kill();
    for (const program of [server, client]) {
      const { status } = await program.end();
      // Neither killed after its time limit nor successful.
      expect([0, 124, undefined]).not.toContain(status);
    }
  });
});

/** Bytes and count of the messages of a stream of rsockets. */
const STREAM = ['-S', '4096', '-C', '50'] as const;

describeWith(['rdma-programs'], 'programs that name a GID', () => {
  // In the kernel, too, a sockaddr_ib cannot be reached over RoCE.
  it.each([
    ['ucmatose', ['-f', 'gid', '-P', 'ib']],
    ['udaddy', ['-f', 'gid']],
  ])('%s finds no device, and reports it', async (program, options) => {
    await folder.daemon(socket, ['--device', `roce0=roce:${ownAddress(25)}`]);
    const gid = `::ffff:${ownAddress(25)}`;
    const words = on(socket, 'timeout', LIMIT, program, ...options, '-s', gid);
    const { status, stdout, stderr } = await runCommand(words);
    expect([0, 124]).not.toContain(status);
    expect(`${stdout}${stderr}`).toContain('No such device');
  });
});

describeWith(['rdma-programs'], 'a daemon that has done nothing yet', () => {
  it('rejects connections from another host', async () => {
    const [here, there] = [folder.file('here.sock'), folder.file('there.sock')];
    await folder.daemon(here, ['--device', `roce0=roce:${ownAddress(25)}`]);
    await folder.daemon(there, ['--device', `roce0=roce:${ownAddress(26)}`]);
    const client = folder.start(on(here, 'rping', '-c', '-a', ownAddress(26), '-C', '1'));
    const { status, stdout, stderr } = await client.end();
    expect(status).not.toBe(0);
    expect(`${stdout}${stderr}`).toContain('RDMA_CM_EVENT_REJECTED');
  });

  it('starts although another has its address, and reports it', async () => {
    const address = ownAddress(27);
    const devices = ['--device', `roce0=roce:${address}`];
    await folder.daemon(socket, devices);
    const words = ['start', '--socket', folder.file('second.sock'), '--log-level', 'info'];
    const second = folder.start([...words, ...devices]);
    await second.until(/ready/);
    await second.until(/UDP port 4791 of .* is taken/, 'stderr');
    expect(second.stderr.match(/UDP port 4791/g)).toHaveLength(1);
  });
});

describeWith(['rdma-programs'], 'two daemons', () => {
  /** A daemon of one RoCE device. */
  async function daemonAt(address: string): Promise<string> {
    const at = folder.file(`${address}.sock`);
    await folder.daemon(at, ['--device', `roce0=roce:${address}`]);
    return at;
  }

  /** A program that ends before its test does. */
  function start(at: string, ...words: readonly string[]): RunningCommand {
    return folder.start(on(at, 'timeout', LIMIT, ...words));
  }

  describe.each([
    ['rping', ['rping', '-s', '-C', '10'], ['rping', '-c', '-C', '10', '-V'], ['-a', '-a']],
    ['ucmatose', ['ucmatose', '-C', '5'], ['ucmatose', '-C', '5'], ['-b', '-s']],
    ['udaddy', ['udaddy'], ['udaddy'], ['-b', '-s']],
    ['rstream', ['rstream', ...STREAM], ['rstream', ...STREAM], ['-b', '-s']],
    ['riostream', ['riostream', ...STREAM], ['riostream', ...STREAM], ['-b', '-s']],
  ] as const)('%s', (_, server, client, [near, far]) => {
    it('connects one with the other', async () => {
      const [here, there] = [await daemonAt(ownAddress(22)), await daemonAt(ownAddress(23))];
      const serving = start(there, ...server, near, ownAddress(23));
      const { status, stdout, stderr } = await start(
        here,
        ...retried(...client, far, ownAddress(23)),
      ).end();
      expect(status, `${stdout}${stderr}`).toBe(0);
      expect((await serving.end()).status).toBe(0);
    });
  });
});
