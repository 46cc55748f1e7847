/**
 * The objects of a device as nldev lists them, for `rdma resource`. As in the kernel, every user sees
 * every object, but only permitted users see memory keys.
 */
import { addressFamily } from '#base/address';
import { QPType } from '#contract/verbs/enums';
import type { IdState } from '#contract/verbs/id-lifecycle';
import type { SocketAddress } from '#contract/verbs/provider';
import type {
  DeviceResources,
  ListedId,
  OwnedResource,
} from '#daemon/clients/objects/device-resources';
import type { NumberedList } from '#daemon/clients/objects/numbered-list';
import { HostId } from '#daemon/host/host-id';
import type { QP } from '#daemon/rnic/queue-pair';
import { emitSockaddr, Family } from '../cm/sockaddr.ts';
import { Attr, Command, PORTS } from './abi.ts';
import type { KernelDevice } from './devices.ts';
import { type Attribute, binary, nested, plainNested, text, u8, u32, u64 } from './message.ts';

/** The objects of one device, for one caller. */
export interface ResourceView {
  readonly device: KernelDevice;
  readonly resources: DeviceResources;
  readonly ids: NumberedList<ListedId>;
  /** Whether the caller may see memory keys. */
  readonly showsKeys: boolean;
}

export interface ResourceEntry {
  /** The port that it belongs to; 0 for none. */
  readonly port: number;
  readonly fields: () => Attribute[];
}

export interface ResourceKind {
  /** The attribute that contains all objects of a message, and the one that contains each. */
  readonly table: number;
  readonly entry: number;
  /** The attribute with an object's number. */
  readonly number: number;
  /** Objects belong to a port: a request for one of them also names the port. */
  readonly ofPort: boolean;
  /** The objects after a place in the list; undefined for one that the device does not have. */
  readonly after: (view: ResourceView, place: number) => Iterable<PlacedEntry>;
  readonly find: (view: ResourceView, number: number) => ResourceEntry | undefined;
}

/** An object and its place in the list. */
type PlacedEntry = readonly [place: number, entry: ResourceEntry | undefined];

/** The part that differs between kinds of objects. */
interface KindParts<T extends object>
  extends Pick<ResourceKind, 'table' | 'entry' | 'number'>,
    Partial<Pick<ResourceKind, 'ofPort' | 'find'>> {
  readonly list: (view: ResourceView) => NumberedList<T>;
  readonly entryOf: (view: ResourceView, object: T, number: number) => ResourceEntry | undefined;
}

/** `find`: by default, the place in the list is the object's number. */
function kindOf<T extends object>(parts: KindParts<T>): ResourceKind {
  const { table, entry, number, ofPort = false, list, entryOf } = parts;
  const find = (view: ResourceView, place: number): ResourceEntry | undefined => {
    const object = list(view).find(place);
    return object && entryOf(view, object, place);
  };
  function* after(view: ResourceView, last: number): Generator<PlacedEntry> {
    for (const [place, object] of list(view).after(last)) {
      yield [place, entryOf(view, object, place)];
    }
  }
  return { table, entry, number, ofPort, after, find: parts.find ?? find };
}

/** Ranges of queue pair numbers listed for a shared receive queue; more do not fit a message. */
const RANGES_MAX = 64;
/** IB_SRQT_BASIC, the only type that emulated devices have. */
const BASIC_SRQ = 0;
const STORAGE_BYTES = 128;

/** `enum rdma_cm_state`. */
const CM_STATES: Readonly<Record<IdState, number>> = {
  idle: 0,
  bound: 7,
  resolving: 1,
  resolved: 2,
  routing: 3,
  routed: 4,
  listening: 8,
  connection: 5,
  closed: 6,
  destroyed: 10,
};

