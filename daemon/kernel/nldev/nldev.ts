/**
 * The part of netlink's RDMA family (`NETLINK_RDMA`, client nldev) that libibverbs and librdmacm
 * use: the list of devices and their nodes. For iproute2's `rdma` tool, also links, port counters, and
 * objects with their owners. Everything else fails with EOPNOTSUPP, as in an older kernel.
 */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { ERRNO, type ErrnoCode } from '#contract/verbs/errors';
import { isTrusted } from '#daemon/clients/trusted-user';
import type { KernelClient } from '../kernel-client.ts';
import type {
  KernelCaller,
  KernelFile,
  KernelFileParts,
  KernelReply,
  KernelServices,
  RefusedCall,
} from '../kernel-file.ts';
import { ShimOp, type ShimRequest } from '../shim-protocol.ts';
import { Attr, CLIENT_NLDEV, CLIENT_SHIFT, Command, PORTS } from './abi.ts';
import {
  type DeviceNumber,
  encodedNumber,
  type KernelDevice,
  kernelDevices,
  PORT_STATES,
  RDMA_CM_NUMBER,
} from './devices.ts';
import {
  type Attribute,
  attributeText,
  attributeU32,
  concatenated,
  DATAGRAM_MAX_BYTES,
  DONE_BYTES,
  emitDone,
  emitError,
  emitNetlink,
  NetlinkFlag,
  type NetlinkMessage,
  nested,
  parseNetlink,
  text,
  u8,
  u32,
  u64,
} from './message.ts';
import {
  type DumpPart,
  dumpPart,
  type ResourceDump,
  resourceDump,
  resourceRecord,
} from './resource-dump.ts';
import { RESOURCE_KINDS, type ResourceKind, type ResourceView, summariesOf } from './resources.ts';

/** `statResource`: counters of queue pairs, which no device has here. */
const RESOURCE_QP = 19;
/** Queue pairs are bound to no counters. */
const STAT_MODE_NONE = 0;

const RDMA_CM_ABI = 4n;
/** Status of a reply with an unfinished dump: the preload library requests more when it needs it. */
const MORE_FOLLOWS = 1;

/** The objects of a device that the caller may see. */
type ViewOf = (device: KernelDevice) => ResourceView;

/**
 * The datagrams that answer a message to the RDMA family, and the dump to continue. Throws
 * IpcFormatError for malformed messages.
 */
export function answerNetlink(
  bytes: Uint8Array,
  devices: readonly KernelDevice[],
  viewOf: ViewOf,
): DumpPart {
  const request = parseNetlink(bytes);
  if (request === undefined) throw new IpcFormatError('no netlink message');
  const isDump = (request.header.flags & NetlinkFlag.dump) !== 0;
  const dump = isDump ? dumpOf(request, devices) : undefined;
  if (dump !== undefined && typeof dump !== 'string') return dumpPart(dump, viewOf(dump.device));
  const answer = dump ?? answerRequest(request, devices, viewOf);
  const part = { datagrams: emitAnswer(request, answer), rest: undefined };
  if (typeof answer !== 'string') return part;
  return { ...part, refused: { code: answer, sentence: reasonOf(request, answer) } };
}

/** Why a request failed: a text about the client, command or device that it names. */
function reasonOf({ header, attributes }: NetlinkMessage, code: ErrnoCode): string {
  const command = header.type & ((1 << CLIENT_SHIFT) - 1);
  const client = header.type >>> CLIENT_SHIFT;
  if (client !== CLIENT_NLDEV) {
    return `netlink client ${client} is not supported: the RDMA family has only nldev (${CLIENT_NLDEV})`;
  }
  const index = attributeU32(attributes.get(Attr.deviceIndex));
  const device = index === undefined ? 'names no device' : `names device index ${index}`;
  if (code === 'EOPNOTSUPP') return `nldev command ${command} is not supported`;
  if (code === 'ENODEV')
    return `nldev command ${command} requests the character device of a client that has none`;
  if (code === 'ENOENT')
    return `nldev command ${command} ${device} and an object that does not exist`;
  return `nldev command ${command} ${device}; it needs an index from a dump of devices, port ${PORTS}, and counters of the device`;
}

/** The dump of objects that is requested; undefined for other requests. */
function dumpOf(
  request: NetlinkMessage,
  devices: readonly KernelDevice[],
): ResourceDump | ErrnoCode | undefined {
  const kind = resourceKindOf(request);
  if (kind === undefined) return undefined;
  const device = deviceOf(request, devices);
  return device === undefined ? 'EINVAL' : resourceDump(request, device, kind);
}

/** The kind of objects that is requested. */
function resourceKindOf({ header }: NetlinkMessage): ResourceKind | undefined {
  if (header.type >>> CLIENT_SHIFT !== CLIENT_NLDEV) return undefined;
  return RESOURCE_KINDS[header.type & ((1 << CLIENT_SHIFT) - 1)];
}

