/**
 * The commands of a client to a device and the events back: the verbs personality of the daemon's
 * IPC, and in the embedded provider plain calls.
 *
 * A command is one request with one reply. Handles name objects: unsigned 32-bit numbers, one
 * namespace per client. 64-bit values are `bigint`. Bytes are `Uint8Array`.
 */
import type {
  AHAttributes,
  DeviceAttributes,
  DeviceInfo,
  GidEntry,
  PortAttributes,
  QPCapabilities,
  SRQAttributes,
} from '../verbs/attributes.ts';
import type { AsyncEvent } from '../verbs/completion.ts';
import type { MWType, QPState, QPType, WROpcode } from '../verbs/enums.ts';
import type { CMEvent, MemoryTier, SocketAddress, WireOptions } from '../verbs/provider.ts';
import type { QPAttributes, QPModification } from '../verbs/qp-attributes.ts';

/** Number of an object of one client. */
export type Handle = number;

/** Identifies shared memory that both sides map: an opaque token and its size. */
export interface MappingRef {
  readonly token: string;
  readonly lengthBytes: number;
  /** A part of the token's memory, and the length of all of it. Default: the memory itself. */
  readonly within?: { readonly offset: number; readonly lengthBytes: number };
}

/** Location of a region's bytes. */
export type MemorySource =
  /** A shared buffer made by `allocBuffer`; `offset` from its start. */
  | { readonly kind: 'buffer'; readonly buffer: Handle; readonly offset: number }
  /** The client's own memory at this virtual address. */
  | { readonly kind: 'process'; readonly address: bigint };

