/**
 * The work of a device, for watchers: each work request when the device takes it from its queue,
 * each completion when it writes it. Bodies of tap records (`tap-records.ts`), little endian:
 *
 * ```
 *  posted     u32 QP number | u8 WorkQueue | u8 SQOpcode | u16 QueueFlag | u64 wr_id
 *             f64 bytes | u64 remote address | u32 STag | device
 *  completed  u32 QP number | u16 CQEStatus | u8 SQOpcode | u8 QueueFlag | u64 wr_id
 *             u32 bytes | u64 Immediate Data or invalidated STag | device
 * ```
 *
 * The device is its name as UTF-8, up to the end of the body. An opcode may be unknown: it is what
 * the client wrote.
 */
import { viewOf } from '#base/checked-bytes';
import { decodeText, IpcFormatError } from './ipc-value.ts';
import { CQEStatus, SQOpcode } from './queue-layout.ts';

export const WorkQueue = { send: 0, receive: 1, sharedReceive: 2 } as const;
export type WorkQueue = (typeof WorkQueue)[keyof typeof WorkQueue];

/** A work request that a device took. */
export interface PostedWork {
  /** The queue pair that took it. */
  readonly qpn: number;
  readonly queue: WorkQueue;
  /** One of `SQOpcode`, or an unknown value from the client. */
  readonly opcode: number;
  /** Bits of `QueueFlag`; `signalled` is also set if the queue pair signals all requests. */
  readonly flags: number;
  readonly wrIdHi: number;
  readonly wrIdLo: number;
  /** Bytes to send, to read or of the window; for a receive, its capacity. */
  readonly lengthBytes: number;
  /** The peer's STag, or the one that the request changes; 0 if there is none. */
  readonly stag: number;
  /** Address at the peer, or where a window begins. */
  readonly addressHi: number;
  readonly addressLo: number;
}

/** A completion that a device wrote. */
export interface CompletedWork {
  readonly qpn: number;
  readonly opcode: number;
  readonly status: CQEStatus;
  /** Bits of `QueueFlag`: `solicited`, `remoteInvalidate`, `immediate`. */
  readonly flags: number;
  readonly wrIdHi: number;
  readonly wrIdLo: number;
  readonly lengthBytes: number;
  /** Immediate Data; with `remoteInvalidate` the STag in the lower half. */
  readonly immediateHi: number;
  readonly immediateLo: number;
}

/** Watches the work of one device. Both are borrowed for the call, which must not call the device. */
export interface WorkObserver {
  posted(work: PostedWork): void;
  completed(work: CompletedWork): void;
}

/** Longest name of a device (`ibv_get_device_name`). */
const DEVICE_MAX_BYTES = 63;
const POSTED_BYTES = 36;
const COMPLETED_BYTES = 28;
const QPN_MAX = 0xff_ffff;

const OPCODE_NAMES: ReadonlyMap<number, string> = new Map<number, string>([
  [SQOpcode.write, 'RDMA_WRITE'],
  [SQOpcode.read, 'RDMA_READ'],
  [SQOpcode.readLocalInv, 'RDMA_READ_WITH_INV'],
  [SQOpcode.send, 'SEND'],
  [SQOpcode.sendWithImm, 'SEND_WITH_IMM'],
  [SQOpcode.sendRemoteInv, 'SEND_WITH_INV'],
  [SQOpcode.fetchAndAdd, 'ATOMIC_FETCH_AND_ADD'],
  [SQOpcode.compAndSwap, 'ATOMIC_CMP_AND_SWP'],
  [SQOpcode.receive, 'RECV'],
  [SQOpcode.immediate, 'IMMEDIATE'],
  [SQOpcode.writeWithImm, 'RDMA_WRITE_WITH_IMM'],
  [SQOpcode.bindMW, 'BIND_MW'],
  [SQOpcode.localInv, 'LOCAL_INV'],
  [SQOpcode.receiveWithImm, 'RECV'],
]);

const STATUS_NAMES: Readonly<Record<CQEStatus, string>> = {
  [CQEStatus.success]: 'IBV_WC_SUCCESS',
  [CQEStatus.locLenErr]: 'IBV_WC_LOC_LEN_ERR',
  [CQEStatus.locProtErr]: 'IBV_WC_LOC_PROT_ERR',
  [CQEStatus.locQpOpErr]: 'IBV_WC_LOC_QP_OP_ERR',
  [CQEStatus.wrFlushErr]: 'IBV_WC_WR_FLUSH_ERR',
  [CQEStatus.badRespErr]: 'IBV_WC_BAD_RESP_ERR',
  [CQEStatus.locAccessErr]: 'IBV_WC_LOC_ACCESS_ERR',
  [CQEStatus.remAccessErr]: 'IBV_WC_REM_ACCESS_ERR',
  [CQEStatus.remInvReqErr]: 'IBV_WC_REM_INV_REQ_ERR',
  [CQEStatus.generalErr]: 'IBV_WC_GENERAL_ERR',
  [CQEStatus.mwBindErr]: 'IBV_WC_MW_BIND_ERR',
  [CQEStatus.remOpErr]: 'IBV_WC_REM_OP_ERR',
  [CQEStatus.retryExcErr]: 'IBV_WC_RETRY_EXC_ERR',
  [CQEStatus.rnrRetryExcErr]: 'IBV_WC_RNR_RETRY_EXC_ERR',
};

