/** Ports of this host, and paths from them. */

/** A port of this host. */
export interface CmPort {
  readonly name: string;
  /** Identifies its device; 8 bytes. */
  readonly guid: Uint8Array;
  /** Index of an own GID; undefined for one that it does not have. */
  indexOf(gid: Uint8Array): number | undefined;
}

/** Where packets of a connection go: what a path record says. */
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
  /** Exponent of 4.096 microseconds: how long a packet may be on its way. */
  readonly packetLifeTime: number;
}

/** A GID as a key of maps. */
export function gidKey(gid: Uint8Array): string {
  return gid.join('.');
}

/** Bytes of a GID that hold an IPv4 address, behind the mark of one that does. */
const IPV4_AT = 12;
/** Bytes of an IPv6 address that its owner does not choose: an owner has 2^64 addresses. */
const IPV6_PREFIX_BYTES = 8;

/** True for a GID that holds an IPv4 address. */
export function isIPv4(gid: Uint8Array): boolean {
  return gid.subarray(0, IPV4_AT).every((byte, index) => byte === (index < 10 ? 0 : 0xff));
}

/** Whose a GID is, for limits on what one owner may take: an IPv4 address, or a /64. */
export function ownerOf(gid: Uint8Array): string {
  return gidKey(isIPv4(gid) ? gid : gid.subarray(0, IPV6_PREFIX_BYTES));
}

/** True for two GIDs that are the same. */
export function sameGid(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
