/**
 * The frames between the preload shim and the daemon, after the greeting, on connections of the
 * roles `uverbs`, `rdmaCm` and `netlink`. All numbers are little endian.
 *
 * ```
 *  request  u32 bytes, header included | u16 op | u16 flags | u32 pid | u32 request id
 *           | u64 argument | payload
 *  reply    u32 bytes, header included | i32 status | u32 request id | u32 flags
 *           | u32 response bytes | u32 descriptors | response
 *           | descriptors x { u32 offset, u8[16] token } | [ u32 n | n x u32 queue number ]
 *           | [ u32 n | n bytes of reasons: lines in UTF-8, separated by newlines ]
 * ```
 *
 * A connection has one request outstanding; replies come in order. The daemon does not rely on that:
 * it executes several in order, in as many turns as needed. A frame that violates these rules ends
 * its connection's file.
 *
 * The welcome of an event descriptor contains the queue's number. If the queue publishes its records
 * (`EventRing`), a space and the ring's offset in the file of rings follow. Either side may ignore the
 * ring and use `pop`.
 *
 * The memory of a send queue has a page-rounded length with 8 spare bytes after the ring. The last
 * 8 bytes (of its last page, which may be beyond what the program maps) are u32 "doorbell", u32
 * "progress". While "doorbell" is 1, a doorbell cannot be refused with ENOTCONN, and a thread that
 * changes the word to 2 may send it one-way. While it is 2, such a doorbell is in flight, or the
 * daemon polls the queue. A thread that posts must read it after a full fence. "progress" counts
 * completed work requests.
 */
import { readUint32LE } from '#base/checked-bytes';
import { TOKEN_BYTES } from '#contract/protocol/ipc-frames';
import { RecordReader } from '#contract/protocol/ipc-records';
import { IpcFormatError } from '#contract/protocol/ipc-value';

/** Bytes of a request before its payload. */
const REQUEST_HEADER_BYTES = 24;
/** The longest payload: what a program may write to a device file. */
export const REQUEST_PAYLOAD_MAX_BYTES = 16 * 1024;
/** Bytes of a reply before its response. */
const REPLY_HEADER_BYTES = 24;
const DESCRIPTOR_BYTES = 4 + TOKEN_BYTES;

export const ShimOp = {
  /** The program wrote the payload to the device file. */
  write: 1,
  /** Sends the file of the device's rings, which the program maps. */
  rings: 2,
  /** Argument: the number of an event queue; pops its oldest record. */
  pop: 3,
  /** The program sent the payload to its netlink socket. */
  netlink: 5,
  /** Argument: the handle of a queue pair whose send queue has new elements. */
  doorbell: 6,
  /** Payload: u32 pid of the parent; first request of a connection that a forked child attached. */
  child: 7,
  /**
   * A completion queue was armed in its ring, and a completion was shown meanwhile, perhaps before the daemon
   * could know; `armRequest` parses the argument. One-way only: errors are ignored.
   */
  arm: 8,
  /**
   * Requests a new connection, on which the process greets as event descriptor or agent. The process
   * may have changed its user or root directory and be unable to reach the socket.
   */
  connect: 9,
  /** Argument: the handle of a memory region; payload: u64, its new address. */
  move: 10,
  /** Does nothing; the reply has reasons that no other reply has delivered. Only with `explain`. */
  explain: 11,
  /** Sends the ring of orders for the process's agent: see `CopyRing`. */
  copies: 12,
} as const;
export type ShimOp = (typeof ShimOp)[keyof typeof ShimOp];

export const RequestFlag = {
  /** No reply (doorbell and arm only). */
  oneWay: 1,
  /** The program's user wants reasons: replies may end with some. */
  explain: 2,
} as const;

interface ArmRequest {
  readonly handle: number;
  /** Completions that the program could see before it armed the queue, modulo 2^32. */
  readonly seen: number;
}

/** Parses the argument of `arm`: handle, below 2^20, and 2^20 times the count. */
export function armRequest(argument: number): ArmRequest {
  return { handle: argument % 2 ** 20, seen: Math.floor(argument / 2 ** 20) };
}

export const ReplyFlag = {
  /** Take one byte from the descriptor of the queue that the command read from. */
  takeByte: 1,
  /** A purge removed records: take one byte for each queue number listed at the end. */
  purged: 2,
  /** Nothing was done: start the agent, then repeat the command. */
  startAgent: 4,
  /** The reply ends with reasons. */
  reasons: 8,
  /** Start the agent if that is possible; the command is done in any case. */
  offerAgent: 16,
  /** Not the reply yet, which takes long. */
  later: 32,
} as const;

