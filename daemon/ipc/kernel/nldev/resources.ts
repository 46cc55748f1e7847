/**
 * The objects of a device as nldev lists them, for `rdma resource`. As in the kernel, every user sees
 * every object, but only permitted users see keys of memory.
 */
import { QPType } from '../../../../verbs-api/contract/verbs/enums.ts';
import type { SocketAddress } from '../../../../verbs-api/contract/verbs/provider.ts';
import type { HostId } from '../../../host/host-id.ts';
import type { HostIdState } from '../../../host/host-id-state.ts';
import { addressFamily } from '../../../iwarp/cm/address.ts';
import type { QP } from '../../../rnic/queue-pair.ts';
import type { SRQ } from '../../../rnic/shared-receive-queue.ts';
import type { DeviceResources, IdResource, OwnedResource } from '../../objects/device-resources.ts';
import { emitSockaddr, Family } from '../cm/sockaddr.ts';
import { Attr, Command, PORTS } from './abi.ts';
import type { KernelDevice } from './devices.ts';
import { type Attribute, binary, nested, plainNested, text, u8, u32, u64 } from './message.ts';
import type { ResourceNumbers } from './resource-numbers.ts';

/** The objects of one device, for one caller. */
export interface ResourceView {
  readonly device: KernelDevice;
  readonly resources: DeviceResources;
  readonly numbers: ResourceNumbers;
  /** Whether the caller may see keys of memory. */
  readonly showsKeys: boolean;
}

/** One object. */
export interface ResourceEntry {
  readonly number: number;
  /** The port that it belongs to; 0 for none. */
  readonly port: number;
  readonly fields: () => Attribute[];
}

/** A kind of objects. */
export interface ResourceKind {
  /** The attribute around all objects of a message, and the one around each. */
  readonly table: number;
  readonly entry: number;
  /** The attribute with an object's number. */
  readonly number: number;
  /** Objects of a port: a request for one of them names the port, too. */
  readonly ofPort: boolean;
  readonly entries: (view: ResourceView) => ResourceEntry[];
}

/** Ranges of queue pair numbers listed for one shared receive queue: more do not fit a message. */
const RANGES_MAX = 64;
/** IB_SRQT_BASIC, the only type that emulated devices have. */
const BASIC_SRQ = 0;
/** Bytes of a `sockaddr_storage`. */
const STORAGE_BYTES = 128;

/** `enum rdma_cm_state`. */
const CM_STATES: Readonly<Record<HostIdState, number>> = {
  idle: 0,
  bound: 7,
  resolved: 2,
  routed: 4,
  listening: 8,
  connection: 5,
  closed: 6,
  destroyed: 10,
};

