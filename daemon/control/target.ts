/**
 * What the operations work on: the daemon, as far as an operator may see and move it. `daemon/main`
 * implements it; what an operation can do to the daemon is what stands here.
 */
import type {
  ConnectionSummary,
  ObjectSummaries,
  ResetReport,
} from '../../verbs-api/contract/control.ts';
import type { DaemonStatus } from '../../verbs-api/contract/ipc-admin.ts';

/** See the module's comment. */
export interface ControlTarget {
  /** The daemon serves; false once it stops. */
  readonly ready: boolean;
  status(): DaemonStatus;
  objects(): ObjectSummaries;
  connections(): readonly ConnectionSummary[];
  /** Ends every client and connection and starts all counters anew. */
  reset(): Promise<ResetReport>;
}
