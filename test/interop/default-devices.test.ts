/**
 * Unmodified programs on a daemon without options: those that connect out of band get the RoCE
 * device, which is the first, and those that connect by rdma_cm the iWARP device.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';

/** Runs `$@` as server and `$@ 127.0.0.1` as client once the server listens. */
const BOTH_ENDS = `
"$@" > "$OUTPUT" & server=$!
for attempt in $(seq 100); do
  grep -q ":$PORT_HEX .* 0A " /proc/net/tcp /proc/net/tcp6 && break
  sleep 0.1
done
"$@" 127.0.0.1 && wait $server`;

const folder = new CommandFolder();

afterEach(() => folder.clean());

/** Output of a command under `iwarpd run --fresh`. */
async function run(...words: readonly string[]): Promise<string> {
  const { status, stdout, stderr } = await runCommand(['run', '--fresh', '--', ...words]);
  expect(status, `${stdout}${stderr}`).toBe(0);
  return stdout;
}

/** The output of `status` once it matches. */
async function statusOnce(socket: string, pattern: RegExp): Promise<string> {
  for (;;) {
    const { stdout } = await runCommand(['status', '--socket', socket]);
    if (pattern.test(stdout)) return stdout;
  }
}

describeWith(['rdma-programs'], 'a daemon without options', () => {
  it('lists the RoCE device first', async () => {
    const names = (await run('ibv_devices')).match(/\b\w+(?= +\t02)/g);
    expect(names).toEqual(['roce0', 'iwarp0']);
  });

  it.each(['ibv_rc_pingpong', 'ibv_uc_pingpong', 'ibv_ud_pingpong', 'ibv_srq_pingpong'])(
    'serves %s, and every byte arrives',
    async (program) => {
      const port = await freePort();
      const hex = port.toString(16).toUpperCase().padStart(4, '0');
      const variables = [`PORT_HEX=${hex}`, `OUTPUT=${folder.file('server')}`];
      // They sleep while they wait, so a busy processor delays them less.
      const words = [program, '-g', '1', '-c', '-e', '-n', '100', '-p', String(port)];
      const output = await run('env', ...variables, 'sh', '-c', BOTH_ENDS, 'sh', ...words);
      expect(output).toMatch(/^100 iters in/m);
      expect(output).not.toContain('invalid data');
    },
  );

  it('gives rdma_cm the iWARP device', async () => {
    const socket = folder.file('iwarpd.sock');
    await folder.daemon(socket);
    const on = (...words: readonly string[]) => ['run', '--socket', socket, '--', ...words];
    const ends = ['-a', '127.0.0.1', '-p', String(await freePort()), '-C', '3'];
    const server = folder.start(on('rping', '-s', ...ends));
    const client = [`for i in $(seq 100); do rping -c ${ends.join(' ')} && exit; sleep 0.1; done`];
    expect((await runCommand(on('sh', '-c', ...client))).status).toBe(0);
    await server.end();
    const status = await runCommand(['status', '--json', '--socket', socket]);
    const { devices } = JSON.parse(status.stdout) as {
      devices: { device: { name: string }; counters: Record<string, number> }[];
    };
    const sends = devices.map(({ device, counters }) => [device.name, counters['out_sends']]);
    expect(sends).toEqual([
      ['roce0', 0],
      ['iwarp0', expect.any(Number)],
    ]);
    expect(sends[1]?.[1]).toBeGreaterThan(0);
  });

  it('serves rdma_cm over RoCE on a port that this or another program uses on TCP', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const socket = folder.file('iwarpd.sock');
    await folder.daemon(socket);
    const on = (...words: readonly string[]) => ['run', '--socket', socket, '--', ...words];
    const server = folder.start(on('rping', '-s', '-p', String(port), '-C', '3'));
    const dial = `rping -c -a 127.0.0.1 -p ${port} -C 3`;
    const client = `for i in $(seq 100); do ${dial} && exit; sleep 0.1; done; exit 1`;
    const status = await statusOnce(socket, /RoCE alone/);
    expect(status).toContain(
      `RoCE alone    0.0.0.0 port ${port}: another program has the TCP port`,
    );
    expect((await runCommand(on('sh', '-c', client))).status).toBe(0);
    await server.end();
    expect(await statusOnce(socket, /^(?!.*RoCE alone)/s)).not.toContain('RoCE alone');
    other.close();
  });

  it('has a device for udpong at 127.0.0.1, which finds no peer there, as on rxe', async () => {
    const words = ['run', '--fresh', '--', 'udpong', '-s', '127.0.0.1'];
    const { stdout, stderr } = await runCommand(words);
    expect(`${stdout}${stderr}`).toContain('rconnect: No such file or directory');
  });
});
