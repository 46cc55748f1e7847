/**
 * The native bridge on Linux's siw: inside the guest, where Node and the built project run beside a
 * real device, since the guest sees the host's files.
 *
 * If the guest does not boot, all of it is skipped, with the reason.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { DoctorReport } from '#daemon/cli/doctor/doctor';
import type { Finding } from '#daemon/cli/doctor/finding';
import { CommandFolder, type RunningCommand, runCommand } from '../support/cli-process.ts';
import { documentedVerdicts, printedVerdicts } from '../support/conformance-table.ts';
import { freePort } from '../support/free-port.ts';
import { patience } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import {
  closed,
  type HostileSteps,
  hostileCommand,
  hostileSteps,
  kept,
  lost,
  stepNamed,
  untouched,
} from './hostile-steps.ts';
import { compiledTest, runInGuest } from './kernel-peer/inner-suite.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  HOST_ADDRESS,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { endOf, endOfCommand, iwarpdInGuest, kernelRping, ourRpingInGuest } from './rping-ends.ts';

const PORT = 7174;
const PINGS = 100;
const SIZES = [64, 65535] as const;
/** Minimum tests of a complete compliance suite; skipped ones are counted. */
const PASSED_MIN = 100;
const SKIPPED_COUNT = 19;
/**
 * First and last port of connections of the compliance suite; the kernel's defaults are above. If a
 * plain TCP client, such as those of conform, had a port and that is in TIME-WAIT, the kernel's
 * connection manager still chooses it, and rdma_connect on siw fails with EADDRINUSE.
 */
const FRESH_PORTS = '20000 32767';

let guest: Guest;
const folder = new CommandFolder();
/** Why no guest is available. */
let obstacle: string | undefined;

async function boot(): Promise<void> {
  try {
    await prepareKernelPeer();
    guest = await startGuest({ forwards: [PORT], share: folder.path });
  } catch (error) {
    obstacle = `the kernel peer does not boot: ${error instanceof Error ? error.message : error}`;
    process.stderr.write(`skipped: the native bridge on siw (${obstacle})\n`);
  }
}

/** The output of a program of the checkout on the host. Fails unless it succeeds. */
async function onHost(
  words: readonly string[],
  variables: Readonly<Record<string, string>> = {},
): Promise<string> {
  const ended = await new ShimProgram([process.execPath, ...words], variables).end();
  expect(ended.status, ended.output).toBe(0);
  return ended.output;
}

/** Findings of doctor in the guest after `script`, by the name of the check. */
async function doctorAfter(script: string): Promise<ReadonlyMap<string, Finding>> {
  const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
  const { output } = await guest.runToEnd(`${script}; node ${main} doctor --json`);
  const { checks }: DoctorReport = JSON.parse(output.slice(output.indexOf('{')));
  return new Map(checks.map(({ name, ...finding }) => [name, finding]));
}

/**
 * Runs a command as a user bound by file permissions. It stays root, since other users may be
 * unable to read the checkout.
 */
const POWERLESS = 'setpriv --bounding-set=-dac_override,-dac_read_search';

