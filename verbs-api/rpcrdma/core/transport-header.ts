/**
 * The header that RPC over RDMA puts before an RPC message (RFC 8166 §4, RFC 5666 §4).
 *
 * ```
 *  0                   1                   2                   3
 * +---------------------------------------------------------------+
 * |                            rdma_xid                           |
 * |                            rdma_vers                          |
 * |            rdma_credit: requested, or granted                 |
 * |                            rdma_proc                          |
 * +---------------------------------------------------------------+
 * MSG, NOMSG:  read list, write list, reply chunk
 * MSGP:        rdma_align, rdma_thresh, then the same
 * DONE:        nothing
 * ERROR:       ERR_VERS, lowest, highest version   or   ERR_CHUNK
 * ```
 *
 * A read list is 1, position, segment for each segment, then 0. A write list is 1, count, segments
 * for each chunk, then 0. A reply chunk is 0, or 1, count, segments. A segment is handle, length,
 * offset.
 */
import { XdrError, XdrReader } from './xdr-reader.ts';
import { emitPayload, type Payload, type XdrWriter } from './xdr-writer.ts';

/** The only version of the protocol (RPCR-4.1-04). */
export const RPCRDMA_VERSION = 1;
/** Bytes of the smallest header that carries a message: without chunks. */
export const HEADER_MIN_BYTES = 28;
/** Bytes of the words common to all versions (RPCR-4.1-07). */
export const FIXED_BYTES = 16;
/** Bytes of the smallest RDMA_MSGP header. */
const PADDED_HEADER_MIN_BYTES = 36;

const SEGMENT_BYTES = 16;
const ERROR_CHUNK_BYTES = 20;
const ERROR_VERSION_BYTES = 28;

/** Message types on the wire (`rdma_proc`). */
const HeaderType = { msg: 0, nomsg: 1, msgp: 2, done: 3, error: 4 } as const;
const ErrorCode = { version: 1, chunk: 2 } as const;

/** Registered memory of a requester (RPCR-4.3-01). */
export interface Segment {
  /** The STag. */
  readonly handle: number;
  readonly lengthBytes: number;
  readonly offset: bigint;
}

/** A segment of a read chunk (RPCR-4.3-02). */
export interface ReadSegment extends Segment {
  /** The position of its chunk in the unreduced stream. */
  readonly position: number;
}

/** Memory for one result: segments filled in order. */
export type WriteChunk = readonly Segment[];

/** The three lists of chunks. */
export interface ChunkLists {
  readonly readList: readonly ReadSegment[];
  readonly writeList: readonly WriteChunk[];
  readonly replyChunk: WriteChunk | undefined;
}

interface FixedWords {
  readonly xid: number;
  /** Requested in a call, granted in a reply. */
  readonly credits: number;
}

/** RDMA_MSG: the RPC message follows. RDMA_NOMSG: chunks hold it. */
export interface MessageHeader extends FixedWords, ChunkLists {
  readonly type: 'msg' | 'nomsg';
}

/** RDMA_MSGP: the RPC message follows, with padding before large opaque items. */
export interface PaddedHeader extends FixedWords, ChunkLists {
  readonly type: 'msgp';
  readonly alignBytes: number;
  readonly thresholdBytes: number;
}

/** RDMA_DONE: the client has read the chunks of the reply to `xid`. */
interface DoneHeader extends FixedWords {
  readonly type: 'done';
}

/** The error in an RDMA_ERROR; `other` for an unknown code, without the data that may follow it. */
export type TransportError =
  | { readonly code: 'version'; readonly low: number; readonly high: number }
  | { readonly code: 'chunk' }
  | { readonly code: 'other'; readonly number: number };

/** RDMA_ERROR: the call with `xid` was not executed. */
export interface ErrorHeader extends FixedWords {
  readonly type: 'error';
  /** The version of the call that failed (RPCR2-4.5-03). */
  readonly version: number;
  readonly error: TransportError;
}

