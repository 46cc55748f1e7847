/**
 * The verbs as a TypeScript program sees them. Three providers implement this one interface: the
 * daemon's client, the embedded device (no daemon), and the native bridge over rdma-core. A
 * compliance suite runs over each.
 *
 * Calls that create, change or destroy are asynchronous (they may cross to a daemon); calls of the
 * data path (`postSend`, `postRecv`, `poll`, `requestNotify`) are synchronous. Refusals are
 * `VerbsError`s with an errno code. Every object has one owner and is disposed with
 * `await using`, `close()`, or with its context; a second disposal does nothing.
 *
 * Errors that every call may give, and which are therefore not repeated below: EINVAL on an object
 * that is closed, EIO once the device or its daemon is gone, EOPNOTSUPP for what the device lacks
 * (native ones lack some of this; the message names device and lack). A refused call changes nothing.
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
  /**
   * Destroys the object (`ibv_dealloc_pd`, `ibv_dereg_mr`, `ibv_destroy_qp` and so on).
   *
   * Effect: the object takes no more calls from here on. Errors: EBUSY while other objects depend
   * on it; it then stays as it was. Notes: a second call does nothing. After the loss of the device
   * the call succeeds, since nothing is left to give back.
   */
  close(): Promise<void>;
}

/** A source of devices. Closing it closes connections gracefully, then everything else. */
export interface Provider extends VerbsObject {
  readonly kind: 'daemon' | 'embedded' | 'native';
  /** Lists the devices (`ibv_get_device_list`), in the order of their configuration. */
  devices(): Promise<readonly DeviceInfo[]>;
  /**
   * Opens a device (`ibv_open_device`).
   *
   * Effect: returns a context of the device called `name`, or of the first one. A device may be
   * opened any number of times; the contexts share nothing. Errors: ENODEV, ENOMEM.
   */
  open(name?: string): Promise<Context>;
  /**
   * Makes a connection id (`rdma_create_id` with RDMA_PS_TCP).
   *
   * Effect: the id is idle, neither bound nor resolved. Errors: ENOMEM.
   */
  createId(): Promise<ConnectionId>;
}

/** An opened device. Closing it closes everything that was made from it, dependants first. */
export interface Context extends VerbsObject {
  readonly provider: Provider;
  readonly device: DeviceInfo;
  /** Tells identity and limits (`ibv_query_device`). */
  queryDevice(): Promise<DeviceAttributes>;
  /** Tells the state of a port (`ibv_query_port`). Errors: EINVAL unless `port` is 1. */
  queryPort(port?: number): Promise<PortAttributes>;
  /** Allocates a protection domain (`ibv_alloc_pd`). Errors: ENOMEM. */
  allocPD(): Promise<PD>;
  /** Makes a channel that completion queues may report to (`ibv_create_comp_channel`). ENOMEM. */
  createCompChannel(): Promise<CompChannel>;
  /**
   * Makes a completion queue (`ibv_create_cq`).
   *
   * Errors: EINVAL for less than 1 entry or more than the device's `maxCqe`, or a channel of another
   * context; ENOMEM. Notes: size it for all requests of its queue pairs. A queue that overflows
   * loses completions and raises `cqErr`.
   */
  createCQ(init: CQInit): Promise<CQ>;
  /**
   * Asynchronous events of the device and of objects made here (`ibv_get_async_event`).
   *
   * Effect: each event is delivered once, to one of the loops that iterate; events that come before
   * a loop starts wait for it. A loop ends when the context closes, and throws EIO when the device
   * is lost. Notes: an event is acknowledged by being delivered.
   */
  asyncEvents(): AsyncIterable<AsyncEvent>;
}

