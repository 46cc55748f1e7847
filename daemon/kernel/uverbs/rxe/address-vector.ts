/** Address vectors in the structs of commands: the same fields at different offsets. */
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { type CreateAH, QPDestination } from '../layouts.ts';

const GID_BYTES = 16;

/** The vector at `start` of a request with fields at these offsets from it. */
export function readAddressVector(
  fields: DataView,
  bytes: Uint8Array,
  start: number,
  at: typeof QPDestination | typeof CreateAH.attributes,
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

/** Writes a `QPDestination` to the start of `reply`. */
export function putDestination(reply: Uint8Array, vector: AddressVector): void {
  const at = QPDestination;
  const fields = new DataView(reply.buffer, reply.byteOffset);
  reply.set(vector.dgid, at.dgid);
  fields.setUint32(at.flowLabel, vector.flowLabel, true);
  fields.setUint16(at.dlid, vector.dlid, true);
  reply[at.sgidIndex] = vector.sgidIndex;
  reply[at.hopLimit] = vector.hopLimit;
  reply[at.trafficClass] = vector.trafficClass;
  reply[at.sl] = vector.sl;
  reply[at.srcPathBits] = vector.srcPathBits;
  reply[at.staticRate] = vector.staticRate;
  reply[at.isGlobal] = vector.isGlobal ? 1 : 0;
  reply[at.portNum] = vector.portNum;
}
