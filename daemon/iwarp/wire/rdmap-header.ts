/**
 * RDMAP: the control byte, the opcodes of RFC 5040 and RFC 7306, and the Read Request Header.
 *
 * Read before changing: RFC 5040 §4, RFC 7306 §4.
 *
 * ```
 *  control byte (byte 1 of every DDP segment)    Read Request Header, after 18 bytes of DDP
 *   0 1   2 3   4 5 6 7                             0  Sink STag       12 RDMA Read size
 *  +-----+-----+---------+                          4  Sink TO (64)    16 Source STag
 *  | RV  | Rsv | Opcode  |                                             20 Source TO (64)
 *  +-----+-----+---------+
 * ```
 */
import { readUint32, writeUint32 } from '#base/checked-bytes';

/** The one RDMAP version of streams that MPA revision 1 or 2 set up. */
export const RDMAP_VERSION = 1;

/** Masks of the control byte (RDMAP-4.1-01). */
export const RDMAPControl = { version: 0xc0, reserved: 0x30, opcode: 0x0f } as const;

/** Shift of the version in the control byte. */
export const RDMAP_VERSION_SHIFT = 6;

/** Untagged queues (RDMAP-3.1-01, RDMAPX-10-01). */
export const QueueNumber = { send: 0, readRequest: 1, terminate: 2, atomicResponse: 3 } as const;
/** Number of untagged queues that exist: 0 to 3. */
export const QUEUE_COUNT = 4;

// IANA-3.4-01 0x0 to 0xB are assigned; 0xC to 0xF are unexpected.
/** RDMAP opcodes (RDMAP-4.1-02, RDMAPX-4.1-01). */
export const RDMAPOpcode = {
  write: 0x0,
  readRequest: 0x1,
  readResponse: 0x2,
  send: 0x3,
  sendInvalidate: 0x4,
  sendSolicited: 0x5,
  sendSolicitedInvalidate: 0x6,
  terminate: 0x7,
  immediate: 0x8,
  immediateSolicited: 0x9,
  atomicRequest: 0xa,
  atomicResponse: 0xb,
} as const;
export type RDMAPOpcode = (typeof RDMAPOpcode)[keyof typeof RDMAPOpcode];

/** Properties of an opcode, from the RFCs. */
interface OpcodeEntry {
  readonly name: string;
  readonly tagged: boolean;
  /** The queue of an untagged message; -1 for a tagged one. */
  readonly qn: number;
  readonly solicited: boolean;
  readonly invalidates: boolean;
  /** True for messages of RFC 7306. */
  readonly extension: boolean;
}

function untagged(name: string, qn: number, marks = ''): OpcodeEntry {
  const solicited = marks.includes('S');
  const invalidates = marks.includes('I');
  return { name, tagged: false, qn, solicited, invalidates, extension: marks.includes('X') };
}

function tagged(name: string): OpcodeEntry {
  return { name, tagged: true, qn: -1, solicited: false, invalidates: false, extension: false };
}

/** Opcode → entry. Opcodes without an entry are reserved or unassigned. */
// RDMAP-4.1-03 RDMAPX-4.1-02 the opcode determines tagged bit and queue number.
export const OPCODES: readonly OpcodeEntry[] = Object.freeze([
  tagged('Write'),
  untagged('Read Request', QueueNumber.readRequest),
  tagged('Read Response'),
  untagged('Send', QueueNumber.send),
  untagged('Send with Invalidate', QueueNumber.send, 'I'),
  untagged('Send with SE', QueueNumber.send, 'S'),
  untagged('Send with SE and Invalidate', QueueNumber.send, 'SI'),
  untagged('Terminate', QueueNumber.terminate),
  untagged('Immediate Data', QueueNumber.send, 'X'),
  untagged('Immediate Data with SE', QueueNumber.send, 'XS'),
  untagged('Atomic Request', QueueNumber.readRequest, 'X'),
  untagged('Atomic Response', QueueNumber.atomicResponse, 'X'),
]);

/** The control byte of a message that we send. */
// RDMAP-4.1-04 RDMAP-4.1-06 version 1, reserved bits zero.
export function rdmapControl(opcode: RDMAPOpcode): number {
  return (RDMAP_VERSION << RDMAP_VERSION_SHIFT) | opcode;
}

/** Bytes of the Read Request Header (RDMAP-4.4-01). */
export const READ_REQUEST_BYTES = 28;

export const ReadRequestField = {
  sinkStag: 0,
  sinkToHi: 4,
  sinkToLo: 8,
  size: 12,
  sourceStag: 16,
  sourceToHi: 20,
  sourceToLo: 24,
} as const;

/** A Read Request. Mutable, so that one object can be reused. Halves are unsigned 32-bit. */
export class ReadRequest {
  sinkStag = 0;
  sinkToHi = 0;
  sinkToLo = 0;
  /** Bytes to read, 0 to 2^32 - 1 (RDMAP-4.4-05). */
  size = 0;
  sourceStag = 0;
  sourceToHi = 0;
  sourceToLo = 0;
}

/** Reads the 28 bytes at `at` into `request`. Throws `RangeError` if there are fewer. */
export function readReadRequest(bytes: Uint8Array, at: number, request: ReadRequest): void {
  request.sinkStag = readUint32(bytes, at + ReadRequestField.sinkStag);
  request.sinkToHi = readUint32(bytes, at + ReadRequestField.sinkToHi);
  request.sinkToLo = readUint32(bytes, at + ReadRequestField.sinkToLo);
  request.size = readUint32(bytes, at + ReadRequestField.size);
  request.sourceStag = readUint32(bytes, at + ReadRequestField.sourceStag);
  request.sourceToHi = readUint32(bytes, at + ReadRequestField.sourceToHi);
  request.sourceToLo = readUint32(bytes, at + ReadRequestField.sourceToLo);
}

/** Writes the 28 bytes of `request` at `at`. */
export function writeReadRequest(request: ReadRequest, target: Uint8Array, at: number): void {
  writeUint32(target, at + ReadRequestField.sinkStag, request.sinkStag);
  writeUint32(target, at + ReadRequestField.sinkToHi, request.sinkToHi);
  writeUint32(target, at + ReadRequestField.sinkToLo, request.sinkToLo);
  writeUint32(target, at + ReadRequestField.size, request.size);
  writeUint32(target, at + ReadRequestField.sourceStag, request.sourceStag);
  writeUint32(target, at + ReadRequestField.sourceToHi, request.sourceToHi);
  writeUint32(target, at + ReadRequestField.sourceToLo, request.sourceToLo);
}
