/** Socket addresses as Linux lays them out in memory, on x86-64 and arm64. */
import { addressBytes, addressFamily, canonicalAddress } from '#base/address';
import type { SocketAddress } from '#contract/verbs/provider';
import { gidBytes } from '#daemon/host/host-addresses';

/** Address families by their Linux numbers. */
export const Family = { none: 0, ipv4: 2, ipv6: 10, infiniband: 27 } as const;
export type Family = (typeof Family)[keyof typeof Family];

const SOCKADDR_BYTES: Readonly<Record<Family, number>> = {
  [Family.none]: 0,
  [Family.ipv4]: 16,
  [Family.ipv6]: 28,
  [Family.infiniband]: 48,
};

/** Bytes of the `sockaddr` of a family; 0 for none. */
export function sockaddrBytes(family: Family): number {
  return SOCKADDR_BYTES[family];
}

export interface ParsedSockaddr {
  readonly family: Family;
  /** Bytes that the family occupies. */
  readonly bytes: number;
  /** For the Internet families. */
  readonly address: SocketAddress | undefined;
}

/** Parses the `sockaddr` at the start of `bytes`; undefined for an unknown family. */
export function parseSockaddr(bytes: Uint8Array): ParsedSockaddr | undefined {
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const family = fields.getUint16(0, true);
  switch (family) {
    case Family.none:
    case Family.infiniband:
      return { family, bytes: SOCKADDR_BYTES[family], address: undefined };
    case Family.ipv4: {
      const address = bytes.subarray(4, 8).join('.');
      const port = fields.getUint16(2);
      return { family, bytes: SOCKADDR_BYTES[family], address: { address, port } };
    }
    case Family.ipv6: {
      const groups = Array.from({ length: 8 }, (_, i) => fields.getUint16(8 + 2 * i).toString(16));
      const scope = fields.getUint32(24, true);
      const text = `${groups.join(':')}${scope === 0 ? '' : `%${scope}`}`;
      const address = canonicalAddress(text) ?? text;
      const port = fields.getUint16(2);
      return { family, bytes: SOCKADDR_BYTES[family], address: { address, port } };
    }
    default:
      return undefined;
  }
}

/**
 * Writes a `sockaddr` of `family` to the start of `target`: zeros after the family without an
 * address. An IPv4 address is mapped into an IPv6 one.
 */
export function emitSockaddr(
  target: Uint8Array,
  family: Family,
  address: SocketAddress | undefined,
): void {
  const fields = new DataView(target.buffer, target.byteOffset, target.length);
  fields.setUint16(0, family, true);
  if (address === undefined) return;
  if (family === Family.ipv4) {
    fields.setUint16(2, address.port);
    if (addressFamily(address.address) === 4) target.set(addressBytes(address.address), 4);
  } else if (family === Family.ipv6) {
    fields.setUint16(2, address.port);
    const zone = Number(address.address.split('%', 2)[1] ?? 0);
    if (address.address !== WILDCARD) target.set(gidBytes(address.address), 8);
    if (Number.isInteger(zone)) fields.setUint32(24, zone, true);
  }
}

/** The IPv4 wildcard: in an IPv6 `sockaddr` it becomes the IPv6 wildcard, not a mapped address. */
const WILDCARD = '0.0.0.0';

/** The fields of a `sockaddr_ib` in use. */
export interface IbAddress {
  /** 16 bytes. */
  readonly gid: Uint8Array;
  readonly serviceId: bigint;
  readonly serviceMask: bigint;
}

export function parseIbAddress(bytes: Uint8Array): IbAddress {
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return {
    gid: bytes.slice(8, 24),
    serviceId: fields.getBigUint64(24),
    serviceMask: fields.getBigUint64(32),
  };
}

/** Writes a `sockaddr_ib` to the start of `target`. */
export function emitIbAddress(
  target: Uint8Array,
  { gid, serviceId, serviceMask }: IbAddress,
): void {
  const fields = new DataView(target.buffer, target.byteOffset, target.length);
  fields.setUint16(0, Family.infiniband, true);
  target.set(gid, 8);
  fields.setBigUint64(24, serviceId);
  fields.setBigUint64(32, serviceMask);
}
