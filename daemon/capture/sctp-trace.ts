/** Decodes SCTP packets, in UDP (RFC 6951) or not, that carry DDP (RFC 5043): one line per packet. */
import { endText } from '#base/address';
import { viewOf } from '#base/checked-bytes';
import {
  PayloadProtocol,
  parseSessionMessage,
  SessionFunction,
  SSN_BYTES,
} from '../iwarp/sctp/session-message.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import { tableCrc32c } from '../iwarp/wire/crc32c.ts';
import {
  readDDPHeader,
  TAGGED_HEADER_BYTES,
  UNTAGGED_HEADER_BYTES,
} from '../iwarp/wire/ddp-header.ts';
import { dumpULPDU } from '../iwarp/wire/dump.ts';
import { OPCODES, RDMAPControl } from '../iwarp/wire/rdmap-header.ts';
import { badPacket, type TracedPacket } from './datagram-trace.ts';
import { sctpPacketEnds, udpEnds } from './udp-header.ts';

/** The port that IANA assigned to SCTP in UDP (RFC 6951 section 6.1). */
const SCTP_UDP_PORT = 9899;
const UDP_BYTES = 8;
const COMMON_HEADER_BYTES = 12;
const CHECKSUM_AT = 8;
const CHUNK_HEADER_BYTES = 4;
/** DATA: header with TSN, stream, sequence number and payload protocol. */
const DATA_HEADER_BYTES = 16;
const DATA = 0;
const DataFlag = { end: 1, beginning: 2, unordered: 4 } as const;

/** Chunks by their types (RFC 9260 section 3.2). */
const CHUNK_NAMES: ReadonlyMap<number, string> = new Map([
  [1, 'INIT'],
  [2, 'INIT ACK'],
  [3, 'SACK'],
  [4, 'HEARTBEAT'],
  [5, 'HEARTBEAT ACK'],
  [6, 'ABORT'],
  [7, 'SHUTDOWN'],
  [8, 'SHUTDOWN ACK'],
  [9, 'ERROR'],
  [10, 'COOKIE ECHO'],
  [11, 'COOKIE ACK'],
  [14, 'SHUTDOWN COMPLETE'],
]);

const FUNCTION_NAMES: Readonly<Record<SessionFunction, string>> = {
  [SessionFunction.initiate]: 'Initiate',
  [SessionFunction.accept]: 'Accept',
  [SessionFunction.reject]: 'Reject',
  [SessionFunction.terminate]: 'Terminate',
  [SessionFunction.enhancedInitiate]: 'Enhanced Initiate',
  [SessionFunction.enhancedAccept]: 'Enhanced Accept',
  [SessionFunction.enhancedReject]: 'Enhanced Reject',
};

/** The ends of an SCTP packet, with SCTP's ports. */
interface SctpEnds {
  readonly sourceAddress: string;
  readonly sourcePort: number;
  readonly destinationAddress: string;
  readonly destinationPort: number;
  /** Offsets of the packet's start and end; a truncated recording ends earlier. */
  readonly start: number;
  readonly end: number;
  readonly inUdp: boolean;
}

/**
 * The SCTP packet in the datagram with its IP header at `at`; undefined if it is neither IP protocol
 * 132 nor UDP from or to the port of SCTP, or is too short for SCTP's header.
 */
export function sctpEnds(bytes: Uint8Array, at: number): SctpEnds | undefined {
  const udp = udpEnds(bytes, at);
  const ends = udp ?? sctpPacketEnds(bytes, at);
  if (ends === undefined) return undefined;
  const ofSctp = ends.sourcePort === SCTP_UDP_PORT || ends.destinationPort === SCTP_UDP_PORT;
  if (udp !== undefined && !ofSctp) return undefined;
  const { sourceAddress, destinationAddress, datagramBytes } = ends;
  const start = udp === undefined ? ends.start : ends.start + UDP_BYTES;
  const end = at + datagramBytes;
  // The length in the IP header may be too small, too.
  if (start + COMMON_HEADER_BYTES > Math.min(bytes.length, end)) return undefined;
  const view = viewOf(bytes);
  const [sourcePort, destinationPort] = [view.getUint16(start), view.getUint16(start + 2)];
  const places = { sourceAddress, sourcePort, destinationAddress, destinationPort };
  return { ...places, start, end, inUdp: udp !== undefined };
}

/** The content of a packet's chunks. */
interface Contents {
  readonly texts: string[];
  opcode: string;
  payloadBytes: number;
}

export class SctpTrace {
  readonly #crc32c: Crc32c | undefined;

  constructor(crc32c?: Crc32c) {
    this.#crc32c = crc32c;
  }

