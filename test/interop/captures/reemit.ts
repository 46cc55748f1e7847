/**
 * Drives our stream as one side of a recorded conversation. It has the same settings (Private Data,
 * depths, segment sizes), posts the work requests that the recording implies, and receives the
 * peer's bytes at the recorded points. Its output can then be compared with the recorded one.
 */
import { readUint16 } from '#base/checked-bytes';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { MpaLayer } from '#daemon/iwarp/engine/mpa-layer';
import { Stream } from '#daemon/iwarp/engine/stream';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { type DDPHeader, ddpHeaderBytes, readDDPHeader } from '#daemon/iwarp/wire/ddp-header';
import { fpduSizeBytes, padBytes, ULPDU_LENGTH_BYTES } from '#daemon/iwarp/wire/fpdu';
import {
  RDMAPControl,
  RDMAPOpcode,
  ReadRequest,
  readReadRequest,
} from '#daemon/iwarp/wire/rdmap-header';
import {
  AccessRefusal,
  OutboundKind,
  OutboundMessage,
  type WireUser,
} from '#daemon/rnic/wire-port';
import type { ExpectedStartup } from '#test/support/expected-captures';
import type { TcpConnection, TcpStream } from '#test/support/pcap-reader';
import { optionsLike, readStartup } from './replay.ts';

/** Depths of a side that announced none. */
const DEPTH_UNSAID = 128;
/** A segment size that splits nothing. */
const WHOLE_BYTES = 65_535;

/** An FPDU in a stream of bytes. */
export interface CutFpdu {
  /** All of it, from ULPDU_Length to CRC. */
  readonly bytes: Uint8Array;
  readonly ulpdu: Uint8Array;
  readonly pad: Uint8Array;
  readonly header: DDPHeader;
  readonly opcode: number;
  /** Position of its first byte in the stream. */
  readonly offset: number;
}

/** Splits a stream without markers into FPDUs from `start` on. */
export function cutFpdus(bytes: Uint8Array, start: number): CutFpdu[] {
  const fpdus: CutFpdu[] = [];
  for (let at = start; at < bytes.length; ) {
    const length = readUint16(bytes, at);
    const ulpdu = bytes.subarray(at + ULPDU_LENGTH_BYTES, at + ULPDU_LENGTH_BYTES + length);
    const header = readDDPHeader(ulpdu, 0, length);
    if (header === undefined) throw new Error(`no DDP segment at byte ${at}`);
    const end = at + fpduSizeBytes(length);
    const padEnd = end - 4;
    fpdus.push({
      bytes: bytes.subarray(at, end),
      ulpdu,
      pad: bytes.subarray(padEnd - padBytes(length), padEnd),
      header,
      opcode: header.ulp & RDMAPControl.opcode,
      offset: at,
    });
    at = end;
  }
  return fpdus;
}

/** Index of the packet with the byte at `offset`, or one past the last packet. */
function packetOf(stream: TcpStream, offset: number): number {
  const found = stream.segments.find(
    (segment) => offset >= segment.offset && offset < segment.offset + segment.lengthBytes,
  );
  return found?.packet ?? Number.POSITIVE_INFINITY;
}

/** Takes all input, and sends the recorded side's bytes, a segment for each `due`. */
class Script implements WireUser {
  /** The segment that may be framed next; undefined once it was. */
  due: CutFpdu | undefined = undefined;

  placeWrite = (): AccessRefusal => AccessRefusal.none;
  inputEnded = (): AccessRefusal => AccessRefusal.none;
  placeReadResponse = (): AccessRefusal => AccessRefusal.none;
  checkWriteTarget = (): AccessRefusal => AccessRefusal.none;
  placeReadPart = (): AccessRefusal => AccessRefusal.none;
  writeCompleted = (): void => undefined;
  readCompleted = (): void => undefined;
  atomicCompleted = (): void => undefined;
  beginReceive = (): AccessRefusal => AccessRefusal.none;
  placeReceive = (): AccessRefusal => AccessRefusal.none;
  completeReceive = (): AccessRefusal => AccessRefusal.none;
  checkReadSource = (): AccessRefusal => AccessRefusal.none;
  executeAtomic = (): AccessRefusal => AccessRefusal.none;
  messageDone = (): void => undefined;
  messageFailed = (): void => undefined;
  #gathered: CutFpdu | undefined = undefined;
  /** Total bytes of each message, by its first segment. */
  readonly #lengths: ReadonlyMap<CutFpdu, number>;

