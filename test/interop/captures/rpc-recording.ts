/**
 * The RPC over RDMA in a recording: Sends of each side, and the memory of the client as RDMA Reads
 * and Writes show it. Only for recordings without markers; `captures.test.ts` checks their FPDUs.
 */
import { readFileSync } from 'node:fs';
import { ddpHeaderBytes, readDDPHeader } from '#daemon/iwarp/wire/ddp-header';
import { fpduSizeBytes, ULPDU_LENGTH_BYTES } from '#daemon/iwarp/wire/fpdu';
import { parseStartupFrame, startupFrameBytesNeeded } from '#daemon/iwarp/wire/startup-frame';
import { capturePath } from '#test/support/expected-captures';
import { readTcpConnections } from '#test/support/pcap-reader';
import {
  parseTransportHeader,
  type Segment,
  type TransportHeader,
} from '#verbs-api/rpcrdma/core/transport-header';

/** A Send with its header taken apart. */
interface RecordedSend {
  readonly bytes: Uint8Array;
  readonly header: TransportHeader;
  /** Bytes after the header. */
  readonly payload: Uint8Array;
}

/** A call with its reply. */
export interface RecordedExchange {
  readonly call: RecordedSend;
  readonly reply: RecordedSend;
}

/** A connection of RPC over RDMA. */
export interface RpcRecording {
  readonly clientPrivateData: Uint8Array;
  readonly serverPrivateData: Uint8Array;
  readonly exchanges: readonly RecordedExchange[];
  /** The client's memory that a segment names, if the recording shows it. */
  memory(segment: Segment): Uint8Array;
}

interface Message {
  readonly opcode: number;
  readonly stag: number;
  readonly to: bigint;
  readonly payload: Uint8Array;
}

const Opcode = { write: 0, readRequest: 1, readResponse: 2, send: 3, sendInvalidate: 4 } as const;

/** Private data and DDP messages of one direction; tagged segments stay as they are. */
function messagesOf(
  bytes: Uint8Array,
  kind: 'request' | 'reply',
): { readonly privateData: Uint8Array; readonly messages: readonly Message[] } {
  const end = startupFrameBytesNeeded(bytes, bytes.length, kind);
  const frame = typeof end === 'string' ? end : parseStartupFrame(bytes.subarray(0, end), kind);
  if (typeof end === 'string' || typeof frame === 'string') throw new Error('no MPA startup');
  const messages: Message[] = [];
  let pieces: Uint8Array[] = [];
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = end; at < bytes.length; ) {
    const lengthBytes = fields.getUint16(at);
    const start = at + ULPDU_LENGTH_BYTES;
    const header = readDDPHeader(bytes, start, lengthBytes);
    if (header === undefined) throw new Error('no DDP segment');
    const from = start + ddpHeaderBytes(bytes[start] ?? 0);
    const payload = bytes.subarray(from, start + lengthBytes);
    const opcode = header.ulp & 0x0f;
    if (header.tagged) {
      const to = (BigInt(header.toHi) << 32n) | BigInt(header.toLo);
      messages.push({ opcode, stag: header.stag, to, payload });
    } else {
      pieces.push(payload);
      if (header.last) {
        messages.push({ opcode, stag: 0, to: 0n, payload: Buffer.concat(pieces) });
        pieces = [];
      }
    }
    at += fpduSizeBytes(lengthBytes);
  }
  return { privateData: frame.privateData, messages };
}

function sendsOf(messages: readonly Message[]): RecordedSend[] {
  return messages
    .filter(({ opcode }) => opcode === Opcode.send || opcode === Opcode.sendInvalidate)
    .map(({ payload: bytes }) => {
      const parsed = parseTransportHeader(bytes);
      if ('error' in parsed) throw new Error(`a recorded header is ${parsed.text}`);
      return { bytes, header: parsed.header, payload: bytes.subarray(parsed.headerBytes) };
    });
}

/** Pieces of memory by STag and offset. */
class Placed {
  readonly #pieces: Message[] = [];

  add(piece: Message): void {
    this.#pieces.push(piece);
  }

  view({ handle, offset, lengthBytes }: Segment): Uint8Array {
    const bytes = new Uint8Array(lengthBytes);
    let placedBytes = 0;
    for (const { stag, to, payload } of this.#pieces) {
      const at = Number(to - offset);
      if (stag !== handle || at < 0 || at + payload.length > lengthBytes) continue;
      bytes.set(payload, at);
      placedBytes += payload.length;
    }
    if (placedBytes !== lengthBytes) throw new Error('the recording lacks bytes of a segment');
    return bytes;
  }
}

/** Reconstructs the client's memory. */
function clientMemory(client: readonly Message[], server: readonly Message[]): Placed {
  const memory = new Placed();
  const sinks = new Placed();
  for (const message of client) if (message.opcode === Opcode.readResponse) sinks.add(message);
  for (const message of server) {
    if (message.opcode === Opcode.write) memory.add(message);
    if (message.opcode !== Opcode.readRequest) continue;
    const fields = new DataView(message.payload.buffer, message.payload.byteOffset);
    const lengthBytes = fields.getUint32(12);
    const sink = { handle: fields.getUint32(0), offset: fields.getBigUint64(4), lengthBytes };
    const payload = sinks.view(sink);
    memory.add({ ...message, stag: fields.getUint32(16), to: fields.getBigUint64(20), payload });
  }
  return memory;
}

/** Reads the only connection of RPC over RDMA in the recording `name`. */
export function readRpcRecording(name: string): RpcRecording {
  const connection = readTcpConnections(readFileSync(capturePath(name))).find(
    ({ initiator }) => Buffer.from(initiator.bytes.subarray(0, 3)).toString() === 'MPA',
  );
  if (connection === undefined) throw new Error('no MPA connection');
  const client = messagesOf(connection.initiator.bytes, 'request');
  const server = messagesOf(connection.responder.bytes, 'reply');
  const replies = new Map(sendsOf(server.messages).map((send) => [send.header.xid, send]));
  const memory = clientMemory(client.messages, server.messages);
  return {
    clientPrivateData: client.privateData,
    serverPrivateData: server.privateData,
    exchanges: sendsOf(client.messages).map((call) => {
      const reply = replies.get(call.header.xid);
      if (reply === undefined) throw new Error('a call without a reply');
      return { call, reply };
    }),
    memory: (segment) => memory.view(segment),
  };
}
