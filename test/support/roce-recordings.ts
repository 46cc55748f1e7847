/** The recordings of rxe in `test/vectors/roce`: as datagrams, as packets, as flows of packets. */
import { readdirSync } from 'node:fs';
import { Datagram, DatagramRefusal, parseDatagram } from '#daemon/roce/wire/datagram';
import { opcodeTraits, Service, serviceOf, Trait } from '#daemon/roce/wire/opcode';
import { Packet, PacketRefusal, parsePacket } from '#daemon/roce/wire/packet';
import { psnDistance } from '#daemon/roce/wire/psn';
import { datagramsOf, RXE_RECORDINGS, recordingPath } from './captured-datagrams.ts';
import { hexOf } from './hex.ts';

/** Maximum PSNs by which a Read's response lags behind its request. */
const RESPONSE_SPAN = 1024;

/** Names of all recordings. */
export function recordingNames(): string[] {
  return readdirSync(RXE_RECORDINGS).map((name) => name.replace(/\.pcap$/, ''));
}

/** The datagrams of a recording. */
export function recordedDatagrams(name: string): Uint8Array[] {
  return datagramsOf(recordingPath(name));
}

export interface RecordedPacket {
  /** Position in the recording. */
  readonly index: number;
  /** From the base header to the end of the padding. */
  readonly bytes: Uint8Array;
  /** The decoded `bytes`. */
  readonly packet: Packet;
  readonly traits: number;
  /** GIDs as hexadecimal text. */
  readonly from: string;
  readonly to: string;
}

/** All packets of a recording. Throws for a packet that is not RC, UC or UD. */
export function packetsOfRecording(name: string): RecordedPacket[] {
  const datagram = new Datagram();
  return recordedDatagrams(name).map((whole, index) => {
    if (parseDatagram(whole, 0, whole.length, datagram) !== DatagramRefusal.none) {
      throw new Error(`${name}: datagram ${index} is no RoCEv2`);
    }
    const { packetStart, packetLength } = datagram;
    const bytes = whole.slice(packetStart, packetStart + packetLength);
    const packet = new Packet();
    if (parsePacket(bytes, 0, bytes.length, packet) !== PacketRefusal.none) {
      throw new Error(`${name}: packet ${index} is invalid`);
    }
    const from = hexOf(datagram.sourceGid);
    const to = hexOf(datagram.destGid);
    return { index, bytes, packet, traits: opcodeTraits(packet.opcode), from, to };
  });
}

/** Requests of one queue pair to another, and the responses, in the recorded order. */
export interface RecordedFlow {
  readonly service: number;
  readonly requests: readonly RecordedPacket[];
  readonly answers: readonly RecordedPacket[];
}

interface OpenFlow {
  readonly service: number;
  readonly requests: RecordedPacket[];
  readonly answers: RecordedPacket[];
}

/**
 * The flows of a recording, in the order of their first requests. Requests name their responder; an
 * answer belongs to the flow with its PSN.
 */
export function flowsOfRecording(name: string): RecordedFlow[] {
  const flows = new Map<string, OpenFlow>();
  const answered = new Map<string, OpenFlow>();
  for (const recorded of packetsOfRecording(name)) {
    const { packet, traits, from, to } = recorded;
    const asks = `${from} ${to} ${packet.destQpn}`;
    if ((traits & Trait.request) !== 0) {
      const flow = flows.get(asks);
      if (flow !== undefined) flow.requests.push(recorded);
      else
        flows.set(asks, { service: serviceOf(packet.opcode), requests: [recorded], answers: [] });
      continue;
    }
    const known = answered.get(asks);
    const belongs = ({ requests }: OpenFlow) =>
      requests.some((request) => answers(recorded, request));
    const flow = known ?? [...flows.values()].reverse().find(belongs);
    if (flow === undefined) throw new Error(`${name}: packet ${recorded.index} answers nothing`);
    answered.set(asks, flow);
    flow.answers.push(recorded);
  }
  return [...flows.values()];
}

function answers(answer: RecordedPacket, request: RecordedPacket): boolean {
  if (answer.from !== request.to || serviceOf(request.packet.opcode) !== Service.rc) return false;
  const lag = psnDistance(answer.packet.psn, request.packet.psn);
  return lag >= -1 && lag < RESPONSE_SPAN;
}
