/** The daemon: devices, the client socket, a log, and an orderly shutdown. */
import { rmSync } from 'node:fs';
import type { Logger } from 'pino';
import type { DaemonStatus, HttpReady } from '#contract/protocol/ipc-admin';
import { refusalLine } from '#contract/protocol/refusals';
import type { DeviceInfo, DeviceTransport } from '#contract/verbs/attributes';
import type { MemoryTier } from '#contract/verbs/provider';
import { requestShortSlices } from '#native-bridge/libc/scheduling';
import { TapHub } from '../capture/tap-hub.ts';
import { WorkHub } from '../capture/work-hub.ts';
import { DeviceDirectory } from '../clients/objects/device-directory.ts';
import { ControlError } from '../control/operation.ts';
import { SHOWN_DEVICES_MAX } from '../host/device-config.ts';
import { loadCarriers } from '../host/device-kinds.ts';
import { hostSystem, isolatedSystem } from '../host/links/system.ts';
import { RnicHost } from '../host/rnic-host.ts';
import { AddressWatch } from '../host/roce/address-watch.ts';
import { chooseCrc32 } from '../host/roce/crc32-engine.ts';
import type { HttpServer } from '../http/http-server.ts';
import { IpcServer } from '../ipc/ipc-server.ts';
import { publishSysfs, removeSysfs, sysfsPath } from '../kernel/sysfs-tree.ts';
import type { Findings } from '../lint/findings.ts';
import type { BridgedHost } from '../native/bridged-host.ts';
import { kernelHasVerbs } from '../native/kernel-rdma.ts';
import { Refusals } from '../refusals/refusals.ts';
import {
  type DaemonConfig,
  type DaemonConfigInput,
  invalidOption,
  parseDaemonConfig,
} from './config.ts';
import { HealthWatch } from './daemon-health.ts';
import { allDevices, DaemonTarget } from './daemon-target.ts';
import { inlineWholePaths, keepYoungGenerationSmall } from './engine-flags.ts';
import { assertFreePlaces } from './free-places.ts';
import { dropToken, type TokenInUse, takeToken } from './http-token.ts';
import { assertLocalAddresses } from './local-addresses.ts';
import { createLog, hostObserver, standardErrorLog, ThrottledLog } from './log.ts';
import { removeOwnFile, writeOwnFile } from './own-file.ts';
import { loadSampler, TraceSamples } from './trace-samples.ts';
import { VERSION } from './version.ts';

export interface DaemonReady {
  /** Version of this record: fields may be added within a version, never changed. */
  readonly format: 1;
  readonly version: string;
  readonly pid: number;
  readonly socketPath: string;
  readonly devices: readonly DeviceInfo[];
  readonly memoryTiers: readonly MemoryTier[];
  readonly crcEngine: string;
  /** The HTTP endpoint; undefined if HTTP is off. */
  readonly http?: HttpReady;
}

interface StartedParts {
  readonly log: Logger;
  readonly notes: ThrottledLog;
  readonly health: HealthWatch;
  readonly onLoaded: (() => void) | undefined;
  readonly findings: Findings | undefined;
}

/** Parts that the caller may supply. */
interface DaemonParts {
  /** Default: standard error at the configured level. */
  readonly log?: Logger;
  /** Lines dropped by the log's destination, for `status`. Default: none. */
  readonly logLinesDropped?: () => number;
  /** Records advice to programs. Default: none is given. */
  readonly findings?: Findings;
  /** Called once everything that clients may need is loaded, soon after the daemon is ready. */
  readonly onLoaded?: () => void;
}

/** The parts of a daemon. */
interface Parts {
  readonly config: DaemonConfig;
  readonly host: RnicHost;
  /** Serves native devices, if any. */
  readonly native: BridgedHost | undefined;
  readonly directory: DeviceDirectory;
  readonly server: IpcServer;
  readonly log: Logger;
  readonly notes: ThrottledLog;
  readonly health: HealthWatch;
  readonly control: DaemonTarget;
  readonly samples: TraceSamples;
}