  constructor(fpdus: readonly CutFpdu[]) {
    this.#lengths = messageLengths(fpdus);
  }

  nextMessage(message: OutboundMessage): boolean {
    const first = this.due;
    const lengthBytes = first === undefined ? undefined : this.#lengths.get(first);
    if (first === undefined || lengthBytes === undefined) return false;
    if (first.opcode === RDMAPOpcode.readResponse) return false;
    Object.assign(message, new OutboundMessage(), describe(first), { lengthBytes });
    if (first.opcode === RDMAPOpcode.readRequest) {
      message.lengthBytes = readRequestOf(first).size;
      this.due = undefined;
    } else if (lengthBytes === 0) this.due = undefined;
    return true;
  }

  prepareGather(): boolean {
    return this.#take((opcode) => opcode !== RDMAPOpcode.readResponse);
  }

  prepareReadSource(): boolean {
    return this.#take((opcode) => opcode === RDMAPOpcode.readResponse);
  }

  gather(
    _slot: number,
    _offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    return this.#copy(length, target, targetStart);
  }

  gatherReadSource(
    _stag: number,
    _toHi: number,
    _toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    return this.#copy(length, target, targetStart);
  }

  #take(fits: (opcode: number) => boolean): boolean {
    if (this.due === undefined || !fits(this.due.opcode)) return false;
    this.#gathered = this.due;
    this.due = undefined;
    return true;
  }

  #copy(length: number, target: Uint8Array, targetStart: number): AccessRefusal {
    const source = this.#gathered;
    if (source === undefined) throw new Error('nothing is due');
    const payload = payloadOf(source);
    if (payload.length !== length) {
      throw new Error(`${length} bytes are asked for, the recorded segment has ${payload.length}`);
    }
    target.set(payload, targetStart);
    return AccessRefusal.none;
  }
}

function payloadOf({ ulpdu }: CutFpdu): Uint8Array {
  return ulpdu.subarray(ddpHeaderBytes(ulpdu[0] ?? 0));
}

/** Payload bytes of each message, by its first segment. */
function messageLengths(fpdus: readonly CutFpdu[]): Map<CutFpdu, number> {
  const lengths = new Map<CutFpdu, number>();
  let first: CutFpdu | undefined;
  for (const fpdu of fpdus) {
    first ??= fpdu;
    lengths.set(first, (lengths.get(first) ?? 0) + payloadOf(fpdu).length);
    if (fpdu.header.last) first = undefined;
  }
  return lengths;
}

function readRequestOf(fpdu: CutFpdu) {
  const request = new ReadRequest();
  readReadRequest(payloadOf(fpdu), 0, request);
  return request;
}

/** The message whose first segment this is. */
function describe(fpdu: CutFpdu): Partial<OutboundMessage> {
  const { header, opcode } = fpdu;
  switch (opcode) {
    case RDMAPOpcode.write:
      if (!header.tagged) break;
      return {
        kind: OutboundKind.write,
        remoteStag: header.stag,
        remoteToHi: header.toHi,
        remoteToLo: header.toLo,
      };
    case RDMAPOpcode.readRequest: {
      const { sourceStag, sourceToHi, sourceToLo, ...sink } = readRequestOf(fpdu);
      return {
        kind: OutboundKind.readRequest,
        remoteStag: sourceStag,
        remoteToHi: sourceToHi,
        remoteToLo: sourceToLo,
        sinkStag: sink.sinkStag,
        sinkToHi: sink.sinkToHi,
        sinkToLo: sink.sinkToLo,
      };
    }
    case RDMAPOpcode.send:
      return { kind: OutboundKind.send };
    case RDMAPOpcode.sendSolicited:
      return { kind: OutboundKind.send, solicited: true };
    case RDMAPOpcode.sendInvalidate:
    case RDMAPOpcode.sendSolicitedInvalidate: {
      const solicited = opcode === RDMAPOpcode.sendSolicitedInvalidate;
      const invalidateStag = header.tagged ? 0 : header.ulpWord;
      return { kind: OutboundKind.sendWithInvalidate, solicited, invalidateStag };
    }
    default:
  }
  throw new Error(`no work request sends opcode ${opcode}`);
}

/** Output of our side in place of the recorded side. */
interface Reemitted {
  /** Our Request or Reply. */
  readonly startup: Uint8Array;
  readonly fpdus: readonly CutFpdu[];
}

