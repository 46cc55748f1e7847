/** Connection ids of rdma_cm and their event channel. */
import { CMEventType, QPState } from '#contract/verbs/enums';
import type { SocketAddress } from '#contract/verbs/provider';
import { lastErrno } from '../libc/libc.ts';
import { holdRoot, releaseRoot } from '../libc/open-roots.ts';
import { makeNonBlocking, WOULD_BLOCK_ERRNO } from '../libc/watched-descriptor.ts';
import { nodeFailure } from './device-node.ts';
import { callFailure, invalid } from './errors.ts';
import { CONSTANTS, fieldOf } from './layouts.ts';
import { callBlocking, checkErrno, type Libraries } from './libraries.ts';
import { NativeObject } from './native-object.ts';
import type { NativeQP } from './queue-pair.ts';
import { fromSockaddr, toSockaddr } from './socket-address.ts';
import { Block, copyOut, peek, pointerAt, StructBlock } from './struct-block.ts';

const POINTER_BYTES = 8;
/** "As many as the device supports": RDMA_MAX_RESP_RES and RDMA_MAX_INIT_DEPTH. */
export const DEPTH_OF_DEVICE = CONSTANTS.RDMA_MAX_INIT_DEPTH;

interface NativeConnectionParameters {
  readonly privateData: Uint8Array;
  /** Outbound and inbound reads, or `DEPTH_OF_DEVICE`. */
  readonly initiatorDepth: number;
  readonly responderResources: number;
  readonly qp: NativeQP;
}

export interface NativeCMEvent {
  /** `enum rdma_cm_event_type`. */
  readonly type: number;
  /** For a connect request, a new id, which the reader owns. */
  readonly id: NativeCmId;
  /** For a connect request, the listening id. */
  readonly listenId: NativeCmId | undefined;
  /** An errno number, or 0. For a rejection it may be a positive reason of the transport. */
  readonly status: number;
  readonly privateData: Uint8Array;
  readonly initiatorDepth: number;
  readonly responderResources: number;
}

/** The event channel of any number of ids. */
export class NativeEventChannel extends NativeObject {
  readonly libraries: Libraries;
  /** Readable while events are pending; non-blocking. */
  readonly descriptor: number;
  readonly #ids = new Map<number, NativeCmId>();
  /** Rejections of requests for closed listeners, while in progress. */
  readonly #rejections = new Set<Promise<void>>();
  readonly #result = new Block(POINTER_BYTES);
  readonly #event = new StructBlock('rdma_cm_event');

  /**
   * Opens the connection manager. Throws `NativeError`: `noDevice` if the kernel has none,
   * `noPermission`.
   */
  constructor(libraries: Libraries) {
    const pointer = libraries.cm.rdma_create_event_channel();
    if (pointer === 0) {
      throw nodeFailure('rdma_create_event_channel', 'this host', 'rdma_cm', lastErrno());
    }
    super('the event channel of rdma_cm', pointer, []);
    this.libraries = libraries;
    this.descriptor = peek('rdma_event_channel', 'fd', pointer);
    makeNonBlocking(this.descriptor);
    holdRoot(this);
  }

  /** Creates an id (`RDMA_PS_TCP`). */
  createId(): NativeCmId {
    const { cm } = this.libraries;
    const { address, view } = this.#result;
    checkErrno(
      'rdma_create_id',
      this.subject,
      cm.rdma_create_id(this.pointer, address, 0, CONSTANTS.RDMA_PS_TCP),
    );
    return this.#adopt(Number(view.getBigUint64(0, true)));
  }