function emitAnswer(
  request: NetlinkMessage,
  answer: readonly (readonly Attribute[])[] | ErrnoCode,
): Uint8Array[] {
  if (typeof answer === 'string') return [emitError(request, ERRNO[answer].number)];
  return request.header.flags & NetlinkFlag.dump
    ? emitDump(request, answer)
    : emitSingle(request, answer);
}

/** The records of the reply, or the error. */
function answerRequest(
  request: NetlinkMessage,
  devices: readonly KernelDevice[],
  viewOf: ViewOf,
): readonly (readonly Attribute[])[] | ErrnoCode {
  const { header } = request;
  if (header.type >>> CLIENT_SHIFT !== CLIENT_NLDEV) return 'EOPNOTSUPP';
  const isDump = (header.flags & NetlinkFlag.dump) !== 0;
  switch (header.type & ((1 << CLIENT_SHIFT) - 1)) {
    case Command.get: {
      if (isDump) return devices.map(deviceRecord);
      const device = deviceOf(request, devices);
      return device === undefined ? 'EINVAL' : [deviceRecord(device)];
    }
    case Command.portGet: {
      const device = deviceOf(request, devices);
      return device === undefined ? 'EINVAL' : [portRecord(device)];
    }
    case Command.systemGet:
      // True: no page is pinned, so a child's memory is copied on its first write.
      return [[u8(Attr.netnsMode, 1), u8(Attr.copyOnFork, 1)]];
    case Command.chardevGet:
      return chardevRecord(request, devices);
    case Command.statGet:
      return isDump ? counterSets(request) : statRecord(request, devices);
    case Command.resourceGet: {
      if (isDump) return summariesOf(devices.map(viewOf));
      const device = deviceOf(request, devices);
      return device === undefined ? 'EINVAL' : summariesOf([viewOf(device)]);
    }
    case Command.qpGetRaw:
    case Command.cqGetRaw:
    case Command.mrGetRaw:
    case Command.srqGetRaw:
      // Hardware counters, which neither rxe nor siw has.
      return 'EINVAL';
    default:
      return resourceAnswer(request, devices, viewOf);
  }
}

function resourceAnswer(
  request: NetlinkMessage,
  devices: readonly KernelDevice[],
  viewOf: ViewOf,
): readonly (readonly Attribute[])[] | ErrnoCode {
  const kind = resourceKindOf(request);
  if (kind === undefined) return 'EOPNOTSUPP';
  const device = deviceOf(request, devices);
  if (device === undefined) return 'EINVAL';
  const record = resourceRecord(request, kind, viewOf(device));
  return typeof record === 'string' ? record : [record];
}

function deviceOf(
  { attributes }: NetlinkMessage,
  devices: readonly KernelDevice[],
): KernelDevice | undefined {
  const index = attributeU32(attributes.get(Attr.deviceIndex));
  return index === undefined ? undefined : devices[index];
}

function deviceRecord(device: KernelDevice): Attribute[] {
  const guid = BigInt(`0x${device.nodeGuid}`);
  return [
    u32(Attr.deviceIndex, device.index),
    text(Attr.deviceName, device.name),
    u32(Attr.portIndex, PORTS),
    u64(Attr.capFlags, BigInt(device.persona.deviceCapFlags)),
    ...(device.rail === undefined ? [] : [text(Attr.firmware, device.rail.identity.firmware)]),
    u64(Attr.nodeGuid, guid),
    u64(Attr.systemImageGuid, guid),
    u8(Attr.nodeType, device.persona.nodeType.number),
    u8(Attr.dimming, 0),
    text(Attr.protocol, device.persona.protocol),
  ];
}

function portRecord(device: KernelDevice): Attribute[] {
  const { state, physState } = PORT_STATES[device.portState];
  const { netdev } = device;
  return [
    u32(Attr.deviceIndex, device.index),
    text(Attr.deviceName, device.name),
    u32(Attr.portIndex, PORTS),
    u8(Attr.portState, state),
    u8(Attr.portPhysState, physState),
    ...(netdev === undefined
      ? []
      : [u32(Attr.netdevIndex, netdev.index), text(Attr.netdevName, netdev.name)]),
  ];
}

/** The counters of a port, or the counter mode of its queue pairs. */
function statRecord(
  request: NetlinkMessage,
  devices: readonly KernelDevice[],
): readonly (readonly Attribute[])[] | ErrnoCode {
  const { attributes } = request;
  const device = deviceOf(request, devices);
  if (device === undefined || attributeU32(attributes.get(Attr.portIndex)) !== PORTS) {
    return 'EINVAL';
  }
  const port = [
    u32(Attr.deviceIndex, device.index),
    text(Attr.deviceName, device.name),
    u32(Attr.portIndex, PORTS),
  ];
  const resource = attributes.get(Attr.statResource);
  if (resource !== undefined) {
    if (attributeU32(resource) !== RESOURCE_QP) return 'EINVAL';
    return [[...port, u32(Attr.statMode, STAT_MODE_NONE)]];
  }
  // None for iWARP: the kernel returns EINVAL, after which `rdma statistic` shows no other device.
  const { hwCounters = {} } = device;
  const entries = Object.entries(hwCounters).map(([name, value]) => {
    const fields = [text(Attr.hwCounterName, name), u64(Attr.hwCounterValue, BigInt(value))];
    return nested(Attr.hwCounter, fields);
  });
  return [[...port, nested(Attr.hwCounters, entries)]];
}

