/** The daemon as control-plane operations see and change it. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type {
  ConnectionFilter,
  ConnectionSummary,
  ObjectFilter,
  ObjectSummaries,
  PhaseCount,
  QPSummary,
  ResetReport,
} from '#contract/protocol/control';
import { reportedCounters } from '#contract/protocol/device-counters';
import { type FaultSpec, type FaultStatus, faultKind } from '#contract/protocol/faults';
import type {
  ClientStatus,
  DaemonHealth,
  DaemonStatus,
  DeviceStatus,
  HttpReady,
} from '#contract/protocol/ipc-admin';
import type { RefusalCount, RefusalFilter, RefusalList } from '#contract/protocol/refusals';
import type { TraceRequest, TraceSample } from '#contract/protocol/trace-sample';
import type { PortAttributes } from '#contract/verbs/attributes';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import { noDevice } from '../clients/objects/device-directory.ts';
import { ListedPart, ObjectWindow } from '../clients/objects/object-window.ts';
import { ControlError } from '../control/operation.ts';
import { type Histogram, OperationTimes } from '../control/operation-times.ts';
import type { ControlTarget } from '../control/target.ts';
import type { ConnectionChoice, ConnectionStatus } from '../host/connection-status.ts';
import { parseFaultPeer } from '../host/fault-peer.ts';
import type { RnicHost } from '../host/rnic-host.ts';
import type { PacketDestination } from '../host/roce/roce-side.ts';
import type { DeviceHost, ServedDevice } from '../host/served-device.ts';
import { inSlices } from '../host/slices.ts';
import type { IpcServer } from '../ipc/ipc-server.ts';
import type { Refusals } from '../refusals/refusals.ts';
import type { DaemonConfig } from './config.ts';
import type { TraceSamples } from './trace-samples.ts';
import { VERSION } from './version.ts';

interface Hosts {
  readonly host: RnicHost;
  readonly native: DeviceHost | undefined;
}

/** Emulated devices, then native ones. */
export function allDevices({ host, native }: Hosts): readonly ServedDevice[] {
  return [...host.devices, ...(native?.devices ?? [])];
}

/** The parts of a daemon that operations use. */
interface DaemonParts extends Hosts {
  readonly config: DaemonConfig;
  readonly server: IpcServer;
  readonly samples: TraceSamples;
  readonly refusals: Refusals;
  readonly health: () => DaemonHealth;
  readonly turnTimes: Histogram;
}

export class DaemonTarget implements ControlTarget {
  readonly operationTimes = new OperationTimes(() => performance.now() / 1000);
  readonly version = VERSION;
  ready = false;
  http: HttpReady | undefined;
  readonly #parts: () => DaemonParts;
  readonly #startedAt = performance.now();
  #settled: Promise<void> | undefined;

  /** `parts` is not called before the first operation. */
  constructor(parts: () => DaemonParts) {
    this.#parts = parts;
  }

