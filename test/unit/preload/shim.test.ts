import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { IPC_VERSION, Role } from '#contract/protocol/ipc-frames';
import { FakeDaemon, type FakeFile } from '#test/support/fake-daemon';
import { missingFor, NATIVE, type Outcome, runProgram, ShimRig } from '#test/support/shim-rig';

const PASSED: Outcome = { status: 0, stdout: '', stderr: '' };
const PROBES = [
  'agent-probe',
  'device-probe',
  'discovery-probe',
  'event-probe',
  'process-probe',
] as const;
const reason = missingFor(NATIVE);

describe.runIf(reason === '')(`the shim${reason}`, () => {
  let rig: ShimRig;
  let daemon: FakeDaemon;

  beforeAll(() => {
    rig = new ShimRig(NATIVE, ...PROBES);
  });

  afterAll(() => rig.remove());

  beforeEach(async () => {
    daemon = new FakeDaemon();
    await daemon.start();
  });

  afterEach(() => daemon.stop());

  async function probe(name: string, scenario: string): Promise<Outcome> {
    const variables = { IWARPD_SOCKET: daemon.socketPath, SYSFS_PATH: daemon.sysfsPath };
    return await rig.run(rig.probe(name), [scenario], variables);
  }

  /** The files of a role, after the program's last close. */
  async function closedFiles(role: number): Promise<FakeFile[]> {
    const files = daemon.files.filter((file) => file.role === role);
    await expect.poll(() => files.every((file) => file.closed)).toBe(true);
    return files;
  }

  describe('device files', () => {
    it.each([
      ['show their nodes in every call that searches for them', 'nodes'],
      ['open by the names that fortified, older and large-file builds call', 'aliases'],
      ['leave it to the kernel to refuse a path that is NULL', 'null-paths'],
      ['fail with EFAULT if an answer cannot be written, and continue', 'bad-responses'],
      ['map queues that the daemon sends, if they are long enough', 'queues'],
    ])('%s', async (_about, scenario) => {
      expect(await probe('device-probe', scenario)).toEqual(PASSED);
    });

    it('pass on whole commands, and replies that fit', async () => {
      expect(await probe('device-probe', 'commands')).toEqual(PASSED);
      const [file] = await closedFiles(Role.uverbs);
      expect(file?.commands).toEqual([3, 4, 77, 134, 0x8000_0001, 3]);
    });

    it('fail with EFAULT for unreadable input, and continue', async () => {
      expect(await probe('device-probe', 'bad-addresses')).toEqual(PASSED);
      const [file] = await closedFiles(Role.rdmaCm);
      expect(file?.options).toEqual(['01000000']);
    });

    it('name completion channels by number, and refuse invalid ones', async () => {
      expect(await probe('device-probe', 'channels')).toEqual(PASSED);
      const [file] = await closedFiles(Role.uverbs);
      const number = file?.queues[1]?.number;
      expect(file?.channels).toEqual([number, 0xffff_ffff, number]);
    });

    it('ring connected queue pairs without waiting for a reply, and only once until the daemon reads it', async () => {
      expect(await probe('device-probe', 'doorbells')).toEqual(PASSED);
      const [file] = await closedFiles(Role.uverbs);
      expect(file?.doorbells).toEqual([5, 5]);
      expect(file?.commands.filter((command) => command === 28)).toHaveLength(4);
    });

    it('are closed even if a thread waits for the daemon’s exit', async () => {
      expect(await probe('device-probe', 'unwatched')).toEqual(PASSED);
      for (const file of daemon.files) await expect.poll(() => file.closed).toBe(true);
    });

    it('accept commands of several threads', async () => {
      expect(await probe('device-probe', 'threads')).toEqual(PASSED);
      const [file] = await closedFiles(Role.uverbs);
      expect(file?.commands).toHaveLength(800);
    });
  });

  describe('event descriptors', () => {
    it('are readable exactly while records wait', async () => {
      expect(await probe('event-probe', 'records')).toEqual(PASSED);
    });

    it.for([
      ['wait without using the processor', 'waiting'],
      ['share their queue with duplicates', 'duplicates'],
      ['work with edge-triggered epoll', 'epolled'],
      ['fail with EMFILE in a program that has no descriptor left', 'crowded'],
      ['lose the records that the daemon removes', 'purged'],
      ['return EINTR, or restart, as read does', 'signals'],
      ['do not interrupt commands when signals arrive', 'signals-in-commands'],
      ['let a waiting thread be cancelled, and stay intact', 'cancelled'],
      ['serve several readers, each record once', 'several-readers'],
      ['let other threads use rdma_cm while one waits for an event', 'cm-events'],
      ['let a thread be cancelled that waits for an event', 'cm-cancelled'],
    ] as const)('%s', async ([, scenario]) => {
      expect(await probe('event-probe', scenario)).toEqual(PASSED);
      await closedFiles(Role.uverbs);
      await closedFiles(Role.rdmaCm);
    });

    it('answer GET_EVENT on an empty non-blocking descriptor without asking the daemon', async () => {
      expect(await probe('event-probe', 'cm-events')).toEqual(PASSED);
      const [file] = await closedFiles(Role.rdmaCm);
      expect(file?.commands.filter((command) => command === 12)).toHaveLength(1);
    });

    it('return option values and the number of the file that an id comes from', async () => {
      expect(await probe('event-probe', 'cm-arguments')).toEqual(PASSED);
      const [first, second] = await closedFiles(Role.rdmaCm);
      expect(second?.options).toEqual(['44332211']);
      expect(second?.sources).toEqual([first?.number]);
    });
  });

  describe('processes', () => {
    it('give a forked child its own connection to the same file', async () => {
      expect(await probe('process-probe', 'forked')).toEqual(PASSED);
      const [file, ...others] = await closedFiles(Role.uverbs);
      expect(others).toEqual([]);
      const pids = [...(file?.pids ?? [])];
      expect(pids).toHaveLength(2);
      expect(pids).toContain(file?.parents[0]);
      expect(file?.parents).toHaveLength(1);
    });

    it.for([
      ['reach the file from a grandchild', 'grandchildren'],
      ['keep the file open for a grandchild that has not used it yet', 'outlived'],
      ['fork while other threads talk to the daemon', 'forked-while-busy'],
      ['refuse the writes of a forked child to an inherited rdma_cm', 'forked-manager'],
      ['keep their send queues from a forked child, and refuse its doorbells', 'inherited'],
      ["keep their descriptors whatever vfork's child closes", 'vforked'],
      ['keep their connection from a child that was made past fork', 'cloned'],
      ['hand nothing over to the program that they execute', 'executed'],
      ['leave nothing when they close', 'closed'],
      ["cannot close the shim's own descriptors, but have their numbers", 'hidden'],
      ['get rdma_cm files whose numbers are above those of their sockets', 'numbers'],
      ['close ranges of descriptors', 'ranges'],
      ['use numbers again that were closed out of sight', 'reused'],
      ['open and close in several threads', 'churned'],
      ['take hidden numbers while others close devices', 'moved-while-closed'],
    ] as const)('%s', async ([, scenario]) => {
      expect(await probe('process-probe', scenario)).toEqual(PASSED);
      await closedFiles(Role.uverbs);
      await closedFiles(Role.rdmaCm);
    });
  });

  describe('discovery', () => {
    it.each([
      ['answers the netlink socket as libnl and libmnl use it', 'netlink'],
      ['fails with EFAULT for messages at invalid addresses', 'bad-netlink'],
      ['makes rsockets look for new connections often', 'rsockets'],
    ])('%s', async (_about, scenario) => {
      expect(await probe('discovery-probe', scenario)).toEqual(PASSED);
    });

    it('steps aside if there is no daemon', async () => {
      const variables = { IWARPD_SOCKET: `${daemon.directory}/none` };
      expect(await rig.run(rig.probe('discovery-probe'), ['absent'], variables)).toEqual(PASSED);
      expect(daemon.greetings).toBe(0);
    });

    it('names the versions once and steps aside if the daemon speaks another one', async () => {
      daemon.version = IPC_VERSION + 1;
      // The shim writes only to a terminal or a pipe; a child of Node has sockets.
      const words = ['-c', '"$0" absent 2>&1 | cat', rig.probe('discovery-probe')];
      const variables = { IWARPD_SOCKET: daemon.socketPath, SYSFS_PATH: daemon.sysfsPath };
      expect(await rig.run('/bin/sh', words, variables)).toEqual({
        ...PASSED,
        stdout:
          `iwarpd: the daemon speaks version ${IPC_VERSION + 1} of the protocol, ` +
          `the preload library ${IPC_VERSION}: use both from the same release\n`,
      });
      expect(daemon.greetings).toBeGreaterThan(1);
    });

    it('finds the daemon in the runtime and in the temporary directory', async () => {
      const { mkdirSync, symlinkSync } = await import('node:fs');
      for (const [variable, folder] of [
        ['XDG_RUNTIME_DIR', 'iwarpd'],
        ['TMPDIR', `iwarpd-${process.getuid?.()}`],
      ] as const) {
        const before = daemon.greetings;
        mkdirSync(`${daemon.directory}/${folder}`);
        symlinkSync(daemon.socketPath, `${daemon.directory}/${folder}/iwarpd.sock`);
        const variables = { [variable]: daemon.directory };
        const outcome = await rig.run(rig.probe('discovery-probe'), ['netlink'], variables);
        expect(outcome).toEqual(PASSED);
        expect(daemon.greetings).toBeGreaterThan(before);
      }
    });

    it.each([
      ['reads the sysfs classes from the generated tree', 'sysfs'],
      ['leads to the PCI functions of rails', 'rails'],
    ])('%s', async (_about, scenario) => {
      expect(await probe('discovery-probe', scenario)).toEqual(PASSED);
      expect(daemon.greetings).toBe(0);
    });

    it('walks through the tree, and lists the nodes of devices', async () => {
      expect(await probe('discovery-probe', 'walks')).toEqual(PASSED);
    });
  });

  describe('a daemon that fails', () => {
    it.each([
      ['completes outstanding work in error', 'flushes'],
      ['completes an element in error, too, that it counted and did not free', 'flushes-last'],
    ])('%s', async (_about, scenario) => {
      expect(await probe('device-probe', scenario)).toEqual(PASSED);
    });

    it.each([
      ['fails every waiting call, and leaves no device behind', 'dies'],
      ['cannot harm the program by malformed replies', 'lies'],
    ])('%s', async (_about, scenario) => {
      expect(await probe('discovery-probe', scenario)).toEqual(PASSED);
    });

    it('ends connections with events: device removal, then disconnection', async () => {
      expect(await probe('event-probe', 'cm-disconnects')).toEqual(PASSED);
    });
  });

  describe('the agent', () => {
    it.for([
      ['copies memory for a daemon that may not, and survives bad addresses', 'copies'],
      [
        'starts where the program no longer finds the socket, as do completion channels',
        'out-of-reach',
      ],
      ['touches registered memory only, whatever the daemon asks', 'confined'],
      ['writes only where the registration lets the device write', 'read-only'],
      ['serves a registration from its command on, and none that was refused', 'starting'],
      ['opens no more for a daemon that lies about handles', 'lying-handles'],
      ["serves a child's own registrations, not its parent's", 'forked'],
      ['forgets the registrations of a file that is closed', 'closed'],
      ['distinguishes a thousand registrations', 'many'],
    ] as const)('%s', async ([, scenario]) => {
      expect(await probe('agent-probe', scenario)).toEqual(PASSED);
    });
  });

  describe('programs without RDMA', () => {
    const programs: readonly (readonly [string, readonly string[]])[] = [
      ['ls', ['-la', '/etc/passwd', '/usr/lib/os-release']],
      ['cat', ['/etc/passwd']],
      ['sh', ['-c', 'for i in 1 2 3; do echo $i | cat; done; (exec 5<&0 5<&-)']],
      [process.execPath, ['-e', "console.log(require('fs').readdirSync('/').sort().join())"]],
    ];

    it.for(programs)('%s behaves as without the shim', async ([program, args]) => {
      const variables = { IWARPD_SOCKET: daemon.socketPath };
      const plain = await runProgram(program, args, variables);
      expect(plain.status).toBe(0);
      expect(await rig.run(program, args, variables)).toEqual(plain);
      expect(daemon.greetings).toBe(0);
    });

    it('pay almost nothing for a call', async () => {
      const path = rig.probe('discovery-probe');
      const plain = await runProgram(path, ['cost'], {});
      const shimmed = await rig.run(path, ['cost']);
      expect([plain.status, shimmed.status]).toEqual([0, 0]);
      const [before, after] = [plain.stdout.trim(), shimmed.stdout.trim()];
      console.log(`ns for write to /dev/null, close(-1): plain ${before}, with the shim ${after}`);
    });
  });
});
