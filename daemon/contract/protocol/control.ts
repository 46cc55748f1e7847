/**
 * The control plane of a running daemon, for operators and tests. One table of operations serves
 * the daemon's socket (role `admin`) and HTTP: names, routes, requests, replies. Everything is
 * plain data that JSON can carry.
 */
import type { SocketAddress } from '../verbs/provider.ts';
import type { FaultSpec, FaultStatus } from './faults.ts';
import type { ClientStatus, DaemonStatus, DeviceStatus } from './ipc-admin.ts';
import type { RefusalFilter, RefusalList } from './refusals.ts';
import type { TraceRequest, TraceSample } from './trace-sample.ts';

/** Operations by name, with request and reply. */
interface ControlOperations {
  /** State of the daemon. */
  status: { request: NoFields; reply: DaemonStatus };
  /** Lists devices. */
  listDevices: { request: NoFields; reply: readonly DeviceStatus[] };
  /** Lists clients. */
  listClients: { request: NoFields; reply: readonly ClientStatus[] };
  /** Lists queue pairs. */
  listQPs: { request: ObjectFilter; reply: readonly QPSummary[] };
  /** Lists memory regions. */
  listMRs: { request: ObjectFilter; reply: readonly MRSummary[] };
  /** Lists completion queues. */
  listCQs: { request: ObjectFilter; reply: readonly CQSummary[] };
  /** Lists connections of emulated devices. */
  listConnections: { request: ConnectionFilter; reply: readonly ConnectionSummary[] };
  /** Ends all clients and connections. */
  reset: { request: NoFields; reply: ResetReport };
  /** Adds a fault. */
  addFault: { request: FaultSpec; reply: FaultStatus };
  /** Lists faults. */
  listFaults: { request: NoFields; reply: readonly FaultStatus[] };
  /** Removes one fault. */
  removeFault: { request: { readonly id: number }; reply: FaultStatus };
  /** Removes all faults. */
  removeFaults: { request: NoFields; reply: readonly FaultStatus[] };
  /** Records a sample of the trace. */
  recordTrace: { request: TraceRequest; reply: TraceSample };
  /** Lists refused calls, with the reasons. */
  listRefusals: { request: RefusalFilter; reply: RefusalList };
}

/** Name of an operation. */
export type ControlOperationName = keyof ControlOperations;

/** Request of an operation. */
export type ControlRequest<N extends ControlOperationName> = ControlOperations[N]['request'];

/** Reply of an operation. */
export type ControlReply<N extends ControlOperationName> = ControlOperations[N]['reply'];

/** HTTP route of an operation. */
interface ControlRoute {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /**
   * Words that start with a colon are fields of the request. The other fields are in the query for
   * GET and DELETE, in a JSON body for POST.
   */
  readonly path: string;
}

/** Routes by operation. */
export const CONTROL_ROUTES: { readonly [N in ControlOperationName]: ControlRoute } = {
  status: { method: 'GET', path: '/status' },
  listDevices: { method: 'GET', path: '/devices' },
  listClients: { method: 'GET', path: '/clients' },
  listQPs: { method: 'GET', path: '/qps' },
  listMRs: { method: 'GET', path: '/mrs' },
  listCQs: { method: 'GET', path: '/cqs' },
  listConnections: { method: 'GET', path: '/connections' },
  reset: { method: 'POST', path: '/reset' },
  addFault: { method: 'POST', path: '/faults' },
  listFaults: { method: 'GET', path: '/faults' },
  removeFault: { method: 'DELETE', path: '/faults/:id' },
  removeFaults: { method: 'DELETE', path: '/faults' },
  recordTrace: { method: 'GET', path: '/trace' },
  listRefusals: { method: 'GET', path: '/refusals' },
};

/** A request without fields. */
export type NoFields = Record<never, never>;

/** Entries of a list in one reply: the reply must fit a frame of the socket. */
export const LIST_MAX = 8192;

/** A window into a long list. */
interface ListWindow {
  /** Entries to skip. Default: 0. */
  readonly offset?: number;
  /** 1 to `LIST_MAX`, the default. A reply with this many entries may not be the last one. */
  readonly limit?: number;
}

/** Filter for connections. */
export interface ConnectionFilter extends ListWindow {
  /** Name of a device. */
  readonly device?: string;
}

/** Filter for objects; all given fields must match. */
export interface ObjectFilter extends ListWindow {
  /** Name of a device. */
  readonly device?: string;
  /** Process id of the program that created them. */
  readonly pid?: number;
}

/** Owner and device of an object. */
export interface ObjectOwner {
  /** Number of the client, see `ClientStatus`. */
  readonly client: number;
  /** Process id of the program that created it. */
  readonly pid: number;
  /** Name of the program; '' when the daemon cannot see it. */
  readonly program: string;
  /** Name of the device. */
  readonly device: string;
  /** The client's handle of the object. */
  readonly handle: number;
}

