/** Who calls, as RPC tells it (RFC 5531 §8.2, appendix A). */

/** Authentication flavors (RFC 5531 §8.2). */
export const AuthFlavor = { none: 0, sys: 1, short: 2, dh: 3, rpcsecGss: 6 } as const;

/** Nobody in particular (RFC 5531 §10.1). */
export interface NoneCredential {
  readonly flavor: 'none';
}

/** A user of a host, as that host says; nothing proves it (RFC 5531 appendix A). */
export interface SysCredential {
  readonly flavor: 'sys';
  readonly stamp: number;
  /** At most 255 octets. */
  readonly machineName: string;
  readonly uid: number;
  readonly gid: number;
  /** At most 16. */
  readonly gids: readonly number[];
}

/** Who calls. */
export type Credential = NoneCredential | SysCredential;
