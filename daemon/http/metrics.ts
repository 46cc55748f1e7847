/**
 * `/metrics` in the Prometheus text format. Metrics with a Linux counterpart for iWARP devices
 * (`/sys/class/infiniband/…/hw_counters`, such as `iwOutRdmaWrites`) use its name.
 */
import { Counter, Gauge, Registry } from 'prom-client';
import type { PhaseCount } from '#contract/protocol/control';
import { DEVICE_COUNTERS, PORT_COUNTERS } from '#contract/protocol/device-counters';
import type { DaemonStatus, DeviceStatus } from '#contract/protocol/ipc-admin';
import type { RefusalCount } from '#contract/protocol/refusals';
import type { Histogram, OperationTimes } from '../control/operation-times.ts';
import type { ControlTarget } from '../control/target.ts';
import type { RouteReply } from './http-route.ts';

export async function metricsReply(target: ControlTarget): Promise<RouteReply> {
  while (target.settled !== undefined) await target.settled;
  const registry = collect(await target.status(), target.connectionCounts());
  addRefusals(registry, target.refusalCounts());
  const turns = turnTimesText(target.turnTimes);
  const body = `${await registry.metrics()}${operationTimesText(target.operationTimes)}${turns}`;
  return { status: 200, type: registry.contentType, body };
}

/** Creates a registry for each scrape, so an object's metric disappears with the object. */
function collect(status: DaemonStatus, connections: readonly PhaseCount[]): Registry {
  const registry = new Registry();
  const gauge = (name: string, help: string, labelNames: readonly string[] = []) => {
    return new Gauge({ name, help, labelNames: [...labelNames], registers: [registry] });
  };
  gauge('iwarpd_build_info', 'Version of the daemon and its CRC implementation; always 1', [
    'version',
    'crc_engine',
  ]).set({ version: status.version, crc_engine: status.crcEngine }, 1);
  gauge('iwarpd_ready', '1 while the daemon serves clients, 0 while it stops').set(
    status.ready ? 1 : 0,
  );
  gauge('iwarpd_uptime_seconds', 'Seconds since the daemon started').set(status.uptimeSeconds);
  gauge('iwarpd_clients', 'Connected client programs').set(status.clients.length);
  gauge('iwarpd_faults', 'Active injected faults').set(status.faults);
  addObjects(gauge, status);
  addHealth(gauge, registry, status);
  addConnections(gauge, status.devices, connections);
  addProcess(registry);
  addDeviceCounters(registry, status.devices);
  addPortCounters(registry, status.devices);
  return registry;
}

/** Use of daemon-wide limits, dropped log lines, and the longest turn. */
function addHealth(gauge: MakeGauge, registry: Registry, { health }: DaemonStatus): void {
  const used = gauge('iwarpd_limit_used', 'Amount of each daemon-wide limit in use', ['limit']);
  const limits = gauge('iwarpd_limit', 'Daemon-wide limits, shared by all clients', ['limit']);
  for (const [limit, each] of Object.entries(health.limits)) {
    used.set({ limit }, each.used);
    limits.set({ limit }, each.limit);
  }
  gauge(
    'iwarpd_event_loop_longest_turn_seconds',
    'The longest turn of the event loop since the daemon started, or up to 0.01 s less',
  ).set(health.longestTurnSeconds);
  const help = 'Log lines dropped because standard error did not accept them';
  const registers = [registry];
  new Counter({ name: 'iwarpd_log_lines_dropped_total', help, registers }).inc(
    health.logLinesDropped,
  );
}

/** Refused calls; the daemon bounds the number of label sets. */
function addRefusals(registry: Registry, counts: readonly Readonly<RefusalCount>[]): void {
  const counter = new Counter({
    name: 'iwarpd_refusals_total',
    help: 'Calls of programs that were refused, by API, call and errno; see iwarpd explain',
    labelNames: ['api', 'verb', 'code'],
    registers: [registry],
  });
  for (const { api, verb, code, count } of counts) counter.inc({ api, verb, code }, count);
}

type MakeGauge = (name: string, help: string, labelNames?: readonly string[]) => Gauge;

/** Kinds that always have a sample, even 0, so alert rules have data. */
const KINDS = ['context', 'pd', 'mr', 'mw', 'cq', 'srq', 'qp', 'id', 'channel', 'buffer'];

