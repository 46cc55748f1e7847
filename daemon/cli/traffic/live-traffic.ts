/** Shared by `capture` and `trace`: selects links and watches them. */
import { getPriority, setPriority } from 'node:os';
import { queryDaemon } from '../../../verbs-api/client/daemon-channel.ts';
import { watchTraffic } from '../../../verbs-api/client/traffic-watch.ts';
import type {
  TapFilter,
  TapLinkEnds,
  TapRecord,
} from '../../../verbs-api/contract/protocol/tap-records.ts';
import { CommandFailure } from '../../console/failure.ts';

/**
 * A lower value records more of a capture at full speed and slows traffic more; a higher one, the
 * reverse.
 */
const WATCHER_NICENESS = 15;

/** The options as commander hands them over. */
export interface TrafficOptions {
  readonly socket: string;
  readonly address?: string;
  readonly port?: number;
  readonly qp?: readonly number[];
  readonly device?: string;
  /** Time limit in seconds. */
  readonly duration?: number;
}

/** Receives the records. An error that it throws ends the watch. */
export interface TrafficUser {
  /** The watch has started. */
  onBegin(): void;
  onRecord(record: TapRecord): void;
}

/**
 * Watches what `filter` selects until `signal` fires, the time is up, or the daemon ends.
 * CommandFailure if the daemon ends, VerbsError if none is running.
 */
export async function watchUntilDone(
  options: TrafficOptions,
  filter: TapFilter,
  signal: AbortSignal,
  user: TrafficUser,
): Promise<void> {
  giveWay();
  const socketPath = options.socket;
  await assertTraffic(options);
  const watch = await watchTraffic({
    socketPath,
    filter,
    onRecord: (record) => user.onRecord(record),
  });
  user.onBegin();
  const stop = (): void => watch.stop();
  const { duration } = options;
  const timer = duration === undefined ? undefined : setTimeout(stop, duration * 1000);
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop);
  const failure = await watch.ended;
  clearTimeout(timer);
  signal.removeEventListener('abort', stop);
  if (failure !== undefined) throw failure;
}

/** CommandFailure for a device that has no traffic to watch. VerbsError if no daemon is running. */
export async function assertTraffic({ device, socket: socketPath }: TrafficOptions): Promise<void> {
  const found = await queryDaemon('listDevices', {}, { socketPath });
  const emulated = found.filter((each) => each.device.backend === 'emulated');
  const names = emulated.map((each) => each.device.name);
  if (device === undefined || names.includes(device)) return;
  const native = found.some((each) => each.device.name === device);
  const what = native
    ? `${device} is a real device, whose traffic cannot be seen`
    : `no device ${device}`;
  throw new CommandFailure(`${what}; the daemon has ${names.join(', ')}; see \`iwarpd devices\``);
}

/** Lowers this process's priority: it runs when the watched processes do not need the processor. */
function giveWay(): void {
  try {
    setPriority(Math.max(getPriority(), WATCHER_NICENESS));
  } catch {
    // A sandbox may forbid it; the watched processes then lose some speed.
  }
}

/** The filter without queue pairs, which are selected directly or by their links. */
export function filterOf({ address, port, device }: TrafficOptions): TapFilter {
  return {
    ...(address === undefined ? {} : { address }),
    ...(port === undefined ? {} : { port }),
    ...(device === undefined ? {} : { device }),
  };
}

/** The present links of the queue pairs. CommandFailure for a queue pair without a link. */
export async function linksOf(options: TrafficOptions): Promise<TapLinkEnds[]> {
  const { qp = [], device, socket: socketPath } = options;
  const filter = device === undefined ? {} : { device };
  const connections = await queryDaemon('listConnections', filter, { socketPath });
  return qp.flatMap((qpNum) => {
    const found = connections.filter((each) => each.qpNum === qpNum);
    if (found.length === 0) throw new CommandFailure(`queue pair ${qpNum} has no connection`);
    return found.map(({ local, remote }) => ({
      localAddress: local.address,
      localPort: local.port,
      remoteAddress: remote.address,
      remotePort: remote.port,
    }));
  });
}
