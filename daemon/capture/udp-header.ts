/** Source and destination of a captured UDP datagram (RFC 768) or SCTP packet (RFC 9260). */
import { colons, dotted } from './ip-header.ts';

/** Length of UDP's header, and of the part of SCTP's that is read. */
const HEADER_BYTES = 8;
/** The header of IPv6. */
export const IPV6_BYTES = 40;
const UDP_PROTOCOL = 17;
const SCTP_PROTOCOL = 132;

/** The ends of a datagram with ports. */
interface PortEnds {
  readonly source: string;
  readonly destination: string;
  readonly sourceAddress: string;
  readonly destinationAddress: string;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** Offset of the header with the ports. */
  readonly start: number;
  /** Bytes of the datagram with its IP header. */
  readonly datagramBytes: number;
}

/** Reads the ends of the UDP datagram with its IP header at `at`; undefined for anything else. */
export function udpEnds(bytes: Uint8Array, at: number): PortEnds | undefined {
  return endsWithin(bytes, at, UDP_PROTOCOL);
}

/** Reads the ends of the SCTP packet with its IP header at `at`; undefined for others, including SCTP in UDP. */
export function sctpPacketEnds(bytes: Uint8Array, at: number): PortEnds | undefined {
  return endsWithin(bytes, at, SCTP_PROTOCOL);
}

function endsWithin(bytes: Uint8Array, at: number, protocol: number): PortEnds | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (at >= bytes.length) return undefined;
  switch (view.getUint8(at) >>> 4) {
    case 4: {
      const start = at + (view.getUint8(at) & 0x0f) * 4;
      if (start < at + 20 || start + HEADER_BYTES > bytes.length) return undefined;
      if (view.getUint8(at + 9) !== protocol || (view.getUint16(at + 6) & 0x1fff) !== 0) {
        return undefined;
      }
      const [from, to] = [dotted(view, at + 12), dotted(view, at + 16)];
      return endsOf(view, start, view.getUint16(at + 2), [from, to], [from, to]);
    }
    case 6: {
      const start = at + IPV6_BYTES;
      if (start + HEADER_BYTES > bytes.length || view.getUint8(at + 6) !== protocol) {
        return undefined;
      }
      const [from, to] = [colons(view, at + 8), colons(view, at + 24)];
      const datagramBytes = IPV6_BYTES + view.getUint16(at + 4);
      return endsOf(view, start, datagramBytes, [from, to], [`[${from}]`, `[${to}]`]);
    }
    default:
      return undefined;
  }
}

function endsOf(
  view: DataView,
  start: number,
  datagramBytes: number,
  [sourceAddress, destinationAddress]: readonly [string, string],
  [from, to]: readonly [string, string],
): PortEnds {
  const sourcePort = view.getUint16(start);
  const destinationPort = view.getUint16(start + 2);
  return {
    source: `${from}:${sourcePort}`,
    destination: `${to}:${destinationPort}`,
    sourceAddress,
    destinationAddress,
    sourcePort,
    destinationPort,
    start,
    datagramBytes,
  };
}