/** A protection domain. */
export interface PD extends VerbsObject {
  readonly context: Context;
  /**
   * Registers octets of this process (`ibv_reg_mr`).
   *
   * Effect: the device may reach `buffer` as the bits of `Access` allow, and peers by the region's
   * rkey. The buffer is held, and must not be resized or transferred, until the region is closed.
   * Errors: EINVAL for an empty buffer, unknown bits, remote write or remote atomic without local
   * write, a key above 255, or an address above 2^53; EOPNOTSUPP for remote atomics where the device
   * has no direct access; ENOMEM. Notes: `tier` of the result tells how the device gets at the
   * octets. Memory from `allocMR` is the fastest, and a part of it may be registered again.
   */
  regMR(buffer: Uint8Array, access: number, options?: MROptions): Promise<MR>;
  /**
   * Allocates zeroed memory that the device reaches best, and registers all of it.
   *
   * Effect and errors: as `regMR`. The memory goes with the last region registered in it; views
   * that the program still holds stay readable.
   */
  allocMR(lengthBytes: number, access: number, options?: MROptions): Promise<MR>;
  /** Allocates a memory window, not bound (`ibv_alloc_mw`). Errors: EINVAL, ENOMEM. */
  allocMW(type: MWType): Promise<MW>;
  /** Makes a shared receive queue (`ibv_create_srq`). Errors: EINVAL beyond the limits, ENOMEM. */
  createSRQ(init: SRQInit): Promise<SRQ>;
  /**
   * Makes a reliable-connected queue pair without a connection id (`ibv_create_qp`).
   *
   * Effect: the queue pair is in RESET; `capabilities` of the result tell what was granted, at least
   * what was asked for. Connect it by giving it to `ConnectionId.connect` or `accept`. Errors:
   * EINVAL beyond the limits, or for queues of another context; ENOMEM.
   */
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
  /** Where notifications go. Default: a channel inside the context, for `wait` and iteration. */
  readonly channel?: CompChannel;
}

/** A completion channel (`ibv_create_comp_channel`). */
export interface CompChannel extends VerbsObject {
  /** A descriptor that polls readable while events wait, or undefined where there is none. */
  readonly fd: number | undefined;
  /**
   * The next completion queue that fired after `requestNotify` (`ibv_get_cq_event`).
   *
   * Effect: waits for an event and acknowledges it. Rejects with the signal's reason when that
   * aborts. Notes: arm, poll once more, then wait, or completions in between go unnoticed;
   * `CQ.wait` does just that, and what it arms itself does not come here.
   */
  nextEvent(options?: { readonly signal?: CancelSignal }): Promise<CQ>;
}

