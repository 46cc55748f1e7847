/**
 * Services of datagrams: ids that look up a service's queue pair, or answer such look-ups
 * (`RDMA_PS_UDP`). Only RoCE devices have them.
 */
import { canonicalAddress, isWildcard } from '#base/address';
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { gidText } from '#contract/verbs/gid';
import type { ServiceAddress, SocketAddress } from '#contract/verbs/provider';
import { type DeviceDirectory, noDevice } from '#daemon/clients/objects/device-directory';
import { HostId, PortSpace, type ProgramParameters } from '#daemon/host/host-id';
import type { ServedCmEvent } from '#daemon/host/served-device';
import type { IdObject, QpObject } from './client-objects.ts';
import { roceOf } from './path-commands.ts';

const WHAT = 'datagram services';
const UINT32_MAX = 0xffff_ffff;

/** Creates an id for datagrams. EOPNOTSUPP without a RoCE device. */
export function createServiceId(directory: DeviceDirectory): HostId {
  const { devices, cm } = directory.emulated;
  if (!devices.some(({ roce }) => roce !== undefined)) {
    const [first] = directory.devices();
    if (first === undefined) throw new VerbsError('ENODEV', noDevice(undefined, []));
    roceOf(first, WHAT);
  }
  return cm.createId(undefined, PortSpace.udp, true);
}

/** The id of an object, if it is for datagrams. */
export function serviceOf({ id }: IdObject): HostId | undefined {
  return id instanceof HostId && id.datagram ? id : undefined;
}

/** EOPNOTSUPP for the address of a device without datagrams. */
export function assertDatagramsAt(
  directory: DeviceDirectory,
  given: SocketAddress | undefined,
): void {
  const address = given === undefined ? undefined : canonicalAddress(given.address);
  if (address === undefined || isWildcard(address)) return;
  const owners = directory.devices().filter(({ info }) => info.addresses.includes(address));
  const [first] = owners;
  if (first !== undefined && owners.every(({ roce }) => roce === undefined)) roceOf(first, WHAT);
}

/** Looks up a service; 'established' or 'unreachable' follows. */
export function askService(
  { emulated }: DeviceDirectory,
  id: HostId,
  { privateData }: CMParameters,
): void {
  emulated.cm.request(id, programParameters(0, 0, privateData));
}

/** Answers a look-up. No event follows. EINVAL, also for an unsuitable queue pair. */
export function answerService(
  { emulated }: DeviceDirectory,
  id: HostId,
  object: QpObject,
  { qkey = 0, privateData }: CMParameters & { readonly qkey?: number | undefined },
): void {
  const { qp, pd } = object;
  if (qp.type !== QPType.ud) throw invalid('a datagram service needs a queue pair of type UD');
  if (pd.context.device.name !== id.device) {
    const device = id.device ?? 'none';
    throw invalid(`the queue pair is on device ${device}, the id on another`);
  }
  if (!(Number.isInteger(qkey) && qkey >= 0 && qkey <= UINT32_MAX)) {
    throw invalid(`qkey must be 0 to ${UINT32_MAX}, not ${qkey}`);
  }
  emulated.cm.answer(id, programParameters(qp.qpn, qkey, privateData));
}

/** Address of a service, from the event that reports it. */
export function serviceAddress({ type, id, ib }: ServedCmEvent): ServiceAddress | undefined {
  if (type !== CMEventType.established || !(id instanceof HostId) || !id.datagram) return undefined;
  const path = id.roce?.path;
  if (path === undefined || ib === undefined) return undefined;
  const { sgidIndex, flowLabel, hopLimit, trafficClass } = path;
  const grh = { dgid: gidText(path.dgid), sgidIndex, flowLabel, hopLimit, trafficClass };
  return { ahAttr: { grh }, qpNum: ib.qpn, qkey: ib.qkey };
}

/** The remaining parameters of a service are zero. */
function programParameters(qpn: number, qkey: number, privateData: Uint8Array): ProgramParameters {
  return {
    qpn,
    qkey,
    privateData,
    srq: false,
    responderResources: 0,
    initiatorDepth: 0,
    flowControl: false,
    retryCount: 0,
    rnrRetry: 0,
  };
}
