/** `iwarpd status` and `iwarpd devices`: what a running daemon says about itself. */
import { queryDaemon } from '../../verbs-api/client/daemon-link.ts';
import type { DeviceInfo } from '../../verbs-api/contract/attributes.ts';
import type {
  ClientStatus,
  DaemonStatus,
  DeviceStatus,
} from '../../verbs-api/contract/ipc-admin.ts';
import { type Output, printJson, tableLines } from './output.ts';

/** Options of both commands. */
export interface StatusOptions {
  /** Path of the daemon's socket; undefined for the default. */
  readonly socket?: string;
  readonly json?: boolean;
}

/** Prints the daemon's state. VerbsError when there is no daemon. */
export async function runStatus(options: StatusOptions, output: Output): Promise<void> {
  const status = await queryDaemon('status', {}, { socketPath: options.socket });
  if (options.json === true) return printJson(output, status);
  for (const line of statusLines(status)) output.line(line);
}

/** Prints the daemon's devices. VerbsError when there is no daemon. */
export async function runDevices(options: StatusOptions, output: Output): Promise<void> {
  const { devices } = await queryDaemon('status', {}, { socketPath: options.socket });
  if (options.json === true) {
    return printJson(
      output,
      devices.map(({ device }) => device),
    );
  }
  const rows = devices.map(({ device }) => [
    device.name,
    device.backend,
    device.nodeGuid,
    addressText(device),
  ]);
  for (const line of tableLines([['device', 'backend', 'node GUID', 'addresses'], ...rows])) {
    output.line(line);
  }
}

/** The state for people. */
export function statusLines(status: DaemonStatus): string[] {
  return [
    `iwarpd ${status.version}, pid ${status.pid}, up ${durationText(status.uptimeSeconds)}`,
    `socket        ${status.socketPath}`,
    ...(status.http === undefined ? [] : [`HTTP          ${status.http.url}`]),
    `CRC32C        ${status.crcEngine}`,
    `memory tiers  ${status.memoryTiers.join(', ')}`,
    // Whoever wonders why things fail has to see this.
    ...(status.faults === 0 ? [] : [`faults        ${status.faults}: see \`iwarpd fault list\``]),
    '',
    ...status.devices.flatMap(deviceLines),
    ...clientLines(status.clients),
  ];
}

function deviceLines({ device, counters }: DeviceStatus): string[] {
  const moved = Object.entries(counters).filter(([, count]) => count > 0);
  return [
    `device ${device.name} (${device.backend}): ${addressText(device)}`,
    ...(moved.length === 0
      ? ['  nothing moved yet']
      : tableLines(moved.map(([name, count]) => [`  ${name}`, String(count)]))),
    '',
  ];
}

function clientLines(clients: readonly ClientStatus[]): string[] {
  if (clients.length === 0) return ['no clients'];
  const rows = clients.map(({ pid, program, connectedSeconds, usage }) => [
    program === '' ? String(pid) : `${pid} ${program}`,
    durationText(connectedSeconds),
    objectsText(usage.objects),
    objectsText(usage.tiers),
  ]);
  const reasons = new Set(
    clients.flatMap(({ usage }) =>
      Object.entries(usage.tierReasons).map(([tier, reason]) => `  ${tier}: ${reason}`),
    ),
  );
  return [
    ...tableLines([['client', 'connected', 'objects', 'memory regions'], ...rows]),
    ...reasons,
  ];
}

/** What is held of each kind. */
export function objectsText(objects: Readonly<Record<string, number>>): string {
  const held = Object.entries(objects).filter(([, count]) => count > 0);
  return held.length === 0 ? 'none' : held.map(([kind, count]) => `${count} ${kind}`).join(', ');
}

function addressText({ backend, addresses }: DeviceInfo): string {
  if (addresses.length > 0) return addresses.join(', ');
  return backend === 'native' ? 'no address of this host' : 'every address of this host';
}

/** Seconds as people say them. */
export function durationText(seconds: number): string {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
