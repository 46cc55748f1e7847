/** Ports of this host, and paths from them. */

export interface CmPort {
  readonly name: string;
  /** Identifies the device; 8 bytes. */
  readonly guid: Uint8Array;
  /** Index of a GID of this port; undefined if the port does not have it. */
  indexOf(gid: Uint8Array): number | undefined;
}

/** Destination of a connection's packets, as a path record describes it. */
export interface CmPath {
  readonly port: CmPort;
  /** GIDs are 16 bytes: an IPv6 address, or an IPv4 one mapped into it. */
  readonly sgid: Uint8Array;
  readonly sgidIndex: number;
  readonly dgid: Uint8Array;
  /** 20 bits, the same at both ends. */
  readonly flowLabel: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  readonly pkey: number;
  /** `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096. */
  readonly pathMtu: number;
  /** Exponent of 4.096 µs: how long a packet may be in flight. */
  readonly packetLifeTime: number;
}

export function gidKey(gid: Uint8Array): string {
  return gid.join('.');
}

/** Where a GID holds an IPv4 address, after the prefix that marks one. */
const IPV4_AT = 12;
/** Prefix of an IPv6 address: its owner has the other 2^64 addresses, too. */
const IPV6_PREFIX_BYTES = 8;

/** True for a GID that holds an IPv4 address. */
export function isIPv4(gid: Uint8Array): boolean {
  return gid.subarray(0, IPV4_AT).every((byte, index) => byte === (index < 10 ? 0 : 0xff));
}

/** The owner of a GID, for limits: an IPv4 address, or a /64. */
export function ownerOf(gid: Uint8Array): string {
  return gidKey(isIPv4(gid) ? gid : gid.subarray(0, IPV6_PREFIX_BYTES));
}

export function sameGid(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
