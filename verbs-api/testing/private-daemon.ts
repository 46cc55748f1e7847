/** A daemon of a test's own: a process with its own socket, gone when the test is. */
import { DaemonControl } from '../client/daemon-control.ts';
import { connectDaemon } from '../connect-daemon.ts';
import type { DeviceInfo } from '../contract/attributes.ts';
import type { ResetReport } from '../contract/control.ts';
import type { ClientStatus } from '../contract/ipc-admin.ts';
import type { Provider } from '../contract/provider.ts';
import { DaemonChild, type ReadyLine } from './daemon-child.ts';
import { noteDaemon } from './daemon-registry.ts';
import { LeakError, type OpenObjects, openObjects } from './leaks.ts';
import {
  type Truthy,
  type WaitOptions,
  WaitTimeoutError,
  waitUnlessGone,
  within,
} from './waiting.ts';

const START_TIMEOUT_MS = 20_000;
const LEAK_GRACE_MS = 1000;
const DEFAULT_DEVICES: readonly TestDevice[] = [
  { name: 'left', addresses: ['127.0.0.2'] },
  { name: 'right', addresses: ['127.0.0.3'] },
];

/** An emulated device. */
export interface TestDevice {
  readonly name: string;
  /** Addresses of this host that it answers for. */
  readonly addresses: readonly string[];
}

/** Options of `startPrivateDaemon`. */
export interface PrivateDaemonOptions extends WaitOptions {
  /** Default: `left` at 127.0.0.2 and `right` at 127.0.0.3. */
  readonly devices?: readonly TestDevice[];
  /** Answers over HTTP too, on a free port of 127.0.0.1: see `PrivateDaemon.url`. Default: no. */
  readonly http?: boolean;
  /** How much it logs to its output. Default: 'info'. */
  readonly logLevel?: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';
  /** More words for `iwarpd start`. */
  readonly words?: readonly string[];
}

/** Which connections to count. */
export interface ConnectionCount {
  /** Name of a device. Default: all. Two devices of one daemon have an end each, so two count. */
  readonly device?: string;
  /** As `ConnectionSummary.phase`. Default: 'established'. */
  readonly phase?: string;
}

/** A counter and what it has to reach. */
export interface CounterGoal {
  /** As `iwarpd status` and `DeviceStatus.counters` name it. */
  readonly counter: string;
  readonly atLeast: number;
  /** Name of a device. Default: the sum over all. */
  readonly device?: string;
}

/** Options of `PrivateDaemon.reset`. */
export interface CleanResetOptions {
  /** Leaks are told in the report, and are no failure. Default: false. */
  readonly allowLeaks?: boolean;
  /** How long a program that is about to end has to give back what it holds. Default: 1000. */
  readonly graceMs?: number;
}

/** See the module's comment. */
export class PrivateDaemon implements AsyncDisposable {
  readonly pid: number;
  readonly devices: readonly DeviceInfo[];
  /** `http://HOST:PORT`; undefined without HTTP. */
  readonly url: string | undefined;
  /** The control plane: status, objects, faults. `reset` here asserts no leaks: see `reset`. */
  readonly control: DaemonControl;
  readonly #child: DaemonChild;

  /** Use `startPrivateDaemon`. */
  constructor(child: DaemonChild, ready: ReadyLine) {
    this.#child = child;
    this.pid = ready.pid;
    this.devices = ready.devices;
    this.url = ready.http?.url;
    this.control = new DaemonControl({ socketPath: child.socketPath });
  }

  /** Path of its socket: `IWARPD_SOCKET` for programs that are to use it. */
  get socketPath(): string {
    return this.#child.socketPath;
  }

  /** What it wrote, log and all: the last 64 KiB. Worth printing when a test fails. */
  get output(): string {
    return this.#child.output;
  }

  /** Aborts when it has ended; the reason is a `DaemonEndedError` with its output. */
  get gone(): AbortSignal {
    return this.#child.gone;
  }

  /** Its devices as a provider: a client of its own, for the caller to close. */
  async connect(): Promise<Provider> {
    const provider = await connectDaemon({ socketPath: this.socketPath });
    noteDaemon(provider, this.gone);
    return provider;
  }

  /** Sends it a signal: SIGKILL for a crash, SIGSTOP and SIGCONT for one that hangs. */
  signal(name: 'SIGKILL' | 'SIGTERM' | 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.signal(name);
  }

  /**
   * Waits until `condition` gives something true, and resolves with it. Rejects with
   * `WaitTimeoutError` that names `what`, `DaemonEndedError`, or what `condition` throws.
   */
  waitFor<T>(
    what: string,
    condition: () => T | Promise<T>,
    options: WaitOptions = {},
  ): Promise<Truthy<T>> {
    return waitUnlessGone(() => what, condition, options, this.gone);
  }

