/**
 * `/metrics` in the text format of Prometheus. Names follow the counters that Linux shows of iWARP
 * devices (`/sys/class/infiniband/…/hw_counters`: `iwOutRdmaWrites` and the like) where there is one.
 */
import { Counter, Gauge, Registry } from 'prom-client';
import type { ConnectionSummary } from '../../verbs-api/contract/control.ts';
import type { DaemonStatus, DeviceStatus } from '../../verbs-api/contract/ipc-admin.ts';
import type { ControlTarget } from '../control/target.ts';
import type { RouteReply } from './http-route.ts';

/** Name without `iwarpd_` and `_total`, and help, by the device's own name of a counter. */
const DEVICE_COUNTERS: Readonly<Record<string, readonly [name: string, help: string]>> = {
  outSends: ['iw_out_rdma_sends', 'RDMAP Send messages sent'],
  outWrites: ['iw_out_rdma_writes', 'RDMA Write messages sent'],
  outReads: ['iw_out_rdma_reads', 'RDMA Read Requests sent'],
  outAtomics: ['iw_out_rdma_atomics', 'Atomic Requests sent'],
  outImmediates: ['iw_out_rdma_immediates', 'Immediate Data messages sent'],
  inSends: ['iw_in_rdma_sends', 'RDMAP Send messages delivered'],
  inWrites: ['iw_in_rdma_writes', 'RDMA Write messages placed'],
  inReads: ['iw_in_rdma_reads', 'RDMA Read Requests that came and were allowed'],
  inImmediates: ['iw_in_rdma_immediates', 'Immediate Data messages delivered'],
  atomics: ['iw_in_rdma_atomics', 'Atomic operations done for peers'],
  binds: ['iw_rdma_bnd', 'Memory windows bound'],
  invalidations: ['iw_rdma_inv', 'STags invalidated'],
  gatheredBytes: ['port_xmit_data_bytes', 'Payload octets gathered for peers'],
  placedBytes: ['port_rcv_data_bytes', 'Payload octets placed for peers'],
  sendsTaken: ['send_wqes', 'Work requests taken from send queues'],
  receivesTaken: ['recv_wqes', 'Receives taken from receive queues'],
  completions: ['cqes', 'Completions of all kinds'],
  failures: ['cqe_error', 'Completions of work that failed'],
  flushes: ['cqe_flush_error', 'Completions of work that was flushed'],
  faults: ['resp_remote_access_errors', 'Accesses of peers that were refused'],
  asyncEvents: ['async_events', 'Asynchronous events'],
};

/** All metrics of this moment. */
export async function metricsReply(target: ControlTarget): Promise<RouteReply> {
  const registry = collect(target.status(), target.connections());
  return { status: 200, type: registry.contentType, body: await registry.metrics() };
}

/** One look at the daemon. A registry of its own, so that nothing outlives what it counts. */
function collect(status: DaemonStatus, connections: readonly ConnectionSummary[]): Registry {
  const registry = new Registry();
  const gauge = (name: string, help: string, labelNames: readonly string[] = []) => {
    return new Gauge({ name, help, labelNames: [...labelNames], registers: [registry] });
  };
  gauge('iwarpd_build_info', 'The daemon', ['version', 'crc_engine']).set(
    { version: status.version, crc_engine: status.crcEngine },
    1,
  );
  gauge('iwarpd_ready', '1 when the daemon serves').set(status.ready ? 1 : 0);
  gauge('iwarpd_uptime_seconds', 'Time since the daemon started').set(status.uptimeSeconds);
  gauge('iwarpd_clients', 'Programs that use the daemon').set(status.clients.length);
  gauge('iwarpd_faults', 'Faults that were asked for and are there').set(status.faults);
  addObjects(gauge, status);
  addConnections(gauge, status.devices, connections);
  addProcess(registry);
  addDeviceCounters(registry, status.devices);
  return registry;
}

type MakeGauge = (name: string, help: string, labelNames?: readonly string[]) => Gauge;

/** Kinds of objects that are there from the start, with 0, so that rules on them have data. */
const KINDS = ['context', 'pd', 'mr', 'mw', 'cq', 'srq', 'qp', 'id', 'channel', 'buffer'];

function addObjects(gauge: MakeGauge, { clients, memoryTiers }: DaemonStatus): void {
  const objects = gauge('iwarpd_objects', 'Objects of all clients by kind', ['kind']);
  const regions = gauge('iwarpd_memory_regions', 'Memory regions by how they are reached', [
    'tier',
  ]);
  const shared = gauge('iwarpd_shared_bytes', 'Shared memory of rings and buffers');
  const registered = gauge('iwarpd_registered_bytes', "Registered memory of the clients' own");
  for (const kind of KINDS) objects.set({ kind }, 0);
  for (const tier of memoryTiers) regions.set({ tier }, 0);
  for (const { usage } of clients) {
    for (const [kind, count] of Object.entries(usage.objects)) objects.inc({ kind }, count);
    for (const [tier, count] of Object.entries(usage.tiers)) regions.inc({ tier }, count);
    shared.inc(usage.sharedBytes);
    registered.inc(usage.pinnedBytes);
  }
}

function addConnections(
  gauge: MakeGauge,
  devices: readonly DeviceStatus[],
  connections: readonly ConnectionSummary[],
): void {
  const counts = gauge('iwarpd_connections', 'Connections by phase', ['device', 'phase']);
  for (const { device } of devices) counts.set({ device: device.name, phase: 'established' }, 0);
  for (const { device, phase } of connections) counts.inc({ device, phase });
}

/** The two that dashboards expect of every process. */
function addProcess(registry: Registry): void {
  const registers = [registry];
  const { user, system } = process.cpuUsage();
  const help = 'Processor time of the daemon';
  new Counter({ name: 'process_cpu_seconds_total', help, registers }).inc((user + system) / 1e6);
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Resident memory of the daemon',
    registers,
  }).set(process.memoryUsage.rss());
}

function addDeviceCounters(registry: Registry, devices: readonly DeviceStatus[]): void {
  const made = new Map<string, Counter>();
  for (const { device, counters } of devices) {
    for (const [own, value] of Object.entries(counters)) {
      const counter = made.get(own) ?? deviceCounter(registry, own);
      made.set(own, counter);
      counter.inc({ device: device.name }, value);
    }
  }
}

function deviceCounter(registry: Registry, own: string): Counter {
  const [name, help] = DEVICE_COUNTERS[own] ?? [snakeCase(own), `What the device counts as ${own}`];
  return new Counter({
    name: `iwarpd_${name}_total`,
    help,
    labelNames: ['device'],
    registers: [registry],
  });
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
