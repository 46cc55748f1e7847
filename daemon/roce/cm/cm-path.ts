/** Ports of this host, and paths from them. */

/** A port of this host. */
export interface CmPort {
  readonly name: string;
  /** The port's own GID at `index`, 16 bytes; undefined for an empty entry. */
  gid(index: number): Uint8Array | undefined;
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
