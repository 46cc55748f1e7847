/**
 * The verbs as a TypeScript program sees them. Three providers implement this one interface: the
 * daemon's client, the embedded device (no daemon), and the native bridge over rdma-core. A compliance
 * suite runs over each.
 *
 * Calls that create, change or destroy are asynchronous (they may cross to a daemon); calls of the data
 * path (`postSend`, `postRecv`, `poll`, `requestNotify`) are synchronous. Errors are `VerbsError`s with
 * an errno code. Every object has one owner and is disposed with `await using`, `close()`, or with its
 * context; a second disposal does nothing.
 *
 * Every call may fail with these errors, which are not repeated below: EINVAL on a closed object, EIO
 * once the device or its daemon is gone, EOPNOTSUPP for operations that the device does not support
 * (some native ones; the message names device and operation). A refused call changes nothing.
 */
import type {
  AHAttributes,
  DeviceAttributes,
  DeviceInfo,
  GidEntry,
  PortAttributes,
  QPCapabilities,
  SRQAttributes,
} from './attributes.ts';
import type { AsyncEvent, WC } from './completion.ts';
import type { Access, CMEventType, MWType, QPType } from './enums.ts';
import type { ErrnoCode } from './errors.ts';
import type { QPAttributes, QPModification } from './qp-attributes.ts';
import type { RemoteMemory } from './remote-memory.ts';
import type { AddressHandleRef, RecvWR, SendWR, SGE } from './work-request.ts';