export const RESOURCE_KINDS: Readonly<Partial<Record<number, ResourceKind>>> = {
  [Command.qpGet]: kindOf({
    table: Attr.qps,
    entry: Attr.qp,
    number: Attr.localQpn,
    ofPort: true,
    list: ({ resources }) => resources.qps,
    entryOf: qpEntry,
    find: (view, qpn) => {
      for (const [, owned] of view.resources.qps.after(-1)) {
        if (owned.object.qpn === qpn) return qpEntry(view, owned);
      }
      return undefined;
    },
  }),
  [Command.cmIdGet]: kindOf({
    table: Attr.cmIds,
    entry: Attr.cmId,
    number: Attr.cmIdNumber,
    ofPort: true,
    list: ({ ids }) => ids,
    entryOf: ({ device }, { id, qpn, pid }, number) => {
      if (!(id instanceof HostId) || !isIdOf(id, device)) return undefined;
      return idEntry(id, { qpn, pid, number });
    },
  }),
  [Command.cqGet]: kindOf({
    table: Attr.cqs,
    entry: Attr.cq,
    number: Attr.cqNumber,
    list: ({ resources }) => resources.cqs,
    entryOf: ({ resources }, { object, owner }, number) => {
      return numbered(number, Attr.cqNumber, owner.pid, () => [
        u32(Attr.cqEntries, object.count),
        u64(Attr.users, BigInt(object.users)),
        u8(Attr.dimming, 0),
        u32(Attr.contextNumber, resources.numberOf(owner.context)),
      ]);
    },
  }),
  [Command.mrGet]: kindOf({
    table: Attr.mrs,
    entry: Attr.mr,
    number: Attr.mrNumber,
    list: ({ resources }) => resources.mrs,
    entryOf: ({ device, resources, showsKeys }, { object, owner }, number) => {
      const keys = () => [
        u32(Attr.rkey, device.persona.remoteKey(object)),
        u32(Attr.lkey, object.lkey),
      ];
      return numbered(number, Attr.mrNumber, owner.pid, () => [
        ...(showsKeys ? keys() : []),
        u64(Attr.mrLength, BigInt(object.lengthBytes)),
        u32(Attr.pdNumber, resources.numberOf(object.pd)),
      ]);
    },
  }),
  [Command.pdGet]: kindOf({
    table: Attr.pds,
    entry: Attr.pd,
    number: Attr.pdNumber,
    list: ({ resources }) => resources.pds,
    entryOf: ({ resources, showsKeys }, { object, owner }, number) => {
      return numbered(number, Attr.pdNumber, owner.pid, () => [
        ...(showsKeys ? [u32(Attr.localDmaKey, 0)] : []),
        u64(Attr.users, BigInt(object.members)),
        u32(Attr.contextNumber, resources.numberOf(owner.context)),
      ]);
    },
  }),
  [Command.contextGet]: kindOf({
    table: Attr.contexts,
    entry: Attr.context,
    number: Attr.contextNumber,
    list: ({ resources }) => resources.contexts,
    entryOf: (_view, { owner }, number) => {
      return numbered(number, Attr.contextNumber, owner.pid, () => []);
    },
  }),
  [Command.srqGet]: kindOf({
    table: Attr.srqs,
    entry: Attr.srq,
    number: Attr.srqNumber,
    list: ({ resources }) => resources.srqs,
    entryOf: ({ resources }, { object, owner }, number) => {
      return numbered(number, Attr.srqNumber, owner.pid, () => [
        u8(Attr.type, BASIC_SRQ),
        u32(Attr.pdNumber, resources.numberOf(object.pd)),
        nested(Attr.qps, qpRanges(resources.qpsOf(object))),
      ]);
    },
  }),
};

/** Number of objects of each kind on each device, in the kernel's order. */
export function summariesOf(views: readonly ResourceView[]): Attribute[][] {
  const ids = idCounts(views[0]?.ids);
  return views.map(({ device, resources }) => {
    const counts: readonly (readonly [string, number])[] = [
      ['pd', resources.pds.size],
      ['cq', resources.cqs.size],
      ['qp', resources.qps.size],
      ['cm_id', ids(device)],
      ['mr', resources.mrs.size],
      ['ctx', resources.contexts.size],
      ['srq', resources.srqs.size],
    ];
    const entries = counts.map(([name, count]) => {
      const fields = [text(Attr.summaryName, name), u64(Attr.summaryCount, BigInt(count))];
      return plainNested(Attr.summaryEntry, fields);
    });
    return [
      u32(Attr.deviceIndex, device.index),
      text(Attr.deviceName, device.name),
      plainNested(Attr.summary, entries),
    ];
  });
}