  async status(): Promise<DaemonStatus> {
    const parts = this.#parts();
    const { config, host } = parts;
    const clients = await this.clients();
    const roceAlone = host.cm.roceAloneAddresses();
    return {
      version: this.version,
      pid: process.pid,
      uptimeSeconds: Math.round((performance.now() - this.#startedAt) / 1000),
      ready: this.ready,
      socketPath: config.socketPath,
      ...(this.http === undefined ? {} : { http: this.http }),
      crcEngine: host.crcEngine.name,
      network: config.network,
      loopback: config.loopback,
      memoryTiers: config.memoryTiers,
      devices: this.devices(),
      clients,
      ...(roceAlone.length === 0 ? {} : { roceAlone }),
      faults: host.faults.injector.faults.length,
      refusals: parts.refusals.total,
      health: this.#parts().health(),
    };
  }

  devices(): DeviceStatus[] {
    return allDevices(this.#parts()).map((each) => {
      const { info, nic, hwCounters, linkCounters } = each;
      return {
        device: info,
        portState: portState(each),
        counters: reportedCounters({ ...nic.counters }),
        ...(hwCounters === undefined ? {} : { hwCounters }),
        ...(linkCounters === undefined ? {} : { linkCounters }),
      };
    });
  }

  clients(): Promise<ClientStatus[]> {
    return this.#parts().server.clients();
  }

  async objects(kind: keyof ObjectSummaries, filter: ObjectFilter): Promise<ObjectSummaries> {
    const { host, server } = this.#parts();
    const window = new ObjectWindow(kind, filter);
    server.listObjects(window);
    await window.describe((run) => host.soon(run));
    return { ...window, qps: await withPeers(window.qps, host) };
  }

  connections(filter: ConnectionFilter): ConnectionSummary[] {
    const part = new ListedPart(filter);
    const { host } = this.#parts();
    return host.connections((device) => part.takes(device)).map(summaryOf);
  }

  connectionCounts(): PhaseCount[] {
    return this.#parts().host.connectionCounts();
  }

  get turnTimes(): Histogram {
    return this.#parts().turnTimes;
  }

  addFault(spec: FaultSpec): FaultStatus {
    const parts = this.#parts();
    this.#checkDevice(spec, parts);
    const peer = spec.peer === undefined ? undefined : parseFaultPeer(spec.peer);
    if (typeof peer === 'string') throw new ControlError('EINVAL', 'peer', peer);
    const wrong = parts.host.faults.wrongTransport(spec);
    if (wrong !== undefined) throw new ControlError('EINVAL', 'kind', wrong);
    return parts.host.faults.add(spec, peer).status;
  }

  faults(): FaultStatus[] {
    return this.#parts().host.faults.injector.faults.map(({ status }) => status);
  }

  removeFault(id: number): FaultStatus {
    const fault = this.#parts().host.faults.remove(id);
    if (fault === undefined)
      throw new VerbsError('ENOENT', `no fault ${id}; see \`iwarpd fault list\``);
    return fault.status;
  }

  removeFaults(): FaultStatus[] {
    const all = this.faults();
    this.#parts().host.faults.clear();
    return all;
  }

  #checkDevice({ device, kind }: FaultSpec, { host, native }: DaemonParts): void {
    if (device === undefined || host.devices.some(({ name }) => name === device)) return;
    if (native?.devices.some(({ name }) => name === device) !== true) {
      const all = [...host.devices, ...(native?.devices ?? [])];
      throw new ControlError('EINVAL', 'device', noDevice(device, all));
    }
    if (faultKind(kind).place !== 'verb') {
      throw new ControlError(
        'EINVAL',
        'device',
        `${device} is a native device, which supports faults of verbs only`,
      );
    }
  }

  async recordTrace(request: TraceRequest): Promise<TraceSample> {
    const { device } = request;
    const { host, native, samples } = this.#parts();
    if (device !== undefined && !host.devices.some(({ name }) => name === device)) {
      const found = native?.devices.some(({ name }) => name === device) === true;
      const reason = found
        ? `${device} is a native device, which cannot be traced`
        : noDevice(device, host.devices);
      throw new ControlError('EINVAL', 'device', reason);
    }
    return await samples.record(request);
  }

  async refusals(filter: RefusalFilter, uid: number | undefined): Promise<RefusalList> {
    return await listRefusals(this.#parts().refusals, filter, uid);
  }

  refusalCounts(): readonly Readonly<RefusalCount>[] {
    return this.#parts().refusals.counts();
  }

  reset(): Promise<ResetReport> {
    const reset = this.#reset();
    const settle = (): void => {
      this.#settled = undefined;
    };
    this.#settled = reset.then(settle, settle);
    return reset;
  }

  get settled(): Promise<void> | undefined {
    return this.#settled;
  }

  async #reset(): Promise<ResetReport> {
    const parts = this.#parts();
    const { host, server } = parts;
    // A killed program is not a leak: this turn lets the daemon notice that its sockets are closed.
    await nextTurn();
    await nextTurn();
    const clients: ClientStatus[] = [];
    const connections = host.connectionCounts().reduce((sum, { count }) => sum + count, 0);
    // First, since a fault may delay connections that must end.
    const faults = this.removeFaults().length;
    const endedHolding = server.takeEndedHolding();
    await server.cutClients('the daemon was reset', (last) => clients.push(last));
    await host.reset();
    for (const { nic } of allDevices(parts)) nic.resetCounters();
    for (const { rocePort } of host.devices) rocePort?.resetCounters();
    parts.refusals.clear();
    const leaks = clients.filter(holdsObjects);
    return { leaks, endedHolding, clients: clients.length, connections, faults };
  }
}

