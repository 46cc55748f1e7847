/**
 * What the operations work on: the daemon, as far as an operator may see and move it. `daemon/main`
 * implements it; what an operation can do to the daemon is what stands here.
 */
import type {
  ConnectionSummary,
  ObjectSummaries,
  ResetReport,
} from '../../verbs-api/contract/control.ts';
import type { FaultSpec, FaultStatus } from '../../verbs-api/contract/faults.ts';
import type { DaemonStatus } from '../../verbs-api/contract/ipc-admin.ts';
import type { TraceRequest, TraceSample } from '../../verbs-api/contract/trace-sample.ts';

/** See the module's comment. */
export interface ControlTarget {
  /** The daemon serves; false once it stops. */
  readonly ready: boolean;
  status(): DaemonStatus;
  objects(): ObjectSummaries;
  connections(): readonly ConnectionSummary[];
  /**
   * Adds a fault, whose fields go together. `ControlError` names the one that means nothing here: a
   * device that there is not, a peer that is no address.
   */
  addFault(spec: FaultSpec): FaultStatus;
  faults(): readonly FaultStatus[];
  /** ENOENT when there is none of this number. Returns what it did to the end. */
  removeFault(id: number): FaultStatus;
  removeFaults(): readonly FaultStatus[];
  /**
   * Watches from now on, and answers once there is enough. EBUSY when too many watch already;
   * `ControlError` names a device that there is not.
   */
  recordTrace(request: TraceRequest): Promise<TraceSample>;
  /** Ends every client and connection, removes faults and starts all counters anew. */
  reset(): Promise<ResetReport>;
}
