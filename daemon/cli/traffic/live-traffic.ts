/** What `capture` and `trace` have in common: which links to watch, and watching them to the end. */
import { getPriority, setPriority } from 'node:os';
import { queryDaemon } from '../../../verbs-api/client/daemon-link.ts';
import { watchTraffic } from '../../../verbs-api/client/traffic-watch.ts';
import type { TapFilter, TapLinkEnds, TapRecord } from '../../../verbs-api/contract/tap-records.ts';
import { CommandFailure } from '../failure.ts';

/** Less, and a capture at full speed records more and slows more; more, and the reverse. */
const WATCHER_NICENESS = 15;

/** The options as commander hands them over. */
export interface TrafficOptions {
  readonly socket: string;
  readonly address?: string;
  readonly port?: number;
  readonly qp?: readonly number[];
  readonly device?: string;
  /** Seconds until it ends by itself. */
  readonly duration?: number;
}

/** What takes the records. What it throws ends the watch. */
export interface TrafficUser {
  /** The watch has begun. */
  onBegin(): void;
  onRecord(record: TapRecord): void;
}

/**
 * Watches what `filter` selects until `signal` fires, the time is up, or the daemon ends.
 * CommandFailure when the daemon goes, VerbsError without one.
 */
export async function watchUntilDone(
  options: TrafficOptions,
  filter: TapFilter,
  signal: AbortSignal,
  user: TrafficUser,
): Promise<void> {
  giveWay();
  const socketPath = options.socket;
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

/** Whoever looks on takes the processor only while those who are looked at do not want it. */
function giveWay(): void {
  try {
    setPriority(Math.max(getPriority(), WATCHER_NICENESS));
  } catch {
    // A sandbox that forbids it costs those who are watched some speed, and nothing else.
  }
}

/** What is watched, queue pairs apart: those are selected by themselves or by their links. */
export function filterOf({ address, port, device }: TrafficOptions): TapFilter {
  return {
    ...(address === undefined ? {} : { address }),
    ...(port === undefined ? {} : { port }),
    ...(device === undefined ? {} : { device }),
  };
}

/** The links that the queue pairs have now. CommandFailure for one that has none. */
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
