/** A connection id of a simulated program, a `Client`. */
import type { Flow, Party } from './sim-qp.ts';

/** See the module's comment. */
export class SimId<Client> {
  readonly client: Client;
  readonly handle: number;
  readonly kind: 'listener' | 'initiator' | 'responder';
  /** Address of a listener, and its port. */
  address = '';
  port = 0;
  flow: Flow | undefined;
  party: Party | undefined;
  /** Device of its resolved address. */
  device: string | undefined;
  /** Outcome of its connect; and whether the connection has ended. */
  outcome: 'established' | 'failed' | undefined;
  ended = false;
  /** The program requested the end. */
  endAsked = false;
  /** When it connected or accepted. */
  askedAt: number | undefined;

  constructor(client: Client, handle: number, kind: SimId<Client>['kind']) {
    this.client = client;
    this.handle = handle;
    this.kind = kind;
  }

  get name(): string {
    return `id ${this.handle}`;
  }
}
