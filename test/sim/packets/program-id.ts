/** A connection id of a simulated program on RoCE, a `Program`. */
import type { Life, Pair } from './packet-queue-pair.ts';

export interface ProgramId<Program> {
  readonly program: Program;
  readonly handle: number;
  readonly kind: 'listener' | 'initiator' | 'responder';
  /** It is for datagrams: it answers or asks for the queue pair of a service. */
  readonly datagrams: boolean;
  /** The port of a listener. */
  port: number;
  listens: boolean;
  pair: Pair | undefined;
  life: Life | undefined;
  /** Device of its resolved address. */
  device: string | undefined;
  /** Outcome of its connect; and whether the connection has ended. */
  outcome: 'established' | 'failed' | undefined;
  ended: boolean;
  /** It connected or accepted, and requested the end. */
  asked: boolean;
  endAsked: boolean;
  /** The request of a hostile sender. */
  hostile: boolean;
}

export function newId<Program>(
  program: Program,
  handle: number,
  kind: ProgramId<Program>['kind'],
  datagrams = false,
): ProgramId<Program> {
  return {
    program,
    handle,
    kind,
    datagrams,
    port: 0,
    listens: false,
    pair: undefined,
    life: undefined,
    device: undefined,
    outcome: undefined,
    ended: false,
    asked: false,
    endAsked: false,
    hostile: false,
  };
}