/** Queue pairs whose destinations to look up in one turn: a millisecond of work. */
const DESTINATIONS_PER_TURN = 512;

/** A failing native device must not break the status of the others. */
function portState(device: Pick<ServedDevice, 'port'>): PortAttributes['state'] {
  try {
    return device.port().state;
  } catch (error) {
    if (isVerbsError(error)) return 'down';
    throw error;
  }
}

async function withPeers(qps: readonly QPSummary[], host: RnicHost): Promise<QPSummary[]> {
  const named: QPSummary[] = [];
  /** Indices of the queue pairs without a destination, by number, by device. */
  const places = new Map<string, Map<number, number>>();
  const soon = (run: () => void): void => host.soon(run);
  await inSlices(qps, DESTINATIONS_PER_TURN, soon, (qp) => {
    const { device, qpNum } = qp;
    const destination = host.packetDestination(device, qpNum);
    if (destination !== undefined) {
      named.push({ ...qp, destination: summaryOfPeer(destination) });
      return;
    }
    const ofDevice = places.get(device) ?? new Map<number, number>();
    if (ofDevice.size === 0) places.set(device, ofDevice);
    ofDevice.set(qpNum, named.length);
    named.push(qp);
  });
  if (places.size === 0) return named;
  const placeOf = (device: string, qpNum = -1) => places.get(device)?.get(qpNum);
  const wants: ConnectionChoice = (...end) => placeOf(...end) !== undefined;
  for (const { device, qpNum, local, remote } of host.connections(wants)) {
    const place = placeOf(device, qpNum);
    const qp = place === undefined ? undefined : qps[place];
    if (place !== undefined && qp) named[place] = { ...qp, connection: { local, remote } };
  }
  return named;
}

function summaryOf({ qpNum, ...rest }: ConnectionStatus): ConnectionSummary {
  return qpNum === undefined ? rest : { ...rest, qpNum };
}

function summaryOfPeer({ destQpn, gid, peerDevice }: PacketDestination) {
  const peer = { qpNum: destQpn, gid };
  return peerDevice === undefined ? peer : { ...peer, device: peerDevice };
}

function holdsObjects({ usage }: ClientStatus): boolean {
  return Object.values(usage.objects).some((count) => count > 0);
}

/**
 * The matching refusals; if there are none, waits up to `filter.waitMs` for the first. Rejects with
 * EBUSY if too many requests wait.
 */
async function listRefusals(
  refusals: Refusals,
  filter: RefusalFilter,
  uid: number | undefined,
): Promise<RefusalList> {
  const now = refusals.list(filter, uid);
  const { waitMs = 0 } = filter;
  if (now.refusals.length > 0 || waitMs === 0) return now;
  let stop: (() => void) | undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    await new Promise<void>((resolve) => {
      timer = setTimeout(resolve, waitMs);
      stop = refusals.watch(({ number }) => {
        if (refusals.list({ ...filter, after: number - 1 }, uid).refusals.length > 0) resolve();
      });
      if (stop === undefined) throw new VerbsError('EBUSY', 'too many requests wait for refusals');
    });
  } finally {
    clearTimeout(timer);
    stop?.();
  }
  return refusals.list(filter, uid);
}