export class Daemon {
  readonly host: RnicHost;
  readonly native: BridgedHost | undefined;
  readonly config: DaemonConfig;
  readonly #parts: Parts;
  #counterFiles: { close(): void } | undefined;
  #addressWatch: AddressWatch | undefined;
  #http: HttpServer | undefined;
  #token: TokenInUse = { value: undefined, file: undefined };
  #stopping: Promise<void> | undefined;

  private constructor(parts: Parts) {
    this.config = parts.config;
    this.host = parts.host;
    this.native = parts.native;
    this.#parts = parts;
  }

  get ready(): DaemonReady {
    const { http } = this.#parts.control;
    return {
      format: 1,
      version: VERSION,
      pid: process.pid,
      socketPath: this.config.socketPath,
      devices: allDevices(this).map(({ info }) => info),
      memoryTiers: this.config.memoryTiers,
      crcEngine: this.host.crcEngine.name,
      ...(http === undefined ? {} : { http }),
    };
  }

  /** The token that HTTP requests must carry; undefined if none is required. */
  get httpToken(): string | undefined {
    return this.#token.value;
  }

  /** Compares all counters with the actual objects, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.host.assertDeepInvariants();
    this.#parts.server.assertDeepInvariants();
  }

  /** Starts a daemon. Rejects with `VerbsError` and undoes everything on failure. */
  static async start(options: DaemonConfigInput, parts: DaemonParts): Promise<Daemon> {
    const config = parseDaemonConfig(options);
    const log = parts.log ?? createLog(config.logLevel, standardErrorLog(config.logFormat));
    const notes = new ThrottledLog(log);
    assertFreePlaces(config.devices);
    await assertLocalAddresses(config);
    const health = new HealthWatch(config, notes.note, parts.logLinesDropped ?? (() => 0));
    const count = config.devices.length;
    if (count > SHOWN_DEVICES_MAX) {
      log.warn(
        {},
        `unmodified programs find only the first ${SHOWN_DEVICES_MAX} of ${count} devices`,
      );
    }
    const { onLoaded, findings } = parts;
    try {
      return await Daemon.#startWatched(config, { log, notes, health, onLoaded, findings });
    } catch (error) {
      health.close();
      throw error;
    }
  }