  /** Waits until there are exactly `count` connections. Rejects as `waitFor`. */
  async waitForConnections(
    count: number,
    which: ConnectionCount = {},
    options: WaitOptions = {},
  ): Promise<void> {
    const { device, phase = 'established' } = which;
    const place = device === undefined ? '' : ` of ${device}`;
    await this.#reach(options, async () => {
      const all = await this.control.connections(device === undefined ? {} : { device });
      const found = all.filter((each) => each.phase === phase).length;
      const state = `there are ${found}, and ${all.length - found} in other phases`;
      return {
        done: found === count,
        text: `${count} connections${place} that are ${phase}: ${state}`,
      };
    });
  }

  /** Waits until a counter is high enough. Rejects as `waitFor`; RangeError if there is none. */
  async waitForCounter(goal: CounterGoal, options: WaitOptions = {}): Promise<void> {
    const { counter, atLeast, device } = goal;
    await this.#reach(options, async () => {
      const found = (await this.control.devices()).filter(
        (each) => device === undefined || each.device.name === device,
      );
      const values = found.flatMap(({ counters }) => counters[counter] ?? []);
      if (values.length === 0) {
        const known = found.flatMap(({ counters }) => Object.keys(counters));
        throw new RangeError(
          `no counter ${counter} of ${device ?? 'any device'}; there are ${[...new Set(known)].join(', ') || 'none'}`,
        );
      }
      const value = values.reduce((sum, each) => sum + each, 0);
      const text = `counter ${counter} of ${device ?? 'all devices'} at ${atLeast}: it is ${value}`;
      return { done: value >= atLeast, text };
    });
  }

  /**
   * As good as new, for the next test: all clients and connections are ended, this program's too,
   * faults removed, counters zero. Rejects with `LeakError`, having done all that, when a program
   * still held objects: it names program and objects. Connect anew behind it.
   */
  async reset(options: CleanResetOptions = {}): Promise<ResetReport> {
    const { allowLeaks = false, graceMs = LEAK_GRACE_MS } = options;
    const open = allowLeaks ? undefined : await this.#openAfter(graceMs);
    const report = await this.#answer(() => this.control.reset());
    if (!allowLeaks && report.leaks.length > 0) throw new LeakError(report, open);
    return report;
  }

  /** Ends it and removes its directory; twice does no harm. */
  stop(): Promise<void> {
    return this.#child.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** What programs hold, once they have had their time to give it back. */
  async #openAfter(graceMs: number): Promise<OpenObjects | undefined> {
    const clean = async (): Promise<boolean> => !(await this.control.clients()).some(holds);
    try {
      await this.waitFor('clients without objects', clean, { timeoutMs: graceMs });
      return undefined;
    } catch (error) {
      if (!(error instanceof WaitTimeoutError)) throw error;
      return await this.#answer(() => openObjects(this.control));
    }
  }

  /** A reply of the daemon, or how it ended. */
  #answer<T>(ask: () => Promise<T>): Promise<T> {
    const timedOut = (timeoutMs: number): Error =>
      new WaitTimeoutError(`the daemon did not answer within ${timeoutMs} ms`);
    return within({ daemonGone: this.gone, timeoutMs: START_TIMEOUT_MS, timedOut }, ask);
  }

  /** Looks until it is done; a timeout tells what was seen last. */
  async #reach(
    options: WaitOptions,
    look: () => Promise<{ readonly done: boolean; readonly text: string }>,
  ): Promise<void> {
    let last = 'the daemon, which did not answer';
    const condition = async (): Promise<boolean> => {
      const { done, text } = await look();
      last = text;
      return done;
    };
    await waitUnlessGone(() => last, condition, options, this.gone);
  }
}

/**
 * Starts a daemon in a process of its own, with its socket in a fresh private directory, and
 * resolves when it is ready. It ends with `stop`, with `await using`, and whenever this process does.
 *
 * Rejects with `DaemonEndedError` that has its output when it cannot start, with `WaitTimeoutError`
 * after `timeoutMs` (default 20 s). Nothing is left behind then.
 */
export async function startPrivateDaemon(
  options: PrivateDaemonOptions = {},
): Promise<PrivateDaemon> {
  const child = new DaemonChild(startWords(options));
  try {
    return new PrivateDaemon(child, await child.ready({ timeoutMs: START_TIMEOUT_MS, ...options }));
  } catch (error) {
    await child.stop();
    throw error;
  }
}

function startWords(options: PrivateDaemonOptions): string[] {
  const { devices = DEFAULT_DEVICES, http = false, logLevel = 'info', words = [] } = options;
  return [
    '--no-native',
    ...devices.flatMap(({ name, addresses }) => ['--device', `${name}=${addresses.join(',')}`]),
    ...(http ? ['--http', '127.0.0.1:0'] : []),
    '--log-level',
    logLevel,
    ...words,
  ];
}

function holds({ usage }: ClientStatus): boolean {
  return Object.values(usage.objects).some((count) => count > 0);
}
