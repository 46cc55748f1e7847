/**
 * The daemon as seen by operations: everything they can read and change. Implemented by `daemon/main`.
 */
import type {
  ConnectionFilter,
  ConnectionSummary,
  ObjectFilter,
  ObjectSummaries,
  PhaseCount,
  ResetReport,
} from '#contract/protocol/control';
import type { FaultSpec, FaultStatus } from '#contract/protocol/faults';
import type { ClientStatus, DaemonStatus, DeviceStatus } from '#contract/protocol/ipc-admin';
import type { RefusalCount, RefusalFilter, RefusalList } from '#contract/protocol/refusals';
import type { TraceRequest, TraceSample } from '#contract/protocol/trace-sample';
import type { Histogram, OperationTimes } from './operation-times.ts';

export interface ControlTarget {
  readonly version: string;
  /** True while the daemon serves; false once it stops. */
  readonly ready: boolean;
  /** Updated by `executeOperation`. */
  readonly operationTimes: OperationTimes;
  /** Turns of the event loop. */
  readonly turnTimes: Histogram;
  status(): DaemonStatus | Promise<DaemonStatus>;
  devices(): readonly DeviceStatus[];
  clients(): readonly ClientStatus[] | Promise<readonly ClientStatus[]>;
  /** The objects of one kind that match the filter; the other lists are empty. */
  objects(
    kind: keyof ObjectSummaries,
    filter: ObjectFilter,
  ): ObjectSummaries | Promise<ObjectSummaries>;
  connections(filter: ConnectionFilter): readonly ConnectionSummary[];
  /** Counts all connections, without a summary of each. */
  connectionCounts(): readonly PhaseCount[];
  /**
   * Adds a fault whose fields are consistent. Throws `ControlError` naming a field that is invalid
   * here: no such device, or a peer that is not an address.
   */
  addFault(spec: FaultSpec): FaultStatus;
  faults(): readonly FaultStatus[];
  /** Removes a fault and returns its final status. ENOENT if there is no such fault. */
  removeFault(id: number): FaultStatus;
  removeFaults(): readonly FaultStatus[];
  /**
   * Starts recording and resolves once it has enough. EBUSY if too many recordings are running;
   * `ControlError` if there is no such device.
   */
  recordTrace(request: TraceRequest): Promise<TraceSample>;
  /**
   * The refusals of one user's programs, or of all; waits for one if the filter asks for that. EBUSY if too
   * many wait.
   */
  refusals(filter: RefusalFilter, uid: number | undefined): Promise<RefusalList>;
  /** How often each verb failed with each code. */
  refusalCounts(): readonly Readonly<RefusalCount>[];
  /**
   * During a reset, which takes several turns: the promise of its end. Operations wait for it, so
   * that none sees a half-done reset.
   */
  readonly settled?: Promise<void> | undefined;
  /** Ends every client and connection, removes faults and resets all counters. */
  reset(): Promise<ResetReport>;
}
