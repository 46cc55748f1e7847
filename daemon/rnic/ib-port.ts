/**
 * The port of a device whose programs connect queue pairs themselves, with `ibv_modify_qp`. A device
 * without one is iWARP: its connection manager moves queue pairs.
 */
import type { Micros } from '#base/time';
import type { QPState, QPType } from '#contract/verbs/enums';
import type { LentPayload } from './memory/lent-payload.ts';
import type { PortAddresses, QPPath } from './qp-attributes.ts';
import type { Wire } from './wire-port.ts';

/** A wire configured by its queue pair. Created when the queue pair enters RTR. */
export interface ProgramWire extends Wire {
  /**
   * The queue pair is now in `state` with the attributes in `path`. Called for RTR, RTS and SQD, by
   * the program of the queue pair, never from within the wire.
   */
  modified(path: QPPath, state: QPState, now: Micros): void;
  /** The PSNs of our next request and of the peer's next request; 24 bits. */
  readonly sqPsn: number;
  readonly rqPsn: number;
}

/** Such a device's interface to its host. `Q` is the type of queue pairs. */
export interface IBPort<Q> {
  readonly addresses: PortAddresses;
  /** Payload that queue pairs of the host lend to each other. */
  readonly lentPayload: LentPayload;
  /** Creates the wire of a queue pair that enters RTR. May throw `VerbsError`, without a change. */
  makeWire(qp: Q): ProgramWire;
}

/** Result of `QP.queryPath`: what `ibv_query_qp` returns beyond the attributes of every device. */
export interface PathAttributes extends QPPath {
  readonly type: QPType;
  readonly state: QPState;
  /** In SQD: some messages are not done yet. */
  readonly draining: boolean;
}