  /** Takes the next event and acknowledges it; undefined if none is pending. */
  readEvent(): NativeCMEvent | undefined {
    const { cm } = this.libraries;
    for (;;) {
      if (cm.rdma_get_cm_event(this.pointer, this.#result.address) !== 0) {
        const errno = lastErrno();
        if (errno === WOULD_BLOCK_ERRNO) return undefined;
        throw callFailure('rdma_get_cm_event', this.subject, errno);
      }
      const pointer = pointerAt(this.#result.address);
      const event = this.#translate(this.#event.load(pointer));
      // Acknowledge at once: destroying an id waits for it.
      cm.rdma_ack_cm_event(pointer);
      if (event !== undefined) return event;
    }
  }

  /**
   * Forgets a destroyed id. Its address may already belong to another id, because the destroying
   * thread frees it before it notifies this one.
   */
  forget(id: NativeCmId, pointer: number): void {
    if (this.#ids.get(pointer) === id) this.#ids.delete(pointer);
  }

  /** Resolves once requests for closed listeners are rejected; await it before `dispose`. */
  async settled(): Promise<void> {
    await Promise.all(this.#rejections);
  }

  /** Also disposes of the remaining ids. */
  override dispose(): void {
    if (this.disposed) return;
    this.disposeChildren();
    super.dispose();
  }

  protected override destroy(pointer: number): void {
    this.libraries.cm.rdma_destroy_event_channel(pointer);
  }

  protected override released(): void {
    releaseRoot(this);
  }

  #adopt(pointer: number): NativeCmId {
    const id = new NativeCmId(this, pointer);
    this.#ids.set(pointer, id);
    return id;
  }

  #reject(id: NativeCmId): void {
    const rejection = id
      .disposeAsync()
      .catch(() => {})
      .finally(() => this.#rejections.delete(rejection));
    this.#rejections.add(rejection);
  }

  /** Undefined for an id that is being disposed of. */
  #translate(raw: StructBlock<'rdma_cm_event'>): NativeCMEvent | undefined {
    const type = raw.getSigned('event');
    const pointer = raw.get('id');
    let id = this.#ids.get(pointer);
    let listenId: NativeCmId | undefined;
    if (type === CMEventType.connectRequest) {
      listenId = this.#ids.get(raw.get('listen_id'));
      id = this.#adopt(pointer);
      if (listenId === undefined || listenId.disposed) {
        // No listener is left to answer; destroying the new id rejects the request.
        this.#reject(id);
        return undefined;
      }
    }
    if (id === undefined || id.disposed) return undefined;
    const lengthBytes = raw.get('param.conn.private_data_len');
    const data = raw.get('param.conn.private_data');
    return {
      type,
      id,
      listenId,
      status: raw.getSigned('status'),
      privateData: data === 0 ? new Uint8Array(0) : copyOut(data, lengthBytes),
      initiatorDepth: raw.get('param.conn.initiator_depth'),
      responderResources: raw.get('param.conn.responder_resources'),
    };
  }
}

/** A connection id. Queue pairs of any context of its device connect through it, by number. */
export class NativeCmId extends NativeObject {
  readonly channel: NativeEventChannel;

  constructor(channel: NativeEventChannel, pointer: number) {
    super('the connection id', pointer, [channel]);
    this.channel = channel;
  }

  /** Name of the device; undefined until an address determines it. */
  get deviceName(): string | undefined {
    const context = peek('rdma_cm_id', 'verbs', this.pointer);
    if (context === 0) return undefined;
    const device = peek('ibv_context', 'device', context);
    return new StructBlock('ibv_device').load(device).getText('name');
  }

  get localAddress(): SocketAddress | undefined {
    return this.#addressAt('route.addr.src_storage');
  }

  get peerAddress(): SocketAddress | undefined {
    return this.#addressAt('route.addr.dst_storage');
  }

  /** Binds to a local address. EADDRINUSE, EADDRNOTAVAIL, ENODEV, EACCES, EINVAL. */
  bindAddr(address: SocketAddress): void {
    const sockaddr = toSockaddr(address);
    this.#check('rdma_bind_addr', this.#cm.rdma_bind_addr(this.pointer, sockaddr.address));
  }

  /** Starts to resolve an address; an event reports the result. */
  resolveAddr(
    destination: SocketAddress,
    source: SocketAddress | undefined,
    timeoutMs: number,
  ): void {
    const to = toSockaddr(destination);
    const from = source === undefined ? undefined : toSockaddr(source);
    this.#check(
      'rdma_resolve_addr',
      this.#cm.rdma_resolve_addr(this.pointer, from?.address ?? 0, to.address, timeoutMs),
    );
  }

  /** Starts to resolve the route; an event reports the result. EINVAL without a device. */
  resolveRoute(timeoutMs: number): void {
    // The library would dereference a null pointer.
    if (this.deviceName === undefined) {
      throw invalid('the id has no device: resolve an address first');
    }
    this.#check('rdma_resolve_route', this.#cm.rdma_resolve_route(this.pointer, timeoutMs));
  }

  /** Starts to listen. EADDRINUSE, EINVAL. */
  listen(backlog: number): void {
    this.#check('rdma_listen', this.#cm.rdma_listen(this.pointer, backlog));
  }

  /** Moves a queue pair to INIT with the attributes that the connection manager requires. */
  initialise(qp: NativeQP): void {
    const attributes = new StructBlock('ibv_qp_attr').set('qp_state', QPState.INIT);
    const mask = new Block(4);
    this.#check(
      'rdma_init_qp_attr',
      this.#cm.rdma_init_qp_attr(this.pointer, attributes.address, mask.address),
    );
    qp.applyAttributes(attributes, mask.view.getInt32(0, true));
  }