/** Commands by name, with request and reply. */
export interface Commands {
  listDevices: {
    request: Record<never, never>;
    reply: { readonly devices: readonly DeviceInfo[] };
  };
  openDevice: {
    request: { readonly name: string | undefined };
    reply: {
      readonly context: Handle;
      readonly device: DeviceInfo;
      /** Send operations that the device does not support; the client refuses them (EOPNOTSUPP). */
      readonly unsupported: readonly WROpcode[];
      /**
       * The device takes receives only after a doorbell: after it posts receives, the client rings the
       * doorbell of the QP or SRQ.
       */
      readonly receivesNeedDoorbell: boolean;
    };
  };
  closeDevice: { request: { readonly context: Handle }; reply: Record<never, never> };
  queryDevice: { request: { readonly context: Handle }; reply: DeviceAttributes };
  queryPort: {
    request: { readonly context: Handle; readonly port: number };
    reply: PortAttributes;
  };
  queryGidTable: {
    request: { readonly context: Handle };
    reply: { readonly entries: readonly GidEntry[] };
  };
  allocPD: { request: { readonly context: Handle }; reply: { readonly pd: Handle } };
  deallocPD: { request: { readonly pd: Handle }; reply: Record<never, never> };
  /** Shared memory for registrations. */
  allocBuffer: {
    request: { readonly lengthBytes: number };
    reply: { readonly buffer: Handle; readonly mapping: MappingRef };
  };
  freeBuffer: { request: { readonly buffer: Handle }; reply: Record<never, never> };
  regMR: {
    request: {
      readonly pd: Handle;
      readonly source: MemorySource;
      readonly lengthBytes: number;
      /** Address of the first byte in SGEs; chosen by the device when undefined. */
      readonly address: bigint | undefined;
      /** Address of the first byte for peers; `address` when undefined, 0 if zero-based. */
      readonly iova: bigint | undefined;
      readonly access: number;
      readonly key: number | undefined;
    };
    reply: {
      readonly mr: Handle;
      readonly lkey: number;
      readonly rkey: number;
      readonly address: bigint;
      readonly tier: MemoryTier;
      readonly tierReason: string;
    };
  };
  deregMR: { request: { readonly mr: Handle }; reply: Record<never, never> };
  allocMW: {
    request: { readonly pd: Handle; readonly type: MWType };
    reply: { readonly mw: Handle; readonly rkey: number };
  };
  deallocMW: { request: { readonly mw: Handle }; reply: Record<never, never> };
  createAH: {
    request: { readonly pd: Handle; readonly attributes: AHAttributes };
    /** `number`: the device's number of the handle, for work requests. */
    reply: { readonly ah: Handle; readonly number: number };
  };
  destroyAH: { request: { readonly ah: Handle }; reply: Record<never, never> };
  createCompChannel: {
    request: { readonly context: Handle };
    /** `token` identifies the channel to the descriptor that carries its events (daemon only). */
    reply: { readonly channel: Handle; readonly token: string };
  };
  destroyCompChannel: { request: { readonly channel: Handle }; reply: Record<never, never> };
  createCQ: {
    request: {
      readonly context: Handle;
      readonly cqe: number;
      readonly channel: Handle | undefined;
    };
    reply: { readonly cq: Handle; readonly cqe: number; readonly ring: MappingRef };
  };
  destroyCQ: { request: { readonly cq: Handle }; reply: Record<never, never> };
  createSRQ: {
    request: {
      readonly pd: Handle;
      readonly maxWr: number;
      readonly maxSge: number;
      readonly srqLimit: number;
    };
    reply: { readonly srq: Handle; readonly count: number; readonly ring: MappingRef };
  };
  modifySRQ: {
    request: { readonly srq: Handle; readonly srqLimit: number };
    reply: Record<never, never>;
  };
  querySRQ: { request: { readonly srq: Handle }; reply: SRQAttributes };
  destroySRQ: { request: { readonly srq: Handle }; reply: Record<never, never> };
  createQP: {
    request: {
      readonly pd: Handle;
      readonly sendCQ: Handle;
      readonly recvCQ: Handle;
      readonly srq: Handle | undefined;
      readonly capabilities: QPCapabilities;
      readonly sqSigAll: boolean;
      /** Creates the queue pair in INIT, as for a connection id. Default: in RESET. */
      readonly initialised?: boolean | undefined;
      /** Default: RC. */
      readonly type?: QPType | undefined;
    };
    /** `ring` holds the SQ (`sqCount` elements) and from `rqOffset` the RQ (`rqCount`, 0 with SRQ). */
    reply: {
      readonly qp: Handle;
      readonly qpNum: number;
      readonly capabilities: QPCapabilities;
      readonly ring: MappingRef;
      readonly sqCount: number;
      readonly rqOffset: number;
      readonly rqCount: number;
    };
  };
  modifyQP: {
    request: {
      readonly qp: Handle;
      /** Undefined: the current one. */
      readonly state: QPState | undefined;
      /** On RoCE: attributes other than the state. */
      readonly attributes?: Omit<QPModification, 'state'> | undefined;
    };
    reply: Record<never, never>;
  };
  queryQP: { request: { readonly qp: Handle }; reply: QPAttributes };
  attachMcast: {
    request: { readonly qp: Handle; readonly gid: string };
    reply: Record<never, never>;
  };
  detachMcast: {
    request: { readonly qp: Handle; readonly gid: string };
    reply: Record<never, never>;
  };
  destroyQP: { request: { readonly qp: Handle }; reply: Record<never, never> };

  cmCreateId: {
    /** For datagrams, instead of connections. Default: false. */
    request: { readonly datagrams?: boolean | undefined };
    reply: { readonly id: Handle };
  };
  cmDestroyId: { request: { readonly id: Handle }; reply: Record<never, never> };
  cmBindAddr: {
    request: { readonly id: Handle; readonly address: SocketAddress };
    reply: CMIdState;
  };
  /** Starts a resolution. An event reports the outcome; it may precede the reply. */
  cmResolveAddr: {
    request: {
      readonly id: Handle;
      readonly destination: SocketAddress;
      readonly source: SocketAddress | undefined;
      readonly timeoutMs: number;
    };
    reply: Record<never, never>;
  };
  /** Like `cmResolveAddr`. */
  cmResolveRoute: { request: { readonly id: Handle }; reply: Record<never, never> };
  cmListen: {
    request: { readonly id: Handle; readonly backlog: number };
    reply: CMIdState;
  };
  /** On an id for datagrams: looks up a service, and needs no queue pair. */
  cmConnect: {
    request: { readonly id: Handle; readonly qp: Handle | undefined } & CMParameters;
    reply: Record<never, never>;
  };
  cmAccept: {
    request: {
      readonly id: Handle;
      readonly qp: Handle;
      /** Key of a datagram service. Default: rdma_cm's. */
      readonly qkey?: number | undefined;
    } & CMParameters;
    reply: Record<never, never>;
  };
  cmReject: {
    request: { readonly id: Handle; readonly privateData: Uint8Array };
    reply: Record<never, never>;
  };
  cmDisconnect: { request: { readonly id: Handle }; reply: Record<never, never> };
}

