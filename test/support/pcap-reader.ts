/**
 * Reads the TCP connections out of a recording: pcap and pcapng, Ethernet, IPv4 and IPv6.
 *
 * Each direction is reassembled by sequence number, so segments that arrived late, twice or in part
 * yield the bytes that the receiver saw. A recording that lacks bytes is an error, since tests need
 * the whole conversation.
 */

/** One TCP segment with payload, as it stood on the wire. */
interface TcpSegment {
  /** Index of its packet in the recording. */
  readonly packet: number;
  /** Position of its first byte in the stream. */
  readonly offset: number;
  readonly lengthBytes: number;
}

/** One direction of a connection. */
export interface TcpStream {
  readonly bytes: Uint8Array;
  /** In the order of the recording. */
  readonly segments: readonly TcpSegment[];
  /** How its sender ended it; `none` when the recording ends before. */
  readonly end: 'FIN' | 'RST' | 'none';
}

/** A connection from its SYN on. */
export interface TcpConnection {
  readonly initiatorPort: number;
  readonly responderPort: number;
  readonly initiator: TcpStream;
  readonly responder: TcpStream;
}

interface Packet {
  readonly source: string;
  readonly sourcePort: number;
  readonly destination: string;
  readonly destinationPort: number;
  readonly sequence: number;
  readonly flags: number;
  readonly payload: Uint8Array;
}

const Flag = { fin: 0x01, syn: 0x02, rst: 0x04, ack: 0x10 } as const;
const ETHERNET = 1;
const ETHERNET_HEADER_BYTES = 14;
const IPV6_HEADER_BYTES = 40;
const TCP = 6;

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Frames of a pcap file: link type once, then records. */
function* pcapFrames(file: Uint8Array): Generator<Uint8Array> {
  const view = viewOf(file);
  const littleEndian = [0xa1b2c3d4, 0xa1b23c4d].includes(view.getUint32(0, true));
  if (view.getUint32(20, littleEndian) !== ETHERNET) throw new Error('not an Ethernet recording');
  for (let at = 24; at + 16 <= file.length; ) {
    const capturedBytes = view.getUint32(at + 8, littleEndian);
    yield file.subarray(at + 16, at + 16 + capturedBytes);
    at += 16 + capturedBytes;
  }
}

const SECTION_BLOCK = 0x0a0d0d0a;
const INTERFACE_BLOCK = 1;
const ENHANCED_PACKET_BLOCK = 6;

/** Frames of a pcapng file: blocks, of which interfaces and enhanced packets matter. */
function* pcapngFrames(file: Uint8Array): Generator<Uint8Array> {
  const view = viewOf(file);
  let littleEndian = true;
  for (let at = 0; at + 12 <= file.length; ) {
    const type = view.getUint32(at, littleEndian);
    if (type === SECTION_BLOCK) littleEndian = view.getUint32(at + 8, true) === 0x1a2b3c4d;
    const blockBytes = view.getUint32(at + 4, littleEndian);
    if (type === INTERFACE_BLOCK && view.getUint16(at + 8, littleEndian) !== ETHERNET) {
      throw new Error('not an Ethernet recording');
    }
    if (type === ENHANCED_PACKET_BLOCK) {
      const capturedBytes = view.getUint32(at + 20, littleEndian);
      yield file.subarray(at + 28, at + 28 + capturedBytes);
    }
    at += blockBytes;
  }
}

/** The TCP packet in an Ethernet frame, or undefined when there is none. */
function parseFrame(frame: Uint8Array): Packet | undefined {
  const view = viewOf(frame);
  if (frame.length < ETHERNET_HEADER_BYTES) return undefined;
  const ip = ETHERNET_HEADER_BYTES;
  const etherType = view.getUint16(12);
  if (etherType === 0x0800) {
    if (view.getUint8(ip + 9) !== TCP) return undefined;
    const tcp = ip + (view.getUint8(ip) & 0x0f) * 4;
    return parseTcp(frame, tcp, ip + view.getUint16(ip + 2), ip + 12, 4);
  }
  if (etherType === 0x86dd) {
    if (view.getUint8(ip + 6) !== TCP) return undefined;
    const tcp = ip + IPV6_HEADER_BYTES;
    return parseTcp(frame, tcp, tcp + view.getUint16(ip + 4), ip + 8, 16);
  }
  return undefined;
}

