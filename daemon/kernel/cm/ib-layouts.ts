/** Structs of rdma_cm's ABI that only InfiniBand transports fill: paths and attributes. */
import type { AddressVector, QPModification } from '#daemon/rnic/qp-attributes';
import { newStruct } from '../struct-fields.ts';
import { CreateAH } from '../uverbs/layouts.ts';

/** Writes a `ib_uverbs_ah_attr` at `start`. */
export function putAddressVector(bytes: Uint8Array, start: number, vector: AddressVector): void {
  const { attributes: at } = CreateAH;
  const fields = new DataView(bytes.buffer, bytes.byteOffset + start);
  const target = bytes.subarray(start);
  target.set(vector.dgid, at.dgid);
  fields.setUint32(at.flowLabel, vector.flowLabel, true);
  target[at.sgidIndex] = vector.sgidIndex;
  target[at.hopLimit] = vector.hopLimit;
  target[at.trafficClass] = vector.trafficClass;
  fields.setUint16(at.dlid, vector.dlid, true);
  target[at.sl] = vector.sl;
  target[at.srcPathBits] = vector.srcPathBits;
  target[at.staticRate] = vector.staticRate;
  target[at.isGlobal] = vector.isGlobal ? 1 : 0;
  target[at.portNum] = vector.portNum;
}

/** Bytes of the reply to INIT_QP_ATTR. */
export const QP_ATTR_BYTES = 144;

/** Offsets in the reply to INIT_QP_ATTR (`ib_uverbs_qp_attr`). */
const QpAttr = {
  mask: 0,
  state: 4,
  pathMtu: 12,
  qkey: 20,
  rqPsn: 24,
  sqPsn: 28,
  destQpNum: 32,
  accessFlags: 36,
  ahAttr: 40,
  /** u16 */
  pkeyIndex: 124,
  /** u8 from here on. */
  maxRdAtomic: 130,
  maxDestRdAtomic: 131,
  minRnrTimer: 132,
  portNum: 133,
  timeout: 134,
  retryCnt: 135,
  rnrRetry: 136,
} as const;

/** The reply to INIT_QP_ATTR: a modification for the program to pass to `ibv_modify_qp`. */
export function emitQpAttr(change: QPModification): Uint8Array {
  const { bytes, fields } = newStruct(QP_ATTR_BYTES);
  const at = QpAttr;
  const words: readonly (readonly [number, number | undefined])[] = [
    [at.mask, change.mask],
    [at.state, change.state],
    [at.pathMtu, change.pathMtu],
    [at.qkey, change.qkey],
    [at.rqPsn, change.rqPsn],
    [at.sqPsn, change.sqPsn],
    [at.destQpNum, change.destQpNum],
    [at.accessFlags, change.accessFlags],
  ];
  for (const [offset, value = 0] of words) fields.setUint32(offset, value, true);
  if (change.ahAttr !== undefined) {
    putAddressVector(bytes, at.ahAttr, change.ahAttr);
  }
  fields.setUint16(at.pkeyIndex, change.pkeyIndex ?? 0, true);
  const small: readonly (readonly [number, number | undefined])[] = [
    [at.maxRdAtomic, change.maxRdAtomic],
    [at.maxDestRdAtomic, change.maxDestRdAtomic],
    [at.minRnrTimer, change.minRnrTimer],
    [at.portNum, change.portNum],
    [at.timeout, change.timeout],
    [at.retryCnt, change.retryCnt],
    [at.rnrRetry, change.rnrRetry],
  ];
  for (const [offset, value = 0] of small) fields.setUint8(offset, value);
  return bytes;
}

/** The fields of a path record that differ between paths of a RoCE device. */
export interface PathRecord {
  readonly serviceId: bigint;
  readonly dgid: Uint8Array;
  readonly sgid: Uint8Array;
  /** 20 bits. */
  readonly flowLabel: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  /** `enum ibv_mtu`. */
  readonly pathMtu: number;
}

/** Bytes of a reply without paths; and of each path. */
const PATHS_AT = 8;
const PATH_BYTES = 72;

/** GMP, PRIMARY, OUTBOUND and INBOUND_REVERSE: one path for everything. */
const PATH_FLAGS = 0x2b;
const REVERSIBLE = 0x80;
const DEFAULT_PKEY = 0xffff;
/** Flag in a selector field: the value is exact. */
const EXACTLY = 0x80;
/** Exponent of 4.096 microseconds: about a second. */
const PACKET_LIFE_TIME = 18;

/** Offsets in an `ib_path_rec_data`; those of the record are big endian. */
const Path = {
  /** Host byte order. */
  flags: 0,
  serviceId: 8,
  dgid: 16,
  sgid: 32,
  /** Flow label and hop limit. */
  flowAndHops: 52,
  trafficClass: 56,
  reversible: 57,
  pkey: 58,
  /** u8 from here on. */
  mtu: 62,
  rate: 63,
  lifeTime: 64,
} as const;

/** The reply to a QUERY for paths: the only path, or none. */
export function emitPath(path: PathRecord | undefined): Uint8Array {
  if (path === undefined) return new Uint8Array(PATHS_AT);
  const { bytes, fields } = newStruct(PATHS_AT + PATH_BYTES);
  fields.setUint32(0, 1, true);
  const record = bytes.subarray(PATHS_AT);
  const view = new DataView(bytes.buffer, PATHS_AT);
  view.setUint32(Path.flags, PATH_FLAGS, true);
  view.setBigUint64(Path.serviceId, path.serviceId);
  record.set(path.dgid, Path.dgid);
  record.set(path.sgid, Path.sgid);
  view.setUint32(Path.flowAndHops, ((path.flowLabel << 8) | path.hopLimit) >>> 0);
  record[Path.trafficClass] = path.trafficClass;
  record[Path.reversible] = REVERSIBLE;
  view.setUint16(Path.pkey, DEFAULT_PKEY);
  record[Path.mtu] = EXACTLY | path.pathMtu;
  record[Path.rate] = EXACTLY;
  record[Path.lifeTime] = EXACTLY | PACKET_LIFE_TIME;
  return bytes;
}
