/** Records of events: the replies to GET_EVENT. */
import type { CMEventType } from '#contract/verbs/enums';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { newStruct } from '../struct-fields.ts';
import { putAddressVector } from '../uverbs/address-vector.ts';
import { CreateAH } from '../uverbs/layouts.ts';

const BYTES = 336;
/** Minimum size of the response buffer: an event without the fields that later kernels added. */
export const CM_EVENT_MIN_BYTES = 324;

/** An event that only this ABI has: the id joined a group. */
export const MULTICAST_JOIN = 12;
/** Events that a program writes for its own threads: `RDMA_CM_EVENT_USER`, and librdmacm's own. */
export const WrittenEvent = { user: 18, internal: 19 } as const;

const PARAMETERS_AT = 20;
/** Limit of the one-byte fields of an event: length of private data, depths. */
const BYTE_MAX = 255;

/** Offsets in a `rdma_ucm_conn_param`. */
const Connected = {
  qpn: 0,
  /** 256 bytes */
  privateData: 8,
  /** u8 from here on. */
  privateDataLength: 264,
  sharedReceives: 265,
  responderResources: 266,
  initiatorDepth: 267,
  flowControl: 268,
  retryCount: 269,
  rnrRetryCount: 270,
} as const;

/** Offsets in a `rdma_ucm_ud_param`. */
const Datagram = {
  qpn: 0,
  qkey: 4,
  addressVector: 8,
  /** 256 bytes */
  privateData: 40,
  /** u8 */
  privateDataLength: 296,
} as const;

interface ConnectedParameters {
  readonly kind: 'connected';
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  /** Fields for InfiniBand transports only. */
  readonly qpn?: number;
  readonly sharedReceives?: boolean;
  readonly flowControl?: boolean;
  readonly retryCount?: number;
  readonly rnrRetryCount?: number;
}

export interface DatagramParameters {
  readonly kind: 'datagram';
  readonly privateData: Uint8Array;
  readonly qpn: number;
  readonly qkey: number;
  /** How to reach the peer, if known. */
  readonly vector: AddressVector | undefined;
}

/** Parameters of an event that a program wrote. */
interface WrittenParameters {
  readonly kind: 'written';
  readonly argument: bigint;
}

/** The content of an event, besides type and status. */
export type EventParameters = ConnectedParameters | DatagramParameters | WrittenParameters;

export interface CmEventFields {
  readonly uid: bigint;
  readonly number: number;
  readonly type:
    | CMEventType
    | typeof MULTICAST_JOIN
    | (typeof WrittenEvent)[keyof typeof WrittenEvent];
  /** 0, a negative errno, or the peer's reason. */
  readonly status: number;
  readonly parameters: EventParameters;
}

export function emitCmEvent(event: CmEventFields): Uint8Array {
  const { bytes, fields } = newStruct(BYTES);
  fields.setBigUint64(0, event.uid, true);
  fields.setUint32(8, event.number, true);
  fields.setUint32(12, event.type, true);
  fields.setInt32(16, event.status, true);
  const { parameters } = event;
  switch (parameters.kind) {
    case 'connected':
      putConnected(bytes, parameters);
      break;
    case 'datagram':
      putDatagram(bytes, parameters);
      break;
    case 'written':
      fields.setBigUint64(PARAMETERS_AT, parameters.argument, true);
      break;
    default:
      parameters satisfies never;
  }
  return bytes;
}

function putConnected(record: Uint8Array, given: ConnectedParameters): void {
  const bytes = record.subarray(PARAMETERS_AT);
  const fields = new DataView(bytes.buffer, bytes.byteOffset);
  fields.setUint32(Connected.qpn, given.qpn ?? 0, true);
  const privateData = given.privateData.subarray(0, BYTE_MAX);
  bytes.set(privateData, Connected.privateData);
  bytes[Connected.privateDataLength] = privateData.length;
  bytes[Connected.sharedReceives] = given.sharedReceives === true ? 1 : 0;
  bytes[Connected.responderResources] = Math.min(given.responderResources, BYTE_MAX);
  bytes[Connected.initiatorDepth] = Math.min(given.initiatorDepth, BYTE_MAX);
  bytes[Connected.flowControl] = given.flowControl === true ? 1 : 0;
  bytes[Connected.retryCount] = given.retryCount ?? 0;
  bytes[Connected.rnrRetryCount] = given.rnrRetryCount ?? 0;
}

function putDatagram(record: Uint8Array, given: DatagramParameters): void {
  const bytes = record.subarray(PARAMETERS_AT);
  const fields = new DataView(bytes.buffer, bytes.byteOffset);
  fields.setUint32(Datagram.qpn, given.qpn, true);
  fields.setUint32(Datagram.qkey, given.qkey, true);
  const { vector } = given;
  if (vector !== undefined)
    putAddressVector(bytes, Datagram.addressVector, vector, CreateAH.attributes);
  const privateData = given.privateData.subarray(0, BYTE_MAX);
  bytes.set(privateData, Datagram.privateData);
  bytes[Datagram.privateDataLength] = privateData.length;
}
