/**
 * The port of a device whose programs connect queue pairs themselves, by modifying attributes. A
 * device without one is iWARP's: its connection manager moves queue pairs.
 */
import type { QPState, QPType } from '#contract/verbs/enums';
import type { PortAddresses, QPPath } from './qp-attributes.ts';
import type { Micros, Wire } from './wire-port.ts';

/** A wire that its queue pair configures. Made when the queue pair enters RTR. */
export interface ProgramWire extends Wire {
  /**
   * The queue pair was modified: it is in `state` now, and the attributes are those of `path`. Called
   * for RTR, RTS and SQD, by the queue pair's program and never from within the wire.
   */
  modified(path: QPPath, state: QPState, now: Micros): void;
  /** The PSN of the next request, and that of the next request of the peer; 24 bits. */
  readonly sqPsn: number;
  readonly rqPsn: number;
}

/** What the host provides for such a device. `Q` is the queue pair. */
export interface IBPort<Q> {
  readonly addresses: PortAddresses;
  /** Makes the wire of a queue pair that enters RTR. May throw `VerbsError`: nothing changes then. */
  makeWire(qp: Q): ProgramWire;
}

/** Result of `QP.queryPath`: what `ibv_query_qp` shows beside the attributes of every device. */
export interface PathAttributes extends QPPath {
  readonly type: QPType;
  readonly state: QPState;
  /** In SQD: messages are still to be done. */
  readonly draining: boolean;
}
