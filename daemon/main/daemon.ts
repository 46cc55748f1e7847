/** The daemon: devices, their clients' socket, a log, and an orderly end. */
import { rmSync, writeFileSync } from 'node:fs';
import type { Logger } from 'pino';
import { requestShortSlices } from '../../native-bridge/libc/scheduling.ts';
import type { DeviceInfo } from '../../verbs-api/contract/attributes.ts';
import type { DaemonStatus, HttpReady } from '../../verbs-api/contract/ipc-admin.ts';
import type { MemoryTier } from '../../verbs-api/contract/provider.ts';
import { RnicHost } from '../adapter/rnic-host.ts';
import { TapHub } from '../capture/tap-hub.ts';
import { WorkHub } from '../capture/work-hub.ts';
import { executeNamed } from '../control/operations.ts';
import type { HttpServer } from '../http/http-server.ts';
import { IpcServer } from '../ipc/ipc-server.ts';
import { publishSysfs, removeSysfs, sysfsPath } from '../ipc/kernel/sysfs-tree.ts';
import type { BridgedHost } from '../native/bridged-host.ts';
import { openNativeDevices } from '../native/discovery.ts';
import { type DaemonConfig, type DaemonOptions, parseDaemonConfig } from './config.ts';
import { allDevices, DaemonTarget } from './daemon-target.ts';
import { createLog, hostObserver } from './log.ts';
import { TraceSamples } from './trace-samples.ts';
import { VERSION } from './version.ts';

/** What the ready line tells. */
export interface DaemonReady {
  readonly version: string;
  readonly pid: number;
  readonly socketPath: string;
  readonly devices: readonly DeviceInfo[];
  readonly memoryTiers: readonly MemoryTier[];
  readonly crcEngine: string;
  /** Where it answers over HTTP; undefined when it does not. */
  readonly http?: HttpReady;
}

/** Parts that a caller may bring along. */
export interface DaemonParts {
  /** Default: standard error at the configured level. */
  readonly log?: Logger;
}

/** A running daemon. */
export class Daemon {
  readonly host: RnicHost;
  /** Serves the native devices, if there are any. */
  readonly native: BridgedHost | undefined;
  readonly config: DaemonConfig;
  readonly #log: Logger;
  readonly #server: IpcServer;
  readonly #control: DaemonTarget;
  readonly #samples: TraceSamples;
  #http: HttpServer | undefined;
  #stopping: Promise<void> | undefined;

  private constructor(parts: {
    config: DaemonConfig;
    host: RnicHost;
    native: BridgedHost | undefined;
    server: IpcServer;
    log: Logger;
    control: DaemonTarget;
    samples: TraceSamples;
  }) {
    this.config = parts.config;
    this.host = parts.host;
    this.native = parts.native;
    this.#server = parts.server;
    this.#log = parts.log;
    this.#control = parts.control;
    this.#samples = parts.samples;
  }

  /** What the ready line tells. */
  get ready(): DaemonReady {
    const http = this.#http === undefined ? undefined : httpReady(this.config, this.#http);
    return {
      version: VERSION,
      pid: process.pid,
      socketPath: this.config.socketPath,
      devices: allDevices(this).map(({ info }) => info),
      memoryTiers: this.config.memoryTiers,
      crcEngine: this.host.crcEngine.name,
      ...(http === undefined ? {} : { http }),
    };
  }

  /** Starts a daemon. Rejects with `VerbsError`; nothing then stays behind. */
  static async start(options: DaemonOptions, parts: DaemonParts): Promise<Daemon> {
    const config = parseDaemonConfig(options);
    const log = parts.log ?? createLog(config.logLevel);
    // Refused, everything works, but slower while programs keep all cores busy.
    requestShortSlices();
    const taps = new TapHub();
    const host = new RnicHost({
      devices: config.devices,
      observer: hostObserver(log, taps),
    });
    const work = new WorkHub(host.devices.map(({ name, nic }) => ({ name, watch: nic.watch })));
    const samples = new TraceSamples(taps, work, host.crcEngine.crc32c);
    let daemon: Daemon | undefined;
    let native: BridgedHost | undefined;
    try {
      native = await nativeDevices(config, log);
      const hosts = { host, native };
      const control: DaemonTarget = new DaemonTarget(() => {
        return { config, ...hosts, server, samples };
      });
      const server: IpcServer = await IpcServer.listen({
        ...config,
        ...hosts,
        log: { note: (level, text, fields) => log[level](fields, text) },
        taps,
        work,
        operate: (name, request, caller) => executeNamed(control, name, request, caller),
      });
      daemon = new Daemon({ config, ...hosts, server, log, control, samples });
    } finally {
      if (daemon === undefined) await Promise.all([host.close(), native?.close()]);
    }
    try {
      await daemon.#serveHttp();
      daemon.#publish();
    } catch (error) {
      await daemon.stop();
      throw error;
    }
    daemon.#control.ready = true;
    log.info({ ...daemon.ready }, 'ready');
    return daemon;
  }