/** A completion queue. */
export interface CQ extends VerbsObject {
  readonly context: Context;
  readonly handle: number;
  /** Entries it holds. */
  readonly cqe: number;
  /**
   * Takes up to `max` (default 16) completions, oldest first, without waiting (`ibv_poll_cq`).
   *
   * Notes: never fails; it works on after the device is lost, on what was delivered before.
   */
  poll(max?: number): WC[];
  /**
   * Arms one notification on the queue's channel (`ibv_req_notify_cq`).
   *
   * Effect: the next completion fires the queue, or with `solicitedOnly` the next that is solicited
   * or in error. Completions that are there already do not. A wider request stays when a narrower
   * one follows.
   */
  requestNotify(solicitedOnly?: boolean): void;
  /**
   * Waits until at least one completion is there and takes up to `max` (default 16).
   *
   * Effect: polls, arms, polls again and then waits for the event, so that no completion goes
   * unnoticed. Several calls may wait at once. Rejects with the signal's reason when that aborts;
   * EIO when the device is lost, but not before everything delivered was taken.
   */
  wait(options?: { readonly max?: number; readonly signal?: CancelSignal }): Promise<WC[]>;
  /**
   * Completions as they come, until the queue closes; throws EIO when the device is lost.
   *
   * Notes: a loop that is left early gives back what it took and did not hand out.
   */
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
  /**
   * Posts one or several receives (`ibv_post_srq_recv`), which any queue pair of the SRQ may take.
   *
   * Errors: EINVAL for too many or malformed elements, ENOMEM when the queue is full; `badIndex` of
   * the error is the first refused one, those before it are posted.
   */
  postRecv(wr: RecvWR | readonly RecvWR[]): void;
  /**
   * Arms the limit event (`ibv_modify_srq`).
   *
   * Effect: `srqLimitReached` is raised once, when fewer than `srqLimit` receives are left; 0
   * disarms it. Errors: EINVAL above the queue's size.
   */
  modify(attributes: { readonly srqLimit: number }): Promise<void>;
  /** Tells size and limit (`ibv_query_srq`); a limit of 0 was reached or never set. */
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
   * Posts one or several send work requests (`ibv_post_send`).
   *
   * Effect: the device carries them out in order. Requests posted before the connection is there
   * wait for it; in ERR they are flushed. Inline payload is copied before the call returns; other
   * octets must stay as they are until the request, or a later signalled one, has completed.
   *
   * Errors: EINVAL for an unknown opcode or flag, too many elements or inline octets, or a missing
   * operand; ENOMEM when the queue is full. `badIndex` of the error is the first refused request;
   * those before it are posted. What only the device can tell (keys, bounds, rights) comes as the
   * status of the completion.
   *
   * | opcode | flags | needs |
   * | --- | --- | --- |
   * | `send` | fence, signaled, solicited, inline | |
   * | `sendWithInv` | same | `invalidateRkey` of the peer |
   * | `rdmaWrite` | fence, signaled, inline | `remoteAddr`, `rkey` |
   * | `rdmaWriteWithImm` | fence, signaled, solicited, inline | same, `immData`; at most 5 elements or 64 inline octets |
   * | `rdmaRead` | fence, signaled | `remoteAddr`, `rkey`; at most 1 element |
   * | `atomicFetchAndAdd` | fence, signaled | same, `compareAdd`; 1 element of 8 octets for the result |
   * | `atomicCmpAndSwap` | fence, signaled | same, and `swap` |
   * | `immediate` | fence, signaled, solicited | `immData`; the peer's receive needs room for 8 octets |
   * | `localInv` | fence, signaled | `invalidateRkey` of our own |
   * | `bindMW` | fence, signaled | `bind` |
   *
   * Notes: post lists where you can; the device is told once per call. A completed `rdmaWrite` says
   * that its octets left, not that they arrived (RFC 5040 §5.5); a Send behind it tells the peer.
   */
  postSend(wr: SendWR | readonly SendWR[]): void;
  /**
   * Posts one or several receives (`ibv_post_recv`).
   *
   * Effect: each takes one message, in order. In ERR they are flushed. Errors: EINVAL for too many
   * or malformed elements, or when the queue pair has an SRQ; ENOMEM when the queue is full;
   * `badIndex` as for `postSend`.
   */
  postRecv(wr: RecvWR | readonly RecvWR[]): void;
  /**
   * Requests a state (`ibv_modify_qp`).
   *
   * Effect: INIT and RTR prepare for a connection, which alone leads to RTS; SQD sends what is
   * posted and then closes the connection gracefully; SQE sends a Terminate; ERR resets the
   * connection and flushes; RESET forgets everything. Errors: EINVAL for a step that is not legal.
   */
  modify(attributes: { readonly state: QPState }): Promise<void>;
  /** Tells state, sizes and negotiated read depths (`ibv_query_qp`). */
  query(): Promise<QPAttributes>;
}

