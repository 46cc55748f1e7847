/** Address vectors in the structs of commands: the same fields at different offsets. */
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { CreateAH, QPDestination } from './layouts.ts';

const GID_BYTES = 16;

type VectorOffsets = typeof QPDestination | typeof CreateAH.attributes;

/** The vector at `start` of a request with fields at these offsets from it. */
export function readAddressVector(
  fields: DataView,
  bytes: Uint8Array,
  start: number,
  at: VectorOffsets,
): AddressVector {
  return {
    dgid: bytes.slice(start + at.dgid, start + at.dgid + GID_BYTES),
    sgidIndex: fields.getUint8(start + at.sgidIndex),
    flowLabel: fields.getUint32(start + at.flowLabel, true),
    hopLimit: fields.getUint8(start + at.hopLimit),
    trafficClass: fields.getUint8(start + at.trafficClass),
    dlid: fields.getUint16(start + at.dlid, true),
    sl: fields.getUint8(start + at.sl),
    srcPathBits: fields.getUint8(start + at.srcPathBits),
    staticRate: fields.getUint8(start + at.staticRate),
    isGlobal: fields.getUint8(start + at.isGlobal) !== 0,
    portNum: fields.getUint8(start + at.portNum),
  };
}

/** Writes the vector to `start` of a struct with fields at these offsets from it. */
export function putAddressVector(
  bytes: Uint8Array,
  start: number,
  vector: AddressVector,
  at: VectorOffsets,
): void {
  const target = bytes.subarray(start);
  const fields = new DataView(target.buffer, target.byteOffset);
  target.set(vector.dgid, at.dgid);
  fields.setUint32(at.flowLabel, vector.flowLabel, true);
  fields.setUint16(at.dlid, vector.dlid, true);
  target[at.sgidIndex] = vector.sgidIndex;
  target[at.hopLimit] = vector.hopLimit;
  target[at.trafficClass] = vector.trafficClass;
  target[at.sl] = vector.sl;
  target[at.srcPathBits] = vector.srcPathBits;
  target[at.staticRate] = vector.staticRate;
  target[at.isGlobal] = vector.isGlobal ? 1 : 0;
  target[at.portNum] = vector.portNum;
}
