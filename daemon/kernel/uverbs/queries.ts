/** Commands that open a context and query the device. */
import { invalid } from '#contract/verbs/errors';
import type { AdapterIdentity } from '#daemon/host/adapter-identity';
import { NO_RATE } from '#daemon/host/rails';
import type { KernelReply } from '../kernel-file.ts';
import { PORT_STATES } from '../nldev/devices.ts';
import { newStruct, setUint64 } from '../struct-fields.ts';
import {
  ExtendedQueryDevice,
  GetContext,
  UverbsCommandNumber as N,
  QueryDevice,
  QueryPort,
} from './layouts.ts';
import type { CommandCall, OpenDevice } from './open-device.ts';

/** Completion vectors of a device: one event loop serves them all. */
export const COMP_VECTORS = 1;

const LINK_LAYER_ETHERNET = 2;

/** GET_CONTEXT: EINVAL the second time. */
export function getContext({ file }: CommandCall): KernelReply {
  if (file.hasContext) throw invalid('the device file already has a context');
  file.giveContext();
  const { bytes, fields, own } = file.newReply(N.getContext, GetContext.response.bytes);
  fields.setUint32(GetContext.response.compVectors, COMP_VECTORS, true);
  const deviceIndex = file.services.host.devices.indexOf(file.device);
  file.persona.putContext(own, deviceIndex);
  const { token } = file.asyncQueue;
  const descriptors = [{ offset: GetContext.response.asyncFd, token }];
  return { status: 0, response: bytes, descriptors };
}

export function queryDevice({ file }: CommandCall): KernelReply {
  const { bytes, fields } = newStruct(QueryDevice.response.bytes);
  describeDevice(file, bytes, fields);
  return { status: 0, response: bytes };
}

/** EX_QUERY_DEVICE: fields beyond the response buffer are omitted. */
export function extendedQueryDevice(call: CommandCall): KernelReply {
  const { request, response } = ExtendedQueryDevice;
  const compMask = call.fields.getUint32(request.compMask, true);
  if (compMask !== 0 || call.fields.getUint32(request.reserved, true) !== 0) {
    throw invalid(`comp_mask is 0x${compMask.toString(16)}: extended fields are not supported`);
  }
  const { bytes, fields } = newStruct(response.bytes);
  describeDevice(call.file, bytes, fields);
  const length = Math.min(response.bytes, call.outBytes);
  fields.setUint32(response.responseLength, length, true);
  setUint64(fields, response.deviceCapFlagsEx, call.file.persona.deviceCapFlags);
  return { status: 0, response: bytes.subarray(0, length) };
}

/** QUERY_PORT: EINVAL for any port but 1. */
export function queryPort({ file, fields }: CommandCall): KernelReply {
  if (fields.getUint8(QueryPort.request.portNum) !== 1) {
    throw invalid(
      `port_num must be 1, not ${fields.getUint8(QueryPort.request.portNum)}: ports count from 1`,
    );
  }
  const port = file.device.port();
  const { rate } = file.device.rail ?? { rate: NO_RATE };
  const { response } = QueryPort;
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.portCapFlags, file.persona.portCapFlags, true);
  reply.fields.setUint32(response.maxMsgSize, port.maxMessageBytes, true);
  reply.fields.setUint32(response.gidTableLength, file.gids().length, true);
  reply.fields.setUint8(response.state, PORT_STATES[port.state].state);
  reply.fields.setUint8(response.maxMtu, mtuEnum(port.maxMtuBytes));
  reply.fields.setUint8(response.activeMtu, mtuEnum(port.activeMtuBytes));
  reply.fields.setUint8(response.activeWidth, rate.width);
  reply.fields.setUint8(response.activeSpeed, rate.speed);
  reply.fields.setUint8(response.physState, PORT_STATES[port.state].physState);
  reply.fields.setUint8(response.linkLayer, LINK_LAYER_ETHERNET);
  file.persona.putPort(reply.fields);
  return { status: 0, response: reply.bytes };
}

function describeDevice(file: OpenDevice, bytes: Uint8Array, fields: DataView): void {
  const at = QueryDevice.response;
  const attributes = file.device.attributes();
  const guid = guidBytes(attributes.nodeGuid);
  bytes.set(guid, at.nodeGuid);
  bytes.set(guid, at.sysImageGuid);
  setUint64(fields, at.maxMrSize, attributes.maxMrSize);
  const words: readonly (readonly [number, number])[] = [
    [at.vendorId, attributes.vendorId],
    [at.vendorPartId, attributes.vendorPartId],
    [at.hwVer, attributes.hwVer],
    [at.maxQp, attributes.maxQp],
    [at.maxQpWr, attributes.maxQpWr],
    [at.deviceCapFlags, file.persona.deviceCapFlags],
    [at.maxSge, attributes.maxSge],
    [at.maxSgeRd, attributes.maxSgeRd],
    [at.maxCq, attributes.maxCq],
    [at.maxCqe, attributes.maxCqe],
    [at.maxMr, attributes.maxMr],
    [at.maxPd, attributes.maxPd],
    [at.maxQpRdAtom, attributes.maxQpRdAtom],
    [at.maxResRdAtom, Math.min(attributes.maxQp * attributes.maxQpRdAtom, 0x7fff_ffff)],
    [at.maxQpInitRdAtom, attributes.maxQpInitRdAtom],
    [at.maxSrq, attributes.maxSrq],
    [at.maxSrqWr, attributes.maxSrqWr],
    [at.maxSrqSge, attributes.maxSrqSge],
  ];
  for (const [offset, value] of words) fields.setUint32(offset, value, true);
  fields.setUint8(at.physPortCnt, attributes.physPortCnt);
  file.persona.putDevice(fields, attributes);
  if (file.device.rail !== undefined) putIdentity(fields, file.device.rail.identity);
}

function putIdentity(fields: DataView, identity: AdapterIdentity): void {
  const at = QueryDevice.response;
  fields.setUint32(at.vendorId, identity.vendorId, true);
  fields.setUint32(at.vendorPartId, identity.vendorPartId, true);
  const [major = 0, minor = 0, patch = 0] = identity.firmware.split('.').map(Number);
  setUint64(fields, at.fwVer, major * 2 ** 32 + minor * 2 ** 16 + patch);
}

/** The bytes of a GUID in memory: big endian. */
function guidBytes(guid: string): Uint8Array {
  const bytes = new Uint8Array(8);
  for (let i = 0; i < 8; i++) bytes[i] = Number.parseInt(guid.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** `enum ibv_mtu`: 1 to 5 for 256 to 4096 bytes. */
function mtuEnum(bytes: number): number {
  return Math.max(1, Math.min(5, Math.floor(Math.log2(bytes)) - 7));
}