/** A request. The object and its payload are borrowed until the callback returns. */
export interface ShimRequest {
  readonly op: number;
  readonly flags: number;
  /** The program's getpid(), in the program's PID namespace. */
  readonly pid: number;
  readonly id: number;
  /** Exact up to 2^53. */
  readonly argument: number;
  readonly payload: Uint8Array;
}

/** An event descriptor that the shim opens and whose number it stores in the response. */
interface DescriptorGrant {
  /** Offset of the u32 in the response. */
  readonly offset: number;
  readonly token: Uint8Array;
}

export interface ShimReply {
  /** Not negative, or the negative errno. */
  readonly status: number;
  /** Bits of `ReplyFlag`; `purged` is set if the field `purged` is. */
  readonly flags?: number;
  readonly response?: Uint8Array;
  readonly descriptors?: readonly DescriptorGrant[];
  /** After a purge: the number of a queue for each byte to take from its descriptor. */
  readonly purged?: readonly number[];
  /** Lines for the program's standard error. */
  readonly reasons?: readonly string[];
}

/** Splits a stream of bytes into requests; `push` throws `IpcFormatError` for a bad length. */
export class RequestReader {
  readonly #reader: RecordReader;

  constructor(onRequest: (request: ShimRequest) => void) {
    this.#reader = new RecordReader(REQUEST_HEADER_BYTES, payloadBytes, (record) => {
      onRequest(parseRequest(record));
    });
  }

  get roomBytes(): number {
    return this.#reader.roomBytes;
  }

  push(bytes: Uint8Array, more?: () => boolean): number {
    return this.#reader.push(bytes, more);
  }
}

function payloadBytes(header: Uint8Array): number {
  const frameBytes = readUint32LE(header, 0);
  const bytes = frameBytes - REQUEST_HEADER_BYTES;
  if (bytes < 0 || bytes > REQUEST_PAYLOAD_MAX_BYTES) {
    throw new IpcFormatError(`invalid request length: ${frameBytes} bytes`);
  }
  return bytes;
}

function parseRequest(record: Uint8Array): ShimRequest {
  const opAndFlags = readUint32LE(record, 4);
  return {
    op: opAndFlags & 0xffff,
    flags: opAndFlags >>> 16,
    pid: readUint32LE(record, 8),
    id: readUint32LE(record, 12),
    argument: readUint32LE(record, 20) * 2 ** 32 + readUint32LE(record, 16),
    // Doorbells have none, and a view costs more than parsing the other fields.
    payload:
      record.length === REQUEST_HEADER_BYTES ? NO_BYTES : record.subarray(REQUEST_HEADER_BYTES),
  };
}

/** The bytes of a reply to the request `id`. */
export function emitReply(id: number, reply: ShimReply): Uint8Array {
  const { response = NO_BYTES, descriptors = [], purged = [], reasons = [] } = reply;
  const text = reasons.length === 0 ? NO_BYTES : new TextEncoder().encode(reasons.join('\n'));
  const descriptorsAt = REPLY_HEADER_BYTES + response.length;
  const purgedAt = descriptorsAt + descriptors.length * DESCRIPTOR_BYTES;
  const purgedBytes = purged.length === 0 ? 0 : 4 + 4 * purged.length;
  const reasonsAt = purgedAt + purgedBytes;
  const reasonBytes = reasons.length === 0 ? 0 : 4 + text.length;
  const bytes = new Uint8Array(reasonsAt + reasonBytes);
  const fields = new DataView(bytes.buffer);
  fields.setUint32(0, bytes.length, true);
  fields.setInt32(4, reply.status, true);
  fields.setUint32(8, id, true);
  const parts =
    (purgedBytes > 0 ? ReplyFlag.purged : 0) | (reasonBytes > 0 ? ReplyFlag.reasons : 0);
  fields.setUint32(12, (reply.flags ?? 0) | parts, true);
  fields.setUint32(16, response.length, true);
  fields.setUint32(20, descriptors.length, true);
  bytes.set(response, REPLY_HEADER_BYTES);
  descriptors.forEach(({ offset, token }, index) => {
    const at = descriptorsAt + index * DESCRIPTOR_BYTES;
    fields.setUint32(at, offset, true);
    bytes.set(token, at + 4);
  });
  if (purgedBytes > 0) {
    fields.setUint32(purgedAt, purged.length, true);
    purged.forEach((number, index) => {
      fields.setUint32(purgedAt + 4 + 4 * index, number, true);
    });
  }
  if (reasonBytes > 0) {
    fields.setUint32(reasonsAt, text.length, true);
    bytes.set(text, reasonsAt + 4);
  }
  return bytes;
}

const NO_BYTES = new Uint8Array(0);