function addObjects(gauge: MakeGauge, { clients, memoryTiers }: DaemonStatus): void {
  const objects = gauge('iwarpd_objects', 'Verbs objects of all clients, by kind', ['kind']);
  const regions = gauge(
    'iwarpd_memory_regions',
    'Memory regions, by the way the daemon accesses them',
    ['tier'],
  );
  const shared = gauge(
    'iwarpd_shared_bytes',
    'Bytes of memory shared with clients for rings and buffers',
  );
  const registered = gauge(
    'iwarpd_registered_bytes',
    'Bytes of client memory registered in memory regions',
  );
  // Sum first: a gauge takes a microsecond per change, and there may be many clients.
  const counts = new Map<string, number>(KINDS.map((kind) => [kind, 0]));
  const tiers = new Map<string, number>(memoryTiers.map((tier) => [tier, 0]));
  let [sharedBytes, registeredBytes] = [0, 0];
  for (const { usage } of clients) {
    for (const kind of Object.keys(usage.objects)) addTo(counts, kind, usage.objects[kind]);
    for (const tier of Object.keys(usage.tiers)) addTo(tiers, tier, usage.tiers[tier]);
    sharedBytes += usage.sharedBytes;
    registeredBytes += usage.pinnedBytes;
  }
  for (const [kind, count] of counts) objects.set({ kind }, count);
  for (const [tier, count] of tiers) regions.set({ tier }, count);
  shared.set(sharedBytes);
  registered.set(registeredBytes);
}

function addTo(sums: Map<string, number>, key: string, value = 0): void {
  sums.set(key, (sums.get(key) ?? 0) + value);
}

function addConnections(
  gauge: MakeGauge,
  devices: readonly DeviceStatus[],
  connections: readonly PhaseCount[],
): void {
  const counts = gauge('iwarpd_connections', 'Connections, by device and phase', [
    'device',
    'phase',
  ]);
  for (const { device } of devices) counts.set({ device: device.name, phase: 'established' }, 0);
  for (const { device, phase, count } of connections) counts.set({ device, phase }, count);
}

/** Node records it once, so every scrape returns the same value even if the clock is set. */
const PROCESS_START_SECONDS = performance.timeOrigin / 1000;

/** Standard metrics that dashboards expect of every process. */
function addProcess(registry: Registry): void {
  const registers = [registry];
  const { user, system } = process.cpuUsage();
  const help = 'User and system CPU time in seconds';
  new Counter({ name: 'process_cpu_seconds_total', help, registers }).inc((user + system) / 1e6);
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Resident memory size in bytes',
    registers,
  }).set(process.memoryUsage.rss());
  new Gauge({
    name: 'process_start_time_seconds',
    help: 'Start time of the process in seconds since the Unix epoch',
    registers,
  }).set(PROCESS_START_SECONDS);
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

function addPortCounters(registry: Registry, devices: readonly DeviceStatus[]): void {
  const ports = devices.filter(({ hwCounters }) => hwCounters !== undefined);
  if (ports.length === 0) return;
  for (const [own, help] of Object.entries(PORT_COUNTERS)) {
    const counter = new Counter({
      name: `iwarpd_roce_${own}_total`,
      help,
      labelNames: ['device'],
      registers: [registry],
    });
    for (const { device, hwCounters, linkCounters } of ports) {
      const value = hwCounters?.[own] ?? linkCounters?.[own] ?? 0;
      counter.inc({ device: device.name }, value);
    }
  }
}

function deviceCounter(registry: Registry, own: string): Counter {
  const [name, help] = DEVICE_COUNTERS[own] ?? [own, `Device counter ${own}`];
  return new Counter({
    name: `iwarpd_${name}_total`,
    help,
    labelNames: ['device'],
    registers: [registry],
  });
}

const OPERATION_METRIC = 'iwarpd_control_operation_duration_seconds';
const TURN_METRIC = 'iwarpd_event_loop_turn_seconds';

function operationTimesText({ all }: OperationTimes): string {
  const lines = [...all].flatMap(([operation, times]) => {
    return histogramLines(OPERATION_METRIC, `operation="${operation}"`, times);
  });
  const help = 'Duration of control operations over HTTP and the admin socket';
  return lines.length === 0 ? '' : metricText(OPERATION_METRIC, help, lines);
}

function turnTimesText(times: Histogram): string {
  const help = 'Delays of a timer by turns of the event loop, sampled every 10 ms';
  return metricText(TURN_METRIC, help, histogramLines(TURN_METRIC, '', times));
}

/** prom-client only observes single values; these histograms are already counted. */
function histogramLines(
  name: string,
  label: string,
  { count, sumSeconds, bounds, withinBound }: Histogram,
): string[] {
  const [inside, whole] = label === '' ? ['', ''] : [`${label},`, `{${label}}`];
  const buckets = [...withinBound, count].map((value, index) => {
    return `${name}_bucket{${inside}le="${bounds[index] ?? '+Inf'}"} ${value}`;
  });
  return [...buckets, `${name}_sum${whole} ${sumSeconds}`, `${name}_count${whole} ${count}`];
}

function metricText(name: string, help: string, lines: readonly string[]): string {
  return ['', `# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines, ''].join('\n');
}