/** Counts the ids of all devices in one pass: see `isIdOf`. */
function idCounts(ids: NumberedList<ListedId> | undefined): (device: KernelDevice) => number {
  const bound = new Map<string, number>();
  const everywhere = { iwarp: 0, roce: 0 };
  for (const [, { id }] of ids?.after(-1) ?? []) {
    if (!(id instanceof HostId)) continue;
    if (id.device !== undefined) bound.set(id.device, (bound.get(id.device) ?? 0) + 1);
    else if (id.state === 'listening') {
      if (id.iwarp !== undefined) everywhere.iwarp += 1;
      if (id.roce !== undefined) everywhere.roce += 1;
    }
  }
  return ({ name, transport }) => (bound.get(name) ?? 0) + everywhere[transport];
}

/** An object without a port. */
function numbered(
  number: number,
  attribute: number,
  pid: number,
  rest: () => Attribute[],
): ResourceEntry {
  return { port: 0, fields: () => [...rest(), u32(attribute, number), u32(Attr.pid, pid)] };
}

function qpEntry(
  { device, resources }: ResourceView,
  { object: qp, owner }: OwnedResource<QP>,
): ResourceEntry {
  // A query of an iWARP queue pair reports no path, as on siw.
  const path = device.transport === 'roce' ? qp.queryPath() : undefined;
  const port = path?.portNum ?? PORTS;
  const fields = (): Attribute[] => {
    const connected = qp.type !== QPType.ud;
    return [
      ...(port === 0 ? [] : [u32(Attr.portIndex, port)]),
      u32(Attr.localQpn, qp.qpn),
      u32(Attr.pdNumber, resources.numberOf(qp.pd)),
      u32(Attr.pid, owner.pid),
      ...(connected
        ? [u32(Attr.remoteQpn, path?.destQpNum ?? 0), u32(Attr.receivePsn, path?.rqPsn ?? 0)]
        : []),
      u32(Attr.sendPsn, path?.sqPsn ?? 0),
      ...(connected ? [u8(Attr.pathMigState, path?.pathMigState ?? 0)] : []),
      u8(Attr.type, qp.type),
      u8(Attr.state, qp.state),
    ];
  };
  return { port, fields };
}

function idEntry(
  id: HostId,
  { qpn, pid, number }: Pick<ListedId, 'qpn' | 'pid'> & { readonly number: number },
): ResourceEntry {
  const port = id.device === undefined ? 0 : PORTS;
  const type = id.datagram ? QPType.ud : QPType.rc;
  const fields = (): Attribute[] => [
    ...(port === 0 ? [] : [u32(Attr.portIndex, port)]),
    ...(qpn === undefined || qpn === 0 ? [] : [u32(Attr.localQpn, qpn), u8(Attr.type, type)]),
    u32(Attr.portSpace, id.portSpace),
    u8(Attr.state, CM_STATES[id.state]),
    ...addressFields(id.localAddress, id.peerAddress),
    u32(Attr.cmIdNumber, number),
    u32(Attr.pid, pid),
  ];
  return { port, fields };
}

/** Both ends of an id. Without a peer, the remote end is the wildcard of the local address's family. */
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

/** Numbers of queue pairs as ranges. */
function qpRanges(qps: Iterable<QP>): Attribute[] {
  const ranges: { first: number; last: number }[] = [];
  for (const qpn of Uint32Array.from(qps, ({ qpn }) => qpn).sort()) {
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

/** Whether an id belongs to this device: bound to it, or listening on all devices of its wire. */
function isIdOf(
  id: HostId,
  { name, transport }: Pick<KernelDevice, 'name' | 'transport'>,
): boolean {
  if (id.device !== undefined) return id.device === name;
  const wire = transport === 'iwarp' ? id.iwarp : id.roce;
  return id.state === 'listening' && wire !== undefined;
}
