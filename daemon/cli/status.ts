/** `iwarpd status` and `iwarpd devices`: the state of a running daemon. */
import { counterHelp } from '#contract/protocol/device-counters';
import type {
  ClientStatus,
  DaemonHealth,
  DaemonStatus,
  DeviceStatus,
  HttpReady,
} from '#contract/protocol/ipc-admin';
import { type DeviceInfo, protocolText } from '#contract/verbs/attributes';
import type { SocketAddress } from '#contract/verbs/provider';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { type Output, printJson, tableLines } from '../console/output.ts';

/** Version of the JSON of `status`. */
export const STATUS_FORMAT = 2;

export interface StatusOptions {
  /** Path of the daemon's socket; undefined for the default. */
  readonly socket?: string;
  readonly json?: boolean;
}

/** Prints the daemon's state. VerbsError if no daemon is running. */
export async function runStatus(options: StatusOptions, output: Output): Promise<void> {
  const status = await queryDaemon('status', {}, { socketPath: options.socket });
  if (options.json === true) return printJson(output, { format: STATUS_FORMAT, ...status });
  for (const line of statusLines(status)) output.line(line);
}

/** Prints the daemon's devices. VerbsError if no daemon is running. */
export async function runDevices(options: StatusOptions, output: Output): Promise<void> {
  const { devices } = await queryDaemon('status', {}, { socketPath: options.socket });
  if (options.json === true) {
    return printJson(output, { devices: devices.map(({ device }) => device) });
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

export function statusLines(status: DaemonStatus): string[] {
  return [
    `iwarpd ${status.version}, pid ${status.pid}, up ${durationText(status.uptimeSeconds)}`,
    `socket        ${status.socketPath}`,
    ...(status.http === undefined ? [] : [`HTTP          ${httpText(status.http)}`]),
    `CRC32C        ${status.crcEngine}`,
    `network       ${networkText(status)}`,
    `loopback      ${status.loopback}`,
    `memory tiers  ${status.memoryTiers.join(', ')}`,
    // Injected faults explain unexpected errors, so always show them.
    ...(status.faults === 0 ? [] : [`faults        ${status.faults}: see \`iwarpd fault list\``]),
    ...(status.refusals === 0 ? [] : [`refusals      ${status.refusals}: see \`iwarpd explain\``]),
    ...healthLines(status.health),
    ...(status.roceAlone ?? []).map(roceAloneLine),
    '',
    ...status.devices.flatMap(deviceLines),
    ...clientLines(status.clients),
  ];
}

function roceAloneLine({ address, port }: SocketAddress): string {
  return `RoCE alone    ${address} port ${port}: another program has the TCP port`;
}

function networkText({ network }: DaemonStatus): string {
  return network === 'host' ? 'host' : 'isolated: its devices reach each other only';
}

function httpText({ url, tokenNeeded }: HttpReady): string {
  return tokenNeeded
    ? `${url}: \`iwarpd page\` prints the link`
    : `${url}, open to every user of this host`;
}

/** Show a limit once this fraction of it is used. */
const NEAR_LIMIT = 0.8;

/** Show a turn that took this long. */
const LONG_TURN_SECONDS = 0.1;

function healthLines({
  limits,
  logLinesDropped,
  longestTurnSeconds,
  ended,
}: DaemonHealth): string[] {
  const uses = Object.entries(limits);
  const near = uses.filter(([, { used, limit }]) => used >= limit * NEAR_LIMIT);
  const pressed = uses.flatMap(([name, { user }]) => {
    if (user === undefined || user.used < user.share * NEAR_LIMIT) return [];
    return [`near a limit  ${name}: user ${user.uid} has ${user.used} of at most ${user.share}`];
  });
  const lost = logLinesDropped > 0;
  return [
    ...near.map(([name, { used, limit }]) => `near a limit  ${name}: ${used} of ${limit}`),
    ...pressed,
    ...(longestTurnSeconds >= LONG_TURN_SECONDS
      ? [`longest turn  ${(longestTurnSeconds * 1000).toFixed()} ms, for which all programs waited`]
      : []),
    ...(lost ? [`log           ${logLinesDropped} lines dropped: nothing reads it`] : []),
    ...ended.map(({ pid, program, at }) => {
      return `ended         pid ${pid} ${program} at ${at}: its memory did not answer`;
    }),
  ];
}

function deviceLines({ device, counters, ...port }: DeviceStatus): string[] {
  const all = [counters, port.hwCounters, port.linkCounters].flatMap((each) => {
    return Object.entries(each ?? {});
  });
  const moved = all.filter(([, count]) => count > 0);
  const kind = [device.backend, protocolText(device)].filter(Boolean).join(', ');
  return [
    `device ${device.name} (${kind}): ${addressText(device)}`,
    ...(moved.length === 0
      ? ['  nothing moved yet']
      : tableLines(moved.map(([name, count]) => [`  ${name}`, String(count), counterHelp(name)]))),
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

export function objectsText(objects: Readonly<Record<string, number>>): string {
  const held = Object.entries(objects).filter(([, count]) => count > 0);
  return held.length === 0 ? 'none' : held.map(([kind, count]) => `${count} ${kind}`).join(', ');
}

function addressText({ backend, addresses }: DeviceInfo): string {
  if (addresses.length > 0) return addresses.join(', ');
  return backend === 'native' ? 'no address of this host' : 'every address of this host';
}

export function durationText(seconds: number): string {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
