/**
 * The invariant CRC of a RoCEv2 packet (IBTA annex A17, 17.9; IBTA volume 1, 7.8.1).
 *
 * It covers, in this order: 8 bytes of ones in place of a local route header, the IP header, the UDP header,
 * and the packet from the base transport header to the end of the padding. Fields that routers may change
 * count as ones:
 *
 * - IPv4: type of service, time to live, header checksum;
 * - IPv6: traffic class, flow label, hop limit;
 * - UDP: checksum;
 * - BTH: the byte with FECN and BECN.
 *
 * The four bytes of the CRC follow the padding, least significant byte first.
 *
 * `icrcOfHeaders` covers everything up to the base header. `rangeCrc32` continues it over the rest, in any
 * number of pieces; `icrcOf` does both for a packet in one piece. `writeIcrc` and `readIcrc` write and read
 * it on the wire.
 */
import { type Crc32, rangeCrc32, tableCrc32 } from './crc32.ts';
import { BTH_BYTES } from './opcode.ts';

/** Length of the CRC, which follows the padding. */
export const ICRC_BYTES = 4;
/** Bytes of IPv4 and IPv6 headers without options, and of a UDP header. */
export const IPV4_BYTES = 20;
export const IPV6_BYTES = 40;
export const UDP_BYTES = 8;

/** The UDP port of RoCEv2. */
export const ROCE_PORT = 4791;
export const GID_BYTES = 16;
/** Offset of the identification in an IPv4 header. */
const IDENTIFICATION_AT = 4;
const UDP_PROTOCOL = 17;

/** CRC of the 8 bytes in place of a local route header. */
const ROUTE_CRC = tableCrc32(new Uint8Array(8).fill(0xff), 0, 8);
/** Buffer for the masked headers; used within one call. */
const MASKED = new Uint8Array(IPV6_BYTES + UDP_BYTES + BTH_BYTES);

/**
 * CRC over IP, UDP and base transport header. `datagram` has an IP header without options at `ipStart`,
 * followed by the UDP header; `packet` has the base header at `bthStart`. They may be the same buffer.
 */
export function icrcOfHeaders(
  datagram: Uint8Array,
  ipStart: number,
  packet: Uint8Array,
  bthStart: number,
): number {
  const masked = MASKED;
  const ipBytes = (datagram[ipStart] as number) >> 4 === 4 ? IPV4_BYTES : IPV6_BYTES;
  const udp = ipBytes + UDP_BYTES;
  for (let i = 0; i < udp; i += 1) masked[i] = datagram[ipStart + i] as number;
  if (ipBytes === IPV4_BYTES) {
    masked[1] = 0xff;
    masked[8] = 0xff;
    masked[10] = 0xff;
    masked[11] = 0xff;
  } else {
    masked[0] = (masked[0] as number) | 0x0f;
    masked[1] = 0xff;
    masked[2] = 0xff;
    masked[3] = 0xff;
    masked[7] = 0xff;
  }
  masked[ipBytes + 6] = 0xff;
  masked[ipBytes + 7] = 0xff;
  for (let i = 0; i < BTH_BYTES; i += 1) masked[udp + i] = packet[bthStart + i] as number;
  masked[udp + 4] = 0xff;
  return tableCrc32(masked, 0, udp + BTH_BYTES, ROUTE_CRC);
}

/**
 * ICRC of the datagram with its IP header at `ipStart` and its packet in `datagram[bthStart, end)`, padding
 * included.
 */
export function icrcOf(
  large: Crc32,
  datagram: Uint8Array,
  ipStart: number,
  bthStart: number,
  end: number,
): number {
  const headers = icrcOfHeaders(datagram, ipStart, datagram, bthStart);
  return rangeCrc32(large, datagram, bthStart + BTH_BYTES, end, headers);
}

/**
 * The headers of many packets between two addresses, as the ICRC sees them. Only the fields that change are
 * written for each packet.
 */
export class IcrcHeaders {
  readonly #bytes: Uint8Array;
  readonly #four: boolean;
  readonly #udp: number;

  /** For IPv4 (`four`) or IPv6. Assumes "don't fragment". */
  constructor(four: boolean) {
    const ipBytes = four ? IPV4_BYTES : IPV6_BYTES;
    const bytes = new Uint8Array(ipBytes + UDP_BYTES + BTH_BYTES);
    this.#bytes = bytes;
    this.#four = four;
    this.#udp = ipBytes;
    if (four) {
      bytes.set([0x45, 0xff, 0, 0, 0, 0, 0x40, 0, 0xff, UDP_PROTOCOL, 0xff, 0xff]);
    } else {
      bytes.set([0x6f, 0xff, 0xff, 0xff, 0, 0, UDP_PROTOCOL, 0xff]);
    }
    bytes.set([ROCE_PORT >> 8, ROCE_PORT & 0xff], ipBytes + 2);
    bytes.fill(0xff, ipBytes + 6, ipBytes + 8);
  }

  /** Sets the addresses, as GIDs, and the sender's UDP port. */
  setEnds(sourceGid: Uint8Array, destGid: Uint8Array, sourcePort: number): void {
    const bytes = this.#bytes;
    const first = this.#four ? GID_BYTES - 4 : 0;
    const at = this.#four ? 12 : 8;
    const length = GID_BYTES - first;
    for (let i = 0; i < length; i += 1) {
      bytes[at + i] = sourceGid[first + i] as number;
      bytes[at + length + i] = destGid[first + i] as number;
    }
    bytes[this.#udp] = sourcePort >>> 8;
    bytes[this.#udp + 1] = sourcePort;
  }

  /**
   * CRC over the headers and the base header at `start` of a packet of `length` bytes, padding included. The
   * caller continues it over the bytes after the base header. `identification`: of IPv4.
   */
  crcOf(packet: Uint8Array, start: number, length: number, identification = 0): number {
    const bytes = this.#bytes;
    const udp = this.#udp;
    const udpBytes = UDP_BYTES + length + ICRC_BYTES;
    bytes[udp + 4] = udpBytes >>> 8;
    bytes[udp + 5] = udpBytes;
    const at = this.#four ? 2 : 4;
    const ipLength = this.#four ? IPV4_BYTES + udpBytes : udpBytes;
    bytes[at] = ipLength >>> 8;
    bytes[at + 1] = ipLength;
    if (this.#four) {
      bytes[IDENTIFICATION_AT] = identification >>> 8;
      bytes[IDENTIFICATION_AT + 1] = identification;
    }
    const bth = udp + UDP_BYTES;
    for (let i = 0; i < BTH_BYTES; i += 1) bytes[bth + i] = packet[start + i] as number;
    bytes[bth + 4] = 0xff;
    return tableCrc32(bytes, 0, bytes.length, ROUTE_CRC);
  }
}

/**
 * Number of bytes that the ICRC covers from the IPv4 identification on, in a packet of `length` bytes with
 * padding.
 */
export function bytesFromIdentification(length: number): number {
  return IPV4_BYTES - IDENTIFICATION_AT + UDP_BYTES + length;
}

export function readIcrc(bytes: Uint8Array, at: number): number {
  return (
    ((bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24)) >>>
    0
  );
}

export function writeIcrc(target: Uint8Array, at: number, icrc: number): void {
  target[at] = icrc;
  target[at + 1] = icrc >>> 8;
  target[at + 2] = icrc >>> 16;
  target[at + 3] = icrc >>> 24;
}