export type TransportHeader = MessageHeader | PaddedHeader | DoneHeader | ErrorHeader;

/**
 * Why bytes are not a valid header. `short`: too few to trust any of them. The other errors have a
 * version and an XID that an RDMA_ERROR can name.
 */
interface HeaderError {
  readonly error: 'short' | 'version' | 'malformed';
  readonly xid: number;
  readonly version: number;
  readonly text: string;
}

/** A header and the bytes after it. */
export interface ParsedMessage {
  readonly header: TransportHeader;
  readonly headerBytes: number;
}

export function listsSizeBytes(lists: ChunkLists): number {
  // RPCR-4.3-08 The sum over all entries; the three words are end marks and flags.
  let sizeBytes = 12 + lists.readList.length * (8 + SEGMENT_BYTES);
  for (const chunk of lists.writeList) sizeBytes += 8 + chunk.length * SEGMENT_BYTES;
  if (lists.replyChunk !== undefined) sizeBytes += 4 + lists.replyChunk.length * SEGMENT_BYTES;
  return sizeBytes;
}

export function headerSizeBytes(header: TransportHeader): number {
  switch (header.type) {
    case 'msg':
    case 'nomsg':
      return FIXED_BYTES + listsSizeBytes(header);
    case 'msgp':
      return FIXED_BYTES + 8 + listsSizeBytes(header);
    case 'done':
      return FIXED_BYTES;
    case 'error':
      return header.error.code === 'version' ? ERROR_VERSION_BYTES : ERROR_CHUNK_BYTES;
  }
}

/** Writes a header of exactly `headerSizeBytes` bytes. */
function writeTransportHeader(writer: XdrWriter, header: TransportHeader): void {
  writer.uint32(header.xid);
  writer.uint32(header.type === 'error' ? header.version : RPCRDMA_VERSION);
  writer.uint32(header.credits);
  writer.uint32(HeaderType[header.type]);
  switch (header.type) {
    case 'msgp':
      writer.uint32(header.alignBytes);
      writer.uint32(header.thresholdBytes);
      writeLists(writer, header);
      return;
    case 'msg':
    case 'nomsg':
      writeLists(writer, header);
      return;
    case 'error':
      writeError(writer, header.error);
      return;
    case 'done':
      return;
  }
}

/** Bytes of a message: header and inline payload. */
export function messageSizeBytes(header: TransportHeader, payload: Payload): number {
  return headerSizeBytes(header) + payload.lengthBytes;
}

/** Assembles a message in `target`, using `writer` as scratch space. */
export function emitMessage(
  writer: XdrWriter,
  header: TransportHeader,
  payload: Payload,
  target: Uint8Array,
): void {
  writer.reset();
  writeTransportHeader(writer, header);
  emitPayload(payload, target, writer.copyTo(target));
}

function writeError(writer: XdrWriter, error: TransportError): void {
  switch (error.code) {
    case 'version':
      writer.uint32(ErrorCode.version);
      writer.uint32(error.low);
      writer.uint32(error.high);
      return;
    case 'chunk':
      writer.uint32(ErrorCode.chunk);
      return;
    case 'other':
      writer.uint32(error.number);
      return;
  }
}

function writeSegment(writer: XdrWriter, segment: Segment): void {
  writer.uint32(segment.handle);
  writer.uint32(segment.lengthBytes);
  writer.uint64(segment.offset);
}

function writeLists(writer: XdrWriter, lists: ChunkLists): void {
  for (const segment of lists.readList) {
    writer.uint32(1);
    writer.uint32(segment.position);
    writeSegment(writer, segment);
  }
  writer.uint32(0);
  for (const chunk of lists.writeList) {
    writer.uint32(1);
    writer.array(chunk, writeSegment);
  }
  writer.uint32(0);
  writer.uint32(lists.replyChunk === undefined ? 0 : 1);
  if (lists.replyChunk !== undefined) writer.array(lists.replyChunk, writeSegment);
}

