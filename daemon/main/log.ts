/** The daemon's log: one JSON object a line (pino), and the host's notices on their way into it. */
import { type DestinationStream, destination, type Logger, pino } from 'pino';
import type { HostNotice, HostObserver } from '../adapter/observer.ts';
import type { CaptureTap } from '../capture/capture-tap.ts';
import type { DaemonConfig } from './config.ts';

/** Standard error: standard output belongs to the ready line. */
const STDERR = 2;

/** A log at `level` to `stream`, standard error by default. */
export function createLog(level: DaemonConfig['logLevel'], stream?: DestinationStream): Logger {
  // Written at once: the last lines before an end are those that matter.
  return pino({ level, base: null }, stream ?? destination({ fd: STDERR, sync: true }));
}

/** Logs what the host notices; `tap` sees the octets. */
export function hostObserver(log: Logger, tap: CaptureTap): HostObserver {
  const notice = ({ level, kind, device, remote, text }: HostNotice): void => {
    const peer = remote === undefined ? undefined : `${remote.address} port ${remote.port}`;
    log[level]({ kind, device, peer }, text);
  };
  return { notice, tap };
}
