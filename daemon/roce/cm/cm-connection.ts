/** A connection as the communication manager has it. README.md has a diagram of its states. */
import type { CmPath, CmPort } from './cm-path.ts';

/** State of a connection (IBTA 12.9.7), or of a question for a service (12.11). */
type CmState =
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
  /** Over: only `destroy` is left. */
  | 'idle';

/** A connection. Only the communication manager changes it. */
export class CmConnection {
  readonly role: 'active' | 'passive';
  readonly localCommId: number;
  remoteCommId = 0;
  /** Owner, for routing events. */
  tag: unknown;
  readonly path: CmPath;
  #state: CmState;

  constructor(role: 'active' | 'passive', state: CmState, localCommId: number, path: CmPath) {
    this.role = role;
    this.localCommId = localCommId;
    this.path = path;
    this.#state = state;
  }

  get state(): CmState {
    return this.#state;
  }

  get port(): CmPort {
    return this.path.port;
  }
}
