/** The traces that the failure of a queue pair leaves until RESET. */
import type { NamedRange } from './wire-port.ts';

export class FailureRecord {
  /** For a Terminate of our own. */
  reason = '';
  /** Its event was raised; later reports of it are echoes. */
  reported = false;
  /** Reports that wait for copies into the program's memory. */
  waiting: (() => void)[] = [];
  /** Flushed work, and whether it was reported: once for each failure. */
  flushedSends = 0;
  flushedReceives = 0;
  flushReported = false;
  /** The peer's memory that our failed message named. */
  asked: NamedRange | undefined = undefined;
}