/** State of a connection id after a command. */
export interface CMIdState {
  readonly device: string | undefined;
  readonly localAddress: SocketAddress | undefined;
  readonly peerAddress: SocketAddress | undefined;
}

/** Parameters of cmConnect and cmAccept; undefined depths take the device's maximum. */
export interface CMParameters {
  readonly privateData: Uint8Array;
  readonly initiatorDepth: number | undefined;
  readonly responderResources: number | undefined;
  readonly wire: WireOptions | undefined;
}

export type CommandName = keyof Commands;
export type CommandRequest<N extends CommandName> = Commands[N]['request'];
export type CommandReply<N extends CommandName> = Commands[N]['reply'];

/** An event of a connection id as it crosses to the client. */
export interface CMEventRecord extends CMOutcome {
  /** The id concerned; on a connect request the new one. */
  readonly id: Handle;
  readonly listenId: Handle | undefined;
  readonly state: CMIdState;
}

/** Content of a connection event, without the id. */
export type CMOutcome = Omit<CMEvent, 'id' | 'listenId'>;

/** Why work of a queue pair failed. */
export interface WorkFailure {
  readonly qpNum: number;
  /** The work request; undefined for all flushed requests. */
  readonly work: { readonly queue: 'send' | 'receive'; readonly wrId: bigint } | undefined;
  readonly sentence: string;
}

/** Unsolicited messages of a device to its client. Completion events use the channel's own path. */
export type DeviceEvent =
  | { readonly type: 'cm'; readonly event: CMEventRecord }
  | { readonly type: 'async'; readonly context: Handle; readonly event: AsyncEvent }
  | { readonly type: 'failure'; readonly context: Handle; readonly failure: WorkFailure };

/**
 * How a program reaches its devices: commands, doorbells, shared memory and events. The embedded
 * provider calls the device; the daemon's client sends frames.
 */
export interface CommandChannel {
  readonly kind: 'daemon' | 'embedded';
  /** Rejects with `VerbsError` if the device refuses; with EIO if the daemon is gone. */
  request<N extends CommandName>(name: N, request: CommandRequest<N>): Promise<CommandReply<N>>;
  /** Maps shared memory named in a reply. The view stays valid while it is referenced. */
  map(mapping: MappingRef): Promise<Uint8Array>;
  /** Rings the doorbell of a QP or SRQ: its queues have new elements. Never blocks. */
  doorbell(queue: Handle): void;
  /**
   * Address of a buffer of this process for `MemorySource` 'process'; the buffer stays in place
   * while it is referenced.
   */
  addressOf(buffer: Uint8Array): bigint;
  /**
   * Opens the event path of a completion channel. `onEvent` gets the handle of each CQ that fires.
   * `fd`, if the channel has descriptors, polls readable while events wait.
   */
  openEventPath(
    channel: Handle,
    token: string,
    onEvent: (cq: Handle) => void,
  ): Promise<{ readonly fd: number | undefined; close(): void }>;
  /**
   * Keeps the process alive while the program awaits something. Absent if the channel's sockets
   * keep it alive.
   */
  hold?(alive: boolean): void;
  /** Set once by the client: receives the device's events, and the loss of the device. */
  onEvent: (event: DeviceEvent) => void;
  onLost: (error: Error) => void;
  close(): Promise<void>;
}