/**
 * The operation's name in rdma-core (`enum ibv_wr_opcode` without its prefix); RECV for receives.
 */
export function workOpcodeName(opcode: number): string {
  return OPCODE_NAMES.get(opcode) ?? `OPCODE_${opcode}`;
}

/** The status's name in rdma-core (`enum ibv_wc_status`). */
export function completionStatusName(status: CQEStatus): string {
  return STATUS_NAMES[status];
}

/** The body of a `posted` record; `device` is the device's name as UTF-8. */
export function emitPostedWork(work: PostedWork, device: Uint8Array): Uint8Array {
  const body = new Uint8Array(POSTED_BYTES + device.length);
  const fields = viewOf(body);
  fields.setUint32(0, work.qpn, true);
  fields.setUint8(4, work.queue);
  fields.setUint8(5, work.opcode);
  fields.setUint16(6, work.flags, true);
  fields.setUint32(8, work.wrIdLo, true);
  fields.setUint32(12, work.wrIdHi, true);
  fields.setFloat64(16, work.lengthBytes, true);
  fields.setUint32(24, work.addressLo, true);
  fields.setUint32(28, work.addressHi, true);
  fields.setUint32(32, work.stag, true);
  body.set(device, POSTED_BYTES);
  return body;
}

/** Parses the body of a `posted` record. Throws `IpcFormatError`. */
export function parsePostedWork(body: Uint8Array): { device: string; work: PostedWork } {
  const device = deviceOf(body, POSTED_BYTES);
  const fields = viewOf(body);
  const queue = Object.values(WorkQueue).find((each) => each === fields.getUint8(4));
  if (queue === undefined) throw new IpcFormatError('the work request is for an unknown queue');
  const lengthBytes = fields.getFloat64(16, true);
  if (!(lengthBytes >= 0 && lengthBytes <= 2 ** 64)) {
    throw new IpcFormatError('the work request lacks a length');
  }
  const work = {
    qpn: qpnOf(fields),
    queue,
    opcode: fields.getUint8(5),
    flags: fields.getUint16(6, true),
    wrIdLo: fields.getUint32(8, true),
    wrIdHi: fields.getUint32(12, true),
    lengthBytes,
    addressLo: fields.getUint32(24, true),
    addressHi: fields.getUint32(28, true),
    stag: fields.getUint32(32, true),
  };
  return { device, work };
}

/** The body of a `completed` record; `device` is the device's name as UTF-8. */
export function emitCompletedWork(work: CompletedWork, device: Uint8Array): Uint8Array {
  const body = new Uint8Array(COMPLETED_BYTES + device.length);
  const fields = viewOf(body);
  fields.setUint32(0, work.qpn, true);
  fields.setUint16(4, work.status, true);
  fields.setUint8(6, work.opcode);
  fields.setUint8(7, work.flags);
  fields.setUint32(8, work.wrIdLo, true);
  fields.setUint32(12, work.wrIdHi, true);
  fields.setUint32(16, work.lengthBytes, true);
  fields.setUint32(20, work.immediateLo, true);
  fields.setUint32(24, work.immediateHi, true);
  body.set(device, COMPLETED_BYTES);
  return body;
}

/** Parses the body of a `completed` record. Throws `IpcFormatError`. */
export function parseCompletedWork(body: Uint8Array): { device: string; work: CompletedWork } {
  const device = deviceOf(body, COMPLETED_BYTES);
  const fields = viewOf(body);
  const status = Object.values(CQEStatus).find((each) => each === fields.getUint16(4, true));
  if (status === undefined) throw new IpcFormatError('the completion has an unknown status');
  const work = {
    qpn: qpnOf(fields),
    opcode: fields.getUint8(6),
    status,
    flags: fields.getUint8(7),
    wrIdLo: fields.getUint32(8, true),
    wrIdHi: fields.getUint32(12, true),
    lengthBytes: fields.getUint32(16, true),
    immediateLo: fields.getUint32(20, true),
    immediateHi: fields.getUint32(24, true),
  };
  return { device, work };
}

function deviceOf(body: Uint8Array, start: number): string {
  const bytes = body.length - start;
  if (bytes < 1 || bytes > DEVICE_MAX_BYTES) {
    throw new IpcFormatError(`work of ${body.length} bytes, without the name of a device`);
  }
  return decodeText(body.subarray(start));
}

function qpnOf(fields: DataView): number {
  const qpn = fields.getUint32(0, true);
  if (qpn > QPN_MAX) throw new IpcFormatError(`invalid queue pair number ${qpn}`);
  return qpn;
}