/** The kinds by the command that gets them. */
export const RESOURCE_KINDS: Readonly<Partial<Record<number, ResourceKind>>> = {
  [Command.qpGet]: {
    table: Attr.qps,
    entry: Attr.qp,
    number: Attr.localQpn,
    ofPort: true,
    entries: (view) => view.resources.qps.map((owned) => qpEntry(view, owned)),
  },
  [Command.cmIdGet]: {
    table: Attr.cmIds,
    entry: Attr.cmId,
    number: Attr.cmIdNumber,
    ofPort: true,
    entries: (view) => view.resources.ids.map((owned) => idEntry(view, owned)),
  },
  [Command.cqGet]: {
    table: Attr.cqs,
    entry: Attr.cq,
    number: Attr.cqNumber,
    ofPort: false,
    entries: ({ resources, numbers }) => {
      return resources.cqs.map(({ object, owner }) => {
        return numbered(numbers.of('cq', object), Attr.cqNumber, owner.pid, () => [
          u32(Attr.cqEntries, object.count),
          u64(Attr.users, BigInt(object.users)),
          u8(Attr.dimming, 0),
          u32(Attr.contextNumber, numbers.of('ctx', owner.context)),
        ]);
      });
    },
  },
  [Command.mrGet]: {
    table: Attr.mrs,
    entry: Attr.mr,
    number: Attr.mrNumber,
    ofPort: false,
    entries: ({ device, resources, numbers, showsKeys }) => {
      return resources.mrs.map(({ object, owner }) => {
        const keys = () => [
          u32(Attr.rkey, device.persona.remoteKey(object)),
          u32(Attr.lkey, object.lkey),
        ];
        return numbered(numbers.of('mr', object), Attr.mrNumber, owner.pid, () => [
          ...(showsKeys ? keys() : []),
          u64(Attr.mrLength, BigInt(object.lengthBytes)),
          u32(Attr.pdNumber, numbers.of('pd', object.pd)),
        ]);
      });
    },
  },
  [Command.pdGet]: {
    table: Attr.pds,
    entry: Attr.pd,
    number: Attr.pdNumber,
    ofPort: false,
    entries: ({ resources, numbers, showsKeys }) => {
      return resources.pds.map(({ object, owner }) => {
        return numbered(numbers.of('pd', object), Attr.pdNumber, owner.pid, () => [
          ...(showsKeys ? [u32(Attr.localDmaKey, 0)] : []),
          u64(Attr.users, BigInt(object.members)),
          u32(Attr.contextNumber, numbers.of('ctx', owner.context)),
        ]);
      });
    },
  },
  [Command.contextGet]: {
    table: Attr.contexts,
    entry: Attr.context,
    number: Attr.contextNumber,
    ofPort: false,
    entries: ({ resources, numbers }) => {
      return resources.contexts.map(({ object, owner }) => {
        return numbered(numbers.of('ctx', object), Attr.contextNumber, owner.pid, () => []);
      });
    },
  },
  [Command.srqGet]: {
    table: Attr.srqs,
    entry: Attr.srq,
    number: Attr.srqNumber,
    ofPort: false,
    entries: ({ resources, numbers }) => {
      const qpns = qpnsBySRQ(resources);
      return resources.srqs.map(({ object, owner }) => {
        return numbered(numbers.of('srq', object), Attr.srqNumber, owner.pid, () => [
          u8(Attr.type, BASIC_SRQ),
          u32(Attr.pdNumber, numbers.of('pd', object.pd)),
          nested(Attr.qps, qpRanges(qpns.get(object) ?? [])),
        ]);
      });
    },
  },
};

/** How many objects of each kind a device has, in the kernel's order. */
export function summaryOf(device: KernelDevice, resources: DeviceResources): Attribute[] {
  const counts: readonly (readonly [string, readonly unknown[]])[] = [
    ['pd', resources.pds],
    ['cq', resources.cqs],
    ['qp', resources.qps],
    ['cm_id', resources.ids],
    ['mr', resources.mrs],
    ['ctx', resources.contexts],
    ['srq', resources.srqs],
  ];
  const entries = counts.map(([name, { length }]) => {
    const fields = [text(Attr.summaryName, name), u64(Attr.summaryCount, BigInt(length))];
    return plainNested(Attr.summaryEntry, fields);
  });
  return [
    u32(Attr.deviceIndex, device.index),
    text(Attr.deviceName, device.name),
    plainNested(Attr.summary, entries),
  ];
}

/** An object without a port. */
function numbered(
  number: number,
  attribute: number,
  pid: number,
  rest: () => Attribute[],
): ResourceEntry {
  return { number, port: 0, fields: () => [...rest(), u32(attribute, number), u32(Attr.pid, pid)] };
}

