/** The daemon as the operations of the control plane see and move it. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type {
  ConnectionSummary,
  ObjectSummaries,
  ResetReport,
} from '../../verbs-api/contract/control.ts';
import type { ClientStatus, DaemonStatus, HttpReady } from '../../verbs-api/contract/ipc-admin.ts';
import type { DeviceHost } from '../adapter/device-backend.ts';
import type { ConnectionStatus, RnicHost } from '../adapter/rnic-host.ts';
import type { ControlTarget } from '../control/target.ts';
import type { IpcServer } from '../ipc/ipc-server.ts';
import type { DaemonConfig } from './config.ts';
import { VERSION } from './version.ts';

/** The hosts of a daemon's devices. */
export interface Hosts {
  readonly host: RnicHost;
  readonly native: DeviceHost | undefined;
}

/** Emulated devices, then native ones. */
export function allDevices({ host, native }: Hosts) {
  return [...host.devices, ...(native?.devices ?? [])];
}

/** What the control plane works on. */
export interface DaemonParts extends Hosts {
  readonly config: DaemonConfig;
  readonly server: IpcServer;
}

/** See the module's comment. */
export class DaemonControl implements ControlTarget {
  ready = false;
  http: HttpReady | undefined;
  readonly #parts: () => DaemonParts;
  readonly #startedAt = performance.now();

  /** `parts` are there once the first operation comes. */
  constructor(parts: () => DaemonParts) {
    this.#parts = parts;
  }

  status(): DaemonStatus {
    const parts = this.#parts();
    const { config, host, server } = parts;
    return {
      version: VERSION,
      pid: process.pid,
      uptimeSeconds: Math.round((performance.now() - this.#startedAt) / 1000),
      ready: this.ready,
      socketPath: config.socketPath,
      ...(this.http === undefined ? {} : { http: this.http }),
      crcEngine: host.crcEngine.name,
      memoryTiers: config.memoryTiers,
      devices: allDevices(parts).map(({ info, nic }) => {
        return { device: info, counters: { ...nic.counters } };
      }),
      clients: server.clients(),
    };
  }

  objects(): ObjectSummaries {
    const { host, server } = this.#parts();
    const objects = server.objects();
    const connected = new Map(
      host
        .connections()
        .filter(({ qpNum }) => qpNum !== undefined)
        .map((each) => [qpKey(each.device, each.qpNum), each] as const),
    );
    const qps = objects.qps.map((qp) => {
      const found = connected.get(qpKey(qp.device, qp.qpNum));
      if (found === undefined) return qp;
      const { local, remote } = found;
      return { ...qp, connection: { local, remote } };
    });
    return { ...objects, qps };
  }

  connections(): ConnectionSummary[] {
    return this.#parts().host.connections().map(summaryOf);
  }

  async reset(): Promise<ResetReport> {
    const parts = this.#parts();
    const { host, server } = parts;
    // A program that was killed is no leak: its sockets are closed, and this lets us see it.
    await nextTurn();
    await nextTurn();
    const clients = server.clients();
    const connections = host.connections().length;
    server.cutClients('the daemon was reset');
    await host.reset();
    for (const { nic } of allDevices(parts)) nic.resetCounters();
    return { leaks: clients.filter(holdsObjects), clients: clients.length, connections };
  }
}

function summaryOf({ qpNum, ...rest }: ConnectionStatus): ConnectionSummary {
  return qpNum === undefined ? rest : { ...rest, qpNum };
}

function qpKey(device: string, qpNum: number | undefined): string {
  return `${device} ${qpNum}`;
}

function holdsObjects({ usage }: ClientStatus): boolean {
  return Object.values(usage.objects).some((count) => count > 0);
}
