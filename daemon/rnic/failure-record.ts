/** How far the failure of a queue pair is reported. Kept until RESET. */
import type { NamedRange } from './wire-port.ts';

export class FailureRecord {
  /** The text for a Terminate of our own. */
  reason = '';
  /** Its event was raised; later reports of it are echoes. */
  reported = false;
  /** Reports, also of a connection that ended well, that wait for copies into the program's memory. */
  waiting: (() => void)[] = [];
  /** Flushed work requests. */
  flushedSends = 0;
  flushedReceives = 0;
  /** They were reported, which happens once for each failure. */
  flushReported = false;
  /** The peer's memory that our failed message named. */
  asked: NamedRange | undefined = undefined;
}