/** Parameters of connect and accept (`struct rdma_conn_param`). */
export interface ConnectionParameters {
  /**
   * At most 508 octets with MPA revision 2, 512 with revision 1; on a native device what its driver
   * carries, at most 255. EINVAL above.
   */
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

/**
 * A connection id of the connection manager (`struct rdma_cm_id`). Closing it disconnects
 * gracefully and closes its own queue pair.
 */
export interface ConnectionId extends VerbsObject {
  readonly provider: Provider;
  /** The device, once an address is bound or resolved. */
  readonly device: string | undefined;
  readonly localAddress: SocketAddress | undefined;
  readonly peerAddress: SocketAddress | undefined;
  readonly qp: QP | undefined;
  /**
   * Binds to a local address (`rdma_bind_addr`); port 0 picks a free one, see `localAddress`.
   *
   * Errors: EADDRINUSE; EADDRNOTAVAIL when the host lacks the address, ENODEV when no device answers
   * for it; EACCES for a port of the administrator's; EINVAL when the id is bound, or for text that
   * is no address.
   */
  bindAddr(address: SocketAddress): Promise<void>;
  /**
   * Resolves a destination to a device (`rdma_resolve_addr`).
   *
   * Effect: `device`, `localAddress` and `peerAddress` are set; the outcome comes as an event, too.
   * Errors: ENODEV when no device has the source address, ENETUNREACH, EADDRNOTAVAIL, EINVAL.
   */
  resolveAddr(
    destination: SocketAddress,
    options?: { readonly source?: SocketAddress; readonly timeoutMs?: number },
  ): Promise<void>;
  /** Nothing to find out on iWARP; for symmetry with rdma_cm. EINVAL before `resolveAddr`. */
  resolveRoute(timeoutMs?: number): Promise<void>;
  /**
   * Makes the id's own queue pair (`rdma_create_qp`).
   *
   * Effect: as `PD.createQP`, in INIT; it closes with the id. Errors: EINVAL also when the id has
   * one, or no device yet, or another device than `pd`.
   */
  createQP(pd: PD, init: QPInit): Promise<QP>;
  /**
   * Starts to listen (`rdma_listen`); an id that is not bound takes any address and a free port.
   *
   * Effect: connect requests come as events with a new id each; accept or reject that one.
   * `backlog` of them (default 128) may wait for an answer, further ones are rejected. Errors:
   * EADDRINUSE, EINVAL.
   */
  listen(backlog?: number): Promise<void>;
  /**
   * Connects the queue pair (`rdma_connect`).
   *
   * Effect: resolves with the established event, which has the peer's private data and the
   * negotiated depths. Rejects with `ConnectionRejectedError` (ECONNREFUSED) when the peer says no
   * or nobody listens; ETIMEDOUT, ECONNRESET, ENETUNREACH, EHOSTUNREACH when it cannot be reached;
   * ECONNABORTED when the id is closed meanwhile; EISCONN when the queue pair is connected; EINVAL
   * for too much private data, bad depths, or no queue pair. Notes: after a failure the id can only
   * be closed; the queue pair can be connected anew.
   */
  connect(parameters?: ConnectionParameters): Promise<CMEvent>;
  /**
   * Accepts a connect request (`rdma_accept`), on the id that came with it.
   *
   * Effect: resolves with the established event. Errors: ECONNRESET when the peer went away, and as
   * `connect`. Notes: post receives first, since the peer may send at once.
   */
  accept(parameters?: ConnectionParameters): Promise<CMEvent>;
  /**
   * Rejects a connect request (`rdma_reject`), with at most 508 octets for the peer (512 for one of
   * MPA revision 1). Errors: EINVAL. Notes: closing the id rejects, too.
   */
  reject(privateData?: Uint8Array): Promise<void>;
  /**
   * Closes the connection gracefully (`rdma_disconnect`).
   *
   * Effect: what is on its way is delivered, then both sides get `disconnected` and their queue
   * pairs flush. Nothing happens on a connection that has ended. Errors: EINVAL without one.
   */
  disconnect(): Promise<void>;
  /**
   * The next event of this id (`rdma_get_cm_event`), in order.
   *
   * Effect: waits for an event and acknowledges it; what a promise above reported comes here too.
   * Rejects with the signal's reason when that aborts. Notes: a connect request that nobody took
   * when its listener closes is rejected.
   */
  nextEvent(options?: { readonly signal?: CancelSignal }): Promise<CMEvent>;
  /** Events until the id closes. */
  events(): AsyncIterable<CMEvent>;
}
