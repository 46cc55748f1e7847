/**
 * `iwarpd top`: traffic of devices and objects of clients, at intervals. Queue pairs of RoCE devices
 * are shown one by one, since no list of connections contains them.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { QPSummary } from '#contract/protocol/control';
import type { DaemonStatus, DeviceStatus } from '#contract/protocol/ipc-admin';
import { jsonLine, type Output, tableLines } from '#daemon/console/output';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { durationText, objectsText } from '../status.ts';

/** Maximum queue pairs to show: more do not fit a screen. */
const SHOWN_MAX = 16;

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

/** Work of a RoCE queue pair between two samples, per second. */
interface QPRates
  extends Pick<QPSummary, 'device' | 'qpNum' | 'pid' | 'program' | 'type' | 'state'> {
  readonly sendsPerSecond: number;
  readonly receivesPerSecond: number;
  /** The queue pair to which it sends, if it always sends to the same one. */
  readonly destination?: QPSummary['destination'];
}

interface Sample {
  readonly at: number;
  readonly status: DaemonStatus;
  /** Queue pairs of RoCE devices. */
  readonly qps: readonly QPSummary[];
}

async function takeSample(socketPath: string | undefined): Promise<Sample> {
  const place = { socketPath };
  const status = await queryDaemon('status', {}, place);
  const qps: QPSummary[] = [];
  for (const { device } of status.devices) {
    if (device.transport !== 'roce') continue;
    qps.push(...(await queryDaemon('listQPs', { device: device.name }, place)));
  }
  return { at: performance.now(), status, qps };
}

/** Shows the daemon until `signal` fires, `count` samples are shown or the daemon ends. */
export async function runTop(
  given: TopArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const { socket: socketPath, interval, count = Number.POSITIVE_INFINITY } = given;
  let before = await takeSample(socketPath);
  for (let looks = 0; looks < count; looks += 1) {
    if (!(await rested(interval * 1000, signal))) return;
    const sample = await takeSample(socketPath);
    const seconds = (sample.at - before.at) / 1000;
    const { status } = sample;
    const rates = deviceRates(before.status, status, seconds);
    const queuePairs = qpRates(before.qps, sample.qps, seconds);
    before = sample;
    if (given.json === true) {
      output.line(jsonLine({ rates, queuePairs, clients: status.clients }));
    } else {
      output.clear?.();
      output.line(topLines(status, rates, queuePairs).join('\n'));
    }
  }
}

/** Sleeps. Returns false if `signal` fired. */
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
      sendsPerSecond: rate('sends_taken'),
      receivesPerSecond: rate('receives_taken'),
      completionsPerSecond: rate('completions'),
      gatheredBytesPerSecond: rate('gathered_bytes'),
      placedBytesPerSecond: rate('placed_bytes'),
      errorsPerSecond: rate('failures', 'flushes', 'access_errors', 'too_long_messages'),
    };
  });
}

/** Rates of each queue pair per second, the busiest first. A new one counts from zero. */
export function qpRates(
  before: readonly QPSummary[],
  after: readonly QPSummary[],
  seconds: number,
): QPRates[] {
  const key = ({ client, device, qpNum }: QPSummary): string => `${client} ${device} ${qpNum}`;
  const earlier = new Map(before.map((qp) => [key(qp), qp]));
  const rates = after.map((qp) => {
    const { device, qpNum, pid, program, type, state, destination } = qp;
    const was = earlier.get(key(qp));
    // Modulo 2^32.
    const sends = (qp.sendsTaken - (was?.sendsTaken ?? 0)) >>> 0;
    return {
      ...{ device, qpNum, pid, program, type, state },
      sendsPerSecond: sends / seconds,
      receivesPerSecond: grown(was?.receivesTaken, qp.receivesTaken) / seconds,
      ...(destination === undefined ? {} : { destination }),
    };
  });
  const busy = (qp: QPRates): number => qp.sendsPerSecond + qp.receivesPerSecond;
  return rates.sort((left, right) => busy(right) - busy(left));
}

function grown(before = 0, after = 0): number {
  return after >= before ? after - before : after;
}

export function topLines(
  status: DaemonStatus,
  rates: readonly DeviceRates[],
  queuePairs: readonly QPRates[] = [],
): string[] {
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
    ...qpLines(queuePairs),
    ...(clients.length === 0
      ? ['no clients']
      : tableLines([['pid', 'program', 'connected', 'objects'], ...clients])),
  ];
}

function qpLines(queuePairs: readonly QPRates[]): string[] {
  if (queuePairs.length === 0) return [];
  const head = ['device', 'QP', 'type', 'state', 'sends/s', 'recvs/s', 'to', 'pid', 'program'];
  const rows = queuePairs
    .slice(0, SHOWN_MAX)
    .map((qp) => [
      qp.device,
      String(qp.qpNum),
      qp.type,
      qp.state,
      rateText(qp.sendsPerSecond),
      rateText(qp.receivesPerSecond),
      destinationText(qp.destination),
      String(qp.pid),
      qp.program,
    ]);
  const more = queuePairs.length - rows.length;
  const rest = more > 0 ? [`${more} more queue pairs, less busy`] : [];
  return [...tableLines([head, ...rows]), ...rest, ''];
}

function destinationText(destination: QPSummary['destination']): string {
  if (destination === undefined) return '-';
  return `${destination.qpNum} at ${destination.device ?? destination.gid}`;
}

function rateText(perSecond: number): string {
  return String(Math.round(perSecond));
}

function megabytes(bytesPerSecond: number): string {
  return (bytesPerSecond / 1e6).toFixed(1);
}
