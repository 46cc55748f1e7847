/**
 * The interface between the IPC and devices of any host: the emulated host of this folder, or the
 * host of native devices. Objects of different hosts never mix: a command names one device, and all
 * objects that it names belong to that device.
 *
 * Members are declared as methods, so that an implementation can require its own object types.
 */
import type { Micros } from '#base/time';
import type { CMParameters } from '#contract/protocol/commands';
import type {
  DeviceAttributes,
  DeviceInfo,
  GidEntry,
  PortAttributes,
  QPCapabilities,
  SRQAttributes,
} from '#contract/verbs/attributes';
import type { AsyncEventType, MWType, QPState, QPType, WROpcode } from '#contract/verbs/enums';
import type { SocketAddress } from '#contract/verbs/provider';
import type { QPAttributes } from '#contract/verbs/qp-attributes';
import type { CmEvent } from '../iwarp/cm/cm-host.ts';
import type { IdAccount } from '../iwarp/cm/cm-id.ts';
import type { FailedWork } from '../rnic/failure-cause.ts';
import type { PathAttributes } from '../rnic/ib-port.ts';
import type { MemoryBacking } from '../rnic/memory/memory-backing.ts';
import type { MRInit } from '../rnic/memory/memory-region.ts';
import type { AddressVector, QPModification } from '../rnic/qp-attributes.ts';
import type { CQInit } from '../rnic/queues/completion-queue.ts';
import type { SRQInit } from '../rnic/queues/shared-receive-queue.ts';
import type { IbEventFacts } from './host-id.ts';
import type { Rail } from './rails.ts';
import type { GroupAccount } from './roce/multicast-groups.ts';

/** An object whose tag, set by its owner, routes its events. */
export interface TaggedObject {
  tag: unknown;
}

/** A protection domain. */
export interface DevicePD {
  /** EBUSY while anything belongs to it. */
  close(): void;
}

/** A memory region. */
export interface DeviceMR {
  readonly address: bigint;
  readonly lengthBytes: number;
  readonly lkey: number;
  readonly rkey: number;
  readonly backing: MemoryBacking;
  /** EBUSY while windows are bound. */
  close(): void;
}

/** A memory window. */
export interface DeviceMW {
  readonly rkey: number;
  close(): void;
}

/** An address handle. */
export interface DeviceAH {
  /** The handle's number in work requests. */
  readonly number: number;
  close(): void;
}

/** A completion queue; layout of its ring: daemon/contract/protocol/queue-layout.ts. */
export interface DeviceCQ extends TaggedObject {
  /** Entries of the ring. */
  readonly count: number;
  /** EBUSY while queue pairs complete to it. */
  close(): void;
}

/** A shared receive queue. */
export interface DeviceSRQ extends TaggedObject {
  readonly count: number;
  modify(attributes: { readonly srqLimit: number }): void;
  query(): SRQAttributes;
  /** EBUSY while queue pairs receive from it. */
  close(): void;
}

/** A queue pair. */
export interface DeviceQP extends TaggedObject {
  readonly qpn: number;
  readonly type: QPType;
  readonly state: QPState;
  readonly sqCount: number;
  readonly rqOffset: number;
  readonly rqCount: number;
  readonly capabilities: QPCapabilities;
  /** Work requests taken from the send queue, modulo 2^32. */
  readonly sendsTaken: number;
  /** Receives taken by this queue pair. */
  readonly receivesTaken: number;
  modify(state: QPState, now: Micros): void;
  query(): QPAttributes;
  close(now: Micros): void;
}