  /** Starts to connect; an event reports the result. */
  connect(parameters: NativeConnectionParameters): void {
    const raw = this.#connectionParameters(parameters);
    this.#check('rdma_connect', this.#cm.rdma_connect(this.pointer, raw.address));
  }

  /** Accepts a connect request; an event reports the result. */
  accept(parameters: NativeConnectionParameters): void {
    const raw = this.#connectionParameters(parameters);
    this.#check('rdma_accept', this.#cm.rdma_accept(this.pointer, raw.address));
  }

  /** Rejects a connect request. EINVAL for more than 255 bytes. */
  reject(privateData: Uint8Array): void {
    const { address } = outgoing(privateData);
    this.#check('rdma_reject', this.#cm.rdma_reject(this.pointer, address, privateData.length));
  }

  /** Closes the connection gracefully; both sides get an event. */
  disconnect(): void {
    if (this.deviceName === undefined) throw invalid('the id has no connection');
    this.#check('rdma_disconnect', this.#cm.rdma_disconnect(this.pointer));
  }

  /** Destroys the id on a thread of libuv, since the kernel may wait for the connection's end. */
  disposeAsync(): Promise<void> {
    return this.disposeBy(async (pointer) => {
      const result = await callBlocking(this.#cm.rdma_destroy_id, pointer);
      this.#check('rdma_destroy_id', result);
    });
  }

  protected override destroy(pointer: number): void {
    this.#check('rdma_destroy_id', this.#cm.rdma_destroy_id(pointer));
  }

  protected override released(pointer: number): void {
    this.channel.forget(this, pointer);
  }

  get #cm(): Libraries['cm'] {
    return this.channel.libraries.cm;
  }

  #check(call: string, result: number): void {
    checkErrno(call, this.subject, result);
  }

  #addressAt(
    field: 'route.addr.src_storage' | 'route.addr.dst_storage',
  ): SocketAddress | undefined {
    const [offset, lengthBytes] = fieldOf('rdma_cm_id', field);
    return fromSockaddr(copyOut(this.pointer + offset, lengthBytes));
  }

  #connectionParameters(parameters: NativeConnectionParameters): StructBlock<'rdma_conn_param'> {
    const data = outgoing(parameters.privateData);
    return new StructBlock('rdma_conn_param')
      .set('private_data', data.address)
      .set('private_data_len', parameters.privateData.length)
      .set('initiator_depth', parameters.initiatorDepth)
      .set('responder_resources', parameters.responderResources)
      .set('srq', parameters.qp.srq === undefined ? 0 : 1)
      .set('qp_num', parameters.qp.qpNum);
  }
}

/** rdma_cm stores the length of private data in one byte. */
const PRIVATE_DATA_MAX = 255;

function outgoing(privateData: Uint8Array): Block {
  if (privateData.length > PRIVATE_DATA_MAX) {
    throw invalid(`private data exceeds ${PRIVATE_DATA_MAX} bytes`);
  }
  const block = new Block(privateData.length);
  block.bytes.set(privateData);
  return block;
}
