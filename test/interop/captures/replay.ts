/**
 * Feeds one direction of a recorded connection to our receiver, in place of the side that received
 * it: MPA startup, FPDUs, DDP, RDMAP. The result has the form of the expectations.
 */
import { createHash } from 'node:crypto';
import { readUint32LE } from '#base/checked-bytes';
import { NEVER } from '#base/time';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { DDPReceiver } from '#daemon/iwarp/engine/ddp-receiver';
import { FpduReceiver } from '#daemon/iwarp/engine/fpdu-receiver';
import type { UlpduSink } from '#daemon/iwarp/engine/lower-layer';
import { RDMAPReceiver } from '#daemon/iwarp/engine/rdmap-receiver';
import {
  InboundRequestQueue,
  OutboundRequestQueue,
  RequestKind,
} from '#daemon/iwarp/engine/read-queues';
import { Startup } from '#daemon/iwarp/engine/startup';
import type { Agreement, StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { ddpHeaderBytes, readDDPHeader } from '#daemon/iwarp/wire/ddp-header';
import { fpduSizeBytes, padBytes, ULPDU_LENGTH_BYTES } from '#daemon/iwarp/wire/fpdu';
import type { ProtocolError } from '#daemon/iwarp/wire/protocol-error';
import {
  QUEUE_COUNT,
  RDMAPControl,
  RDMAPOpcode,
  ReadRequest,
  readReadRequest,
} from '#daemon/iwarp/wire/rdmap-header';
import { parseStartupFrame, startupFrameBytesNeeded } from '#daemon/iwarp/wire/startup-frame';
import { parseTerminate } from '#daemon/iwarp/wire/terminate';
import { AccessRefusal, type WireUser } from '#daemon/rnic/wire-port';
import type { ExpectedDirection, ExpectedStartup } from '#test/support/expected-captures';

/** Words of the expectations for opcodes 0 to 7, the only ones that siw sends. */
const OPCODE_WORDS = [
  'Write',
  'ReadRequest',
  'ReadResponse',
  'Send',
  'SendInvalidate',
  'SendSolicited',
  'SendSolicitedInvalidate',
  'Terminate',
];

/** Observations of a replay. */
export interface Replayed {
  /** A line for each FPDU that the receiver found valid. */
  readonly fpdus: string[];
  /** Header and ULPDU length of each, to check the copies in a Terminate. */
  readonly segments: { readonly header: string; readonly ulpduLength: number }[];
  /** The error that ended the input, if any. */
  readonly error: ProtocolError | undefined;
  /** Our names of the quirks met. */
  readonly quirks: ReadonlySet<string>;
  /** The peer's Terminate, if any. */
  readonly terminate: RDMAPReceiver['terminate'];
  /** True when the bytes ended within an FPDU. */
  readonly midFpdu: boolean;
  /** Bytes that our startup machine sent: for an initiator, its Request. */
  readonly sent: Uint8Array;
}

function hex(value: number, digits = 8): string {
  return value.toString(16).padStart(digits, '0');
}

function hexBytes(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

/** Fields of the startup frame that `bytes` begin with, and where it ends. */
export function readStartup(
  bytes: Uint8Array,
  kind: 'request' | 'reply',
): { startup: ExpectedStartup; end: number } {
  const end = startupFrameBytesNeeded(bytes, bytes.length, kind);
  if (typeof end === 'string') throw new Error(`startup frame: ${end}`);
  const frame = parseStartupFrame(bytes.subarray(0, end), kind);
  if (typeof frame === 'string') throw new Error(`startup frame: ${frame}`);
  const { enhanced } = frame;
  const startup = {
    revision: frame.revision === 1 ? (1 as const) : (2 as const),
    markers: frame.markers,
    crc: frame.crc,
    rejected: frame.rejected,
    enhanced: enhanced !== undefined,
    ...(enhanced && {
      peerToPeer: enhanced.peerToPeer,
      rtrSend: enhanced.rtr.send,
      rtrWrite: enhanced.rtr.write,
      rtrRead: enhanced.rtr.read,
      ird: enhanced.ird,
      ord: enhanced.ord,
    }),
    privateData: hexBytes(frame.privateData),
  };
  return { startup, end };
}

function describeSegment(bytes: Uint8Array, start: number, length: number): string {
  const header = readDDPHeader(bytes, start, length);
  if (header === undefined) return `a segment of ${length} bytes`;
  const opcode = header.ulp & RDMAPControl.opcode;
  const words = [OPCODE_WORDS[opcode] ?? `opcode ${opcode}`, header.last ? 'last' : 'more'];
  const payload = bytes.subarray(start + ddpHeaderBytes(bytes[start] ?? 0), start + length);
  if (header.tagged) {
    words.push(`stag=${hex(header.stag)}`, `to=${hex(header.toHi)}${hex(header.toLo)}`);
  } else {
    words.push(`qn=${header.qn}`, `msn=${header.msn}`, `mo=${header.mo}`);
  }
  if (!header.tagged && opcode === RDMAPOpcode.readRequest) {
    words.push(...describeReadRequest(payload));
  } else if (!header.tagged && opcode === RDMAPOpcode.terminate) {
    words.push(...describeTerminate(payload));
  } else {
    const invalidates =
      opcode === RDMAPOpcode.sendInvalidate || opcode === RDMAPOpcode.sendSolicitedInvalidate;
    if (!header.tagged && invalidates) words.push(`invalidate=${hex(header.ulpWord)}`);
    words.push(`length=${payload.length}`);
    const digest = createHash('sha256').update(payload).digest('hex');
    if (payload.length > 0) words.push(`sha256=${digest.slice(0, 12)}`);
  }
  return words.join(' ');
}

function describeReadRequest(payload: Uint8Array): string[] {
  const read: ReadRequest = new ReadRequest();
  readReadRequest(payload, 0, read);
  return [
    `sink=${hex(read.sinkStag)}:${hex(read.sinkToHi)}${hex(read.sinkToLo)}`,
    `size=${read.size}`,
    `source=${hex(read.sourceStag)}:${hex(read.sourceToHi)}${hex(read.sourceToLo)}`,
  ];
}

function describeTerminate(payload: Uint8Array): string[] {
  const terminate = parseTerminate(payload, 0, payload.length);
  if (terminate === undefined) return ['unreadable'];
  const { layer, etype, code, segmentLength, ddpHeader, rdmaHeader } = terminate;
  const words = [`layer=${layer}`, `etype=${etype}`, `code=${code}`];
  if (segmentLength !== undefined) words.push(`segment=${segmentLength}`);
  if (ddpHeader !== undefined) words.push(`ddp=${hexBytes(ddpHeader)}`);
  if (rdmaHeader !== undefined) words.push(`rdma=${hexBytes(rdmaHeader)}`);
  words.push(`bytes=${hexBytes(payload.subarray(0, 4))}`);
  return words;
}

/** PAD and CRC field of an FPDU, which follow the ULPDU at `start` in `bytes`. */
function describeTrailer(bytes: Uint8Array, start: number, length: number): string {
  const fpduStart = start - ULPDU_LENGTH_BYTES;
  const crcAt = fpduStart + fpduSizeBytes(length) - 4;
  const pad = bytes.subarray(crcAt - padBytes(length), crcAt);
  const field = readUint32LE(bytes, crcAt);
  const right = field === crc32c(bytes.subarray(fpduStart, crcAt));
  const kind = right ? 'right' : field === 0 ? 'zero' : 'wrong';
  return `${pad.some((byte) => byte !== 0) ? ` pad=${hexBytes(pad)}` : ''} crc=${kind}`;
}

/** A queue pair that accepts everything: a replay tests the protocol, not memory. */
const TAKES_ALL: WireUser = {
  placeWrite: () => AccessRefusal.none,
  inputEnded: () => AccessRefusal.none,
  placeReadResponse: () => AccessRefusal.none,
  checkWriteTarget: () => AccessRefusal.none,
  placeReadPart: () => AccessRefusal.none,
  writeCompleted: () => undefined,
  readCompleted: () => undefined,
  atomicCompleted: () => undefined,
  beginReceive: () => AccessRefusal.none,
  placeReceive: () => AccessRefusal.none,
  completeReceive: () => AccessRefusal.none,
  checkReadSource: () => AccessRefusal.none,
  prepareReadSource: () => true,
  gatherReadSource: () => AccessRefusal.none,
  executeAtomic: () => AccessRefusal.none,
  nextMessage: () => false,
  prepareGather: () => true,
  gather: () => AccessRefusal.none,
  messageDone: () => undefined,
  messageFailed: () => undefined,
};

/** The Reads outstanding when a side gets Responses: all that it requested in the recording. */
function outstandingReads(fpdus: readonly string[]): OutboundRequestQueue {
  const pattern = /^ReadRequest .* sink=(\w+):(\w{8})(\w{8}) size=(\d+)/;
  const matches = fpdus.map((line) => pattern.exec(line)).filter((match) => match !== null);
  const queue = new OutboundRequestQueue(matches.length);
  for (const [, stag = '', toHi = '', toLo = '', size = ''] of matches) {
    const request = queue.spare();
    if (request === undefined) break;
    request.kind = RequestKind.read;
    request.internal = false;
    request.sinkStag = Number.parseInt(stag, 16);
    request.sinkToHi = Number.parseInt(toHi, 16);
    request.sinkToLo = Number.parseInt(toLo, 16);
    request.lengthBytes = Number(size);
    request.receivedBytes = 0;
    queue.push();
  }
  return queue;
}

/** Options that make our side speak as the recorded one did. */
export function optionsLike(own: ExpectedStartup): StreamOptions {
  return {
    mpaRevision: own.revision,
    enhancedSupported: true,
    crcRequested: own.crc,
    markersRequested: own.markers,
    peerToPeer: own.peerToPeer ?? false,
    rtrKinds: {
      send: own.rtrSend ?? false,
      write: own.rtrWrite ?? false,
      read: own.rtrRead ?? false,
    },
    ird: own.ird ?? 1,
    ord: own.ord ?? 1,
    irdMax: 128,
    ordMax: 128,
    emssBytes: 1448,
    fpduSize: { kind: 'emss' },
    startupTimeoutMicros: NEVER,
    closeTimeoutMicros: NEVER,
  };
}

class Replay implements UlpduSink {
  readonly fpdus: string[] = [];
  readonly segments: Replayed['segments'] = [];
  readonly quirks = new Set<string>();
  error: ProtocolError | undefined;
  readonly #startup: Startup;
  readonly #own: ExpectedStartup;
  readonly #irrq = new InboundRequestQueue(1);
  readonly #rdmap: RDMAPReceiver;
  readonly #ddp: DDPReceiver;
  #sent = new Uint8Array(0);
  #fpduReceiver: FpduReceiver | undefined;

  /** `own` is the recorded output of the side that receives these bytes. */
  constructor(role: 'initiator' | 'responder', own: ExpectedDirection) {
    this.#own = own.startup;
    this.#startup = new Startup(optionsLike(own.startup));
    this.#rdmap = new RDMAPReceiver({
      user: TAKES_ALL,
      irrq: this.#irrq,
      orrq: outstandingReads(own.fpdus),
      extensionsEnabled: false,
    });
    this.#ddp = new DDPReceiver(this.#rdmap, QUEUE_COUNT - 1);
    if (role === 'responder') this.#startup.listen(0);
    else this.#startup.connect(Buffer.from(own.startup.privateData, 'hex'), 0);
    this.#pollStartup();
  }

  push(bytes: Uint8Array, start: number, end: number): void {
    let at = start;
    if (this.#fpduReceiver === undefined) {
      at = this.#startup.handleBytes(bytes, start, end);
      this.#pollStartup();
    }
    if (at < end) this.error = this.#fpduReceiver?.push(bytes, at, end, this);
    if (this.error?.quirk !== undefined) this.quirks.add(this.error.quirk);
  }

  handleUlpdu(bytes: Uint8Array, start: number, length: number): ProtocolError | undefined {
    const line = describeSegment(bytes, start, length) + describeTrailer(bytes, start, length);
    this.fpdus.push(line);
    const headerEnd = start + Math.min(length, ddpHeaderBytes(bytes[start] ?? 0));
    const header = hexBytes(bytes.subarray(start, headerEnd));
    this.segments.push({ header, ulpduLength: length });
    const error = this.#ddp.handleSegment(bytes, start, length);
    // Answered at once, so the IRD is never reached.
    if (this.#irrq.count > 0) this.#irrq.shift();
    return error;
  }

  finish(): Replayed {
    const { terminate } = this.#rdmap;
    if (terminate?.quirk !== undefined) this.quirks.add(terminate.quirk);
    return {
      fpdus: this.fpdus,
      segments: this.segments,
      error: this.error,
      quirks: this.quirks,
      terminate,
      midFpdu: this.#fpduReceiver?.midFpdu ?? false,
      sent: this.#sent,
    };
  }

  #pollStartup(): void {
    for (let effect = this.#startup.pollEffect(); effect; effect = this.#startup.pollEffect()) {
      if (effect.type === 'transmit') this.#sent = Buffer.concat([this.#sent, effect.frame]);
      else if (effect.type === 'failed') throw new Error(effect.failure.text);
      else if (effect.type === 'full-operation') this.#enterFullOperation(effect.agreement);
      else if (effect.type === 'request') this.#answer();
      else if (effect.quirk !== undefined) this.quirks.add(effect.quirk);
    }
  }

  #answer(): void {
    const privateData = Buffer.from(this.#own.privateData, 'hex');
    if (this.#own.rejected) this.#startup.reject(privateData);
    else {
      const wishes = { ird: this.#own.ird ?? 1, ord: this.#own.ord ?? 1 };
      this.#startup.accept(privateData, wishes, 0);
    }
  }

  #enterFullOperation({ crcEnabled, receiveMarkers }: Agreement): void {
    const pool = new ChunkPool({ keptMax: 1 });
    this.#fpduReceiver = new FpduReceiver({ pool, crc32c, crcEnabled, markers: receiveMarkers });
  }
}

/**
 * Replays the bytes of one side to the other, `role`, whose recorded output is `own`. The bytes
 * arrive in pieces with the lengths `pieceBytes`, repeated as needed.
 */
export function replay(
  bytes: Uint8Array,
  role: 'initiator' | 'responder',
  own: ExpectedDirection,
  pieceBytes: readonly number[],
): Replayed {
  const machine = new Replay(role, own);
  // Nothing follows a Request before its Reply, however the bytes are cut.
  const barrier = role === 'responder' ? readStartup(bytes, 'request').end : bytes.length;
  let at = 0;
  for (let piece = 0; at < bytes.length; piece++) {
    const wanted = at + (pieceBytes[piece % pieceBytes.length] ?? bytes.length);
    const end = Math.min(wanted, at < barrier ? barrier : bytes.length);
    machine.push(bytes, at, end);
    at = end;
  }
  return machine.finish();
}