class Reemission {
  readonly #own: readonly CutFpdu[];
  readonly #script: Script;
  readonly #stream: Stream;
  readonly #role: 'initiator' | 'responder';
  readonly #startup: ExpectedStartup;
  #sent: Uint8Array = new Uint8Array(0);

  constructor(role: 'initiator' | 'responder', startup: ExpectedStartup, own: readonly CutFpdu[]) {
    this.#role = role;
    this.#startup = startup;
    this.#own = own;
    this.#script = new Script(own);
    const { ird = DEPTH_UNSAID, ord = DEPTH_UNSAID } = startup;
    const options = { ...optionsLike(startup), ird, ord, extensionsEnabled: false };
    const lower = new MpaLayer(options, { pool: new ChunkPool({ keptMax: 2 }), crc32c });
    this.#stream = new Stream(options, lower);
  }

  begin(): void {
    const privateData = Buffer.from(this.#startup.privateData, 'hex');
    if (this.#role === 'responder') this.#stream.listen(0);
    else this.#stream.connect(privateData, this.#script, 0);
    this.#drain();
  }

  feed(bytes: Uint8Array): void {
    if (bytes.length > 0) this.#stream.handleBytes(bytes, 0);
    this.#drain();
  }

  /** Frames the recorded segments up to `count` that the stream may send. */
  frame(count: number): void {
    for (;;) {
      const framed = this.fpdus().length;
      const next = this.#own[framed];
      if (next === undefined || framed >= count) return;
      this.#script.due = next;
      this.#stream.setEmss(next.header.last ? WHOLE_BYTES : next.bytes.length);
      this.#stream.pump(0);
      this.#drain();
      if (this.fpdus().length === framed) return;
    }
  }

  get startupBytes(): number {
    const kind = this.#role === 'initiator' ? 'request' : 'reply';
    return this.#sent.length === 0 ? 0 : readStartup(this.#sent, kind).end;
  }

  fpdus(): CutFpdu[] {
    return cutFpdus(this.#sent, this.startupBytes);
  }

  get sent(): Uint8Array {
    return this.#sent;
  }

  #drain(): void {
    for (;;) {
      const event = this.#stream.pollEvent();
      if (event?.type === 'request') this.#answer();
      const bytes = this.#stream.pollTransmit()?.bytes;
      if (bytes !== undefined) {
        this.#sent = Buffer.concat([this.#sent, bytes]);
        this.#stream.handleFlushed(bytes.length, 0);
      } else if (event === undefined) return;
    }
  }

  #answer(): void {
    const { rejected, ird = DEPTH_UNSAID, ord = DEPTH_UNSAID } = this.#startup;
    const privateData = Buffer.from(this.#startup.privateData, 'hex');
    if (rejected) this.#stream.reject(privateData, 0);
    else this.#stream.accept(privateData, this.#script, { ird, ord }, 0);
  }
}

/**
 * Replays a recorded connection with our stream as `role`. siw's error messages are left out: no
 * caller needs them.
 */
export function reemit(
  tcp: TcpConnection,
  role: 'initiator' | 'responder',
  startup: ExpectedStartup,
): Reemitted {
  const [own, peer] =
    role === 'initiator' ? [tcp.initiator, tcp.responder] : [tcp.responder, tcp.initiator];
  const ownKind = role === 'initiator' ? 'request' : 'reply';
  const recorded = cutFpdus(own.bytes, readStartup(own.bytes, ownKind).end).filter(
    ({ opcode }) => opcode !== RDMAPOpcode.terminate,
  );
  const machine = new Reemission(role, startup, recorded);
  machine.begin();
  let fed = 0;
  const feedUntil = (packet: number): void => {
    // Byte runs that were on the wire before this packet, in stream order.
    const end = peer.segments
      .filter((segment) => segment.packet < packet)
      .reduce((last, { offset, lengthBytes }) => Math.max(last, offset + lengthBytes), fed);
    machine.feed(peer.bytes.slice(fed, end));
    fed = end;
  };
  // Nothing follows a Request before its Reply.
  feedUntil(packetOf(own, 0));
  for (const [index, fpdu] of recorded.entries()) {
    feedUntil(packetOf(own, fpdu.offset));
    machine.frame(index + 1);
  }
  feedUntil(Number.POSITIVE_INFINITY);
  machine.frame(recorded.length);
  return { startup: machine.sent.slice(0, machine.startupBytes), fpdus: machine.fpdus() };
}