/** Cancels a waiting call, which then rejects; an `AbortSignal` is one. */
export interface CancelSignal {
  /** True once the caller has cancelled. */
  readonly aborted: boolean;
  /** The error that the waiting call rejects with. */
  readonly reason: unknown;
  /** Calls `listener` when the caller cancels. */
  addEventListener(type: 'abort', listener: () => void): void;
  /** Undoes `addEventListener`. */
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** Limits of a call. Without either field it waits indefinitely. */
export interface WaitLimit {
  /** Cancels when it aborts: the call rejects with the signal's reason. */
  readonly signal?: CancelSignal | undefined;
  /** Cancels after this many milliseconds: the call rejects with ETIMEDOUT. */
  readonly timeoutMs?: number | undefined;
}

/** An object that must be closed. */
export interface VerbsObject extends AsyncDisposable {
  /**
   * Destroys the object (`ibv_dealloc_pd`, `ibv_dereg_mr`, `ibv_destroy_qp` and so on).
   *
   * Effect: the object rejects all later calls. Errors: EBUSY while other objects depend on it; it
   * then stays as it was. Notes: a second call does nothing. After the loss of the device the call
   * succeeds, since there is nothing left to release.
   */
  close(): Promise<void>;
}

/** A source of devices. Closing it closes connections gracefully, then everything else. */
export interface Provider extends VerbsObject {
  /** Type of the provider. */
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
   * Creates a connection id (`rdma_create_id` with RDMA_PS_TCP, or RDMA_PS_UDP for datagrams).
   *
   * Effect: the id is idle, neither bound nor resolved. Errors: ENOMEM; EOPNOTSUPP for datagrams
   * without a RoCE device.
   */
  createId(init?: ConnectionIdInit): Promise<ConnectionId>;
}

/** Options of a connection id. */
export interface ConnectionIdInit {
  /**
   * The id finds a datagram service (`connect`) or provides one (`listen`, `accept`), without a
   * connection. Default false.
   */
  readonly datagrams?: boolean | undefined;
}

/** An opened device. Closing it closes everything created from it, dependants first. */
export interface Context extends VerbsObject {
  /** The provider that opened it. */
  readonly provider: Provider;
  /** The device that is open. */
  readonly device: DeviceInfo;
  /** Queries identity and limits (`ibv_query_device`). */
  queryDevice(): Promise<DeviceAttributes>;
  /** Queries the state of a port (`ibv_query_port`). Errors: EINVAL unless `port` is 1. */
  queryPort(port?: number): Promise<PortAttributes>;
  /**
   * The entries of the GID table that are in use (`ibv_query_gid_table`): link-local at index 0,
   * IPv4 from index 1 on, then IPv6. Errors: EOPNOTSUPP on a device without a table (iWARP).
   */
  queryGidTable(): Promise<readonly GidEntry[]>;
  /** Allocates a protection domain (`ibv_alloc_pd`). Errors: ENOMEM. */
  allocPD(): Promise<PD>;
  /** Creates a channel that completion queues may report to (`ibv_create_comp_channel`). ENOMEM. */
  createCompChannel(): Promise<CompChannel>;
  /**
   * Creates a completion queue (`ibv_create_cq`).
   *
   * Errors: EINVAL for less than 1 entry or more than the device's `maxCqe`, or a channel of
   * another context; ENOMEM. Notes: size it for all requests of its queue pairs. A queue that
   * overflows loses completions and raises `cqErr`.
   */
  createCQ(init: CQInit): Promise<CQ>;
  /**
   * Asynchronous events of the device and of objects created here (`ibv_get_async_event`).
   *
   * Effect: each event is delivered once, to one of the loops that iterate; events that arrive
   * before a loop starts wait for it. A loop ends when the context closes, and throws EIO when the
   * device is lost. Notes: delivery acknowledges an event.
   */
  asyncEvents(): AsyncIterable<AsyncEvent>;
}

/** A protection domain. */
export interface PD extends VerbsObject {
  /** The context that created the domain. */
  readonly context: Context;
  /**
   * Registers bytes of this process (`ibv_reg_mr`).
   *
   * Effect: the device may access `buffer` as the bits of `Access` allow, and peers may by the
   * region's rkey. The buffer is held, and must not be resized or transferred, until the region is
   * closed. Errors: EINVAL for an empty buffer, unknown bits, remote write or remote atomic without
   * local write, a key above 255, or addresses beyond 64 bits; EOPNOTSUPP for remote atomics if the
   * device has no direct access; ENOMEM. Notes: `tier` of the result shows how the device accesses
   * the bytes. Memory from `allocMR` is the fastest, and a part of it may be registered again.
   */
  regMR(buffer: Uint8Array, access: Access, options?: MROptions): Promise<MR>;
  /**
   * Allocates zeroed memory with the device's fastest kind of access, and registers all of it.
   *
   * Effect and errors: as `regMR`. The memory is freed with the last region registered in it; views
   * that the program still holds stay readable.
   */
  allocMR(lengthBytes: number, access: Access, options?: MROptions): Promise<MR>;
  /** Allocates an unbound memory window (`ibv_alloc_mw`). Errors: EINVAL, ENOMEM. */
  allocMW(type: MWType): Promise<MW>;
  /**
   * Creates a shared receive queue (`ibv_create_srq`). Errors: EINVAL beyond the limits, ENOMEM.
   */
  createSRQ(init: SRQInit): Promise<SRQ>;
  /**
   * Creates an address handle (`ibv_create_ah`): a destination that datagrams name.
   *
   * Errors: EINVAL for text that is no GID, a GID of another family than that of `sgidIndex`, or a
   * port other than 1; ENODATA for an empty entry of the GID table; ETIMEDOUT for a GID that cannot
   * be reached; EOPNOTSUPP on iWARP; ENOMEM. Notes: close it after the datagrams that name it have
   * completed.
   */
  createAH(attributes: AHAttributes): Promise<AH>;
  /**
   * Creates a queue pair without a connection id (`ibv_create_qp`).
   *
   * Effect: the queue pair is in RESET; `capabilities` of the result are the granted sizes, at
   * least the requested ones. On iWARP, connect it by passing it to `ConnectionId.connect` or
   * `accept`; on RoCE, with `QP.modify`. Errors: EINVAL beyond the limits, or for queues of another
   * context; EOPNOTSUPP for a type other than RC on iWARP; ENOMEM.
   */
  createQP(init: QPInit): Promise<QP>;
  /**
   * Closes everything created from the domain, dependants first, and then the domain. Errors: EBUSY
   * as `close`.
   */
  closeAll(): Promise<void>;
}

/** Options of a registration. */
export interface MROptions {
  /** Address that peers use for the first byte (hca_va); default: `address`, or 0 if zero-based. */
  readonly iova?: number | bigint | undefined;
  /** The 8-bit STag key. Default: chosen by the device. */
  readonly key?: number | undefined;
}

/**
 * How the device accesses a memory region: `local`, in the same process (embedded); `shared`, by
 * mapping it (`allocMR`); `process_vm`, by `process_vm_readv` and `process_vm_writev`; `agent`, by a
 * thread of the client that copies; `pinned`, by DMA (native devices).
 */
export type MemoryTier = 'local' | 'shared' | 'process_vm' | 'agent' | 'pinned';

/** A memory region. */
export interface MR extends VerbsObject {
  /** The protection domain of the region. */
  readonly pd: PD;
  /** The registered bytes. */
  readonly buffer: Uint8Array;
  /** Address of the first byte, for SGEs and, unless zero-based, for peers. */
  readonly address: bigint;
  /** Bytes of the region. */
  readonly length: number;
  /** Local key, for SGEs. */
  readonly lkey: number;
  /** Remote key (the STag), for peers. */
  readonly rkey: number;
  /** How the device accesses the bytes. */
  readonly tier: MemoryTier;
  /** Why this tier, in a few words. */
  readonly tierReason: string;
  /** An SGE of `length` bytes at `offset`; the whole region by default. RangeError outside. */
  sge(offset?: number, length?: number): SGE;
  /**
   * Returns the facts that a peer needs to access `length` bytes at `offset`, by default the whole region: plain data
   * for `JSON.stringify`, which the peer checks with `parseRemoteMemory`. RangeError outside;
   * EACCES if the region was registered without `remoteRead`, `remoteWrite` and `remoteAtomic`.
   *
   * The rkey grants access to the whole region, with all its rights, to any queue pair of the
   * protection domain; `offset` and `length` only show the peer where to look.
   */
  export(offset?: number, length?: number): RemoteMemory;
}

/** A memory window. Bind it with a `bindMW` work request, whose rkey it then has. */
export interface MW extends VerbsObject {
  /** The protection domain of the window. */
  readonly pd: PD;
  /** Type 1 or type 2. */
  readonly type: MWType;
  /** The device's number of the window. */
  readonly handle: number;
  /** The current rkey: index in the upper 24 bits, key in the low 8. */
  rkey: number;
}

/** An address handle (`struct ibv_ah`): the destination of datagrams. */
export interface AH extends VerbsObject, AddressHandleRef {
  /** The protection domain of the handle. */
  readonly pd: PD;
  /** The device's number of the handle, which work requests carry. */
  readonly number: number;
}

/** Options of a completion queue. */
export interface CQInit {
  /** Requested entries, at least 1; rounded up to a power of two. */
  readonly cqe: number;
  /** Channel for notifications. Default: a channel inside the context, for `wait` and iteration. */
  readonly channel?: CompChannel | undefined;
}

/** A completion channel (`ibv_create_comp_channel`). */
export interface CompChannel extends VerbsObject {
  /** A descriptor that polls readable while events wait; undefined if the provider has none. */
  readonly fd: number | undefined;
  /**
   * The next completion queue that fired after `requestNotify` (`ibv_get_cq_event`).
   *
   * Effect: waits for an event and acknowledges it. Rejects with the signal's reason when that
   * aborts, with ETIMEDOUT after `timeoutMs`. Notes: arm, poll once more, then wait, or completions
   * in between go unnoticed; `CQ.wait` does this, and its own notifications are not delivered here.
   */
  nextEvent(options?: WaitLimit): Promise<CQ>;
}

/** Options of `CQ.wait`. */
export interface CQWaitOptions extends WaitLimit {
  /** Completions to take, at least 1. Default 16. */
  readonly max?: number | undefined;
}

/** A completion queue. */
export interface CQ extends VerbsObject {
  /** The context that created the queue. */
  readonly context: Context;
  /** The number of the queue in asynchronous events. */
  readonly handle: number;
  /** Capacity in entries. */
  readonly cqe: number;
  /**
   * Takes up to `max` (default 16) completions, oldest first, without waiting (`ibv_poll_cq`).
   *
   * Notes: never fails; after the loss of the device it still returns what was delivered before.
   */
  poll(max?: number): WC[];
  /**
   * Arms one notification on the queue's channel (`ibv_req_notify_cq`).
   *
   * Effect: the next completion fires the queue, or with `solicitedOnly` the next one that is
   * solicited or in error. Completions that are already in the queue do not. A wider request stays
   * when a narrower one follows.
   */
  requestNotify(solicitedOnly?: boolean): void;
  /**
   * Waits until there is at least one completion and takes up to `max` (default 16).
   *
   * Effect: polls, arms, polls again and then waits for the event, so no completion goes unnoticed.
   * Several calls may wait at once. Rejects with the signal's reason when that aborts; with ETIMEDOUT
   * after `timeoutMs`; with EIO when the device is lost, but not before everything delivered was taken.
   */
  wait(options?: CQWaitOptions): Promise<WC[]>;
  /**
   * Completions as they arrive, until the queue closes; throws EIO when the device is lost.
   *
   * Notes: a loop that is left early returns the completions that it took and did not hand out to
   * the queue.
   */
  [Symbol.asyncIterator](): AsyncIterator<WC>;
}

/** Options of a shared receive queue. */
export interface SRQInit {
  /** Capacity of the queue, in receives. */
  readonly maxWr: number;
  /** Scatter/gather elements of a receive. Default 1. */
  readonly maxSge?: number | undefined;
  /** Arms the limit event: see `SRQ.modify`. Default 0: disarmed. */
  readonly srqLimit?: number | undefined;
}

/** A shared receive queue. */
export interface SRQ extends VerbsObject {
  /** The protection domain of the queue. */
  readonly pd: PD;
  /** The number of the queue in asynchronous events. */
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
  /** Queries size and limit (`ibv_query_srq`); a limit of 0 was reached or never set. */
  query(): Promise<SRQAttributes>;
}

/** Options of a queue pair (`struct ibv_qp_init_attr`). */
export interface QPInit {
  /** Default: RC, the only type of iWARP. */
  readonly type?: QPType | undefined;
  /** Queue for completions of send work requests. */
  readonly sendCQ: CQ;
  /** Queue for completions of receives. */
  readonly recvCQ: CQ;
  /** Shared receive queue to use instead of the queue pair's own. */
  readonly srq?: SRQ | undefined;
  /** Capacity of the send queue, in work requests. */
  readonly maxSendWr: number;
  /** Capacity of the receive queue, in receives. */
  readonly maxRecvWr: number;
  /** Scatter/gather elements of a send work request. Default 1. */
  readonly maxSendSge?: number | undefined;
  /** Scatter/gather elements of a receive. Default 1. */
  readonly maxRecvSge?: number | undefined;
  /** Bytes that a send work request may carry inline. Default 0. */
  readonly maxInlineData?: number | undefined;
  /** Every send work request completes, flagged or not. Default false. */
  readonly sqSigAll?: boolean | undefined;
}

/** A queue pair. */
export interface QP extends VerbsObject {
  /** The protection domain of the queue pair. */
  readonly pd: PD;
  /** RC, UC or UD. */
  readonly type: QPType;
  /** The number of the queue pair in asynchronous events. */
  readonly handle: number;
  /** Number of the queue pair on its device. */
  readonly qpNum: number;
  /** Queue for completions of send work requests. */
  readonly sendCQ: CQ;
  /** Queue for completions of receives. */
  readonly recvCQ: CQ;
  /** Sizes of the queues, at least the requested ones. */
  readonly capabilities: QPCapabilities;
  /**
   * Posts one or several send work requests (`ibv_post_send`).
   *
   * Effect: the device executes them in order. Requests posted before the connection is established
   * wait for it; in ERR they are flushed. Inline payload is copied before the call returns; other
   * bytes must not change until the request, or a later signalled one, has completed.
   *
   * Errors: EINVAL for an unknown opcode or flag, too many elements or inline bytes, or a missing
   * operand; ENOMEM when the queue is full. `badIndex` of the error is the first refused request;
   * those before it are posted. Errors that only the device can detect (keys, bounds, rights) are
   * reported in the status of the completion.
   *
   * | opcode | flags | needs |
   * | --- | --- | --- |
   * | `send` | fence, signaled, solicited, inline | UD: `ud` |
   * | `sendWithImm` (RoCE) | same | `immData`, UD: `ud`; at most 5 elements or 64 inline bytes |
   * | `sendWithInv` | same | `invalidateRkey` of the peer |
   * | `rdmaWrite` | fence, signaled, inline | `remoteAddr`, `rkey` |
   * | `rdmaWriteWithImm` | fence, signaled, solicited, inline | same, `immData`; at most 5 elements or 64 inline bytes |
   * | `rdmaRead` | fence, signaled | `remoteAddr`, `rkey`; at most 1 element |
   * | `atomicFetchAndAdd` | fence, signaled | same, `compareAdd`; 1 element of 8 bytes for the result |
   * | `atomicCmpAndSwap` | fence, signaled | same, and `swap` |
   * | `immediate` (iWARP) | fence, signaled, solicited | `immData`; the peer's receive needs room for 8 bytes |
   * | `localInv` | fence, signaled | `invalidateRkey` of this side |
   * | `bindMW` | fence, signaled | `bind` |
   *
   * UC has no reads and atomics, and UD has only Sends: other requests complete with `locQpOpErr`.
   * A datagram longer than a packet (`maxMtuBytes` of the port) is dropped.
   *
   * Notes: prefer lists; each call notifies the device once. On iWARP a completed `rdmaWrite` means
   * that its bytes were sent, not that they arrived (RFC 5040 §5.5); a Send after it notifies the
   * peer. On RoCE a completed request of type RC was acknowledged by the peer's device.
   */
  postSend(wr: SendWR | readonly SendWR[]): void;
  /**
   * Posts one or several receives (`ibv_post_recv`).
   *
   * Effect: each takes one message, in order. In ERR they are flushed. A datagram follows a GRH: its
   * receive needs `GRH_BYTES` more, see `parseGrh`. Errors: EINVAL for too many or malformed elements,
   * or when the queue pair has an SRQ; ENOMEM when the queue is full; `badIndex` as for `postSend`.
   */
  postRecv(wr: RecvWR | readonly RecvWR[]): void;
  /**
   * Changes the state and, on RoCE, other attributes (`ibv_modify_qp`).
   *
   * On RoCE the program connects the queue pair:
   *
   * | step | RC | UC | UD |
   * | --- | --- | --- | --- |
   * | RESET to INIT | `pkeyIndex`, `portNum`, `accessFlags` | same | `pkeyIndex`, `portNum`, `qkey` |
   * | INIT to RTR | `ahAttr`, `pathMtu`, `destQpNum`, `rqPsn`, `maxDestRdAtomic`, `minRnrTimer` | `ahAttr`, `pathMtu`, `destQpNum`, `rqPsn` | |
   * | RTR to RTS | `sqPsn`, `timeout`, `retryCnt`, `rnrRetry`, `maxRdAtomic` | `sqPsn` | `sqPsn` |
   *
   * Effect: SQD finishes started requests and raises `sqDrained`; RTS resumes; ERR flushes; RESET
   * discards everything. Errors: EINVAL for an illegal transition, a missing attribute (the message
   * names it), one that the step does not take, or a value out of range; for `ahAttr` as `createAH`.
   *
   * On iWARP only `state` may be given. Effect: INIT and RTR prepare for a connection; only a
   * connection leads to RTS; SQD sends what is posted and then closes the connection gracefully;
   * SQE sends a Terminate; ERR resets the connection and flushes; RESET discards everything.
   * Errors: EINVAL for an illegal transition, EOPNOTSUPP for other attributes.
   */
  modify(attributes: QPModification): Promise<void>;
  /** Queries number, type, state, sizes and attributes (`ibv_query_qp`). */
  query(): Promise<QPAttributes>;
  /**
   * Attaches the queue pair, of type UD, to a multicast GID, whose datagrams it then receives
   * (`ibv_attach_mcast`). A second call does nothing. Errors: EINVAL for another type or GID; ENOMEM;
   * EOPNOTSUPP on iWARP.
   */
  attachMcast(gid: string): Promise<void>;
  /** Undoes `attachMcast` (`ibv_detach_mcast`). Errors: EINVAL if it was not attached. */
  detachMcast(gid: string): Promise<void>;
}

/** Parameters of connect and accept (`struct rdma_conn_param`). */
export interface ConnectionParameters {
  /**
   * At most 508 bytes with MPA revision 2, 512 with revision 1; on a RoCE device 56 to connect and
   * 196 to accept, for datagrams 180 and 136, and the peer gets zeros up to that length; on a
   * native device the driver's limit, at most 255. EINVAL above.
   */
  readonly privateData?: Uint8Array | undefined;
  /** Requested outbound reads (ORD, initiator_depth). Default: the device's maximum. */
  readonly initiatorDepth?: number | undefined;
  /** Offered inbound reads (IRD, responder_resources). Default: the device's maximum. */
  readonly responderResources?: number | undefined;
  /** The QP to connect, if the id has none of its own. */
  readonly qp?: QP | undefined;
  /** To accept for datagrams: key of the queue pair. Default `RDMA_UDP_QKEY`. */
  readonly qkey?: number | undefined;
  /** Overrides of the device's wire defaults for this connection (initiator only). */
  readonly wire?: WireOptions | undefined;
}

/**
 * Wire options of one connection; missing ones default to the device's (daemon/ARCHITECTURE.md,
 * "Seams").
 */
export interface WireOptions {
  /** MPA revision: 2 negotiates read depths (RFC 6581), 1 does not. */
  readonly mpaRevision?: 1 | 2 | undefined;
  /**
   * CRC32C in FPDUs. Without it corruption may pass unnoticed; the peer must agree (RFC 5044 §7.1).
   */
  readonly crc?: boolean | undefined;
  /** Asks the peer to send MPA markers. */
  readonly markers?: boolean | undefined;
  /**
   * Offers a ready-to-receive message, so that either side may send first (RFC 6581 §9). Without it
   * the client must send first.
   */
  readonly peerToPeer?: boolean | undefined;
  /**
   * Size of FPDUs: `emss` fits one TCP segment, `large` is faster between software peers, a number
   * is in bytes.
   */
  readonly fpduSize?: 'emss' | 'large' | number | undefined;
}

/** An address and a port. */
export interface SocketAddress {
  /** IPv4 or IPv6 address as text. */
  readonly address: string;
  /** TCP port. */
  readonly port: number;
}

/** Options of `ConnectionId.resolveAddr`. */
export interface ResolveOptions {
  /** Local address to start from, which also selects the device. */
  readonly source?: SocketAddress | undefined;
  /** Limit in milliseconds. Default 2000. */
  readonly timeoutMs?: number | undefined;
}

/** An event of a connection id (`struct rdma_cm_event`). */
export interface CMEvent {
  /** The kind of event. */
  readonly type: CMEventType;
  /** On a connect request: the new id, to accept or reject. Otherwise the id itself. */
  readonly id: ConnectionId;
  /** On a connect request: the listening id. */
  readonly listenId: ConnectionId | undefined;
  /** undefined on success, otherwise the reason. */
  readonly error: ErrnoCode | undefined;
  /** Private data of the peer's request or reply; may be empty. */
  readonly privateData: Uint8Array;
  /** Reads and atomics that this side may have outstanding (ORD); undefined if the peer did not say. */
  readonly initiatorDepth: number | undefined;
  /** Reads and atomics that the peer may have outstanding here (IRD); undefined if the peer did not say. */
  readonly responderResources: number | undefined;
  /** On an established id for datagrams: the address of the service. */
  readonly ud?: ServiceAddress | undefined;
  /** One readable line. */
  readonly text: string;
}

/** Address of a datagram service (`struct rdma_ud_param`). */
export interface ServiceAddress {
  /** For `PD.createAH`. */
  readonly ahAttr: AHAttributes;
  /** Number of its queue pair. */
  readonly qpNum: number;
  /** Key of its queue pair. */
  readonly qkey: number;
}

/**
 * A connection id of the connection manager (`struct rdma_cm_id`). Closing it disconnects
 * gracefully and closes its own queue pair.
 */
export interface ConnectionId extends VerbsObject {
  /** The provider that created the id. */
  readonly provider: Provider;
  /** The device, once an address is bound or resolved. */
  readonly device: string | undefined;
  /** Local address and port, once bound or resolved. */
  readonly localAddress: SocketAddress | undefined;
  /** Address and port of the peer, once resolved. */
  readonly peerAddress: SocketAddress | undefined;
  /** Its queue pair; undefined without one. */
  readonly qp: QP | undefined;
  /**
   * Binds to a local address (`rdma_bind_addr`); port 0 picks a free one, see `localAddress`. Like a
   * wildcard (`0.0.0.0`, `::`), a loopback address that no device lists leaves the device undecided.
   *
   * Errors: EADDRINUSE; EADDRNOTAVAIL if the host does not have the address, ENODEV if no device
   * answers for it; EACCES for a privileged port; EINVAL if the id is bound, or for text that is not an
   * address.
   */
  bindAddr(address: SocketAddress): Promise<void>;
  /**
   * Resolves a destination to a device (`rdma_resolve_addr`).
   *
   * Effect: sets `device`, `localAddress` and `peerAddress`; the outcome is also delivered as an
   * event. Port 0 is enough to find the device, but not to connect. Errors: ENODEV if no device has
   * the source address, ENETUNREACH, EADDRNOTAVAIL, EINVAL.
   */
  resolveAddr(destination: SocketAddress, options?: ResolveOptions): Promise<void>;
  /** Does nothing on iWARP; exists for symmetry with rdma_cm. EINVAL before `resolveAddr`. */
  resolveRoute(timeoutMs?: number): Promise<void>;
  /**
   * Creates the id's own queue pair (`rdma_create_qp`).
   *
   * Effect: as `PD.createQP`, in INIT; on an id for datagrams, of type UD, in RTS and with the key
   * `RDMA_UDP_QKEY`. It closes with the id. Errors: EINVAL also if the id has one, or no device yet,
   * or another device than `pd`.
   */
  createQP(pd: PD, init: QPInit): Promise<QP>;
  /**
   * Starts to listen (`rdma_listen`); an unbound id listens on any address and a free port.
   *
   * Effect: each connect request arrives as an event with a new id; accept or reject that id. At
   * most `backlog` requests (default 128) wait for an answer, further ones are rejected. Errors:
   * EADDRINUSE, EINVAL.
   */
  listen(backlog?: number): Promise<void>;
  /**
   * Connects the queue pair (`rdma_connect`).
   *
   * Effect: resolves with the established event, which has the peer's private data and the
   * negotiated depths. Rejects with `ConnectionRejectedError` (ECONNREFUSED) if the peer rejects or
   * nothing listens; ETIMEDOUT, ECONNRESET, ENETUNREACH, EHOSTUNREACH if the peer cannot be
   * reached; ECONNABORTED if the id is closed in the meantime; EISCONN if the queue pair is
   * connected; EINVAL for too much private data, bad depths, or no queue pair. Notes: after a
   * failure the id can only be closed; the queue pair can be connected again.
   *
   * An id for datagrams asks for the service. It needs no queue pair, and uses only the private data
   * of the parameters. Effect: resolves with an event whose `ud` is the address of the service.
   * Errors: the same.
   */
  connect(parameters?: ConnectionParameters): Promise<CMEvent>;
  /**
   * Accepts a connect request (`rdma_accept`), on the id that arrived with it.
   *
   * Effect: resolves with the established event. Errors: ECONNRESET if the peer disconnected, and
   * as `connect`. Notes: post receives first, since the peer may send at once.
   *
   * For datagrams it sends the peer the number of the queue pair, and `qkey`. Effect: resolves once
   * these are sent. The peer answers with datagrams; no other event follows.
   */
  accept(parameters?: ConnectionParameters): Promise<CMEvent>;
  /**
   * Rejects a connect request (`rdma_reject`), with at most 508 bytes for the peer (512 for one of
   * MPA revision 1). Errors: EINVAL. Notes: closing the id rejects, too.
   */
  reject(privateData?: Uint8Array): Promise<void>;
  /**
   * Closes the connection gracefully (`rdma_disconnect`).
   *
   * Effect: data in flight is delivered, then both sides get `disconnected` and their queue pairs
   * flush. Does nothing on a connection that has ended. Errors: EINVAL without a connection.
   */
  disconnect(): Promise<void>;
  /**
   * The next event of this id (`rdma_get_cm_event`), in order.
   *
   * Effect: waits for an event and acknowledges it; events that also settled one of the promises above
   * are delivered here too. Rejects with the signal's reason when that aborts, with ETIMEDOUT after
   * `timeoutMs`. Notes: when a listener closes, connect requests that were not taken are rejected.
   */
  nextEvent(options?: WaitLimit): Promise<CMEvent>;
  /** Events until the id closes. */
  events(): AsyncIterable<CMEvent>;
}