/**
 * Parses the header of a received Send. List lengths are bounded by the bytes present. Does not
 * check whether chunks are valid: see `chunks.ts`.
 */
export function parseTransportHeader(bytes: Uint8Array): ParsedMessage | HeaderError {
  if (bytes.length < FIXED_BYTES) {
    return { error: 'short', xid: 0, version: 0, text: `a header of ${bytes.length} bytes` };
  }
  const reader = new XdrReader(bytes);
  const xid = reader.uint32();
  const version = reader.uint32();
  const credits = reader.uint32();
  const type = reader.uint32();
  // RPCR2-4.5-01 Trust no word of a header shorter than its type requires.
  if (bytes.length < minimumBytes(type)) {
    const text = `a header of type ${type} in ${bytes.length} bytes`;
    return { error: 'short', xid, version, text };
  }
  // RPCR-4.2-04 An RDMA_ERROR has the version of the call it answers, supported or not.
  if (version !== RPCRDMA_VERSION && type !== HeaderType.error) {
    return { error: 'version', xid, version, text: `version ${version}` };
  }
  try {
    const header = readBody(reader, { xid, credits }, version, type);
    if (header === undefined) return { error: 'malformed', xid, version, text: `type ${type}` };
    return { header, headerBytes: bytes.length - reader.remainingBytes };
  } catch (error) {
    if (error instanceof XdrError) return { error: 'malformed', xid, version, text: error.message };
    throw error;
  }
}

function minimumBytes(type: number): number {
  switch (type) {
    case HeaderType.msgp:
      return PADDED_HEADER_MIN_BYTES;
    case HeaderType.done:
      return FIXED_BYTES;
    case HeaderType.error:
      return ERROR_CHUNK_BYTES;
    default:
      return HEADER_MIN_BYTES;
  }
}

function readBody(
  reader: XdrReader,
  words: FixedWords,
  version: number,
  type: number,
): TransportHeader | undefined {
  switch (type) {
    case HeaderType.msg:
    case HeaderType.nomsg: {
      // Field by field, as every message has such a header: spreading costs a copy by name.
      const { xid, credits } = words;
      const { readList, writeList, replyChunk } = readLists(reader);
      const kind = type === HeaderType.msg ? 'msg' : 'nomsg';
      return { type: kind, xid, credits, readList, writeList, replyChunk };
    }
    case HeaderType.msgp:
      return {
        type: 'msgp',
        ...words,
        alignBytes: reader.uint32(),
        thresholdBytes: reader.uint32(),
        ...readLists(reader),
      };
    case HeaderType.done:
      return { type: 'done', ...words };
    case HeaderType.error:
      return { type: 'error', ...words, version, error: readError(reader) };
    default:
      return undefined;
  }
}

function readError(reader: XdrReader): TransportError {
  const number = reader.uint32();
  switch (number) {
    case ErrorCode.version:
      return { code: 'version', low: reader.uint32(), high: reader.uint32() };
    case ErrorCode.chunk:
      return { code: 'chunk' };
    default:
      return { code: 'other', number };
  }
}

function readSegment(reader: XdrReader): Segment {
  return { handle: reader.uint32(), lengthBytes: reader.uint32(), offset: reader.uint64() };
}

function readReadSegment(reader: XdrReader): ReadSegment {
  return { position: reader.uint32(), ...readSegment(reader) };
}

/** A counted array of segments. RPCR-4.3-09 Its count is bounded by the remaining bytes. */
function readChunk(reader: XdrReader): WriteChunk {
  return reader.array(Math.floor(reader.remainingBytes / SEGMENT_BYTES), readSegment);
}

function readLists(reader: XdrReader): ChunkLists {
  const chainMax = reader.remainingBytes;
  return {
    readList: reader.chain(chainMax, readReadSegment),
    writeList: reader.chain(chainMax, readChunk),
    replyChunk: reader.optional(readChunk),
  };
}
