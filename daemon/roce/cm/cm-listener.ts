/** Who hears the requests for a service id. */
import { type CmPort, isIPv4, sameGid } from './cm-path.ts';

/** Which requests a listener hears. */
export interface ListenScope {
  /** Only those to a GID of this port. Undefined: of any. */
  readonly port: CmPort | undefined;
  /** Only those to this GID. */
  readonly gid: Uint8Array | undefined;
  /** Only those over IPv4, or over IPv6. Undefined: both. */
  readonly family: 4 | 6 | undefined;
}

/** A request as its listener has it. */
interface PendingRequest {
  listener: CmListener | undefined;
}

/** A listener. Only the communication manager changes it. */
export class CmListener {
  readonly serviceId: number;
  readonly scope: ListenScope;
  /** Requests that may wait for an answer. */
  readonly backlog: number;
  /** Those that wait. */
  readonly pending = new Set<PendingRequest>();
  /** Owner, for routing events. A request's connection starts with it. */
  tag: unknown;

  constructor(serviceId: number, scope: ListenScope, backlog: number, tag: unknown) {
    this.serviceId = serviceId;
    this.scope = scope;
    this.backlog = backlog;
    this.tag = tag;
  }

  /** True for requests that come to `port` under `gid`. */
  hears(port: CmPort, gid: Uint8Array): boolean {
    const { port: only, gid: own, family } = this.scope;
    if (only !== undefined && only !== port) return false;
    if (own !== undefined) return sameGid(own, gid);
    return family === undefined || family === (isIPv4(gid) ? 4 : 6);
  }

  /** How much of an address it names: the listener that names most hears a request. */
  get rank(): number {
    const { port, gid, family } = this.scope;
    if (gid !== undefined) return 3;
    if (port !== undefined) return 2;
    return family === undefined ? 0 : 1;
  }
}