  /** Decodes the recorded part of the datagram with its IP header at `at`; undefined for others. */
  take(bytes: Uint8Array, at: number): TracedPacket | undefined {
    const ends = sctpEnds(bytes, at);
    if (ends === undefined) return undefined;
    const { sourceAddress, sourcePort, destinationAddress, destinationPort } = ends;
    const place = {
      source: endText(sourceAddress, sourcePort),
      destination: endText(destinationAddress, destinationPort),
    };
    const cut = ends.end > bytes.length;
    if (!cut && !this.#isIntact(bytes.subarray(ends.start, ends.end), ends.inUdp)) {
      return { ...place, ...badPacket('wrong checksum') };
    }
    const contents: Contents = { texts: [], opcode: '', payloadBytes: 0 };
    const whole = readChunks(bytes, ends.start, Math.min(ends.end, bytes.length), contents);
    const { texts, opcode, payloadBytes } = contents;
    const text = `SCTP ${texts.join('; ')}`;
    if (cut) return { ...place, kind: 'packet', opcode, payloadBytes, text: `${text}, cut off` };
    if (!whole) return { ...place, ...badPacket(`a chunk does not fit: ${text}`) };
    return { ...place, kind: 'packet', opcode, payloadBytes, text };
  }

  #isIntact(packet: Uint8Array, inUdp: boolean): boolean {
    const copy = packet.slice();
    const view = viewOf(copy);
    const sent = view.getUint32(CHECKSUM_AT, true);
    // Without UDP, Linux leaves the checksum to the network card, and omits it on loopback.
    if (sent === 0 && !inUdp) return true;
    view.setUint32(CHECKSUM_AT, 0);
    const found = this.#crc32c?.(copy) ?? tableCrc32c(copy, 0, copy.length);
    return found === sent;
  }
}

/** Reads the chunks between the common header and `end`. Returns false if a chunk does not fit. */
function readChunks(bytes: Uint8Array, start: number, end: number, contents: Contents): boolean {
  const view = viewOf(bytes);
  let at = start + COMMON_HEADER_BYTES;
  while (at < end) {
    if (end - at < CHUNK_HEADER_BYTES) return false;
    const [type, flags, length] = [
      view.getUint8(at),
      view.getUint8(at + 1),
      view.getUint16(at + 2),
    ];
    if (length < CHUNK_HEADER_BYTES || at + length > end) return false;
    if (type === DATA) {
      if (length < DATA_HEADER_BYTES) return false;
      const stream = view.getUint16(at + 8);
      const payloadProtocol = view.getUint32(at + 12);
      const message = bytes.subarray(at + DATA_HEADER_BYTES, at + length);
      readData({ flags, stream, payloadProtocol }, message, contents);
    } else contents.texts.push(CHUNK_NAMES.get(type) ?? `chunk ${type}`);
    at += Math.ceil(length / 4) * 4;
  }
  return true;
}

interface DataHeader {
  readonly flags: number;
  readonly stream: number;
  readonly payloadProtocol: number;
}

function readData(
  { flags, stream, payloadProtocol }: DataHeader,
  message: Uint8Array,
  contents: Contents,
): void {
  const marks = (flags & DataFlag.unordered) === 0 ? ', ordered' : '';
  const whole = DataFlag.beginning | DataFlag.end;
  if ((flags & whole) !== whole || message.length < SSN_BYTES) {
    contents.texts.push(`DATA, part of a message, ${message.length} bytes${marks}`);
    return;
  }
  const ssn = viewOf(message).getUint16(0);
  const where = stream === 0 ? '' : ` of stream ${stream}`;
  contents.texts.push(
    `DATA SSN ${ssn}${where}: ${messageText(payloadProtocol, message, contents)}${marks}`,
  );
}

function messageText(payloadProtocol: number, message: Uint8Array, contents: Contents): string {
  if (payloadProtocol === PayloadProtocol.sessionControl) return controlText(message);
  const length = message.length - SSN_BYTES;
  if (payloadProtocol !== PayloadProtocol.segment) {
    return `payload protocol ${payloadProtocol}, ${length} bytes`;
  }
  const header = readDDPHeader(message, SSN_BYTES, length);
  if (header !== undefined) {
    const code = header.ulp & RDMAPControl.opcode;
    if (contents.opcode === '') contents.opcode = OPCODES[code]?.name ?? `Opcode ${code}`;
    const headerBytes = header.tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
    contents.payloadBytes += length - headerBytes;
  }
  return dumpULPDU(message, SSN_BYTES, length);
}

function controlText(bytes: Uint8Array): string {
  const message = parseSessionMessage(bytes);
  if (typeof message === 'string') return `session control message of ${bytes.length} bytes`;
  const { enhanced, privateData } = message;
  const words = [
    `session ${FUNCTION_NAMES[message.function]}`,
    ...(enhanced === undefined ? [] : [`IRD ${enhanced.ird}`, `ORD ${enhanced.ord}`]),
    ...(privateData.length === 0 ? [] : [`${privateData.length} bytes of private data`]),
  ];
  return words.join(', ');
}
