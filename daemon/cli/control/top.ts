/** `iwarpd top`: traffic of devices and objects of clients, at intervals. */
import { setTimeout as sleep } from 'node:timers/promises';
import { queryDaemon } from '../../../verbs-api/client/daemon-query.ts';
import type { DaemonStatus, DeviceStatus } from '../../../verbs-api/contract/protocol/ipc-admin.ts';
import { jsonLine, type Output, tableLines } from '../../console/output.ts';
import { durationText, objectsText } from '../status.ts';

/** Options of the command. */
export interface TopArguments {
  readonly socket?: string;
  readonly interval: number;
  readonly count?: number;
  readonly json?: boolean;
}

/** Traffic of a device between two samples, per second. */
export interface DeviceRates {
  readonly device: string;
  readonly sendsPerSecond: number;
  readonly receivesPerSecond: number;
  readonly completionsPerSecond: number;
  readonly gatheredBytesPerSecond: number;
  readonly placedBytesPerSecond: number;
  /** Failed, flushed and refused work requests in total. */
  readonly errorsPerSecond: number;
}

/** Shows the daemon until `signal` fires, `count` samples are shown or the daemon ends. */
export async function runTop(
  given: TopArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const { socket: socketPath, interval, count = Number.POSITIVE_INFINITY } = given;
  let before = await queryDaemon('status', {}, { socketPath });
  let lookedAt = performance.now();
  for (let looks = 0; looks < count; looks += 1) {
    if (!(await rested(interval * 1000, signal))) return;
    const status = await queryDaemon('status', {}, { socketPath });
    const now = performance.now();
    const rates = deviceRates(before, status, (now - lookedAt) / 1000);
    before = status;
    lookedAt = now;
    if (given.json === true) output.line(jsonLine({ rates, clients: status.clients }));
    else {
      output.clear?.();
      output.line(topLines(status, rates).join('\n'));
    }
  }
}

/** False if `signal` fired in the meantime. */
async function rested(ms: number, signal: AbortSignal): Promise<boolean> {
  try {
    await sleep(ms, undefined, { signal });
    return true;
  } catch (error) {
    if (!signal.aborted) throw error;
    return false;
  }
}

/** Rates of each device per second. A reset zeroes the counters: rates then count from zero. */
export function deviceRates(
  before: DaemonStatus,
  after: DaemonStatus,
  seconds: number,
): DeviceRates[] {
  return after.devices.map(({ device, counters }) => {
    const earlier = before.devices.find((each) => each.device.name === device.name)?.counters ?? {};
    const rate = (...names: readonly (keyof DeviceStatus['counters'])[]): number => {
      return names.reduce((sum, name) => sum + grown(earlier[name], counters[name]) / seconds, 0);
    };
    return {
      device: device.name,
      sendsPerSecond: rate('sendsTaken'),
      receivesPerSecond: rate('receivesTaken'),
      completionsPerSecond: rate('completions'),
      gatheredBytesPerSecond: rate('gatheredBytes'),
      placedBytesPerSecond: rate('placedBytes'),
      errorsPerSecond: rate('failures', 'flushes', 'faults'),
    };
  });
}

function grown(before = 0, after = 0): number {
  return after >= before ? after - before : after;
}

/** One sample as readable lines. */
export function topLines(status: DaemonStatus, rates: readonly DeviceRates[]): string[] {
  const devices = rates.map((each) => [
    each.device,
    rateText(each.sendsPerSecond),
    rateText(each.receivesPerSecond),
    rateText(each.completionsPerSecond),
    megabytes(each.gatheredBytesPerSecond),
    megabytes(each.placedBytesPerSecond),
    rateText(each.errorsPerSecond),
  ]);
  const clients = status.clients.map(({ pid, program, connectedSeconds, usage }) => [
    String(pid),
    program,
    durationText(connectedSeconds),
    objectsText(usage.objects),
  ]);
  const head = ['device', 'sends/s', 'recvs/s', 'CQEs/s', 'MB/s out', 'MB/s in', 'errors/s'];
  return [
    `iwarpd pid ${status.pid}, up ${durationText(status.uptimeSeconds)}, clients: ${clients.length}`,
    '',
    ...tableLines([head, ...devices]),
    '',
    ...(clients.length === 0
      ? ['no clients']
      : tableLines([['pid', 'program', 'connected', 'objects'], ...clients])),
  ];
}

function rateText(perSecond: number): string {
  return String(Math.round(perSecond));
}

function megabytes(bytesPerSecond: number): string {
  return (bytesPerSecond / 1e6).toFixed(1);
}
