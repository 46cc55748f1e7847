/**
 * A guest: a Linux kernel with siw, booted in QEMU in seconds, as the peer of a test.
 *
 * The guest sees the host's file tree, read-only under a scratch overlay, and runs the host's
 * programs: `run` starts any bash script there, several at a time if wanted. It reaches listeners on
 * the host's 127.0.0.1 as 10.0.2.2 (`HOST_ADDRESS`); the host reaches its forwarded ports on
 * 127.0.0.1; it reaches itself as 10.0.2.15 (`GUEST_ADDRESS`). QEMU carries TCP as a proxy: it
 * re-segments the stream, and it accepts connections to a forwarded port whether or not
 * anything listens inside, so wait for the guest's `READY` first (`guest/serve`).
 *
 * Programs in its PATH, each explained in its first lines: `serve`, `pair`, `siw`, `record` (in
 * guest/), `verbs-probe` (in probe/), and the host's own.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { freePort } from '#test/support/free-port';
import { PROGRAM_MS, patience, patient, programSeconds, TEST_MS } from '#test/support/patience';
import { type GuestSlot, guestsComeFirst, takeGuestSlot } from './guest-slot.ts';
import {
  cacheDirectory,
  guestTools,
  type KernelPeerImage,
  prepareKernelPeer,
} from './kernel-image.ts';
import { moduleParameters, type SiwParameters } from './siw-parameters.ts';

/** The guest's own address, inside. */
export const GUEST_ADDRESS = '10.0.2.15';
/** Where the guest finds the host's 127.0.0.1. */
export const HOST_ADDRESS = '10.0.2.2';

interface GuestOptions {
  /** TCP ports of the guest to reach from the host, see `Guest.forwarded`. */
  readonly forwards?: readonly number[];
  /** siw's initial parameters. */
  readonly siw?: SiwParameters;
  /** A directory of the host that the guest may write to, at the same path. */
  readonly share?: string;
  /** The guest's memory, in MiB (1536). */
  readonly memoryMiB?: number;
  /** Load the kernel's iSER initiator, too. */
  readonly iser?: boolean;
  /** Load the kernel's NFS client and server, and RPC-over-RDMA, too. */
  readonly nfs?: boolean;
  /** Load the kernel's NVMe/RDMA host, too. */
  readonly nvme?: boolean;
  /** Load the kernel's RoCE driver, rxe, too; `guest/rxe-peer` makes its device. */
  readonly rxe?: boolean;
  /** Load the kernel's SCTP, too. */
  readonly sctp?: boolean;
  /** A second interface, eth1: the other end of this one. */
  readonly wire?: Wire;
}

/** A TAP device of the host, whose frames a guest's eth1 sends and receives. */
export interface Wire {
  readonly tap: string;
  /** Words that run a command where it exists. */
  readonly within: readonly string[];
}

const BOOT_MS = 120_000;
/** For a script that a test awaits, and for the description of one that does not end. */
const SCRIPT_MS = 180_000;
const DESCRIPTION_MS = 20_000;
/** Prints what the guest's processes wait for, its TCP connections and the kernel's last messages. */
const DESCRIBE = `
  for process in /proc/[1-9]*; do
    readlink $process/exe >/dev/null || grep -q '^State:.*D' $process/status || continue
    printf '\\n%s: ' "\${process##*/}"; tr '\\0' ' ' <$process/cmdline; grep State $process/status
    cat $process/stack
  done 2>/dev/null
  ss -tni; dmesg | tail -n 20`;
/** How long this guest may wait for others: the longest suite takes four minutes alone. */
const TURN_MS = 1_200_000;
/** Time limit for the hook of a suite that boots a guest. */
export const GUEST_START_TIMEOUT_MS = patience(TURN_MS + BOOT_MS + TEST_MS);

