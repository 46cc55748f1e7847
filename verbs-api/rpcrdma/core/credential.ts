/** RPC caller credentials (RFC 5531 §8.2, appendix A). */

/** Authentication flavors (RFC 5531 §8.2). */
export const AuthFlavor = { none: 0, sys: 1, short: 2, dh: 3, rpcsecGss: 6 } as const;

/** No credential (RFC 5531 §10.1). */
interface NoneCredential {
  readonly flavor: 'none';
}

/** A user of a host, as that host claims; not authenticated (RFC 5531 appendix A). */
interface SysCredential {
  readonly flavor: 'sys';
  /** A number chosen by the caller, without meaning (RFC 5531 §8.2). */
  readonly stamp: number;
  /** At most 255 bytes. */
  readonly machineName: string;
  /** User id. */
  readonly uid: number;
  /** Group id. */
  readonly gid: number;
  /** At most 16. */
  readonly gids: readonly number[];
}

/** The caller's credential. */
export type Credential = NoneCredential | SysCredential;
