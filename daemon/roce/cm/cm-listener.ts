/** Who hears the requests for a service id. */
import type { CmPort } from './cm-path.ts';

/** Which requests a listener hears. */
export interface ListenScope {
  /** Only those to a GID of this port. Undefined: of any. */
  readonly port: CmPort | undefined;
  /** Only those to this GID. */
  readonly gid: Uint8Array | undefined;
  /** Only those over IPv4, or over IPv6. Undefined: both. */
  readonly family: 4 | 6 | undefined;
}

/** A listener. Only the communication manager changes it. */
export class CmListener {
  readonly serviceId: number;
  readonly scope: ListenScope;
  /** Requests that may wait for an answer. */
  readonly backlog: number;
  /** Owner, for routing events. A request's connection starts with it. */
  tag: unknown;

  constructor(serviceId: number, scope: ListenScope, backlog: number, tag: unknown) {
    this.serviceId = serviceId;
    this.scope = scope;
    this.backlog = backlog;
    this.tag = tag;
  }
}
