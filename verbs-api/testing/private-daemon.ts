/** A private daemon for tests: a process with its own socket, stopped with the test. */
import { readFileSync } from 'node:fs';
import {
  CONNECTION_PHASES,
  type ConnectionPhase,
  type ResetReport,
} from '#contract/protocol/control';
import { type ClientStatus, NETWORKS, type NetworkReach } from '#contract/protocol/ipc-admin';
import {
  FLAG,
  FUNCTION,
  listOf,
  MILLISECONDS,
  nearest,
  oneOf,
  optional,
  options as optionsOf,
  TEXT,
  takes,
  wholeNumber,
} from '#contract/verbs/arguments';
import type { DeviceInfo, DeviceTransport } from '#contract/verbs/attributes';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { Provider } from '#contract/verbs/provider';
import { LIMIT } from '#contract/verbs/signatures';
import { DaemonControl } from '../client/daemon-control.ts';
import { connectDaemon } from '../connect-daemon.ts';
import { DaemonChild, type ReadyLine } from './daemon-child.ts';
import { noteDaemon } from './daemon-registry.ts';
import { LeakError, type OpenObjects, openObjects } from './leaks.ts';
import {
  type Truthy,
  WAIT_OPTIONS,
  type WaitOptions,
  WaitTimeoutError,
  waitUnlessGone,
  within,
} from './waiting.ts';

const START_TIMEOUT_MS = 60_000;
const LEAK_GRACE_MS = 1000;
const DEFAULT_DEVICES: readonly TestDevice[] = [
  { name: 'left', addresses: ['127.0.0.2'] },
  { name: 'right', addresses: ['127.0.0.3'] },
];

/** An emulated device. */
export interface TestDevice {
  /** Name of the device. */
  readonly name: string;
  /**
   * Addresses that the device answers for: any, on an isolated network; else some of this host. Default,
   * and if empty: every address that no other device has.
   */
  readonly addresses?: readonly string[] | undefined;
  /** The protocol of the device. Default: iwarp. */
  readonly transport?: DeviceTransport | undefined;
}

/** Options of `startPrivateDaemon`. */
export interface PrivateDaemonOptions extends WaitOptions {
  /** Default: `left` at 127.0.0.2 and `right` at 127.0.0.3. */
  readonly devices?: readonly TestDevice[] | undefined;
  /** Also serve HTTP on a free port of 127.0.0.1: see `PrivateDaemon.url`. Default: no. */
  readonly http?: boolean | undefined;
  /** Log level of its output. Default: 'info'. */
  readonly logLevel?: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent' | undefined;
  /**
   * Whether the devices reach other hosts and daemons, or each other only. In the latter case tests do not
   * interfere with each other, nor with the ports of the machine. Default: 'isolated'.
   */
  readonly network?: NetworkReach | undefined;
  /** Further command-line words for `iwarpd start`. */
  readonly words?: readonly string[] | undefined;
}

/** Selects the connections to count, and limits the wait. */
export interface ConnectionCount extends WaitOptions {
  /**
   * Name of a device. Default: all. A connection between two devices of one daemon counts twice,
   * once per end.
   */
  readonly device?: string | undefined;
  /** A `ConnectionSummary.phase`. Default: 'established'. */
  readonly phase?: ConnectionPhase | undefined;
}

/** A counter, the value to wait for, and the limit of the wait. */
export interface CounterGoal extends WaitOptions {
  /** Name of the counter, as in `iwarpd status` and `DeviceStatus.counters`. */
  readonly counter: string;
  /** The value to wait for. */
  readonly atLeast: number;
  /** Name of a device. Default: the sum over all. */
  readonly device?: string | undefined;
}

