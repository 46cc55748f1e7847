/** GIDs as text and as bytes, and the route header (GRH) in front of a received datagram. */
import { BYTES, takes } from './arguments.ts';
import { invalid } from './errors.ts';

/** Bytes in front of a received datagram's payload: its receive needs room for them. */
export const GRH_BYTES = 40;

const GID_BYTES = 16;
const GROUPS = 8;
const GROUP = /^[0-9a-f]{1,4}$/i;
/** A GRH has the layout of an IPv6 header. */
const IPV6_VERSION = 6;
const IPV4_VERSION = 4;
const IPV4_AT = 20;
const IPV4_BYTES = 4;
const IPV4_SOURCE = IPV4_AT + 12;
const IPV4_TARGET = IPV4_AT + 16;
const SGID_AT = 8;
const DGID_AT = 24;

/** The route of a received datagram (`struct ibv_grh`). */
export interface Grh {
  /** GID of the sender's port. An answer needs it and `srcQp` of the completion. */
  readonly sgid: string;
  /** GID that the datagram was sent to: of this port, or of a multicast group. */
  readonly dgid: string;
  /** Traffic class (type of service). */
  readonly trafficClass: number;
  /** 20 bits; 0 with IPv4. */
  readonly flowLabel: number;
  /** Hops left. */
  readonly hopLimit: number;
}

const checkParseGrh = takes('parseGrh', { buffer: BYTES });

/**
 * Reads the GRH at the start of a receive buffer whose completion has `WCFlag.grh`. The payload
 * begins `GRH_BYTES` further on.
 *
 * A datagram over IPv4 has an IPv4 header in the last 20 of the 40 bytes; its addresses become GIDs.
 * Throws `VerbsError` EINVAL for fewer bytes, and for bytes that are neither.
 */
export function parseGrh(buffer: Uint8Array): Grh {
  checkParseGrh(buffer);
  if (buffer.length < GRH_BYTES) {
    throw invalid(`a GRH has ${GRH_BYTES} bytes, not ${buffer.length}`);
  }
  const fields = new DataView(buffer.buffer, buffer.byteOffset, GRH_BYTES);
  if (fields.getUint8(0) >>> 4 === IPV6_VERSION) {
    const word = fields.getUint32(0);
    return {
      sgid: gidText(buffer.subarray(SGID_AT, SGID_AT + GID_BYTES)),
      dgid: gidText(buffer.subarray(DGID_AT, DGID_AT + GID_BYTES)),
      trafficClass: (word >>> 20) & 0xff,
      flowLabel: word & 0xf_ffff,
      hopLimit: fields.getUint8(7),
    };
  }
  if (fields.getUint8(IPV4_AT) >>> 4 === IPV4_VERSION) {
    return {
      sgid: gidText(mapped(buffer, IPV4_SOURCE)),
      dgid: gidText(mapped(buffer, IPV4_TARGET)),
      trafficClass: fields.getUint8(IPV4_AT + 1),
      flowLabel: 0,
      hopLimit: fields.getUint8(IPV4_AT + 8),
    };
  }
  throw invalid('the buffer does not begin with a GRH: is it a datagram?');
}

/** The 16 bytes of a GID of eight groups of hex digits. EINVAL for other text. */
export function gidBytes(text: string): Uint8Array {
  const groups = groupsOf(text);
  if (groups === undefined) {
    throw invalid('a GID has eight groups of hex digits, with colons in between');
  }
  const bytes = new Uint8Array(GID_BYTES);
  for (const [index, group] of groups.entries()) {
    const word = Number.parseInt(group, 16);
    bytes[2 * index] = word >>> 8;
    bytes[2 * index + 1] = word & 0xff;
  }
  return bytes;
}

/** True for the text of a GID. */
export function isGid(text: unknown): boolean {
  return groupsOf(text) !== undefined;
}

function groupsOf(text: unknown): readonly string[] | undefined {
  const groups = typeof text === 'string' ? text.split(':', GROUPS + 1) : [];
  const whole = groups.length === GROUPS && groups.every((group) => GROUP.test(group));
  return whole ? groups : undefined;
}

/** 16 bytes as eight groups of four hex digits. */
export function gidText(gid: Uint8Array): string {
  const groups: string[] = [];
  for (let at = 0; at < GID_BYTES; at += 2) {
    const word = ((gid[at] ?? 0) << 8) | (gid[at + 1] ?? 0);
    groups.push(word.toString(16).padStart(4, '0'));
  }
  return groups.join(':');
}

function mapped(buffer: Uint8Array, at: number): Uint8Array {
  const gid = new Uint8Array(GID_BYTES);
  gid.fill(0xff, 10, 12);
  gid.set(buffer.subarray(at, at + IPV4_BYTES), 12);
  return gid;
}
