/**
 * Commands of rdma_cm's ABI: what a program writes to `/dev/infiniband/rdma_cm`. Offsets count from
 * the first byte of the header; numbers are little endian.
 */
import { invalid, VerbsError } from '#contract/verbs/errors';

/** Bytes of a command before its fields: u32 command, u16 bytes of fields, u16 of response. */
const CM_HEADER_BYTES = 8;
/** Command numbers are below this. */
export const CM_COMMANDS = 25;

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
  resolveIbService: 23,
  writeEvent: 24,
} as const;

export interface CmRequest {
  readonly command: number;
  /** Size of the program's response buffer, in bytes. */
  readonly outBytes: number;
  /** All bytes, including the header and the value after a SET_OPTION. */
  readonly bytes: Uint8Array;
  readonly fields: DataView;
}

/** Parses the header. EINVAL if it is truncated or announces more bytes than there are. */
export function parseCmRequest(bytes: Uint8Array): CmRequest {
  if (bytes.length < CM_HEADER_BYTES) {
    throw invalid(`a command of rdma_cm has a header of 8 bytes; this has ${bytes.length}`);
  }
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (CM_HEADER_BYTES + fields.getUint16(4, true) > bytes.length) {
    throw invalid(`the command has ${bytes.length} bytes, fewer than its header says`);
  }
  return {
    command: fields.getUint32(0, true),
    outBytes: fields.getUint16(6, true),
    bytes,
    fields,
  };
}

/** EINVAL if the command has fewer than `bytes` bytes. */
export function expectBytes(request: CmRequest, bytes: number): void {
  const { length } = request.bytes;
  if (length < bytes) {
    throw invalid(`the command of rdma_cm has ${length} bytes and needs ${bytes}`);
  }
}

/** ENOSPC if the response buffer has fewer than `bytes` bytes. */
export function expectRoom(request: CmRequest, bytes: number): void {
  const { outBytes } = request;
  if (outBytes >= bytes) return;
  throw new VerbsError(
    'ENOSPC',
    `the response needs ${bytes} bytes; the program has room for ${outBytes}`,
  );
}

/** The response, truncated to the response buffer. */
export function fitted(request: CmRequest, response: Uint8Array): Uint8Array {
  return response.subarray(0, request.outBytes);
}

export interface CmConnParam {
  readonly qpn: number;
  /** For datagrams. */
  readonly qkey: number;
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly sharedReceives: boolean;
  readonly flowControl: boolean;
  readonly retryCount: number;
  readonly rnrRetryCount: number;
  /** False if the program gave no parameters. */
  readonly valid: boolean;
}

const PRIVATE_DATA_AT = 8;
const PRIVATE_DATA_LENGTH_AT = 264;

/** Parses a `rdma_ucm_conn_param` at `at`. */
export function parseConnParam({ bytes, fields }: CmRequest, at: number): CmConnParam {
  const length = fields.getUint8(at + PRIVATE_DATA_LENGTH_AT);
  const from = at + PRIVATE_DATA_AT;
  return {
    qpn: fields.getUint32(at, true),
    qkey: fields.getUint32(at + 4, true),
    privateData: bytes.slice(from, from + length),
    responderResources: fields.getUint8(at + 266),
    initiatorDepth: fields.getUint8(at + 267),
    sharedReceives: fields.getUint8(at + 265) !== 0,
    flowControl: fields.getUint8(at + 268) !== 0,
    retryCount: fields.getUint8(at + 269),
    rnrRetryCount: fields.getUint8(at + 270),
    valid: fields.getUint8(at + 271) !== 0,
  };
}

export function u32Response(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value, true);
  return bytes;
}
