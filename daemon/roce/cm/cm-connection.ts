/** A connection as the communication manager has it. README.md has a diagram of its states. */
import type { QPType } from '../../../verbs-api/contract/verbs/enums.ts';
import { type Micros, NEVER } from '../../rnic/wire-port.ts';
import type { Transaction } from '../wire/cm-message.ts';
import type { CmListener } from './cm-listener.ts';
import type { CmPath } from './cm-path.ts';
import type { CmAccount, CmEndFacts, CmPeerFacts } from './cm-types.ts';

/** State of a connection (IBTA 12.9.7), or of a question for a service (12.11). */
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
  /** Over, and forgotten by the manager. */
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

/** What is known from the start. */
export interface CmConnectionInit {
  readonly role: 'active' | 'passive';
  readonly state: CmState;
  readonly type: QPType;
  readonly localCommId: number;
  readonly startingPsn: number;
  readonly path: CmPath;
  readonly transaction: Transaction;
  readonly tag: unknown;
  /** It was charged for the connection. */
  readonly account: CmAccount | undefined;
}

/** A connection. Only the communication manager changes it. */
export class CmConnection {
  readonly role: 'active' | 'passive';
  readonly type: QPType;
  readonly localCommId: number;
  remoteCommId = 0;
  /** PSN of the own first packet. */
  readonly startingPsn: number;
  readonly path: CmPath;
  /** Of the last question: its answers have the same. */
  transaction: Transaction;
  /** Owner, for routing events. */
  tag: unknown;
  readonly account: CmAccount | undefined;
  /** False once the owner has destroyed it: there are no more events. */
  owned = true;
  /** Passive: who heard it, until the request is answered. */
  listener: CmListener | undefined;
  /** What the two ends have said. */
  local: CmEndFacts | undefined;
  remote: CmPeerFacts | undefined;
  /** Transport retries of both queue pairs. */
  retryCount = 0;
  /** Timeout of the own queue pair, an exponent. */
  timeout: number;
  /** Chosen by the owner: the peer's delay does not change the timeout. */
  timeoutChosen = false;
  /** The message that is repeated until it is answered, and again when the peer repeats its own. */
  message: Uint8Array | undefined;
  /** How long to wait for an answer, and how often still. */
  resendMicros: Micros = NEVER;
  resendsLeft = 0;
  /** When we stop waiting for an answer, whatever the peer asks for. */
  givenUpAt: Micros = NEVER;
  deadline: Micros = NEVER;
  /** When the peer may be asked again whether it still has the connection; 0 if it was not asked. */
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

  /** Changes the state as in the table; another transition is a bug of the manager. */
  transition(next: CmState): void {
    if (!TRANSITIONS[this.#state].includes(next)) {
      throw new Error(`connection ${this.localCommId}: ${this.#state} to ${next}`);
    }
    this.#state = next;
  }
}
