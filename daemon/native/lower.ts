/**
 * The part of native-bridge/rdma that this folder uses: as little as a native device needs, so a
 * test can replace it. All calls are synchronous and throw `VerbsError`.
 */
import type { DeviceAttributes, PortAttributes, SRQAttributes } from '#contract/verbs/attributes';
import type { WC } from '#contract/verbs/completion';
import type { QPState } from '#contract/verbs/enums';
import type { SocketAddress } from '#contract/verbs/provider';
import type { QPAttributes } from '#contract/verbs/qp-attributes';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import type { DeviceTraits } from '#native-bridge/rdma/device-traits';

/** A resource to release; a second call does nothing. */
interface Disposable {
  dispose(): void;
}

/** A registered piece of memory mapped into this process. */
export interface LowerMR extends Disposable {
  readonly address: number;
  readonly lkey: number;
  readonly rkey: number;
}

export interface LowerCQ extends Disposable {
  readonly cqe: number;
  poll(max: number): WC[];
  requestNotify(solicitedOnly: boolean): void;
}

/** A completion channel; `descriptor` is readable while events are pending. */
export interface LowerChannel extends Disposable {
  readonly descriptor: number;
  readEvent(): LowerCQ | undefined;
}

export interface LowerSRQ extends Disposable {
  readonly maxWr: number;
  /** The error contains the index of the first failed request; ENOMEM if the queue is full. */
  postRecv(requests: readonly RecvWR[]): void;
  setLimit(srqLimit: number): void;
  query(): SRQAttributes;
}

export interface LowerQP extends Disposable {
  readonly qpNum: number;
  /** Fails like `LowerSRQ.postRecv`. */
  postSend(requests: readonly SendFields[]): void;
  postRecv(requests: readonly RecvWR[]): void;
  modify(state: QPState): void;
  query(): QPAttributes;
}

export interface LowerQPInit {
  readonly sendCQ: LowerCQ;
  readonly recvCQ: LowerCQ;
  readonly srq?: LowerSRQ | undefined;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxInlineData: number;
  readonly sqSigAll: boolean;
}

export interface LowerPD extends Disposable {
  regMR(buffer: Uint8Array, access: number, iova?: bigint): LowerMR;
  createSRQ(init: {
    readonly maxWr: number;
    readonly maxSge: number;
    readonly srqLimit: number;
  }): LowerSRQ;
  createQP(init: LowerQPInit): LowerQP;
}

/** An asynchronous event; `element` is one of the objects above. */
export interface LowerAsyncEvent {
  readonly type: number;
  readonly element: object | undefined;
}

export interface LowerDevice extends Disposable {
  readonly info: { readonly name: string; readonly nodeGuid: string };
  readonly traits: DeviceTraits;
  readonly attributes: DeviceAttributes;
  /** Readable while asynchronous events are pending. */
  readonly asyncDescriptor: number;
  queryPort(port?: number): PortAttributes;
  allocPD(): LowerPD;
  createCompChannel(): LowerChannel;
  createCQ(cqe: number, channel?: LowerChannel): LowerCQ;
  readAsyncEvent(): LowerAsyncEvent | undefined;
}

export interface LowerConnectionParameters {
  readonly privateData: Uint8Array;
  readonly initiatorDepth: number;
  readonly responderResources: number;
  readonly qp: LowerQP;
}

export interface LowerId {
  /** Name of the device in the RDMA subsystem, once an address determines it. */
  readonly deviceName: string | undefined;
  readonly localAddress: SocketAddress | undefined;
  readonly peerAddress: SocketAddress | undefined;
  bindAddr(address: SocketAddress): void;
  resolveAddr(
    destination: SocketAddress,
    source: SocketAddress | undefined,
    timeoutMs: number,
  ): void;
  resolveRoute(timeoutMs: number): void;
  listen(backlog: number): void;
  /** Moves a queue pair to INIT with the rights that the connection manager requires. */
  initialise(qp: LowerQP): void;
  connect(parameters: LowerConnectionParameters): void;
  accept(parameters: LowerConnectionParameters): void;
  reject(privateData: Uint8Array): void;
  disconnect(): void;
  /** Destroys the id, which may wait for the end of the connection. */
  disposeAsync(): Promise<void>;
}

export interface LowerCmEvent {
  readonly type: number;
  readonly id: LowerId;
  readonly listenId: LowerId | undefined;
  readonly status: number;
  readonly privateData: Uint8Array;
  readonly initiatorDepth: number;
  readonly responderResources: number;
}

/** The connection manager; `descriptor` is readable while events are pending. */
export interface LowerEventChannel extends Disposable {
  readonly descriptor: number;
  createId(): LowerId;
  readEvent(): LowerCmEvent | undefined;
  /** Resolves once requests that it rejected itself are gone; await it before `dispose`. */
  settled(): Promise<void>;
}

/** Calls back in turns of the event loop while a descriptor is readable. */
export type Watch = (
  descriptor: number,
  onReadable: () => void,
) => { close(): void; hold(alive: boolean): void };
