/**
 * The verbs as a TypeScript program sees them. Three providers implement this one interface: the
 * daemon's client, the embedded device (no daemon), and the native bridge over rdma-core. A
 * compliance suite runs over each.
 *
 * Calls that create, change or destroy are asynchronous (they may cross to a daemon); calls of the
 * data path (`postSend`, `postRecv`, `poll`, `requestNotify`) are synchronous. Refusals are
 * `VerbsError`s with an errno code. Every object has one owner and is disposed with
 * `await using`, `close()`, or with its context; a second disposal does nothing.
 */
import type {
  DeviceAttributes,
  DeviceInfo,
  PortAttributes,
  QPAttributes,
  QPCapabilities,
  SRQAttributes,
} from './attributes.ts';
import type { AsyncEvent, WC } from './completion.ts';
import type { CMEventType, MWType, QPState } from './enums.ts';
import type { ErrnoCode } from './errors.ts';
import type { RecvWR, SendWR, SGE } from './work-request.ts';

/** What a waiting call watches to give up; an `AbortSignal` is one. The call then rejects. */
export interface CancelSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** Everything that has to be given back. */
export interface VerbsObject extends AsyncDisposable {
  /** Destroys the object. EBUSY while others depend on it; the second call does nothing. */
  close(): Promise<void>;
}

/** A source of devices. */
export interface Provider extends VerbsObject {
  readonly kind: 'daemon' | 'embedded' | 'native';
  /** The device list (`ibv_get_device_list`). */
  devices(): Promise<readonly DeviceInfo[]>;
  /** Opens a device by name, the first one by default (`ibv_open_device`). ENODEV. */
  open(name?: string): Promise<Context>;
  /** A new connection id (`rdma_create_id` with RDMA_PS_TCP). */
  createId(): Promise<ConnectionId>;
}

/** An opened device. */
export interface Context extends VerbsObject {
  readonly provider: Provider;
  readonly device: DeviceInfo;
  queryDevice(): Promise<DeviceAttributes>;
  /** EINVAL unless `port` is 1. */
  queryPort(port?: number): Promise<PortAttributes>;
  allocPD(): Promise<PD>;
  createCompChannel(): Promise<CompChannel>;
  createCQ(init: CQInit): Promise<CQ>;
  /** Asynchronous events, each delivered once; ends when the context closes. */
  asyncEvents(): AsyncIterable<AsyncEvent>;
}

/** A protection domain. */
export interface PD extends VerbsObject {
  readonly context: Context;
  /**
   * Registers octets of this process (`ibv_reg_mr`). The buffer is held, and must not be resized
   * or transferred, until the region is closed. EINVAL for empty buffers or bad access bits.
   */
  regMR(buffer: Uint8Array, access: number, options?: MROptions): Promise<MR>;
  /** Allocates memory that the device reaches best (shared memory) and registers it. */
  allocMR(lengthBytes: number, access: number, options?: MROptions): Promise<MR>;
  /** Allocates a memory window (`ibv_alloc_mw`). */
  allocMW(type: MWType): Promise<MW>;
  createSRQ(init: SRQInit): Promise<SRQ>;
  /** Creates a reliable-connected QP without a connection id; connect it through `ConnectionId`. */
  createQP(init: QPInit): Promise<QP>;
}

/** Options of a registration. */
export interface MROptions {
  /** Address that peers use for the first octet (hca_va); default: `address`, or 0 if zero-based. */
  readonly iova?: number | bigint;
  /** The 8-bit STag key. Default: chosen by the device. */
  readonly key?: number;
}

/** How the device reaches a memory region. */
export type MemoryTier = 'local' | 'shared' | 'process_vm' | 'agent' | 'pinned';

