/** Where a captured UDP datagram comes from and goes to (RFC 768). */
import { colons, dotted } from './ip-header.ts';

const UDP_BYTES = 8;
/** The header of IPv6. */
export const IPV6_BYTES = 40;
const UDP_PROTOCOL = 17;

/** The ends of a UDP datagram. */
interface UdpEnds {
  readonly source: string;
  readonly destination: string;
  readonly sourceAddress: string;
  readonly destinationAddress: string;
  readonly sourcePort: number;
  readonly destinationPort: number;
  /** Where UDP's header is. */
  readonly udpStart: number;
  /** Bytes of the datagram with its IP header. */
  readonly datagramBytes: number;
}

/** Reads the ends of the UDP datagram with its IP header at `at`; undefined for anything else. */
export function udpEnds(bytes: Uint8Array, at: number): UdpEnds | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (at >= bytes.length) return undefined;
  switch (view.getUint8(at) >>> 4) {
    case 4: {
      const udp = at + (view.getUint8(at) & 0x0f) * 4;
      if (udp < at + 20 || udp + UDP_BYTES > bytes.length) return undefined;
      if (view.getUint8(at + 9) !== UDP_PROTOCOL || (view.getUint16(at + 6) & 0x1fff) !== 0) {
        return undefined;
      }
      const [from, to] = [dotted(view, at + 12), dotted(view, at + 16)];
      return endsOf(view, udp, view.getUint16(at + 2), [from, to], [from, to]);
    }
    case 6: {
      const udp = at + IPV6_BYTES;
      if (udp + UDP_BYTES > bytes.length || view.getUint8(at + 6) !== UDP_PROTOCOL) {
        return undefined;
      }
      const [from, to] = [colons(view, at + 8), colons(view, at + 24)];
      const datagramBytes = IPV6_BYTES + view.getUint16(at + 4);
      return endsOf(view, udp, datagramBytes, [from, to], [`[${from}]`, `[${to}]`]);
    }
    default:
      return undefined;
  }
}

function endsOf(
  view: DataView,
  udp: number,
  datagramBytes: number,
  [sourceAddress, destinationAddress]: readonly [string, string],
  [from, to]: readonly [string, string],
): UdpEnds {
  const sourcePort = view.getUint16(udp);
  const destinationPort = view.getUint16(udp + 2);
  return {
    source: `${from}:${sourcePort}`,
    destination: `${to}:${destinationPort}`,
    sourceAddress,
    destinationAddress,
    sourcePort,
    destinationPort,
    udpStart: udp,
    datagramBytes,
  };
}