/** The objects of all clients, or of one. */
export interface ObjectSummaries {
  readonly qps: readonly QPSummary[];
  readonly mrs: readonly MRSummary[];
  readonly cqs: readonly CQSummary[];
}

/** A queue pair. */
export interface QPSummary extends ObjectOwner {
  /** Number of the queue pair on its device. */
  readonly qpNum: number;
  /** A name of `QPState`: 'RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'. */
  readonly state: string;
  /** Capacity of the send queue, in work requests. */
  readonly maxSendWr: number;
  /** Capacity of the receive queue, in receives. */
  readonly maxRecvWr: number;
  /** True if it receives from a shared receive queue. */
  readonly srq: boolean;
  /** Work requests taken from its send queue, modulo 2^32. */
  readonly sendsTaken: number;
  /** Receives taken for it from its receive queue, or from the shared one. */
  readonly receivesTaken: number;
  /** Type of the queue pair: 'RC', 'UC' or 'UD'. */
  readonly type: string;
  /** On a RoCE device, the queue pair that it sends to since RTR; undefined for datagrams. */
  readonly destination?: {
    /** Number of the other queue pair. */
    readonly qpNum: number;
    /** GID of its port, as eight groups of hex digits. */
    readonly gid: string;
    /** Name of its device; undefined if no device of this daemon still has the GID. */
    readonly device?: string;
  };
  /** Its present connection; undefined without one. */
  readonly connection?: { readonly local: SocketAddress; readonly remote: SocketAddress };
}

/** A memory region. */
export interface MRSummary extends ObjectOwner {
  /** lkey, rkey and STag. Undefined for a caller that is not the daemon's own user. */
  readonly key?: number;
  /**
   * '0x…', since 64-bit addresses exceed JSON numbers. Undefined for a caller that is not the
   * daemon's own user.
   */
  readonly address?: string;
  /** Bytes of the region. */
  readonly lengthBytes: number;
  /** How the daemon reaches it: 'shared', 'process_vm', 'agent' or 'local'. */
  readonly tier: string;
}

/** A completion queue. */
export interface CQSummary extends ObjectOwner {
  /** Capacity of the queue, in completions. */
  readonly entries: number;
}

/** Phases of a connection, in the order in which they can follow each other. */
export const CONNECTION_PHASES = [
  'dialing',
  'initiating',
  'awaiting-request',
  'requested',
  'accepting',
  'established',
  'closing',
  'leaving',
  'over',
] as const;
/** A phase of a connection. */
export type ConnectionPhase = (typeof CONNECTION_PHASES)[number];

/** A connection of an emulated device, from the first SYN to the last FIN. */
export interface ConnectionSummary {
  /** Name of the device. */
  readonly device: string;
  /** Address and port of this end. */
  readonly local: SocketAddress;
  /** Address and port of the peer. */
  readonly remote: SocketAddress;
  /** Which end it is: `initiator` connected, `responder` accepted. */
  readonly role: 'initiator' | 'responder';
  /** From `dialing` to `over`. */
  readonly phase: ConnectionPhase;
  /** Its queue pair; undefined without one. */
  readonly qpNum?: number;
}

/** How many connections of a device are in a phase. */
export interface PhaseCount {
  readonly device: string;
  readonly phase: ConnectionPhase;
  readonly count: number;
}

/** Records kept for `ResetReport.endedHolding`. */
export const ENDED_HOLDING_MAX = 256;

/** A client that ended without destroying its objects. */
export interface EndedHolding {
  /** Number of the client, see `ClientStatus`. */
  readonly id: number;
  /** Process id. */
  readonly pid: number;
  /** User id. */
  readonly uid: number;
  /** Name of the program; '' when the daemon could not see it. */
  readonly program: string;
  /** When, as ISO 8601. */
  readonly at: string;
  /** Objects by kind, see `ClientUsage`; only kinds that it held. */
  readonly objects: Readonly<Record<string, number>>;
}

/** The result of `reset`: ended clients and connections, and leaks. */
export interface ResetReport {
  /** Clients that still held objects, and their usage. */
  readonly leaks: readonly ClientStatus[];
  /**
   * Clients that ended on their own while they held objects, since the daemon started or was last
   * reset: killed, crashed, or careless. At most the latest 256.
   */
  readonly endedHolding: readonly EndedHolding[];
  /** Clients that were disconnected, including those that held nothing. */
  readonly clients: number;
  /** Connections that were reset. */
  readonly connections: number;
  /** Faults that were removed. */
  readonly faults: number;
}
