/**
 * The bare records on connections that are not framed. All numbers are little endian.
 *
 * ```
 *  doorbell   client: u32 QP handle
 *  channel    daemon: u32 CQ handle | u32 zero
 *  map        client: u8[16] mapping token
 *             daemon: u32 errno (0: done) | u32 zero, with the descriptor (SCM_RIGHTS)
 *  agent      daemon: u32 operation | u32 id | u64 address | u32 length | u32 zero, then for a
 *                     write its bytes
 *             client: u32 id | u32 errno (0: done) | u32 length | u32 zero, then its bytes for a
 *                     successful read
 * ```
 *
 * The agent executes requests in order, so a read sees earlier writes.
 */
import type { Handle } from './commands.ts';
import { IpcFormatError } from './ipc-value.ts';

export const DOORBELL_BYTES = 4;
export const COMPLETION_RECORD_BYTES = 8;
export const MAP_REQUEST_BYTES = 16;
export const MAP_REPLY_BYTES = 8;
export const AGENT_REQUEST_BYTES = 24;
export const AGENT_REPLY_BYTES = 16;
/** The most bytes that one agent request moves. */
export const AGENT_TRANSFER_MAX_BYTES = 256 * 1024;

/** Operations that the daemon requests of a client's agent. */
export const AgentOperation = { read: 1, write: 2, copy: 3 } as const;
/** The id of a message that answers no request: the agent has carried out orders to copy. */
export const AGENT_COPIED_ID = 0xffff_ffff;
export type AgentOperation = (typeof AgentOperation)[keyof typeof AgentOperation];

/** A request to the agent. Addresses of user space fit a number. */
export interface AgentRequest {
  readonly operation: number;
  readonly id: number;
  readonly address: number;
  readonly length: number;
}

/** An answer of the agent. */
interface AgentReply {
  readonly id: number;
  readonly errno: number;
  readonly length: number;
}

/** Writes an agent request's header at the start of `target`. */
export function emitAgentRequest(request: AgentRequest, target: Uint8Array): void {
  const fields = new DataView(target.buffer, target.byteOffset, AGENT_REQUEST_BYTES);
  fields.setUint32(0, request.operation, true);
  fields.setUint32(4, request.id, true);
  fields.setUint32(8, request.address >>> 0, true);
  fields.setUint32(12, Math.floor(request.address / 0x1_0000_0000), true);
  fields.setUint32(16, request.length, true);
  fields.setUint32(20, 0, true);
}

/** Parses an agent request's header. Throws `IpcFormatError`. */
export function parseAgentRequest(bytes: Uint8Array): AgentRequest {
  const fields = new DataView(bytes.buffer, bytes.byteOffset, AGENT_REQUEST_BYTES);
  const length = fields.getUint32(16, true);
  if (length > AGENT_TRANSFER_MAX_BYTES) throw new IpcFormatError('agent request too long');
  return {
    operation: fields.getUint32(0, true),
    id: fields.getUint32(4, true),
    address: fields.getUint32(12, true) * 0x1_0000_0000 + fields.getUint32(8, true),
    length,
  };
}

/** Writes an agent reply's header at the start of `target`. */
export function emitAgentReply(reply: AgentReply, target: Uint8Array): void {
  const fields = new DataView(target.buffer, target.byteOffset, AGENT_REPLY_BYTES);
  fields.setUint32(0, reply.id, true);
  fields.setUint32(4, reply.errno, true);
  fields.setUint32(8, reply.length, true);
  fields.setUint32(12, 0, true);
}

/** Parses an agent reply's header. Throws `IpcFormatError`. */
export function parseAgentReply(bytes: Uint8Array): AgentReply {
  const fields = new DataView(bytes.buffer, bytes.byteOffset, AGENT_REPLY_BYTES);
  const length = fields.getUint32(8, true);
  if (length > AGENT_TRANSFER_MAX_BYTES) throw new IpcFormatError('agent reply too long');
  return { id: fields.getUint32(0, true), errno: fields.getUint32(4, true), length };
}

/** The handle at the start of a doorbell or a completion record. */
export function recordHandle(record: Uint8Array): Handle {
  const low = (record[0] ?? 0) | ((record[1] ?? 0) << 8);
  return (low | ((record[2] ?? 0) << 16) | ((record[3] ?? 0) << 24)) >>> 0;
}