function qpEntry(
  { device, numbers }: ResourceView,
  { object: qp, owner }: OwnedResource<QP>,
): ResourceEntry {
  // siw's queries report no path for an iWARP connection.
  const path = device.transport === 'roce' ? qp.queryPath() : undefined;
  const port = path?.port ?? PORTS;
  const fields = (): Attribute[] => {
    const connected = qp.type !== QPType.ud;
    return [
      ...(port === 0 ? [] : [u32(Attr.portIndex, port)]),
      u32(Attr.localQpn, qp.qpn),
      u32(Attr.pdNumber, numbers.of('pd', qp.pd)),
      u32(Attr.pid, owner.pid),
      ...(connected
        ? [u32(Attr.remoteQpn, path?.destQpn ?? 0), u32(Attr.receivePsn, path?.rqPsn ?? 0)]
        : []),
      u32(Attr.sendPsn, path?.sqPsn ?? 0),
      ...(connected ? [u8(Attr.pathMigState, path?.pathMigState ?? 0)] : []),
      u8(Attr.type, qp.type),
      u8(Attr.state, qp.state),
    ];
  };
  return { number: qp.qpn, port, fields };
}

function idEntry(
  { numbers }: ResourceView,
  { object: { id, qpn }, owner }: OwnedResource<IdResource>,
): ResourceEntry {
  const number = numbers.of('cm_id', id);
  const port = id.device === undefined ? 0 : PORTS;
  const type = id.datagram ? QPType.ud : QPType.rc;
  const fields = (): Attribute[] => [
    ...(port === 0 ? [] : [u32(Attr.portIndex, port)]),
    ...(qpn === undefined || qpn === 0 ? [] : [u32(Attr.localQpn, qpn), u8(Attr.type, type)]),
    u32(Attr.portSpace, id.portSpace),
    u8(Attr.state, CM_STATES[id.state]),
    ...addressFields(id.localAddress, id.peerAddress),
    u32(Attr.cmIdNumber, number),
    u32(Attr.pid, owner.pid),
  ];
  return { number, port, fields };
}

/** Both ends of an id. Without a peer, the remote one is the wildcard of the local address's family. */
function addressFields(
  local: SocketAddress | undefined,
  peer: SocketAddress | undefined,
): Attribute[] {
  if (local === undefined) return [];
  const family = addressFamily(local.address) === 4 ? Family.ipv4 : Family.ipv6;
  return [
    binary(Attr.sourceAddress, storageOf(family, local)),
    binary(Attr.destinationAddress, storageOf(family, peer)),
  ];
}

function storageOf(family: Family, address: SocketAddress | undefined): Uint8Array {
  const storage = new Uint8Array(STORAGE_BYTES);
  emitSockaddr(storage, family, address);
  return storage;
}

/** The queue pairs that receive from each shared queue: a search for each would look at all of them. */
function qpnsBySRQ({ qps }: DeviceResources): ReadonlyMap<SRQ, number[]> {
  const numbers = new Map<SRQ, number[]>();
  for (const { object } of qps) {
    const { srq, qpn } = object;
    if (srq === undefined) continue;
    const known = numbers.get(srq);
    if (known === undefined) numbers.set(srq, [qpn]);
    else known.push(qpn);
  }
  return numbers;
}

/** Numbers of queue pairs as ranges. */
function qpRanges(numbers: number[]): Attribute[] {
  const ranges: { first: number; last: number }[] = [];
  for (const qpn of numbers.sort((one, other) => one - other)) {
    const range = ranges.at(-1);
    if (range?.last === qpn - 1) range.last = qpn;
    else ranges.push({ first: qpn, last: qpn });
  }
  return ranges.slice(0, RANGES_MAX).map(({ first, last }) => {
    const fields =
      first === last
        ? [u32(Attr.localQpn, first)]
        : [u32(Attr.rangeFirst, first), u32(Attr.rangeLast, last)];
    return nested(Attr.qp, fields);
  });
}

/** Whether an id is one of this device: bound to it, or listening for every device of its wire. */
export function isIdOf(
  id: HostId,
  { name, transport }: Pick<KernelDevice, 'name' | 'transport'>,
): boolean {
  if (id.device !== undefined) return id.device === name;
  const wire = transport === 'iwarp' ? id.iwarp : id.roce;
  return id.state === 'listening' && wire !== undefined;
}
