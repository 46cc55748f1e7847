/** Decodes RoCEv2 datagrams and checks them as their receiver does: one line per packet. */
import { type Crc32, crc32 } from '../roce/wire/crc32.ts';
import { Datagram, DatagramRefusal, parseDatagram } from '../roce/wire/datagram.ts';
import { dumpPacket } from '../roce/wire/dump.ts';
import { ICRC_BYTES, icrcOf, readIcrc } from '../roce/wire/icrc.ts';
import { headerBytes, opcodeName } from '../roce/wire/opcode.ts';
import { Packet, PacketRefusal, parsePacket } from '../roce/wire/packet.ts';
import { IPV6_BYTES, udpEnds } from './udp-header.ts';

/** A datagram to or from the port of RoCEv2, as text. */
export interface TracedPacket {
  /** `address:port`, IPv6 addresses in brackets. */
  readonly source: string;
  readonly destination: string;
  /** 'error': its receiver drops it, or the recorder cut off its headers. */
  readonly kind: 'packet' | 'error';
  /** Such as 'RC SEND Only'; '' if unknown. */
  readonly opcode: string;
  readonly payloadBytes: number;
  readonly text: string;
}

/** Maximum bytes of an IP datagram, header included. */
const DATAGRAM_MAX_BYTES = 65_535 + IPV6_BYTES;
const ROCE_PORT = 4791;

const REFUSALS: ReadonlyMap<number, string> = new Map<number, string>([
  [DatagramRefusal.truncated, 'too short for its headers'],
  [DatagramRefusal.options, 'IP options'],
  [DatagramRefusal.fragment, 'a fragment'],
  [DatagramRefusal.length, 'the lengths of IP and UDP contradict each other'],
  [DatagramRefusal.address, 'an IPv4 address in an IPv6 header'],
]);
const PACKET_REFUSALS: Readonly<Record<PacketRefusal, string>> = {
  [PacketRefusal.none]: '',
  [PacketRefusal.truncated]: 'too short for its headers',
  [PacketRefusal.version]: 'unknown transport header version',
  [PacketRefusal.opcode]: 'unknown opcode',
  [PacketRefusal.padding]: 'bad padding',
  [PacketRefusal.payloadForbidden]: 'payload not allowed',
  [PacketRefusal.payloadMissing]: 'no payload',
  [PacketRefusal.payloadNotPathMtu]: 'payload is not one path MTU long',
  [PacketRefusal.payloadTooLong]: 'payload is longer than any path MTU',
  [PacketRefusal.syndrome]: 'reserved syndrome',
};

export class DatagramTrace {
  readonly #crc32: Crc32;
  readonly #datagram = new Datagram();
  readonly #packet = new Packet();

  constructor(large: Crc32 = crc32) {
    this.#crc32 = large;
  }

  /**
   * Decodes the recorded part of the datagram with its IP header at `at`; undefined if it is not
   * UDP to the port of RoCEv2.
   */
  take(bytes: Uint8Array, at: number): TracedPacket | undefined {
    const ends = udpEnds(bytes, at);
    if (ends === undefined || ends.destinationPort !== ROCE_PORT) return undefined;
    const { source, destination } = ends;
    const place = { source, destination };
    const recordedBytes = bytes.length - at;
    if (recordedBytes >= ends.datagramBytes) return { ...place, ...this.#read(bytes, at, true) };
    // Decode the recorded headers, even if the payload is cut off.
    const whole = new Uint8Array(Math.min(ends.datagramBytes, DATAGRAM_MAX_BYTES));
    whole.set(bytes.subarray(at));
    const read = this.#read(whole, 0, false);
    const { packetStart } = this.#datagram;
    const needed = packetStart + headerBytes(this.#packet.opcode);
    if (read.kind === 'error' || needed > recordedBytes) {
      return { ...place, ...badPacket('cut off by the recorder') };
    }
    return { ...place, ...read, text: `${read.text}, cut off by the recorder` };
  }

  #read(bytes: Uint8Array, at: number, whole: boolean) {
    const datagram = this.#datagram;
    const packet = this.#packet;
    const refused = parseDatagram(bytes, at, bytes.length - at, datagram);
    if (refused !== DatagramRefusal.none) return badPacket(REFUSALS.get(refused) ?? 'not RoCEv2');
    const { packetStart, packetLength } = datagram;
    const end = packetStart + packetLength;
    if (whole && icrcOf(this.#crc32, bytes, at, packetStart, end) !== readIcrc(bytes, end)) {
      return badPacket(`wrong ICRC: ${this.#nameOf(bytes)}`);
    }
    const reason = PACKET_REFUSALS[parsePacket(bytes, packetStart, packetLength, packet)];
    if (reason !== '') return badPacket(`${reason}: ${opcodeName(bytes[packetStart] ?? 0)}`);
    const kind = 'packet' as const;
    const { payloadLength } = packet;
    const opcode = opcodeName(packet.opcode);
    return { kind, opcode, payloadBytes: payloadLength, text: dumpPacket(packet) };
  }

  /** The opcode that a damaged packet claims. */
  #nameOf(bytes: Uint8Array): string {
    const { packetStart, packetLength } = this.#datagram;
    const refused = parsePacket(bytes, packetStart, packetLength, this.#packet);
    if (refused === PacketRefusal.none) return dumpPacket(this.#packet);
    return `${packetLength + ICRC_BYTES} bytes`;
  }
}

/** The line for a packet that cannot be read. */
export function badPacket(text: string) {
  return { kind: 'error' as const, opcode: '', payloadBytes: 0, text: `bad packet: ${text}` };
}