/** The counter sets to which queue pairs are bound: none, as on rxe. */
function counterSets({ attributes }: NetlinkMessage): readonly [] | ErrnoCode {
  return attributeU32(attributes.get(Attr.statResource)) === RESOURCE_QP ? [] : 'EINVAL';
}

function chardevRecord(
  request: NetlinkMessage,
  devices: readonly KernelDevice[],
): readonly (readonly Attribute[])[] | ErrnoCode {
  const type = attributeText(request.attributes.get(Attr.chardevType));
  if (type === 'rdma_cm') return [chardev(RDMA_CM_NUMBER, RDMA_CM_ABI, 'rdma_cm')];
  if (type !== 'uverbs') return type === undefined ? 'EINVAL' : 'ENODEV';
  const device = deviceOf(request, devices);
  if (device === undefined) return 'EINVAL';
  const node = chardev(device.number, BigInt(device.persona.abiVersion), device.nodeName);
  return [[u32(Attr.driverId, device.persona.driverId), ...node]];
}

function chardev(number: DeviceNumber, abi: bigint, name: string): Attribute[] {
  return [
    u64(Attr.chardev, encodedNumber(number)),
    u64(Attr.chardevAbi, abi),
    text(Attr.chardevName, name),
  ];
}

function emitSingle(
  request: NetlinkMessage,
  records: readonly (readonly Attribute[])[],
): Uint8Array[] {
  const header = { ...request.header, flags: 0 };
  const messages = records.map((record) => emitNetlink(header, record));
  if (request.header.flags & NetlinkFlag.acknowledge) messages.push(emitError(request, 0));
  return messages;
}

/** Packs records into datagrams; the last one also terminates the dump. */
function emitDump(
  request: NetlinkMessage,
  records: readonly (readonly Attribute[])[],
): Uint8Array[] {
  const header = { ...request.header, flags: NetlinkFlag.multi };
  const datagrams: Uint8Array[] = [];
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  for (const message of records.map((record) => emitNetlink(header, record))) {
    if (pendingBytes + message.length > DATAGRAM_MAX_BYTES - DONE_BYTES) {
      datagrams.push(concatenated(pending));
      pending = [];
      pendingBytes = 0;
    }
    pending.push(message);
    pendingBytes += message.length;
  }
  datagrams.push(concatenated([...pending, emitDone(request.header)]));
  return datagrams;
}

export class NetlinkFile implements KernelFile {
  readonly kind = 'netlink';
  readonly number: number;
  readonly client: KernelClient;
  readonly ownQueue = undefined;
  readonly #services: KernelServices;
  readonly #devices: readonly KernelDevice[];
  /** The last dump, if unfinished. */
  #rest: ResourceDump | undefined;

  constructor({ number, client, services }: KernelFileParts) {
    this.number = number;
    this.client = client;
    this.#services = services;
    this.#devices = kernelDevices(services.host);
  }

  /** A request without a message continues the last dump. */
  execute(request: ShimRequest, caller: KernelCaller): KernelReply {
    if (request.op === ShimOp.child) return { status: 0 };
    if (request.op !== ShimOp.netlink) throw new IpcFormatError(`op ${request.op} on netlink`);
    const viewOf = (device: KernelDevice) => this.#viewOf(device, caller);
    const { datagrams, rest, refused } =
      request.payload.length === 0
        ? this.#continue(viewOf)
        : answerNetlink(request.payload, this.#devices, viewOf);
    this.#rest = rest;
    const parts: Uint8Array[] = [];
    for (const datagram of datagrams) {
      const length = new Uint8Array(4);
      new DataView(length.buffer).setUint32(0, datagram.length, true);
      parts.push(length, datagram);
    }
    const status = rest === undefined ? 0 : MORE_FOLLOWS;
    const response = concatenated(parts);
    return refused === undefined ? { status, response } : { status, response, refused };
  }

  describe(): RefusedCall {
    return { api: 'netlink', verb: 'a request of rdma' };
  }

  #continue(viewOf: ViewOf): DumpPart {
    const dump = this.#rest;
    if (dump === undefined) throw new IpcFormatError('no dump to continue');
    return dumpPart(dump, viewOf(dump.device));
  }

  #viewOf(device: KernelDevice, { credentials }: KernelCaller): ResourceView {
    const { ids } = this.#services;
    const resources = this.#services.resources(device.index);
    return { device, resources, ids, showsKeys: isTrusted(credentials.uid) };
  }

  /** See `MemoryUser`: nothing in this file reaches a program's memory. */
  workEpoch(): number {
    return 0;
  }

  close(): number {
    return 0;
  }
}
