/** Listeners: which requests for a service id each one accepts. */
import { type CmPort, isIPv4, sameGid } from './cm-path.ts';

export interface ListenScope {
  /** Accepts requests to a GID of this port only. Undefined: any port. */
  readonly port: CmPort | undefined;
  /** Accepts requests to this GID only. Undefined: any GID. */
  readonly gid: Uint8Array | undefined;
  /** Accepts requests over IPv4 or over IPv6 only. Undefined: both. */
  readonly family: 4 | 6 | undefined;
}

interface PendingRequest {
  listener: CmListener | undefined;
}

/** A listener. Only the communication manager changes it. */
export class CmListener {
  readonly serviceId: number;
  readonly scope: ListenScope;
  readonly backlog: number;
  /** Requests without an answer yet. */
  readonly pending = new Set<PendingRequest>();
  /** Set by the owner to route events. The connection of a request inherits it. */
  tag: unknown;

  constructor(serviceId: number, scope: ListenScope, backlog: number, tag: unknown) {
    this.serviceId = serviceId;
    this.scope = scope;
    this.backlog = backlog;
    this.tag = tag;
  }

  /** True if a request to `gid` on `port` is in scope. */
  matches(port: CmPort, gid: Uint8Array): boolean {
    const { port: only, gid: own, family } = this.scope;
    if (only !== undefined && only !== port) return false;
    if (own !== undefined) return sameGid(own, gid);
    return family === undefined || family === (isIPv4(gid) ? 4 : 6);
  }

  /** Specificity of the scope. The most specific listener gets the request. */
  get rank(): number {
    const { port, gid, family } = this.scope;
    if (gid !== undefined) return 3;
    if (port !== undefined) return 2;
    return family === undefined ? 0 : 1;
  }
}