function parseTcp(
  frame: Uint8Array,
  tcp: number,
  end: number,
  addresses: number,
  addressBytes: number,
): Packet {
  if (end > frame.length) throw new Error('the recording has cut its packets short');
  const view = viewOf(frame);
  const address = (at: number): string => frame.subarray(at, at + addressBytes).join('.');
  return {
    source: address(addresses),
    destination: address(addresses + addressBytes),
    sourcePort: view.getUint16(tcp),
    destinationPort: view.getUint16(tcp + 2),
    sequence: view.getUint32(tcp + 4),
    flags: view.getUint8(tcp + 13),
    payload: frame.subarray(tcp + (view.getUint8(tcp + 12) >>> 4) * 4, end),
  };
}

/** Collects one direction. */
class StreamBuilder {
  readonly #pieces: { packet: number; offset: number; payload: Uint8Array }[] = [];
  #firstSequence: number | undefined;
  #end: TcpStream['end'] = 'none';

  add(packet: number, { sequence, flags, payload }: Packet): void {
    if ((flags & Flag.syn) !== 0) this.#firstSequence = (sequence + 1) >>> 0;
    if (this.#end === 'none' && (flags & Flag.rst) !== 0) this.#end = 'RST';
    if (this.#end === 'none' && (flags & Flag.fin) !== 0) this.#end = 'FIN';
    if (payload.length === 0) return;
    if (this.#firstSequence === undefined) throw new Error('the recording lacks a SYN');
    // Modulo 2^32: a position before the start wraps to a large number, outside the stream.
    const offset = (sequence - this.#firstSequence) >>> 0;
    if (offset < 0x8000_0000) this.#pieces.push({ packet, offset, payload });
  }

  finish(): TcpStream {
    const inOrder = this.#pieces.toSorted((one, other) => one.offset - other.offset);
    const last = inOrder.reduce(
      (most, { offset, payload }) => Math.max(most, offset + payload.length),
      0,
    );
    const bytes = new Uint8Array(last);
    let filled = 0;
    for (const { offset, payload } of inOrder) {
      if (offset > filled) throw new Error(`the recording lacks bytes ${filled} to ${offset}`);
      if (offset + payload.length <= filled) continue;
      bytes.set(payload.subarray(filled - offset), filled);
      filled = offset + payload.length;
    }
    const segments = this.#pieces.map(({ packet, offset, payload }) => {
      return { packet, offset, lengthBytes: payload.length };
    });
    return { bytes, segments, end: this.#end };
  }
}

interface OpenConnection {
  readonly initiatorPort: number;
  readonly responderPort: number;
  readonly builders: ReadonlyMap<string, StreamBuilder>;
  readonly initiator: StreamBuilder;
  readonly responder: StreamBuilder;
}

/** The TCP connections of a recording in the order of their SYNs; throws when it is not whole. */
export function readTcpConnections(file: Uint8Array): TcpConnection[] {
  const isPcapng = viewOf(file).getUint32(0) === SECTION_BLOCK;
  const connections: OpenConnection[] = [];
  const byEnds = new Map<string, OpenConnection>();
  let index = -1;
  for (const frame of isPcapng ? pcapngFrames(file) : pcapFrames(file)) {
    index += 1;
    const packet = parseFrame(frame);
    if (packet === undefined) continue;
    const source = `${packet.source}:${packet.sourcePort}`;
    const destination = `${packet.destination}:${packet.destinationPort}`;
    const ends = [source, destination].sort().join(' ');
    if ((packet.flags & (Flag.syn | Flag.ack)) === Flag.syn) {
      const initiator = new StreamBuilder();
      const responder = new StreamBuilder();
      const connection = {
        initiatorPort: packet.sourcePort,
        responderPort: packet.destinationPort,
        builders: new Map([
          [source, initiator],
          [destination, responder],
        ]),
        initiator,
        responder,
      };
      connections.push(connection);
      byEnds.set(ends, connection);
    }
    byEnds.get(ends)?.builders.get(source)?.add(index, packet);
  }
  return connections.map(({ initiatorPort, responderPort, initiator, responder }) => {
    return {
      initiatorPort,
      responderPort,
      initiator: initiator.finish(),
      responder: responder.finish(),
    };
  });
}
