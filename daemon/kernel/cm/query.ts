/** rdma_cm queries about an id: its addresses, its device, its path. */
import { VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { gidBytes } from '#daemon/host/host-addresses';
import type { KernelReply } from '../kernel-file.ts';
import type { KernelDevice } from '../nldev/devices.ts';
import { type CmRequest, expectRoom, fitted } from './abi.ts';
import type { CmContext } from './context.ts';
import { emitPath } from './ib-layouts.ts';
import { serviceIdOf } from './ib-persona.ts';
import type { OpenChannel } from './open-channel.ts';
import { CM_PERSONAS } from './personas.ts';
import { emitIbAddress, emitSockaddr, Family, sockaddrBytes } from './sockaddr.ts';

const QueryOption = { addr: 0, path: 1, gid: 2, ibService: 3 } as const;

const ADDR_BYTES = 280;
/** Bytes before the device index, which early kernels did not return. */
const ADDR_MIN_BYTES = 272;
/** Room for the number of paths; paths that do not fit are omitted. */
const PATHS_MIN_BYTES = 8;
/** Room for the number of services. */
const SERVICES_MIN_BYTES = 8;
const ROUTE_BYTES = 208;
const ROUTE_MIN_BYTES = 200;
const SRC_AT = 16;
const DST_AT = 144;
const STORAGE_BYTES = 128;
const PORT = 1;

/** QUERY: addresses, path records or GIDs. There are no services. */
export function query(file: OpenChannel, request: CmRequest): KernelReply {
  const context = file.expect(request.fields.getUint32(16, true));
  switch (request.fields.getUint32(20, true)) {
    case QueryOption.addr:
      return { status: 0, response: answer(request, addresses(file, context)) };
    case QueryOption.path:
      expectRoom(request, PATHS_MIN_BYTES);
      return { status: 0, response: fitted(request, path(file, context)) };
    case QueryOption.gid:
      return { status: 0, response: answer(request, gids(file, context)) };
    case QueryOption.ibService:
      expectRoom(request, SERVICES_MIN_BYTES);
      throw new VerbsError('ENODATA', 'no service was resolved: only InfiniBand has services');
    default:
      throw new VerbsError('ENOSYS', 'the query must be 0 (addresses) to 3 (services)');
  }
}

function answer(request: CmRequest, response: Uint8Array): Uint8Array {
  expectRoom(request, ADDR_MIN_BYTES);
  return fitted(request, response);
}

function addresses(file: OpenChannel, context: CmContext): Uint8Array {
  const { id, family, ibAddress } = context;
  const response = withDevice(file.deviceOf(context), sockaddrBytes(family));
  const source = response.subarray(SRC_AT, SRC_AT + STORAGE_BYTES);
  const destination = response.subarray(DST_AT, DST_AT + STORAGE_BYTES);
  emitSockaddr(source, family, id.localAddress);
  emitSockaddr(destination, family, id.peerAddress);
  if (ibAddress !== undefined) emitIbAddress(source, ibAddress);
  return response;
}

function gids(file: OpenChannel, context: CmContext): Uint8Array {
  const { id, ibAddress } = context;
  const response = withDevice(file.deviceOf(context), sockaddrBytes(Family.infiniband));
  const source = response.subarray(SRC_AT, SRC_AT + STORAGE_BYTES);
  const destination = response.subarray(DST_AT, DST_AT + STORAGE_BYTES);
  emitIbAddress(source, ibAddress ?? ibAddressOf(context, id.localAddress));
  emitIbAddress(destination, ibAddressOf(context, id.peerAddress));
  return response;
}

function path(file: OpenChannel, context: CmContext): Uint8Array {
  const device = file.deviceOf(context);
  return emitPath(device && CM_PERSONAS[device.transport].path(context.id));
}

function ibAddressOf({ portSpace }: CmContext, address: SocketAddress | undefined) {
  return {
    gid: address === undefined ? new Uint8Array(16) : gidBytes(address.address),
    serviceId: serviceIdOf(portSpace, address?.port ?? 0),
    serviceMask: 0xffff_ffff_ffff_ffffn,
  };
}

/** A response with the fields of the device; they are zero while the id has none. */
function withDevice(device: KernelDevice | undefined, addressBytes: number): Uint8Array {
  const response = new Uint8Array(ADDR_BYTES);
  const fields = new DataView(response.buffer);
  fields.setUint16(12, addressBytes, true);
  fields.setUint16(14, addressBytes, true);
  if (device === undefined) return response;
  fields.setBigUint64(0, BigInt(`0x${device.nodeGuid}`));
  fields.setUint8(8, PORT);
  fields.setUint32(272, device.index, true);
  return response;
}

/** QUERY_ROUTE: issued by programs that use no InfiniBand addresses. */
export function queryRoute(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, ROUTE_MIN_BYTES);
  const context = file.expect(request.fields.getUint32(16, true));
  const { id, family } = context;
  const response = new Uint8Array(ROUTE_BYTES);
  const fields = new DataView(response.buffer);
  emitSockaddr(response.subarray(136, 164), family, id.localAddress);
  emitSockaddr(response.subarray(164, 192), family, id.peerAddress);
  const device = file.deviceOf(context);
  if (device !== undefined) {
    fields.setBigUint64(0, BigInt(`0x${device.nodeGuid}`));
    fields.setUint8(196, PORT);
    fields.setUint32(200, device.index, true);
  }
  return { status: 0, response: fitted(request, response) };
}