/** Options of a queue pair. */
interface DeviceQPInit {
  /** Default: RC. Others need a device with `roce`. */
  readonly type?: QPType;
  readonly sendCQ: DeviceCQ;
  readonly recvCQ: DeviceCQ;
  readonly srq: DeviceSRQ | undefined;
  readonly capabilities: QPCapabilities;
  /** Every work request completes, flagged or not. */
  readonly sqSigAll: boolean;
  /** Supplies the memory of SQ and RQ: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  readonly tag: unknown;
}

/** The objects of one device. All methods throw `VerbsError`, and then create nothing. */
export interface DeviceObjects {
  /** Counters of the device by name; they only increase between resets. */
  readonly counters: object;
  /** Zeroes all counters. */
  resetCounters(): void;
  allocPD(): DevicePD;
  regMR(pd: DevicePD, init: MRInit): DeviceMR;
  allocMW(pd: DevicePD, type: MWType): DeviceMW;
  createCQ(init: CQInit): DeviceCQ;
  createSRQ(pd: DevicePD, init: SRQInit): DeviceSRQ;
  createQP(pd: DevicePD, init: DeviceQPInit): DeviceQP;
}

/** For devices whose programs connect queue pairs themselves. */
export interface RoceBackend {
  /** The entries in use. */
  gidTable(): readonly GidEntry[];
  createAH(pd: DevicePD, vector: AddressVector): DeviceAH;
  modifyPath(qp: DeviceQP, change: QPModification, now: Micros): void;
  queryPath(qp: DeviceQP): PathAttributes;
  /**
   * Throws EINVAL unless `qp` is UD and `gid` is multicast, ENOMEM at the limit. Counts against `owner`'s
   * quota.
   */
  attachMulticast(qp: DeviceQP, gid: Uint8Array, owner: object, account?: GroupAccount): void;
  /** Throws EINVAL also for a queue pair that is not attached. */
  detachMulticast(qp: DeviceQP, gid: Uint8Array): void;
  /** Leaves all groups, as the queue pair is destroyed. */
  leaveGroups(qp: DeviceQP): void;
}

/** One device. */
export interface ServedDevice {
  readonly name: string;
  readonly info: DeviceInfo;
  /** Path of the kernel's node of a native device. */
  readonly node?: string | undefined;
  readonly nic: DeviceObjects;
  /** Its place in the machine, if it is a rail. */
  readonly rail?: Rail | undefined;
  /** Counters of the port of a RoCE device, by the names of the kernel's rxe. */
  readonly hwCounters?: Readonly<Record<string, number>> | undefined;
  /** Standard counters of the port of a rail, by the names of the kernel. */
  readonly portCounters?: Readonly<Record<string, number>> | undefined;
  /** Counters of packets from other hosts that were dropped, or were remarkable. */
  readonly linkCounters?: Readonly<Record<string, number>> | undefined;
  /** Undefined for a device whose connection manager connects queue pairs. */
  readonly roce: RoceBackend | undefined;
  /** Send operations that the device does not support: posting one fails with EOPNOTSUPP. */
  readonly unsupported: readonly WROpcode[];
  /** Why the device cannot access memory that is not shared; undefined if it can. */
  readonly processObstacle: string | undefined;
  /** True if the device takes receives from a ring only after a doorbell. */
  readonly receivesNeedDoorbell: boolean;
  /** Identity and limits (`ibv_query_device`). */
  attributes(): DeviceAttributes;
  /** The one port (`ibv_query_port`). */
  port(): PortAttributes;
  /**
   * The address of a shared buffer's first byte on this device, for SGEs and peers; `proposed` is
   * an address that no other buffer of the client has.
   */
  bufferAddress(bytes: Uint8Array, proposed: number): number;
}

/** An asynchronous event of a device. */
export interface DeviceAsyncEvent {
  readonly event: AsyncEventType;
  /** The object of the event; undefined for the device itself. */
  readonly object: TaggedObject | undefined;
  readonly text: string;
}

/** Failed work of a queue pair. */
export interface DeviceFailure {
  readonly qp: TaggedObject & { readonly qpn: number };
  /** The work request; undefined for all flushed ones together. */
  readonly work: FailedWork | undefined;
  readonly sentence: string;
}

/** A connection id. */
export interface ServedId extends TaggedObject {
  readonly device: string | undefined;
  readonly localAddress: SocketAddress | undefined;
  readonly peerAddress: SocketAddress | undefined;
  /** The program that it belongs to; connections of one program may share a carrier. */
  program?: object | undefined;
  /** Charged for its port and sockets. */
  account?: IdAccount | undefined;
  /** The user of its program: the same value for the same user. */
  user?: number | object | undefined;
}

/** An event of a connection id. */
export interface ServedCmEvent extends CmEvent<ServedId> {
  /** More facts, of InfiniBand's transport. */
  readonly ib?: IbEventFacts | undefined;
}

/**
 * Connection ids of one host. Errors are `VerbsError`s with rdma_cm's errno codes; outcomes arrive
 * as events, perhaps before the call returns.
 */
export interface ConnectionService {
  createId(tag: unknown): ServedId;
  bindAddr(id: ServedId, address: SocketAddress): void;
  resolveAddr(
    id: ServedId,
    destination: SocketAddress,
    source: SocketAddress | undefined,
    timeoutMs: number,
  ): void;
  resolveRoute(id: ServedId): void;
  listen(id: ServedId, backlog: number): void;
  connect(id: ServedId, qp: DeviceQP, parameters: CMParameters): void;
  accept(id: ServedId, qp: DeviceQP, parameters: CMParameters): void;
  reject(id: ServedId, privateData: Uint8Array): void;
  disconnect(id: ServedId): void;
  /** Allowed in any state; the id gets no further events. */
  destroy(id: ServedId): void;
}

/** Devices with their connection manager. The callbacks belong to one owner. */
export interface DeviceHost {
  readonly devices: readonly ServedDevice[];
  readonly cm: ConnectionService;
  /** An armed CQ fired. */
  onCompletion(cq: DeviceCQ): void;
  onAsync(device: ServedDevice, event: DeviceAsyncEvent): void;
  onCmEvent(id: ServedId, event: ServedCmEvent): void;
  /** Not called by real devices, which do not report reasons. */
  onFailure?(device: ServedDevice, failure: DeviceFailure): void;
  /** Whether two queue pairs belong to programs of one user. */
  isSameUser?(one: TaggedObject, other: TaggedObject): boolean;
  /** The queue pair's queues have new elements. Spurious calls are harmless. */
  doorbell(qp: DeviceQP): void;
  /** The shared receive queue has new elements; only for devices whose receives need doorbells. */
  receiveDoorbell(srq: DeviceSRQ): void;
  /** Must be called after calls into objects of the devices. */
  drain(): void;
  /** Microseconds; monotonic. */
  now(): Micros;
}
