/** The two sides of a host: the devices of one wire, their connection manager and their connections. */
import type { Micros } from '#base/time';
import type { AsyncEventType } from '#contract/verbs/enums';
import type { Fault } from '../faults/fault.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { ConnectionChoice, ConnectionStatus } from './connection-status.ts';
import type { EmulatedDevice } from './emulated-device.ts';
import type { HostCmEvent } from './host-id.ts';
import type { HostClock } from './links/network.ts';
import type { HostNotice } from './observer.ts';

/** One side, as the host calls it. */
export interface HostSide {
  /** Executes pending effects; true if there were any. */
  drainEffects(now: Micros): boolean;
  handleDeadline(now: Micros): void;
  nextDeadline(): Micros;
  /** The queue pair has output to send. */
  handleOutput(qp: QP): void;
  /** The program of the queue pair disconnects. */
  handleDisconnect(qp: QP): void;
  /** The program stopped the queue pair, or its wire failed: `why`. */
  handleStopped(qp: QP, why: string | undefined): void;
  /** The queue pair raised an asynchronous event. */
  handleEvent(qp: QP, event: AsyncEventType, text: string): void;
  /** Installs the faults of packets. */
  setPacketFaults(faults: readonly Fault[] | undefined): void;
  /** The connections that `wants` chooses, for `status`. */
  connections(wants: ConnectionChoice): Iterable<ConnectionStatus>;
  /** Throws `InvariantError`. For simulations and tests, between two turns. */
  assertDeepInvariants(): void;
  /** Closes sockets once all connections have ended. */
  close(): void;
}

/** Interface of both sides to their host. */
export interface SideHost {
  readonly devices: readonly EmulatedDevice[];
  readonly clock: HostClock;
  /** No packets leave the host. */
  readonly isolated: boolean;
  now(): Micros;
  /** Settles everything that is queued. */
  drain(): void;
  /** Queue pairs may be in error: receives posted to them later are flushed. */
  watchErrored(): void;
  /** Reports an event of an id to its owner. */
  deliver(event: HostCmEvent): void;
  /** Logs a line. */
  notice(notice: HostNotice): void;
}