/** Options of `PrivateDaemon.reset`. */
export interface CleanResetOptions {
  /** Report leaks instead of failing. Default: false. */
  readonly allowLeaks?: boolean | undefined;
  /**
   * Milliseconds in which a program that is about to end may release its objects. Default: 1000.
   */
  readonly graceMs?: number | undefined;
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'];
const SIGNALS = ['SIGKILL', 'SIGTERM', 'SIGSTOP', 'SIGCONT'];

/** The kind of `PrivateDaemonOptions`. */
export const DAEMON = optionsOf<PrivateDaemonOptions>({
  ...LIMIT,
  devices: optional(
    listOf(
      optionsOf<TestDevice>({
        name: TEXT,
        addresses: optional(listOf(TEXT)),
        transport: optional(oneOf(['iwarp', 'roce'])),
      }),
    ),
  ),
  http: optional(FLAG),
  network: optional(oneOf(NETWORKS)),
  logLevel: optional(oneOf(LOG_LEVELS)),
  words: optional(listOf(TEXT)),
});

/** Checks arguments; throws EINVAL. */
const checkDaemon = {
  startPrivateDaemon: takes('startPrivateDaemon', { options: optional(DAEMON) }),
  waitForConnections: takes('waitForConnections', {
    count: wholeNumber(0),
    which: optional(
      optionsOf<ConnectionCount>({
        ...LIMIT,
        device: optional(TEXT),
        phase: optional(oneOf(CONNECTION_PHASES)),
      }),
    ),
    options: WAIT_OPTIONS,
  }),
  waitForCounter: takes('waitForCounter', {
    goal: optionsOf<CounterGoal>({
      ...LIMIT,
      counter: TEXT,
      atLeast: wholeNumber(0),
      device: optional(TEXT),
    }),
    options: WAIT_OPTIONS,
  }),
  reset: takes('reset', {
    options: optional(
      optionsOf<CleanResetOptions>({ allowLeaks: optional(FLAG), graceMs: optional(MILLISECONDS) }),
    ),
  }),
  signal: takes('signal', { name: oneOf(SIGNALS) }),
  waitFor: takes('waitFor', { what: TEXT, condition: FUNCTION, options: WAIT_OPTIONS }),
} as const;

/** A private daemon for a test: a process with its own socket, stopped by `close`. */
export class PrivateDaemon implements AsyncDisposable {
  /** Process id of the daemon. */
  readonly pid: number;
  /** Its devices, with their addresses and GUIDs. */
  readonly devices: readonly DeviceInfo[];
  /** `http://HOST:PORT`; undefined without HTTP. */
  readonly url: string | undefined;
  /** Bearer token of its HTTP requests; undefined without HTTP. */
  readonly token: string | undefined;
  /**
   * The control plane: status, objects, faults. Its `reset` does not check for leaks; see `reset`
   * below.
   */
  readonly control: DaemonControl;
  readonly #child: DaemonChild;

  /** Use `startPrivateDaemon`. */
  constructor(child: DaemonChild, ready: ReadyLine) {
    this.#child = child;
    this.pid = ready.pid;
    this.devices = ready.devices;
    this.url = ready.http?.url;
    this.token = tokenOf(ready);
    this.control = new DaemonControl({ socketPath: child.socketPath });
  }

  /** Path of its socket: `IWARPD_SOCKET` for the programs under test. */
  get socketPath(): string {
    return this.#child.socketPath;
  }

  /** The last 64 KiB of its output, including the log. Useful to print when a test fails. */
  get output(): string {
    return this.#child.output;
  }

  /** Aborts when the daemon has ended; the reason is a `DaemonEndedError` with its output. */
  get gone(): AbortSignal {
    return this.#child.gone;
  }

  /** Connects a new client and returns its provider, which the caller must close. */
  async connect(): Promise<Provider> {
    const provider = await connectDaemon({ socketPath: this.socketPath });
    noteDaemon(provider, this.gone);
    return provider;
  }

  /** Sends a signal: SIGKILL for a crash, SIGSTOP and SIGCONT for a hang. */
  signal(name: 'SIGKILL' | 'SIGTERM' | 'SIGSTOP' | 'SIGCONT'): void {
    checkDaemon.signal(name);
    this.#child.signal(name);
  }

  /**
   * Waits until `condition` returns a truthy value, and resolves with it. Rejects with
   * `WaitTimeoutError` that names `what`, with `DaemonEndedError`, or with what `condition` throws.
   */
  async waitFor<T>(
    what: string,
    condition: () => T | Promise<T>,
    options: WaitOptions = {},
  ): Promise<Truthy<T>> {
    checkDaemon.waitFor(what, condition, options);
    return await waitUnlessGone(() => what, condition, options, this.gone);
  }