/** A memory region. */
export interface MR extends VerbsObject {
  readonly pd: PD;
  /** The registered octets. */
  readonly buffer: Uint8Array;
  /** Address of the first octet, for SGEs and, unless zero-based, for peers. */
  readonly address: bigint;
  readonly length: number;
  readonly lkey: number;
  readonly rkey: number;
  /** Memory-access tier in use and, in a few words, why. */
  readonly tier: MemoryTier;
  readonly tierReason: string;
  /** An SGE of `length` octets at `offset`; the whole region by default. RangeError outside. */
  sge(offset?: number, length?: number): SGE;
}

/** A memory window. Bind it with a `bindMW` work request; the rkey then is the one given there. */
export interface MW extends VerbsObject {
  readonly pd: PD;
  readonly type: MWType;
  readonly handle: number;
  /** The current rkey: index in the upper 24 bits, key in the low 8. */
  rkey: number;
}

/** Options of a completion queue. */
export interface CQInit {
  /** Entries wanted, at least 1; rounded up to a power of two. */
  readonly cqe: number;
  /** Where notifications go; without one, the CQ makes a channel of its own when asked to wait. */
  readonly channel?: CompChannel;
}

/** A completion channel (`ibv_create_comp_channel`). */
export interface CompChannel extends VerbsObject {
  /** A descriptor that polls readable while events wait, or undefined where there is none. */
  readonly fd: number | undefined;
  /** The next CQ that was notified (`ibv_get_cq_event`); events are acknowledged by this call. */
  nextEvent(options?: { readonly signal?: CancelSignal }): Promise<CQ>;
}

/** A completion queue. */
export interface CQ extends VerbsObject {
  readonly context: Context;
  readonly handle: number;
  /** Entries it holds. */
  readonly cqe: number;
  /** Takes up to `max` (default 16) completions, without waiting (`ibv_poll_cq`). */
  poll(max?: number): WC[];
  /** Arms one notification (`ibv_req_notify_cq`). Completions that are there do not fire it. */
  requestNotify(solicitedOnly?: boolean): void;
  /** Waits until at least one completion is there and takes up to `max`. EIO if the device went. */
  wait(options?: { readonly max?: number; readonly signal?: CancelSignal }): Promise<WC[]>;
  /** Completions as they come, until the CQ closes. */
  [Symbol.asyncIterator](): AsyncIterator<WC>;
}

/** Options of a shared receive queue. */
export interface SRQInit {
  readonly maxWr: number;
  readonly maxSge?: number;
  readonly srqLimit?: number;
}

/** A shared receive queue. */
export interface SRQ extends VerbsObject {
  readonly pd: PD;
  readonly handle: number;
  /** EINVAL, ENOMEM (full) with `badIndex`. */
  postRecv(wr: RecvWR | readonly RecvWR[]): void;
  /** Arms (or with 0 disarms) the limit event, once. */
  modify(attributes: { readonly srqLimit: number }): Promise<void>;
  query(): Promise<SRQAttributes>;
}

/** Options of a queue pair (`struct ibv_qp_init_attr`). */
export interface QPInit {
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq?: SRQ;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge?: number;
  readonly maxRecvSge?: number;
  readonly maxInlineData?: number;
  /** Every send work request completes, flagged or not. Default false. */
  readonly sqSigAll?: boolean;
}

/** A reliable-connected queue pair. */
export interface QP extends VerbsObject {
  readonly pd: PD;
  readonly handle: number;
  readonly qpNum: number;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly capabilities: QPCapabilities;
  /**
   * Posts one or several send work requests. Those before the first refused one are posted; the
   * error has its index. EINVAL; ENOMEM: queue full; EOPNOTSUPP.
   */
  postSend(wr: SendWR | readonly SendWR[]): void;
  /** Posts receives. EINVAL; ENOMEM: queue full; with an SRQ: EINVAL. */
  postRecv(wr: RecvWR | readonly RecvWR[]): void;
  /** Requests a state (`ibv_modify_qp`): ERR flushes; SQD closes; RTS needs a connection. */
  modify(attributes: { readonly state: QPState }): Promise<void>;
  query(): Promise<QPAttributes>;
}