const NO_BYTES = new Uint8Array(0);
/** A longer buffer of an incomplete record is not kept for the next one, unless its reader says so. */
const KEPT_MAX_BYTES = 4096;
const ALWAYS = (): boolean => true;

/**
 * Splits a stream of bytes into records whose header determines their size: doorbells, completion
 * records, agent messages.
 */
export class RecordReader {
  readonly #headBytes: number;
  readonly #bodyBytes: (head: Uint8Array) => number;
  readonly #onRecord: (record: Uint8Array) => void;
  readonly #keptMaxBytes: number;
  /** The part of an incomplete record that has arrived: the first `#heldBytes` bytes. */
  #held: Uint8Array = NO_BYTES;
  #heldBytes = 0;

  /**
   * `bodyBytes` returns the length of the body from a header; its argument may extend beyond the
   * header. `onRecord` gets exactly header and body, borrowed until it returns.
   */
  constructor(
    headBytes: number,
    bodyBytes: (head: Uint8Array) => number,
    onRecord: (record: Uint8Array) => void,
    keptMaxBytes = KEPT_MAX_BYTES,
  ) {
    this.#headBytes = headBytes;
    this.#bodyBytes = bodyBytes;
    this.#onRecord = onRecord;
    this.#keptMaxBytes = keptMaxBytes;
  }

  /** Bytes of memory that it keeps for an incomplete record. */
  get roomBytes(): number {
    return this.#held.length;
  }

  /**
   * Takes bytes of the stream and calls `onRecord` for each whole record, as long as `more` returns true
   * between two of them. Returns how many bytes it took; the others are for a later call.
   */
  push(bytes: Uint8Array, more: () => boolean = ALWAYS): number {
    let at = 0;
    while (at < bytes.length) {
      if (this.#heldBytes > 0) {
        at = this.#fill(bytes, at);
        continue;
      }
      if (at > 0 && !more()) return at;
      // Records mostly arrive one at a time: the input then is the record, and needs no view.
      const rest = at === 0 ? bytes : bytes.subarray(at);
      const recordBytes = this.#recordBytes(rest, rest.length);
      if (recordBytes === undefined || recordBytes > rest.length) {
        this.#hold(rest, recordBytes ?? this.#headBytes);
        return bytes.length;
      }
      at += recordBytes;
      this.#onRecord(recordBytes === rest.length ? rest : rest.subarray(0, recordBytes));
    }
    return at;
  }

  /** Length of the record that starts here with `length` available bytes; undefined for part of a header. */
  #recordBytes(bytes: Uint8Array, length: number): number | undefined {
    return length < this.#headBytes ? undefined : this.#headBytes + this.#bodyBytes(bytes);
  }

  /** Continues the incomplete record; returns the index of the first byte that it did not take. */
  #fill(bytes: Uint8Array, at: number): number {
    const wanted = this.#recordBytes(this.#held, this.#heldBytes) ?? this.#headBytes;
    const end = Math.min(at + wanted - this.#heldBytes, bytes.length);
    this.#hold(bytes.subarray(at, end), wanted);
    if (this.#recordBytes(this.#held, this.#heldBytes) !== this.#heldBytes) return end;
    const whole = this.#held.subarray(0, this.#heldBytes);
    this.#heldBytes = 0;
    if (whole.length > this.#keptMaxBytes) this.#held = NO_BYTES;
    this.#onRecord(whole);
    return end;
  }

  /**
   * Adds bytes to the incomplete record. The buffer doubles; otherwise a record that arrives byte by byte
   * would take quadratic time. It grows with the bytes received, not with the length announced.
   */
  #hold(bytes: Uint8Array, recordBytes: number): void {
    const heldBytes = this.#heldBytes + bytes.length;
    if (heldBytes > this.#held.length) {
      const roomBytes = Math.max(heldBytes, Math.min(recordBytes, 2 * heldBytes), this.#headBytes);
      const room = new Uint8Array(roomBytes);
      room.set(this.#held.subarray(0, this.#heldBytes));
      this.#held = room;
    }
    this.#held.set(bytes, this.#heldBytes);
    this.#heldBytes = heldBytes;
  }
}
