/** Structs of rdma_cm's ABI that only InfiniBand transports fill: paths and attributes. */
import type { QPModification } from '#daemon/rnic/qp-attributes';
import { putAttributes } from '../attribute-fields.ts';
import { newStruct } from '../struct-fields.ts';
import { putAddressVector } from '../uverbs/address-vector.ts';
import { CreateAH } from '../uverbs/layouts.ts';

/** Bytes of the reply to INIT_QP_ATTR. */
export const QP_ATTR_BYTES = 144;

/** Offsets in the reply to INIT_QP_ATTR (`ib_uverbs_qp_attr`); `QP_ATTRIBUTES` has the others. */
const QpAttr = { mask: 0, ahAttr: 40 } as const;

/** The reply to INIT_QP_ATTR: a modification for the program to pass to `ibv_modify_qp`. */
export function emitQpAttr(change: QPModification): Uint8Array {
  const { bytes, fields } = newStruct(QP_ATTR_BYTES);
  const { mask, ahAttr } = change;
  fields.setUint32(QpAttr.mask, mask, true);
  putAttributes(fields, 0, 'cm', change);
  if (ahAttr !== undefined) putAddressVector(bytes, QpAttr.ahAttr, ahAttr, CreateAH.attributes);
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
