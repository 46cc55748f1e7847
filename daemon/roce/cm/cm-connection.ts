/** A connection in the communication manager. README.md has a diagram of its states. */
import { type Micros, NEVER } from '#base/time';
import type { QPType } from '#contract/verbs/enums';
import type { Transaction } from '../wire/cm-message.ts';
import type { CmListener } from './cm-listener.ts';
import type { CmPath } from './cm-path.ts';
import type { CmAccount, CmEndFacts, CmPeerFacts } from './cm-types.ts';

/** State of a connection (IBTA 12.9.7), or of a service query (12.11). */
export type CmState =
  | 'req-sent'
  /** The peer has asked for more time. */
  | 'mra-req-rcvd'
  | 'req-rcvd'
  | 'rep-sent'
  | 'mra-rep-rcvd'
  | 'rep-rcvd'
  | 'established'
  | 'dreq-sent'
  | 'dreq-rcvd'
  | 'timewait'
  | 'sidr-req-sent'
  | 'sidr-req-rcvd'
  /** Closed, and removed from the manager. */
  | 'idle';

const TRANSITIONS: Readonly<Record<CmState, readonly CmState[]>> = {
  'req-sent': ['mra-req-rcvd', 'rep-rcvd', 'timewait', 'idle'],
  'mra-req-rcvd': ['rep-rcvd', 'timewait', 'idle'],
  'req-rcvd': ['rep-sent', 'idle'],
  'rep-sent': ['mra-rep-rcvd', 'established', 'dreq-sent', 'dreq-rcvd', 'timewait', 'idle'],
  'mra-rep-rcvd': ['established', 'dreq-sent', 'dreq-rcvd', 'timewait', 'idle'],
  'rep-rcvd': ['established', 'dreq-rcvd', 'timewait'],
  established: ['dreq-sent', 'dreq-rcvd', 'timewait'],
  'dreq-sent': ['timewait'],
  'dreq-rcvd': ['timewait'],
  timewait: ['idle'],
  'sidr-req-sent': ['idle'],
  'sidr-req-rcvd': ['idle'],
  idle: [],
};

export interface CmConnectionInit {
  readonly role: 'active' | 'passive';
  readonly state: CmState;
  readonly type: QPType;
  readonly localCommId: number;
  readonly startingPsn: number;
  readonly path: CmPath;
  readonly transaction: Transaction;
  readonly tag: unknown;
  /** Charged for the connection. */
  readonly account: CmAccount | undefined;
}

/** A connection. Only the communication manager changes it. */
export class CmConnection {
  readonly role: 'active' | 'passive';
  readonly type: QPType;
  readonly localCommId: number;
  remoteCommId = 0;
  /** Our first PSN. */
  readonly startingPsn: number;
  readonly path: CmPath;
  /** Of the last request; replies carry the same one. */
  transaction: Transaction;
  /** The owner's own mark, for routing events. */
  tag: unknown;
  readonly account: CmAccount | undefined;
  /** False once the owner has destroyed the connection: no more events. */
  owned = true;
  /** Passive side: the listener, until the request is accepted or rejected. */
  listener: CmListener | undefined;
  /** The facts that each end announced. */
  local: CmEndFacts | undefined;
  remote: CmPeerFacts | undefined;
  /** Transport retries of both queue pairs. */
  retryCount = 0;
  /** Timeout of our queue pair, an exponent. */
  timeout: number;
  /** Set by the owner: the peer's ACK delay does not change it. */
  timeoutChosen = false;
  /** Repeated until it is answered, and again when the peer repeats its own. */
  message: Uint8Array | undefined;
  /** The resend interval, and how many resends are left. */
  resendMicros: Micros = NEVER;
  resendsLeft = 0;
  /** The latest time to wait for an answer, whatever the peer asks for. */
  givenUpAt: Micros = NEVER;
  deadline: Micros = NEVER;
  /** When the peer may be probed again for a stale connection; 0 if it never was. */
  probeAgainAt: Micros = 0;
  #state: CmState;

  constructor(init: CmConnectionInit, timeout: number) {
    this.role = init.role;
    this.type = init.type;
    this.localCommId = init.localCommId;
    this.startingPsn = init.startingPsn;
    this.path = init.path;
    this.transaction = init.transaction;
    this.tag = init.tag;
    this.account = init.account;
    this.timeout = timeout;
    this.#state = init.state;
  }

  get state(): CmState {
    return this.#state;
  }

  /** Throws if the table has no such transition, which is a bug of the manager. */
  transition(next: CmState): void {
    if (!TRANSITIONS[this.#state].includes(next)) {
      throw new Error(`connection ${this.localCommId}: ${this.#state} to ${next}`);
    }
    this.#state = next;
  }
}