export function shellWord(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Resolves when the timeout expires. */
async function expired(idleMs: number): Promise<undefined> {
  await once(patient(idleMs), 'abort');
}

interface Waiter {
  readonly pattern: RegExp;
  readonly resolve: (match: RegExpExecArray) => void;
  readonly reject: (error: Error) => void;
}

/** A running or finished script in a guest. */
export class GuestProcess {
  /** All lines printed so far, stdout and stderr as one. */
  output = '';
  /** Resolves with the exit status once the script has ended and its output is complete. */
  readonly exit: Promise<number>;

  readonly #script: string;
  readonly #kill: () => void;
  readonly #waiters = new Set<Waiter>();
  #settleExit: { resolve: (status: number) => void; reject: (error: Error) => void } | undefined;
  #ended: string | undefined;

  constructor(script: string, kill: () => void) {
    this.#script = script;
    this.#kill = kill;
    this.exit = new Promise((resolve, reject) => {
      this.#settleExit = { resolve, reject };
    });
    // A test that awaits `exit` gets the failure; any other must not fail.
    this.exit.catch(() => undefined);
  }

  /** Resolves with the first match in past or future output; rejects once none can follow. */
  waitFor(pattern: RegExp, timeoutMs = patience(PROGRAM_MS)): Promise<RegExpExecArray> {
    return new Promise((resolve, reject) => {
      const match = pattern.exec(this.output);
      if (match) return resolve(match);
      if (this.#ended !== undefined) return reject(this.#failure(pattern, this.#ended));
      const timer = setTimeout(() => {
        this.#waiters.delete(waiter);
        reject(this.#failure(pattern, `not within ${timeoutMs} ms`));
      }, timeoutMs);
      const settled =
        <T>(then: (value: T) => void): ((value: T) => void) =>
        (value) => {
          clearTimeout(timer);
          this.#waiters.delete(waiter);
          then(value);
        };
      const waiter: Waiter = { pattern, resolve: settled(resolve), reject: settled(reject) };
      this.#waiters.add(waiter);
    });
  }

  /** Ends the script and what it started; `exit` follows. */
  kill(): void {
    this.#kill();
  }

  /** Called only by the guest: a line of output. */
  handleLine(line: string): void {
    this.output += `${line}\n`;
    for (const waiter of [...this.#waiters]) {
      const match = waiter.pattern.exec(this.output);
      if (match) waiter.resolve(match);
    }
  }

  /** Called only by the guest: the script has ended. */
  handleExit(status: number): void {
    this.#ended = `it ended with status ${status}`;
    this.#settleExit?.resolve(status);
    this.#rejectWaiters(this.#ended);
  }

  /** Called only by the guest: it has ended. */
  handleLoss(reason: string): void {
    if (this.#ended !== undefined) return;
    this.#ended = reason;
    this.#settleExit?.reject(new Error(`${this.#script}: ${reason}; it printed:\n${this.output}`));
    this.#rejectWaiters(reason);
  }

  #rejectWaiters(reason: string): void {
    for (const waiter of [...this.#waiters]) waiter.reject(this.#failure(waiter.pattern, reason));
  }

  #failure(pattern: RegExp, reason: string): Error {
    return new Error(`no ${pattern} from ${this.#script}: ${reason}; it printed:\n${this.output}`);
  }
}

/** A booted guest; dispose of it or `stop` it. */
export class Guest implements AsyncDisposable {
  readonly #qemu: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #job: string;
  readonly #slot: GuestSlot;
  readonly #forwarded: ReadonlyMap<number, number>;
  readonly #processes = new Map<number, GuestProcess>();
  readonly #gone: Promise<void>;
  readonly #ready: Promise<string>;
  #settleReady: { resolve: (release: string) => void; reject: (error: Error) => void } | undefined;
  #lossReason: string | undefined;
  #complaints = '';
  #partialLine = '';
  #nextId = 1;

  private constructor(
    qemu: ChildProcessByStdio<Writable, Readable, Readable>,
    job: string,
    slot: GuestSlot,
    forwarded: ReadonlyMap<number, number>,
  ) {
    this.#qemu = qemu;
    this.#job = job;
    this.#slot = slot;
    this.#forwarded = forwarded;
    this.#ready = new Promise((resolve, reject) => {
      this.#settleReady = { resolve, reject };
    });
    this.#ready.catch(() => undefined);
    qemu.stdout.setEncoding('utf8').on('data', (text: string) => this.#handleText(text));
    qemu.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#complaints += text;
    });
    qemu.stdin.on('error', () => undefined);
    this.#gone = new Promise((resolve) => {
      qemu.on('error', (error) => {
        this.#complaints += String(error);
        resolve();
      });
      qemu.on('close', () => resolve());
    });
    this.#gone.then(() => this.#handleLoss()).catch(() => undefined);
  }

  /**
   * Boots a guest when it is its turn, see `guest-slot.ts`, and resolves when it accepts scripts. Calls
   * `prepareKernelPeer` unless that was done.
   */
  static async start(options: GuestOptions = {}): Promise<Guest> {
    const image = await prepareKernelPeer();
    const slot = await takeGuestSlot(cacheDirectory(), TURN_MS);
    try {
      return await Guest.#boot(image, slot, options);
    } catch (error) {
      await slot.close();
      throw error;
    }
  }

  static async #boot(
    image: KernelPeerImage,
    slot: GuestSlot,
    options: GuestOptions,
  ): Promise<Guest> {
    const job = await mkdtemp(join(tmpdir(), 'iwarpd-guest-'));
    const forwarded = new Map<number, number>();
    for (const port of options.forwards ?? []) forwarded.set(port, await freePort());
    const variables = {
      TOOLS: guestTools(),
      PROBES: image.probes,
      DIRECTORY: process.cwd(),
      SHARE: options.share ?? '',
      PROGRAM_SECONDS: `${programSeconds()}`,
      MODULE_SETS: (['iser', 'nfs', 'nvme', 'rxe', 'sctp'] as const)
        .filter((name) => options[name] === true)
        .join(' '),
      SIW_PARAMETERS: moduleParameters(options.siw ?? {}).join(' '),
    };
    const lines = Object.entries(variables).map(([name, value]) => `${name}=${shellWord(value)}\n`);
    await writeFile(join(job, 'job'), lines.join(''));

    const parameters = qemuParameters(image, job, forwarded, options);
    // If this process dies without stopping QEMU, QEMU ends, too.
    const setpriv = ['setpriv', '--pdeathsig', 'KILL', ...firstOnItsProcessor()];
    const within = [...(options.wire?.within ?? []), ...setpriv, 'qemu-system-x86_64'];
    const [command = '', ...rest] = [...within, ...parameters];
    const qemu = spawn(command, rest, { stdio: ['pipe', 'pipe', 'pipe'] });
    const guest = new Guest(qemu, job, slot, forwarded);
    const boot = setTimeout(() => guest.#abandon('it did not boot'), patience(BOOT_MS));
    try {
      await guest.#ready;
      return guest;
    } catch (error) {
      await guest.stop();
      throw error;
    } finally {
      clearTimeout(boot);
    }
  }

  /** The host's port on 127.0.0.1 that leads to a port named in `forwards`. */
  forwarded(guestPort: number): number {
    const hostPort = this.#forwarded.get(guestPort);
    if (hostPort === undefined) throw new Error(`port ${guestPort} of the guest is not forwarded`);
    return hostPort;
  }

  /** Starts a bash script in the guest, in the working directory of the host's process. */
  run(script: string): GuestProcess {
    const id = this.#nextId++;
    const process = new GuestProcess(script, () => this.#say(`kill ${id}`));
    this.#processes.set(id, process);
    if (this.#lossReason === undefined)
      this.#say(`run ${id} ${script.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`);
    else process.handleLoss(this.#lossReason);
    return process;
  }

  /** Runs a script; throws with the state of the guest's processes when it does not end. */
  async runToEnd(script: string): Promise<{ status: number; output: string }> {
    const process = this.run(script);
    const status = await Promise.race([process.exit, expired(SCRIPT_MS)]);
    if (status !== undefined) return { status, output: process.output };
    const description = this.run(DESCRIBE);
    await Promise.race([description.exit, expired(DESCRIPTION_MS)]);
    process.kill();
    throw new Error(
      `a script in the guest did not end: ${script}; it printed:\n${process.output}\nThe guest:\n${description.output}`,
    );
  }

  /** The output of a script that must succeed. */
  async succeed(script: string): Promise<string> {
    const { status, output } = await this.runToEnd(script);
    if (status !== 0) throw new Error(`a script in the guest ended with ${status}: ${output}`);
    return output;
  }

  /** Changes siw's parameters for new connections. */
  async setSiw(parameters: SiwParameters): Promise<void> {
    await this.succeed(`siw ${moduleParameters(parameters).join(' ')}`);
  }

  /** The kernel's console output: warnings and worse, including siw's. */
  async console(): Promise<string> {
    return await readFile(join(this.#job, 'console'), 'utf8').catch(() => '');
  }

  /** Powers the guest off, or kills its QEMU if that takes too long; safe to call again. */
  async stop(): Promise<void> {
    this.#lossReason ??= 'the guest was stopped';
    this.#say('off');
    const hurry = setTimeout(() => this.#qemu.kill('SIGKILL'), patience());
    await this.#gone;
    clearTimeout(hurry);
    await this.#slot.close();
    await rm(this.#job, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #say(line: string): void {
    if (this.#qemu.stdin.writable) this.#qemu.stdin.write(`${line}\n`);
  }

  #abandon(reason: string): void {
    this.#lossReason ??= reason;
    this.#qemu.kill('SIGKILL');
  }

  #handleText(text: string): void {
    const lines = (this.#partialLine + text).split('\n');
    this.#partialLine = lines.pop() ?? '';
    // An empty line ends output without a newline.
    for (const line of lines) if (line !== '') this.#handleLine(line);
  }

  #handleLine(line: string): void {
    const [, verb = '', rest = ''] = /^(\w+) ?(.*)$/s.exec(line) ?? [];
    const [, id = '', value = ''] = /^(\d+) ?(.*)$/s.exec(rest) ?? [];
    const process = this.#processes.get(Number(id));
    switch (verb) {
      case 'ready':
        this.#settleReady?.resolve(rest);
        break;
      case 'broken':
        this.#abandon(rest);
        break;
      case 'out':
        process?.handleLine(value);
        break;
      case 'exit':
        // Scripts that end while the guest shuts down ended because of it.
        if (this.#lossReason === undefined) process?.handleExit(Number(value));
        break;
      default:
        this.#abandon(`the guest answered ${JSON.stringify(line)}`);
    }
  }

  async #handleLoss(): Promise<void> {
    const reason = this.#lossReason ?? `QEMU ended: ${this.#complaints || 'it says nothing'}`;
    this.#lossReason = reason;
    for (const process of this.#processes.values()) process.handleLoss(reason);
    const tail = (await this.console()).split('\n').slice(-20).join('\n');
    this.#settleReady?.reject(new Error(`no guest: ${reason}\n${tail}`));
  }
}

/** Boots a guest, see `Guest.start`. */
export function startGuest(options: GuestOptions = {}): Promise<Guest> {
  return Guest.start(options);
}

/**
 * The words that give a guest priority over the suites beside it, if permitted. Its clock advances
 * while it waits for a processor, so its programs would time out.
 */
function firstOnItsProcessor(): string[] {
  return guestsComeFirst() ? ['nice', '-n', '-5'] : [];
}

function qemuParameters(
  image: { readonly kernel: string; readonly initrd: string },
  job: string,
  forwarded: ReadonlyMap<number, number>,
  options: GuestOptions,
): string[] {
  const hostForwards = [...forwarded].map(
    ([guest, host]) => `,hostfwd=tcp:127.0.0.1:${host}-:${guest}`,
  );
  const folder = (tag: string, path: string, extra: string): string[] => [
    '-fsdev',
    `local,id=${tag},path=${path.replaceAll(',', ',,')},security_model=none,multidevs=remap${extra}`,
    '-device',
    `virtio-9p-pci,fsdev=${tag},mount_tag=${tag}`,
  ];
  return [
    '-nodefaults',
    '-no-user-config',
    '-no-reboot',
    '-display',
    'none',
    // Emulated, not KVM, since nested virtualisation is often unavailable. What makes emulation fast: one
    // processor; a model without wide registers, which are slow to emulate; memory that the kernel does not
    // clear in advance; no address randomisation, so translated code is reused; and no security modules
    // except the one that a suite tests.
    '-accel',
    'tcg,thread=multi',
    '-cpu',
    'Nehalem',
    '-smp',
    '1',
    '-m',
    String(options.memoryMiB ?? 1536),
    '-kernel',
    image.kernel,
    '-initrd',
    image.initrd,
    '-append',
    'console=ttyS0 loglevel=5 panic=-1 mitigations=off init_on_alloc=0 norandmaps nokaslr lsm=yama cryptomgr.notests',
    '-serial',
    `file:${join(job, 'console').replaceAll(',', ',,')}`,
    '-fw_cfg',
    `name=opt/iwarpd.job,file=${join(job, 'job').replaceAll(',', ',,')}`,
    '-chardev',
    'stdio,id=agent,signal=off',
    '-device',
    'virtio-serial-pci',
    '-device',
    // No console: a port has no terminal between the scripts and the harness.
    'virtserialport,chardev=agent,name=agent',
    ...folder('host', '/', ',readonly=on'),
    ...(options.share === undefined ? [] : folder('share', options.share, '')),
    '-netdev',
    `user,id=net,ipv6=off${hostForwards.join('')}`,
    '-device',
    'virtio-net-pci,netdev=net,romfile=',
    ...(options.wire === undefined ? [] : wireParameters(options.wire)),
  ];
}

/** Without a header before each frame, so that none leaves its checksum to the other end. */
function wireParameters({ tap }: Wire): string[] {
  return [
    '-netdev',
    `tap,id=wire,ifname=${tap},script=no,downscript=no,vnet_hdr=off`,
    '-device',
    'virtio-net-pci,netdev=wire,romfile=,mac=02:00:00:00:00:01,host_mtu=9000',
  ];
}