  /**
   * Waits until there are exactly `count` connections. Rejects as `waitFor`; ENODEV for an unknown
   * device. The limit may be in `which` or in `options`.
   */
  async waitForConnections(
    count: number,
    which: ConnectionCount = {},
    options: WaitOptions = {},
  ): Promise<void> {
    checkDaemon.waitForConnections(count, which, options);
    const { device, phase = 'established' } = which;
    const place = device === undefined ? '' : ` of ${device}`;
    await this.#reach(limitOf(which, options), async () => {
      this.#assertDevice(device);
      const all = await this.control.connections(device === undefined ? {} : { device });
      const found = all.filter((each) => each.phase === phase).length;
      const state = `there are ${found}, and ${all.length - found} in other phases`;
      return {
        done: found === count,
        text: `${count} connections${place} that are ${phase}: ${state}`,
      };
    });
  }

  /**
   * Waits until a counter reaches a value. Rejects as `waitFor`; ENODEV for an unknown device, EINVAL
   * for an unknown counter. The limit may be in `goal` or in `options`.
   */
  async waitForCounter(goal: CounterGoal, options: WaitOptions = {}): Promise<void> {
    checkDaemon.waitForCounter(goal, options);
    const { counter, atLeast, device } = goal;
    await this.#reach(limitOf(goal, options), async () => {
      this.#assertDevice(device);
      const found = (await this.control.devices()).filter(
        (each) => device === undefined || each.device.name === device,
      );
      const values = found.flatMap(({ counters }) => counters[counter] ?? []);
      if (values.length === 0) {
        const known = [...new Set(found.flatMap(({ counters }) => Object.keys(counters)))];
        const near = nearest(counter, known);
        const advice =
          near === undefined ? `there are ${known.join(', ')}` : `did you mean '${near}'?`;
        const place = device ?? 'any device';
        throw invalid(`no counter ${counter} of ${place}; ${advice}`);
      }
      const value = values.reduce((sum, each) => sum + each, 0);
      const text = `counter ${counter} of ${device ?? 'all devices'} at ${atLeast}: it is ${value}`;
      return { done: value >= atLeast, text };
    });
  }

  /**
   * Prepares the daemon for the next test: ends all clients and connections, this program's too,
   * removes faults, and zeroes counters. After that, rejects with `LeakError` if a program still
   * held objects, or ended without releasing them since the last reset: killed, crashed or
   * careless. The error names program and objects. Connect again afterwards.
   */
  async reset(options: CleanResetOptions = {}): Promise<ResetReport> {
    checkDaemon.reset(options);
    const { allowLeaks = false, graceMs = LEAK_GRACE_MS } = options;
    const open = allowLeaks ? undefined : await this.#openAfter(graceMs);
    const report = await this.#answer(() => this.control.reset());
    const { leaks, endedHolding } = report;
    if (!allowLeaks && leaks.length + endedHolding.length > 0) throw new LeakError(report, open);
    return report;
  }

  /** Stops it and removes its directory; a second call does nothing. */
  stop(): Promise<void> {
    return this.#child.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #assertDevice(device: string | undefined): void {
    const known = this.devices.map(({ name }) => name);
    if (device === undefined || known.includes(device)) return;
    throw new VerbsError('ENODEV', `no device ${device}; there are ${known.join(', ')}`);
  }

  /** The objects that programs still hold after the grace period. */
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

  /** A reply of the daemon, or the error with which it ended. */
  #answer<T>(ask: () => Promise<T>): Promise<T> {
    const timedOut = (timeoutMs: number): Error =>
      new WaitTimeoutError(`the daemon did not answer within ${timeoutMs} ms`);
    return within({ daemonGone: this.gone, timeoutMs: START_TIMEOUT_MS, timedOut }, ask);
  }

  /** Polls until the goal is reached; a timeout reports the last value. */
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
 * Starts a daemon as a separate process, with its socket in a fresh private directory, and resolves
 * when it is ready. It ends with `stop`, with `await using`, and whenever this process ends.
 *
 * Rejects with `DaemonEndedError`, which has its output, if it cannot start; with
 * `WaitTimeoutError` after `timeoutMs` (default 60 s). Leaves nothing behind in either case.
 */
export async function startPrivateDaemon(
  options: PrivateDaemonOptions = {},
): Promise<PrivateDaemon> {
  checkDaemon.startPrivateDaemon(options);
  const child = new DaemonChild(startWords(options));
  const limit = limitOf({ timeoutMs: START_TIMEOUT_MS }, options);
  try {
    return new PrivateDaemon(child, await child.ready(limit));
  } catch (error) {
    await child.stop();
    throw error;
  }
}

/** The limit of a wait, which may be given in two places. */
function limitOf(one: WaitOptions, other: WaitOptions): WaitOptions {
  return { timeoutMs: other.timeoutMs ?? one.timeoutMs, signal: other.signal ?? one.signal };
}

function tokenOf({ http }: ReadyLine): string | undefined {
  return http?.tokenFile === undefined ? undefined : readFileSync(http.tokenFile, 'utf8').trim();
}

function startWords(options: PrivateDaemonOptions): string[] {
  const { devices = DEFAULT_DEVICES, http = false, logLevel = 'info', words = [] } = options;
  return [
    '--no-native',
    '--network',
    options.network ?? 'isolated',
    ...devices.flatMap(({ name, transport = 'iwarp', addresses = [] }) => {
      const place = addresses.length === 0 ? '' : `:${addresses.join(',')}`;
      return ['--device', `${name}=${transport}${place}`];
    }),
    ...(http ? ['--http', '127.0.0.1:0'] : []),
    '--log-level',
    logLevel,
    ...words,
  ];
}

function holds({ usage }: ClientStatus): boolean {
  return Object.values(usage.objects).some((count) => count > 0);
}
