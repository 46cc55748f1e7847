/**
 * The records of rdma_cm's ABI: what a program writes to `/dev/infiniband/rdma_cm`, and the larger
 * answers. Offsets count from the first octet that is written, the header's; numbers are little
 * endian.
 */

import type { CMEventType } from '../../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';

/** Octets of a command before its fields: u32 command, u16 octets of fields, u16 of response. */
export const CM_HEADER_BYTES = 8;
/** Numbers at or above are no commands. */
export const CM_COMMANDS = 23;

/** Commands (`RDMA_USER_CM_CMD_*`). */
export const CmCommand = {
  createId: 0,
  destroyId: 1,
  bindIp: 2,
  resolveIp: 3,
  resolveRoute: 4,
  queryRoute: 5,
  connect: 6,
  listen: 7,
  accept: 8,
  reject: 9,
  disconnect: 10,
  initQpAttr: 11,
  getEvent: 12,
  setOption: 14,
  notify: 15,
  joinIpMulticast: 16,
  leaveMulticast: 17,
  migrateId: 18,
  query: 19,
  bind: 20,
  resolveAddr: 21,
  joinMulticast: 22,
} as const;

/** A command as it was written. */
export interface CmRequest {
  readonly command: number;
  /** Octets that the program has room for. */
  readonly outBytes: number;
  /** All octets, the header's included, and the value behind a SET_OPTION. */
  readonly octets: Uint8Array;
  readonly fields: DataView;
}

/** Parses the header. EINVAL when it is short or promises more than there is. */
export function parseCmRequest(octets: Uint8Array): CmRequest {
  if (octets.length < CM_HEADER_BYTES) throw new VerbsError('EINVAL', 'no command header');
  const fields = new DataView(octets.buffer, octets.byteOffset, octets.length);
  if (CM_HEADER_BYTES + fields.getUint16(4, true) > octets.length) {
    throw new VerbsError('EINVAL', 'the command is shorter than it says');
  }
  return {
    command: fields.getUint32(0, true),
    outBytes: fields.getUint16(6, true),
    octets,
    fields,
  };
}

/** EINVAL when the command has fewer octets than `bytes`. */
export function expectBytes(request: CmRequest, bytes: number): void {
  if (request.octets.length < bytes) throw new VerbsError('EINVAL', 'the command is too short');
}

/** ENOSPC when the program has room for fewer octets than `bytes`. */
export function expectRoom(request: CmRequest, bytes: number): void {
  if (request.outBytes < bytes) throw new VerbsError('ENOSPC', 'the response does not fit');
}

/** As much of a response as the program has room for. */
export function fitted(request: CmRequest, response: Uint8Array): Uint8Array {
  return response.subarray(0, request.outBytes);
}

/** Parameters of CONNECT and ACCEPT. */
export interface CmConnParam {
  readonly qpn: number;
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  /** False: the program gave no parameters. */
  readonly valid: boolean;
}

const PRIVATE_DATA_AT = 8;
const CONN_PRIVATE_DATA_LENGTH_AT = 264;

/** Parses a `rdma_ucm_conn_param` at `at`. */
export function parseConnParam({ octets, fields }: CmRequest, at: number): CmConnParam {
  const length = fields.getUint8(at + CONN_PRIVATE_DATA_LENGTH_AT);
  const from = at + PRIVATE_DATA_AT;
  return {
    qpn: fields.getUint32(at, true),
    privateData: octets.slice(from, from + length),
    responderResources: fields.getUint8(at + 266),
    initiatorDepth: fields.getUint8(at + 267),
    valid: fields.getUint8(at + 271) !== 0,
  };
}

/** Octets of an event record. */
export const CM_EVENT_BYTES = 336;
/** Octets that a program must have room for: those before what later kernels added. */
export const CM_EVENT_MIN_BYTES = 324;
const EVENT_PARAM_AT = 20;
/** The private data of an event, and its length field, are one octet wide. */
const PRIVATE_DATA_MAX_BYTES = 255;
const DEPTH_MAX = 255;

/** What an event record says. */
export interface CmEventFields {
  readonly uid: bigint;
  readonly number: number;
  readonly type: CMEventType;
  /** 0 or a negative errno. */
  readonly status: number;
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
}

/** The octets of an event record. */
export function emitCmEvent(event: CmEventFields): Uint8Array {
  const octets = new Uint8Array(CM_EVENT_BYTES);
  const fields = new DataView(octets.buffer);
  fields.setBigUint64(0, event.uid, true);
  fields.setUint32(8, event.number, true);
  fields.setUint32(12, event.type, true);
  fields.setInt32(16, event.status, true);
  const privateData = event.privateData.subarray(0, PRIVATE_DATA_MAX_BYTES);
  octets.set(privateData, EVENT_PARAM_AT + PRIVATE_DATA_AT);
  fields.setUint8(EVENT_PARAM_AT + CONN_PRIVATE_DATA_LENGTH_AT, privateData.length);
  const responderResources = Math.min(event.responderResources, DEPTH_MAX);
  fields.setUint8(EVENT_PARAM_AT + 266, responderResources);
  fields.setUint8(EVENT_PARAM_AT + 267, Math.min(event.initiatorDepth, DEPTH_MAX));
  return octets;
}

/** A response of one u32. */
export function u32Response(value: number): Uint8Array {
  const octets = new Uint8Array(4);
  new DataView(octets.buffer).setUint32(0, value, true);
  return octets;
}
