/**
 * The frames between the preload shim and the daemon, after the greeting, on connections of the
 * roles `uverbs`, `rdmaCm` and `netlink`. All numbers are little endian.
 *
 * ```
 *  request  u32 octets, header included | u16 op | u16 flags | u32 pid | u32 request id
 *           | u64 argument | payload
 *  reply    u32 octets, header included | i32 status | u32 request id | u32 flags
 *           | u32 response octets | u32 descriptors | response
 *           | descriptors x { u32 offset, u8[16] token } | [ u32 n | n x u32 queue number ]
 * ```
 *
 * A connection has one request outstanding; replies come in order. A frame that breaks these rules
 * ends its connection's file.
 *
 * The memory of a send queue has a page-rounded length that leaves 8 octets behind the ring: the
 * last 8 octets of the file (of its last page, which may lie behind what the program maps) are u32
 * "connected", u32 zero. While it is 1, a doorbell cannot be refused with ENOTCONN and may be sent
 * one-way.
 */
import { TOKEN_BYTES } from '../../../verbs-api/contract/ipc-frames.ts';
import { RecordReader } from '../../../verbs-api/contract/ipc-records.ts';
import { IpcFormatError } from '../../../verbs-api/contract/ipc-value.ts';

/** Octets of a request before its payload. */
export const REQUEST_HEADER_BYTES = 24;
/** The longest payload: what a program may write to a device file. */
export const REQUEST_PAYLOAD_MAX_BYTES = 16 * 1024;
/** Octets of a reply before its response. */
export const REPLY_HEADER_BYTES = 24;
/** Octets that name one descriptor. */
export const DESCRIPTOR_BYTES = 4 + TOKEN_BYTES;

/** What a request asks for. */
export const ShimOp = {
  /** The program wrote the payload to the device file. */
  write: 1,
  /** Argument: the key of a ring; payload: u64 length of the mapping. */
  mmap: 2,
  /** Argument: the number of an event queue, whose oldest record is wanted. */
  pop: 3,
  /** The program sent the payload to its netlink socket. */
  netlink: 5,
  /** Argument: the handle of a queue pair whose send queue has new elements. */
  doorbell: 6,
  /** Payload: u32 pid of the parent; first request of a connection that a forked child attached. */
  child: 7,
} as const;
export type ShimOp = (typeof ShimOp)[keyof typeof ShimOp];

/** Bits of a request's flags. */
export const RequestFlag = {
  /** No reply is wanted (doorbell only). */
  oneWay: 1,
} as const;

/** Bits of a reply's flags. */
export const ReplyFlag = {
  /** The queue that the command took from is empty now: take one octet from its descriptor. */
  emptied: 1,
  /** Queues that are listed at the end were emptied by a purge: take one octet from each. */
  purged: 2,
  /** Start the agent, then repeat the command; nothing was done. */
  startAgent: 4,
} as const;

/** A request. The object and its payload are borrowed until the callback returns. */
export interface ShimRequest {
  readonly op: number;
  readonly flags: number;
  /** What the program's getpid() says. It counts in the program's PID namespace. */
  readonly pid: number;
  readonly id: number;
  /** Exact up to 2^53. */
  readonly argument: number;
  readonly payload: Uint8Array;
}

/** An event descriptor that the shim opens and whose number it stores in the response. */
export interface DescriptorGrant {
  /** Octet position of the u32 in the response. */
  readonly offset: number;
  readonly token: Uint8Array;
}

/** What a reply says. */
export interface ShimReply {
  /** Not negative, or the negative errno. */
  readonly status: number;
  /** Bits of `ReplyFlag`; `purged` follows from `purged`. */
  readonly flags?: number;
  readonly response?: Uint8Array;
  readonly descriptors?: readonly DescriptorGrant[];
  /** Numbers of the queues that a purge emptied. */
  readonly purged?: readonly number[];
}

/** Cuts a stream of octets into requests; `push` throws `IpcFormatError` for a bad length. */
export class RequestReader {
  readonly #reader: RecordReader;

  constructor(onRequest: (request: ShimRequest) => void) {
    this.#reader = new RecordReader(REQUEST_HEADER_BYTES, payloadBytes, (record) => {
      onRequest(parseRequest(record));
    });
  }

  push(octets: Uint8Array): void {
    this.#reader.push(octets);
  }
}

function payloadBytes(header: Uint8Array): number {
  const frameBytes = new DataView(header.buffer, header.byteOffset, 4).getUint32(0, true);
  const bytes = frameBytes - REQUEST_HEADER_BYTES;
  if (bytes < 0 || bytes > REQUEST_PAYLOAD_MAX_BYTES) {
    throw new IpcFormatError(`a request of ${frameBytes} octets`);
  }
  return bytes;
}

function parseRequest(record: Uint8Array): ShimRequest {
  const fields = new DataView(record.buffer, record.byteOffset, REQUEST_HEADER_BYTES);
  return {
    op: fields.getUint16(4, true),
    flags: fields.getUint16(6, true),
    pid: fields.getUint32(8, true),
    id: fields.getUint32(12, true),
    argument: fields.getUint32(20, true) * 2 ** 32 + fields.getUint32(16, true),
    payload: record.subarray(REQUEST_HEADER_BYTES),
  };
}

/** The octets of a reply to the request `id`. */
export function emitReply(id: number, reply: ShimReply): Uint8Array {
  const { response = NO_OCTETS, descriptors = [], purged = [] } = reply;
  const descriptorsAt = REPLY_HEADER_BYTES + response.length;
  const purgedAt = descriptorsAt + descriptors.length * DESCRIPTOR_BYTES;
  const purgedBytes = purged.length === 0 ? 0 : 4 + 4 * purged.length;
  const octets = new Uint8Array(purgedAt + purgedBytes);
  const fields = new DataView(octets.buffer);
  fields.setUint32(0, octets.length, true);
  fields.setInt32(4, reply.status, true);
  fields.setUint32(8, id, true);
  fields.setUint32(12, (reply.flags ?? 0) | (purgedBytes > 0 ? ReplyFlag.purged : 0), true);
  fields.setUint32(16, response.length, true);
  fields.setUint32(20, descriptors.length, true);
  octets.set(response, REPLY_HEADER_BYTES);
  descriptors.forEach(({ offset, token }, index) => {
    const at = descriptorsAt + index * DESCRIPTOR_BYTES;
    fields.setUint32(at, offset, true);
    octets.set(token, at + 4);
  });
  if (purgedBytes > 0) {
    fields.setUint32(purgedAt, purged.length, true);
    purged.forEach((number, index) => {
      fields.setUint32(purgedAt + 4 + 4 * index, number, true);
    });
  }
  return octets;
}

const NO_OCTETS = new Uint8Array(0);