/** Parameters of connect and accept (`struct rdma_conn_param`). */
export interface ConnectionParameters {
  /** At most 508 octets with MPA revision 2, 512 with revision 1. EINVAL above. */
  readonly privateData?: Uint8Array;
  /** Outbound reads wanted (ORD, initiator_depth). Default: the device's maximum. */
  readonly initiatorDepth?: number;
  /** Inbound reads offered (IRD, responder_resources). Default: the device's maximum. */
  readonly responderResources?: number;
  /** The QP to connect, when the id has none of its own. */
  readonly qp?: QP;
  /** Overrides of the device's wire defaults for this connection (initiator only). */
  readonly wire?: WireOptions;
}

/** The wire choices of one connection (architecture: wire defaults). */
export interface WireOptions {
  readonly mpaRevision?: 1 | 2;
  readonly crc?: boolean;
  readonly markers?: boolean;
  readonly peerToPeer?: boolean;
  readonly fpduSize?: 'emss' | 'large' | number;
}

/** A host and port. IPv4 or IPv6 address in text form. */
export interface SocketAddress {
  readonly address: string;
  readonly port: number;
}

/** An event of a connection id (`struct rdma_cm_event`). */
export interface CMEvent {
  readonly type: CMEventType;
  /** On a connect request: the new id, to accept or reject. Else the id itself. */
  readonly id: ConnectionId;
  /** On a connect request: the listening id. */
  readonly listenId: ConnectionId | undefined;
  /** undefined for success, else why. */
  readonly error: ErrnoCode | undefined;
  readonly privateData: Uint8Array;
  /** The peer's depths, crossed over to this side's view, where it told them. */
  readonly initiatorDepth: number | undefined;
  readonly responderResources: number | undefined;
  /** One line for people. */
  readonly text: string;
}

/** A connection id of the connection manager (`struct rdma_cm_id`). */
export interface ConnectionId extends VerbsObject {
  readonly provider: Provider;
  /** The device, once an address is bound or resolved. */
  readonly device: string | undefined;
  readonly localAddress: SocketAddress | undefined;
  readonly peerAddress: SocketAddress | undefined;
  readonly qp: QP | undefined;
  /** Binds to a local address; port 0 picks one. EADDRINUSE, EADDRNOTAVAIL. */
  bindAddr(address: SocketAddress): Promise<void>;
  /** Resolves a destination to a device. The outcome is also the promise's. EADDRNOTAVAIL … */
  resolveAddr(
    destination: SocketAddress,
    options?: { readonly source?: SocketAddress; readonly timeoutMs?: number },
  ): Promise<void>;
  /** Nothing to find out on iWARP; for symmetry with rdma_cm. */
  resolveRoute(timeoutMs?: number): Promise<void>;
  /** Creates the id's own QP (`rdma_create_qp`); it closes with the id. */
  createQP(pd: PD, init: QPInit): Promise<QP>;
  /** Starts to listen; connect requests come as events. `backlog` requests may wait. */
  listen(backlog?: number): Promise<void>;
  /** Connects; resolves when established. ECONNREFUSED, ETIMEDOUT, ECONNRESET; rejected: see event. */
  connect(parameters?: ConnectionParameters): Promise<CMEvent>;
  /** Accepts a connect request; resolves when established. */
  accept(parameters?: ConnectionParameters): Promise<CMEvent>;
  reject(privateData?: Uint8Array): Promise<void>;
  /** Closes the connection gracefully; both sides get `disconnected`. ENOTCONN, EINVAL. */
  disconnect(): Promise<void>;
  /** The next event of this id, in order. Events that a promise above reported come here too. */
  nextEvent(options?: { readonly signal?: CancelSignal }): Promise<CMEvent>;
  /** Events until the id closes. */
  events(): AsyncIterable<CMEvent>;
}
