/** Shared by `capture` and `trace`: selects links and watches them. */
import { getPriority, setPriority } from 'node:os';
import type { TapFilter, TapLinkEnds, TapRecord } from '#contract/protocol/tap-records';
import { CommandFailure } from '#daemon/console/failure';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { watchTraffic } from '#verbs-api/client/traffic-watch';
import { noSuchDevice, wrongDevice } from '../device-name.ts';

/** A lower value captures more at full speed but slows traffic more; a higher one, the reverse. */
const WATCHER_NICENESS = 15;

/** The options as commander passes them. */
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
  onBegin(): void;
  onRecord(record: TapRecord): void;
}

/**
 * Watches the traffic selected by `filter` until `signal` fires, the time is up, or the daemon ends.
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

/** CommandFailure for a device without traffic to watch. VerbsError if no daemon is running. */
export async function assertTraffic({ device, socket: socketPath }: TrafficOptions): Promise<void> {
  const found = await queryDaemon('listDevices', {}, { socketPath });
  const emulated = found.filter((each) => each.device.backend === 'emulated');
  const names = emulated.map((each) => each.device.name);
  if (device === undefined || names.includes(device)) return;
  const native = found.some((each) => each.device.name === device);
  if (!native) throw noSuchDevice(device, names);
  throw wrongDevice(`${device} is a real device, whose traffic cannot be seen`, names);
}

/** Lowers this process's priority: it runs only when the watched processes leave the processor idle. */
function giveWay(): void {
  try {
    setPriority(Math.max(getPriority(), WATCHER_NICENESS));
  } catch {
    // A sandbox may forbid it; watched processes are then slowed somewhat.
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

/** States in which a queue pair has packets although the connection manager has no connection. */
const CARRYING: readonly string[] = ['RTR', 'RTS', 'SQD', 'SQE'];

/**
 * Selects queue pairs: by their current links, or by their numbers if some are RoCE, which have no
 * links. CommandFailure for a queue pair without traffic.
 */
export async function selectedQueuePairs(options: TrafficOptions): Promise<TapFilter> {
  const { qp: numbers, device, socket: socketPath } = options;
  if (numbers === undefined) return {};
  const filter = device === undefined ? {} : { device };
  const [connections, pairs] = await Promise.all([
    queryDaemon('listConnections', filter, { socketPath }),
    queryDaemon('listQPs', filter, { socketPath }),
  ]);
  const linksOf = (number: number): TapLinkEnds[] =>
    connections
      .filter(({ qpNum }) => qpNum === number)
      .map(({ local, remote }) => ({
        localAddress: local.address,
        localPort: local.port,
        remoteAddress: remote.address,
        remotePort: remote.port,
      }));
  const unlinked = numbers.filter((number) => linksOf(number).length === 0);
  for (const number of unlinked) {
    const carries = pairs.some(({ qpNum, state }) => qpNum === number && CARRYING.includes(state));
    if (!carries) throw new CommandFailure(`queue pair ${number} has no connection`);
  }
  return unlinked.length === 0 ? { links: numbers.flatMap(linksOf) } : { qps: numbers };
}