  static async #startWatched(
    config: DaemonConfig,
    { log, notes, health, onLoaded, findings }: StartedParts,
  ): Promise<Daemon> {
    // If denied, everything works, but slower while programs keep all cores busy.
    requestShortSlices();
    inlineWholePaths();
    keepYoungGenerationSmall();
    const taps = new TapHub();
    const host = new RnicHost({
      system:
        config.network === 'isolated'
          ? isolatedSystem(config.devices)
          : hostSystem(config.loopback),
      devices: config.devices,
      carriers: await loadCarriers(config.devices),
      observer: hostObserver(notes.note, taps),
    });
    for (const { name, nic } of host.devices) health.budget.addDevice(name, nic.capacity);
    const work = new WorkHub(host.devices.map(({ name, nic }) => ({ name, watch: nic.watch })));
    const refusals = new Refusals(() => new Date().toISOString());
    refusals.watch((refusal) => {
      const { pid, uid, program, device } = refusal;
      notes.note(
        'debug',
        'refusal',
        { kind: 'refusal', pid, uid, program, device },
        refusalLine(refusal),
      );
    });
    const samples = new TraceSamples(taps, work, host.crcEngine.crc32c, chooseCrc32());
    let connected: Promise<void> | undefined;
    let daemon: Daemon | undefined;
    let native: BridgedHost | undefined;
    try {
      native = await nativeDevices(config, log);
      const hosts = { host, native };
      const directory = new DeviceDirectory(host, native);
      const control: DaemonTarget = new DaemonTarget(() => {
        const { times: turnTimes } = health.turns;
        const state = { config, server, samples, refusals, turnTimes };
        return { ...state, ...hosts, health: () => health.health() };
      });
      const server: IpcServer = await IpcServer.listen({
        ...config,
        directory,
        quotas: { ...config.quotas, budget: health.budget },
        log: { note: (level, text, fields) => notes.note(level, text, fields, text) },
        prepare: () => {
          connected ??= connectRoceDevices(host);
          return connected;
        },
        taps,
        work,
        refusals,
        findings,
        operate: async (name, request, caller) => {
          return (await loadOperations()).executeNamed(control, name, request, caller);
        },
      });
      daemon = new Daemon({
        config,
        ...hosts,
        directory,
        server,
        log,
        notes,
        health,
        control,
        samples,
      });
    } finally {
      if (daemon === undefined) await Promise.all([host.close(), native?.close()]);
    }
    try {
      daemon.#addFaults();
      await daemon.#serveHttp();
      daemon.#publish();
    } catch (error) {
      await daemon.stop();
      throw error;
    }
    daemon.#parts.control.ready = true;
    log.info({ ...daemon.ready }, 'ready');
    // After the ready line, which need not wait for modules that the first program or trace will use.
    setImmediate(() => daemon.#loadRest(onLoaded));
    return daemon;
  }

  /** Loads the remaining modules: from then on, the package's files may change. */
  #loadRest(onLoaded: (() => void) | undefined): void {
    if (this.#stopping !== undefined) return;
    // Start with those that a program may be waiting for.
    this.#parts.server
      .load()
      .then(() => Promise.all([loadOperations(), this.#http?.loadRoutes(), loadSampler()]))
      .then(onLoaded)
      .catch((error: Error) => {
        this.#parts.log.error({ kind: 'files', err: error }, 'cannot load a part of the daemon');
      });
  }

  /** Adds the faults of the configuration. EINVAL names the option. */
  #addFaults(): void {
    for (const [index, spec] of this.config.faults.entries()) {
      try {
        this.#parts.control.addFault(spec);
      } catch (error) {
        if (!(error instanceof ControlError)) throw error;
        throw invalidOption(`faults.${index}.${error.field}`, error.reason);
      }
    }
  }

  async #serveHttp(): Promise<void> {
    const { http, socketPath } = this.config;
    // Left by a killed daemon at this path.
    dropToken(socketPath);
    if (http === undefined) return;
    // Loaded only if HTTP is on: keeps daemon startup fast.
    const { serveControl } = await import('../http/control-http.ts');
    const { address, port, hostNames } = http;
    this.#token = takeToken(http.token, socketPath);
    const { value: token, file: tokenFile } = this.#token;
    this.#http = await serveControl(this.#parts.control, {
      address,
      port,
      policy: { hostNames, token },
      note: (level, text, fields) => {
        this.#parts.notes.note(level, `http: ${text}`, { kind: 'http', ...fields }, text);
      },
    });
    this.#parts.control.http = {
      url: this.#http.url,
      address,
      port: this.#http.port,
      tokenNeeded: token !== undefined,
      ...(tokenFile === undefined ? {} : { tokenFile }),
    };
  }

  /**
   * Publishes the files that programs look for next to the socket: the run file, and the devices'
   * sysfs tree.
   */
  #publish(): void {
    const { socketPath } = this.config;
    this.#counterFiles = publishSysfs(sysfsPath(socketPath), this.#parts.directory);
    this.#addressWatch = new AddressWatch(this.host);
    writeOwnFile(runFilePath(socketPath), `${JSON.stringify(this.ready)}\n`, RUN_FILE_MODE);
  }

  status(): Promise<DaemonStatus> {
    return this.#parts.control.status();
  }

  /**
   * Ends clients and connections and removes the socket, within the configured timeout. Later calls
   * return the first call's promise.
   */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #closeHosts(): Promise<void> {
    await Promise.all([this.host.close(), this.native?.close()]);
  }

  async #stop(): Promise<void> {
    this.#parts.control.ready = false;
    this.#parts.log.info({}, 'stopping');
    this.#counterFiles?.close();
    this.#addressWatch?.close();
    removePublished(this.config.socketPath);
    this.#parts.samples.close();
    await this.#parts.server.close();
    const { stopTimeoutMs } = this.config;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), stopTimeoutMs);
    });
    const outcome = await Promise.race([this.#closeHosts(), late]);
    clearTimeout(timer);
    if (outcome === 'late')
      this.#parts.log.warn({ stopTimeoutMs }, 'connections did not end in time');
    // Last, so that probes can see that the daemon is no longer ready.
    await this.#http?.close();
    this.#parts.health.close();
    this.#parts.notes.flush();
    this.#parts.log.info({}, 'stopped');
  }
}