  async #serveHttp(): Promise<void> {
    const { http } = this.config;
    if (http === undefined) return;
    // Loaded for those who asked for it: the others start sooner.
    const { serveControl } = await import('../http/control-http.ts');
    const { address, port, token, hostNames } = http;
    this.#http = await serveControl(this.#control, {
      address,
      port,
      policy: { hostNames, token },
      note: (level, text, fields) => this.#log[level]({ kind: 'http', ...fields }, text),
    });
    this.#control.http = httpReady(this.config, this.#http);
  }

  /** Puts beside the socket what programs look for: who runs here, and the devices' sysfs tree. */
  #publish(): void {
    const { socketPath } = this.config;
    publishSysfs(sysfsPath(socketPath), this.host);
    writeFileSync(runFilePath(socketPath), `${JSON.stringify(this.ready)}\n`);
  }

  /** What `iwarpd status` shows. */
  status(): DaemonStatus {
    return this.#control.status();
  }

  /**
   * Ends clients and connections and removes the socket, within the configured time. Later calls
   * return the first one's promise.
   */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #closeHosts(): Promise<void> {
    await Promise.all([this.host.close(), this.native?.close()]);
  }

  async #stop(): Promise<void> {
    this.#control.ready = false;
    this.#log.info({}, 'stopping');
    removePublished(this.config.socketPath);
    this.#samples.close();
    await this.#server.close();
    const { stopTimeoutMs } = this.config;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>((resolve) => {
      timer = setTimeout(() => resolve('late'), stopTimeoutMs);
    });
    const outcome = await Promise.race([this.#closeHosts(), late]);
    clearTimeout(timer);
    if (outcome === 'late') this.#log.warn({ stopTimeoutMs }, 'connections did not end in time');
    // Last, so that probes see meanwhile that the daemon is not ready any more.
    await this.#http?.close();
    this.#log.info({}, 'stopped');
  }
}

/**
 * Starts a daemon in this process. Rejects with `VerbsError`: EINVAL names a bad option, EADDRINUSE
 * means that a daemon runs at the socket path, EACCES that its directory is not private.
 */
export function startDaemon(options: DaemonOptions = {}, parts: DaemonParts = {}): Promise<Daemon> {
  return Daemon.start(options, parts);
}

function httpReady({ http }: DaemonConfig, server: HttpServer): HttpReady {
  const tokenNeeded = http?.token !== undefined;
  return { url: server.url, address: http?.address ?? '', port: server.port, tokenNeeded };
}

/** The file beside the socket that tells who runs there. */
export function runFilePath(socketPath: string): string {
  return `${socketPath}.run`;
}

function removePublished(socketPath: string): void {
  rmSync(runFilePath(socketPath), { force: true });
  removeSysfs(sysfsPath(socketPath));
}

/**
 * Resolves once SIGINT or SIGTERM stopped the daemon. A second signal does not wait; a broken
 * invariant removes the socket and ends the process with status 70 after a fatal log line.
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

/** sysexits.h: an internal software error. */
const EX_SOFTWARE = 70;

/** Looks for native devices, as far as that is wanted. */
async function nativeDevices(config: DaemonConfig, log: Logger): Promise<BridgedHost | undefined> {
  if (!config.native) return undefined;
  return await openNativeDevices({
    selected: config.nativeDevices,
    takenNames: config.devices.map(({ name }) => name),
    takenAddresses: config.devices.flatMap(({ addresses }) => addresses),
    note: (level, device, text) => log[level]({ kind: 'native', device }, text),
  });
}