describeWith(['kernel-peer'], 'the native bridge on siw', () => {
  beforeAll(async () => {
    await boot();
  }, GUEST_START_TIMEOUT_MS);

  beforeEach((context) => context.skip(obstacle !== undefined, obstacle));

  afterAll(async () => {
    await guest?.stop();
    await folder.clean();
  });

  describe('rping', () => {
    const place = `-a ${GUEST_ADDRESS} -p ${PORT}`;

    it.each(SIZES)(`our client, the kernel's server: ${PINGS} pings of %i bytes`, async (size) => {
      await guest.setSiw({ crcRequired: true });
      const client = ourRpingInGuest(`-c --native ${place} -V -S ${size} -C ${PINGS}`);
      await guest.succeed(`pair ${PORT} "${kernelRping(`-s ${place} -S ${size}`)}" "${client}"`);
    });

    it.each(SIZES)(`our server, the kernel's client: ${PINGS} pings of %i bytes`, async (size) => {
      await guest.setSiw({ crcRequired: true });
      const client = kernelRping(`-c ${place} -V -S ${size} -C ${PINGS}`);
      await guest.succeed(`pair ${PORT} "${ourRpingInGuest(`-s --native ${place}`)}" "${client}"`);
    });

    it('on both sides, with no queue pair of the connection manager', async () => {
      await guest.setSiw({ crcRequired: true });
      const server = ourRpingInGuest(`-s --native -q ${place}`);
      const client = ourRpingInGuest(`-c --native -q ${place} -V -v -C 3`);
      const output = await guest.succeed(`pair ${PORT} "${server}" "${client}"`);
      expect(output.match(/client: ping data: rdma-ping-/g)).toHaveLength(3);
    });

    it('with the emulated device of an embedded RNIC beside it, CRC on', async () => {
      await guest.setSiw({ crcRequired: true });
      const server = ourRpingInGuest(`-s --embedded ${place}`);
      const client = ourRpingInGuest(`-c --native ${place} -V -S 65535 -C ${PINGS}`);
      await guest.succeed(`pair ${PORT} "${server}" "${client}"`);
    });

    describe('with the emulated device of a daemon outside the guest', () => {
      let socket: string;
      let daemon: RunningCommand;

      beforeAll(async () => {
        if (obstacle !== undefined) return;
        socket = folder.file('daemon/s');
        daemon = await folder.daemon(socket, ['--no-crc']);
      });

      afterAll(() => daemon?.kill());

      it.each(SIZES)('the client in the guest: pings of %i bytes', async (size) => {
        await guest.setSiw({ crcRequired: false });
        const port = await freePort();
        const listen = ['rping', '-s', '-d', '-a', '127.0.0.1', '-p', String(port)];
        const server = folder.start([...listen, '--socket', socket]);
        await server.until(/listening/, 'stderr');
        const words = `-a ${HOST_ADDRESS} -p ${port} -V -S ${size} -C ${PINGS}`;
        await guest.succeed(ourRpingInGuest(`-c --native ${words}`));
        const served = await endOfCommand(server);
        expect(served.status, served.output).toBe(0);
        expect(served.output.match(/write completed/g)).toHaveLength(PINGS);
      });

      it.each(SIZES)('the server in the guest: pings of %i bytes', async (size) => {
        await guest.setSiw({ crcRequired: false });
        const server = guest.run(`serve ${PORT} ${ourRpingInGuest(`-s --native ${place}`)}`);
        await server.waitFor(/READY/);
        const to = ['-a', '127.0.0.1', '-p', String(guest.forwarded(PORT))];
        const words = ['rping', '-c', ...to, '-V', '-S', String(size), '-C', String(PINGS)];
        const client = await runCommand([...words, '--socket', socket]);
        expect(client.status, client.stderr).toBe(0);
        const served = await endOf(server);
        expect(served.status, served.output).toBe(0);
      });
    });
  });

  it('does with one program what an emulated device does, to the byte', async () => {
    const program = compiledTest('interop/programs/exchange.js');
    await guest.setSiw({ crcRequired: true });
    const native = await guest.succeed(`node ${program} native ${GUEST_ADDRESS}`);
    const socket = folder.file('program/s');
    await folder.daemon(socket);
    const daemon = await onHost([program, 'daemon', '127.0.0.1'], { IWARPD_SOCKET: socket });
    const embedded = await onHost([program, 'embedded', '127.0.0.1']);
    expect(native.split('\n').length).toBeGreaterThan(80);
    expect(native).toBe(daemon);
    expect(native).toBe(embedded);
  });

  describe('doctor', () => {
    it('finds siw0 healthy', async () => {
      const checks = await doctorAfter('true');
      const found = [
        'kernel modules',
        'real devices',
        'native bridge',
        'device nodes',
        'rdma link',
      ];
      for (const name of [...found, 'rdma-core', 'siw provider', 'memlock']) {
        expect(checks.get(name), name).toMatchObject({ state: 'ok' });
      }
      expect(checks.get('real devices')?.text).toContain('siw0 (RNIC, Software iWARP stack)');
      expect(checks.get('native bridge')?.text).toMatch(/lists siw0$/);
      expect(checks.get('device nodes')?.text).toContain('/dev/infiniband/uverbs');
      expect(checks.get('rdma link')?.text).toBe('siw0/1 ACTIVE LinkUp on eth0');
    });

    it('names a limit of locked memory that is too low', async () => {
      const memlock = (await doctorAfter('ulimit -l 64')).get('memlock');
      expect(memlock).toMatchObject({ state: 'warn' });
      expect(memlock?.fix).toContain('ulimit -l unlimited');
    });

    it('names a node that its user may not open', async () => {
      const main = join(repositoryRoot(), 'dist/daemon/cli/main.js');
      const shut = 'chmod 000 /dev/infiniband/uverbs*';
      const doctor = `${POWERLESS} node ${main} doctor --socket /run/none/s`;
      const open = 'chmod 666 /dev/infiniband/uverbs*';
      const { output } = await guest.runToEnd(`${shut}; ${doctor}; ${open}`);
      expect(output).toMatch(/^warn +device nodes +\/dev\/infiniband\/uverbs\d+: EACCES\n.*0666/m);
    });

    it('names a link that is down', async () => {
      const checks = await doctorAfter('ip link set eth0 down');
      await guest.succeed('ip link set eth0 up');
      expect(checks.get('rdma link')).toMatchObject({ state: 'warn' });
      expect(checks.get('rdma link')?.fix).toBe('siw0/1: ip link set eth0 up');
    });

    it('names what is missing without a device', async () => {
      const checks = await doctorAfter('rdma link delete siw0');
      await guest.succeed('rdma link add siw0 type siw netdev eth0');
      expect(checks.get('real devices')).toMatchObject({ state: 'info' });
      expect(checks.get('real devices')?.fix).toContain('rdma link add siw0 type siw');
      expect(checks.get('native bridge')?.text).toMatch(/lists no device$/);
    });
  });

  describe('misuse', () => {
    /** Runs a case of `programs/hostile.ts`, with shell commands before and after. */
    async function misuse(name: string, before = 'true', prefix = ''): Promise<HostileSteps> {
      const command = hostileCommand([name, GUEST_ADDRESS]).join(' ');
      const { status, output } = await guest.runToEnd(`${before}; ${prefix} ${command}`);
      // A signal would make it 128 and more.
      expect(status, output).toBe(0);
      return hostileSteps(output);
    }

    it('everything closed twice', async () => {
      closed(await misuse('twice'));
    });

    it('calls on destroyed objects', async () => {
      untouched(await misuse('afterwards'));
    });

    it('registered memory that is taken away', async () => {
      kept(await misuse('freed'));
    });

    it('more memory than may be locked', async () => {
      const steps = await misuse('locked-memory', 'ulimit -l 256');
      for (const name of ['regMR', 'allocMR']) {
        const { error } = stepNamed(steps, name);
        expect(error, name).toMatchObject({ code: 'ENOMEM', kind: 'lockedMemory' });
        expect(error?.message, name).toMatch(/lock/);
      }
      expect(stepNamed(steps, 'a page').value).toBe(4096);
      expect(stepNamed(steps, 'close').value).toBe('done');
    });

    it('nodes that the user may not open', async () => {
      const nodes = '/dev/infiniband/uverbs* /dev/infiniband/rdma_cm';
      const steps = await misuse('no-permission', `chmod 000 ${nodes}`, POWERLESS);
      await guest.succeed(`chmod 666 ${nodes}`);
      expect(stepNamed(steps, 'devices').value).toBe(true);
      for (const name of ['open', 'createId']) {
        const { error } = stepNamed(steps, name);
        expect(error, name).toMatchObject({ code: 'EACCES', kind: 'noPermission' });
      }
    });

    it('a device that is deleted while it is in use', async () => {
      const program = guest.run(hostileCommand(['disappears', GUEST_ADDRESS]).join(' '));
      await program.waitFor(/"step":"ready"/);
      await guest.succeed('rdma link delete siw0');
      expect(await program.exit, program.output).toBe(0);
      lost(hostileSteps(program.output));
      await guest.succeed('rdma link add siw0 type siw netdev eth0');
    });

    it('no device, and then one again', async () => {
      const steps = await misuse('no-device', 'rdma link delete siw0');
      await guest.succeed('rdma link add siw0 type siw netdev eth0');
      expect(stepNamed(steps, 'devices').value).toBe(0);
      for (const name of ['open', 'open siw0']) {
        const { error } = stepNamed(steps, name);
        expect(error, name).toMatchObject({ code: 'ENODEV', kind: 'noDevice' });
      }
      closed(await misuse('twice'));
    });
  });

  it('siw matches daemon/CONFORMANCE.md in each row of conform', async () => {
    await guest.setSiw({ crcRequired: true });
    const target = guest.run(iwarpdInGuest(`conform --serve --native -p ${PORT}`));
    await target.waitFor(/ready/);
    const words = `--peer ${GUEST_ADDRESS} -p ${PORT} --over iwarp --patience ${patience(5000)} --json`;
    // A file of the host: the console mixes output with the kernel's lines.
    const results = folder.file('conform.json');
    const { output } = await guest.runToEnd(iwarpdInGuest(`conform ${words} >${results}`));
    const json = readFileSync(results, 'utf8');
    expect(json, output).not.toBe('');
    const { verdicts, details } = printedVerdicts(json);
    expect(verdicts, details.join('\n')).toEqual(documentedVerdicts('iWARP', 'Linux'));
    await guest.succeed('pkill -INT -f "[c]onform --serve"');
    expect(await target.exit, target.output).toBe(130);
  });

  // Must be the last: it leaves the guest with other devices.
  it(
    'passes the compliance suite',
    async () => {
      const addresses = [GUEST_ADDRESS, 'fd00::15'];
      await guest.setSiw({ crcRequired: true });
      await guest.succeed(`for name in siw0 rnic0 small0; do rdma link delete $name; done 2>/dev/null
      echo ${FRESH_PORTS} >/proc/sys/net/ipv4/ip_local_port_range
      ip -6 addr flush dev eth0
      ip -6 addr add ${addresses[1]}/64 dev eth0 nodad
      rdma link add rnic0 type siw netdev eth0 && rdma link add small0 type siw netdev lo`);
      const suite = compiledTest('compliance/native-siw-suite.js');
      const tests = await runInGuest(guest, folder.path, [suite], {
        IWARPD_SUITE_ADDRESSES: addresses.join(','),
      });
      const count = (wanted: string) => tests.filter(({ status }) => status === wanted).length;
      const [passed, failed, skipped] = ['passed', 'failed', 'skipped'].map(count);
      process.stderr.write(
        `compliance on siw: ${passed} passed, ${failed} failed, ${skipped} skipped for what siw lacks\n`,
      );
      const failures = tests.filter(({ status }) => status === 'failed');
      expect(failures.map(({ name, messages }) => [name, messages[0]])).toEqual([]);
      expect(passed).toBeGreaterThan(PASSED_MIN);
      expect(skipped).toBe(SKIPPED_COUNT);
    },
    patience(420_000),
  );
});