/**
 * Starts a daemon in this process. Rejects with `VerbsError`: EINVAL names an invalid option,
 * EADDRINUSE means that a daemon already runs at the socket path, EACCES that its directory is not
 * private.
 */
export function startDaemon(
  options: DaemonConfigInput = {},
  parts: DaemonParts = {},
): Promise<Daemon> {
  return Daemon.start(options, parts);
}

/** Readable by all: it reveals only the socket's path. */
const RUN_FILE_MODE = 0o644;

/** The file next to the socket that identifies the running daemon. */
function runFilePath(socketPath: string): string {
  return `${socketPath}.run`;
}

function removePublished(socketPath: string): void {
  removeOwnFile(runFilePath(socketPath));
  dropToken(socketPath);
  removeSysfs(sysfsPath(socketPath));
}

/**
 * Resolves once SIGINT or SIGTERM has stopped the daemon. A second signal exits immediately; a
 * broken invariant logs a fatal line, removes the socket and exits with status 70.
 */
export function stopOnSignals(daemon: Daemon, log: Logger): Promise<NodeJS.Signals> {
  return new Promise((resolve, reject) => {
    let stopping = false;
    const onSignal = (signal: NodeJS.Signals): void => {
      if (stopping) process.exit(1);
      stopping = true;
      log.info({ signal }, 'signal');
      daemon.stop().then(() => resolve(signal), reject);
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
    process.on('uncaughtException', (error) => {
      log.fatal({ err: error }, 'broken invariant');
      rmSync(daemon.config.socketPath, { force: true });
      removePublished(daemon.config.socketPath);
      process.exit(EX_SOFTWARE);
    });
  });
}

/** sysexits.h: internal software error. */
const EX_SOFTWARE = 70;

/** Loads what RoCE devices need for their first client; called once the daemon is ready. */
async function connectRoceDevices(host: RnicHost): Promise<void> {
  if (!host.devices.some(isRoce)) return;
  const { ROCE_NETWORK } = await import('../host/roce/roce-network.ts');
  host.addRoceNetwork(ROCE_NETWORK);
}

function isRoce({ transport }: { readonly transport?: DeviceTransport }): boolean {
  return transport === 'roce';
}

/** Loads the modules for `iwarpd` commands; called once the daemon is ready. */
function loadOperations(): Promise<typeof import('../control/operations.ts')> {
  return import('../control/operations.ts');
}

async function nativeDevices(config: DaemonConfig, log: Logger): Promise<BridgedHost | undefined> {
  if (!config.native) return undefined;
  if (config.nativeDevices.length === 0 && !kernelHasVerbs(process.env)) {
    log.debug({ kind: 'native' }, 'no native devices: the kernel has no RDMA');
    return undefined;
  }
  // Loaded only if there may be devices: keeps daemon startup fast.
  const { openNativeDevices } = await import('../native/discovery.ts');
  return await openNativeDevices({
    selected: config.nativeDevices,
    takenNames: config.devices.map(({ name }) => name),
    takenAddresses: config.devices
      .filter(({ transport }) => transport !== 'roce')
      .flatMap(({ addresses }) => addresses),
    note: (level, device, text) => log[level]({ kind: 'native', device }, text),
  });
}
