/**
 * Netlink messages: a header, then attributes `{u16 length, u16 type, data}`, each padded to four
 * bytes. Numbers are little endian, the host's byte order.
 */
import { newStruct } from '../struct-fields.ts';

/** Maximum bytes of a datagram: libmnl of iproute2 reads into one page, libnl into more. */
export const DATAGRAM_MAX_BYTES = 4096;
/** Bytes of a message before its attributes. */
const NETLINK_HEADER_BYTES = 16;
const ATTRIBUTE_HEADER_BYTES = 4;
/** Type bit of an attribute that contains others. */
const NESTED = 0x8000;

/** Message types of every netlink family. */
const NetlinkType = { error: 2, done: 3 } as const;

export const NetlinkFlag = { multi: 2, acknowledge: 4, dump: 0x300 } as const;

/** The header of a message, without its length. */
interface NetlinkHeader {
  readonly type: number;
  readonly flags: number;
  /** Echoed in the reply. */
  readonly sequence: number;
  readonly port: number;
}

export interface NetlinkMessage {
  readonly header: NetlinkHeader;
  /** The header's bytes, which an error message repeats. */
  readonly headerBytes: Uint8Array;
  /** Data of each attribute by its type. */
  readonly attributes: ReadonlyMap<number, Uint8Array>;
}

/** Parses the first message in `bytes`, or undefined if it is incomplete. */
export function parseNetlink(bytes: Uint8Array): NetlinkMessage | undefined {
  if (bytes.length < NETLINK_HEADER_BYTES) return undefined;
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const length = fields.getUint32(0, true);
  if (length < NETLINK_HEADER_BYTES || length > bytes.length) return undefined;
  return {
    header: {
      type: fields.getUint16(4, true),
      flags: fields.getUint16(6, true),
      sequence: fields.getUint32(8, true),
      port: fields.getUint32(12, true),
    },
    headerBytes: bytes.slice(0, NETLINK_HEADER_BYTES),
    attributes: parseAttributes(bytes.subarray(NETLINK_HEADER_BYTES, length)),
  };
}

/** Ignores everything after the first malformed attribute, as the kernel does. */
function parseAttributes(bytes: Uint8Array): Map<number, Uint8Array> {
  const attributes = new Map<number, Uint8Array>();
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  while (at + ATTRIBUTE_HEADER_BYTES <= bytes.length) {
    const length = fields.getUint16(at, true);
    if (length < ATTRIBUTE_HEADER_BYTES || at + length > bytes.length) break;
    const type = fields.getUint16(at + 2, true);
    attributes.set(type, bytes.slice(at + ATTRIBUTE_HEADER_BYTES, at + length));
    at += padded(length);
  }
  return attributes;
}

/** A number in an attribute; undefined if the attribute is missing or has another size. */
export function attributeU32(data: Uint8Array | undefined): number | undefined {
  if (data?.length !== 4) return undefined;
  return new DataView(data.buffer, data.byteOffset, 4).getUint32(0, true);
}

/** A string in an attribute, without its NUL. */
export function attributeText(data: Uint8Array | undefined): string | undefined {
  if (data === undefined) return undefined;
  const end = data.indexOf(0);
  return String.fromCharCode(...data.subarray(0, end < 0 ? data.length : end));
}

/** An encoded attribute, with its padding. */
export type Attribute = Uint8Array;

function attribute(type: number, data: Uint8Array): Attribute {
  const length = ATTRIBUTE_HEADER_BYTES + data.length;
  const { bytes, fields } = newStruct(padded(length));
  fields.setUint16(0, length, true);
  fields.setUint16(2, type, true);
  bytes.set(data, ATTRIBUTE_HEADER_BYTES);
  return bytes;
}

export function u8(type: number, number: number): Attribute {
  return attribute(type, Uint8Array.of(number));
}

export function u32(type: number, number: number): Attribute {
  const { bytes, fields } = newStruct(4);
  fields.setUint32(0, number, true);
  return attribute(type, bytes);
}

export function u64(type: number, number: bigint): Attribute {
  const { bytes, fields } = newStruct(8);
  fields.setBigUint64(0, number, true);
  return attribute(type, bytes);
}

/** An attribute with an ASCII string and its NUL. */
export function text(type: number, value: string): Attribute {
  return attribute(type, Buffer.from(`${value}\0`, 'latin1'));
}

export function binary(type: number, bytes: Uint8Array): Attribute {
  return attribute(type, bytes);
}

/** An attribute of nested attributes without NLA_F_NESTED, as in older messages. */
export function plainNested(type: number, attributes: readonly Attribute[]): Attribute {
  return attribute(type, concatenated(attributes));
}

export function nested(type: number, attributes: readonly Attribute[]): Attribute {
  return plainNested(type | NESTED, attributes);
}

/** The bytes of a message with these attributes. */
export function emitNetlink(header: NetlinkHeader, attributes: readonly Attribute[]): Uint8Array {
  return emitMessage(header, concatenated(attributes));
}

/** Bytes of the message that terminates a dump. */
export const DONE_BYTES = NETLINK_HEADER_BYTES + 4;

/** The message that terminates a dump. */
export function emitDone(header: NetlinkHeader): Uint8Array {
  const done = { ...header, type: NetlinkType.done, flags: NetlinkFlag.multi };
  return emitMessage(done, new Uint8Array(4));
}

/** The reply that carries an errno; 0 acknowledges. */
export function emitError(request: NetlinkMessage, errno: number): Uint8Array {
  const payload = new Uint8Array(4 + NETLINK_HEADER_BYTES);
  new DataView(payload.buffer).setInt32(0, -errno, true);
  payload.set(request.headerBytes, 4);
  return emitMessage({ ...request.header, type: NetlinkType.error, flags: 0 }, payload);
}

function emitMessage(header: NetlinkHeader, payload: Uint8Array): Uint8Array {
  const { bytes, fields } = newStruct(NETLINK_HEADER_BYTES + payload.length);
  fields.setUint32(0, bytes.length, true);
  fields.setUint16(4, header.type, true);
  fields.setUint16(6, header.flags, true);
  fields.setUint32(8, header.sequence, true);
  fields.setUint32(12, header.port, true);
  bytes.set(payload, NETLINK_HEADER_BYTES);
  return bytes;
}

function padded(length: number): number {
  return (length + 3) & ~3;
}

export function concatenated(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
