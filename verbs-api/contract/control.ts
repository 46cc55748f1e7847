/**
 * What an operator and a test see of a running daemon, and what they may ask of it. One table of
 * operations serves the daemon's socket (role `admin`) and HTTP: names, routes, requests, replies.
 * Everything is plain data that JSON can carry.
 */
import type { FaultSpec, FaultStatus } from './faults.ts';
import type { ClientStatus, DaemonStatus, DeviceStatus } from './ipc-admin.ts';
import type { SocketAddress } from './provider.ts';
import type { TraceRequest, TraceSample } from './trace-sample.ts';

/** Operations by name: what each takes and what it answers. */
export interface ControlOperations {
  status: { request: NoFields; reply: DaemonStatus };
  listDevices: { request: NoFields; reply: readonly DeviceStatus[] };
  listClients: { request: NoFields; reply: readonly ClientStatus[] };
  listQPs: { request: ObjectFilter; reply: readonly QPSummary[] };
  listMRs: { request: ObjectFilter; reply: readonly MRSummary[] };
  listCQs: { request: ObjectFilter; reply: readonly CQSummary[] };
  listConnections: { request: ConnectionFilter; reply: readonly ConnectionSummary[] };
  reset: { request: NoFields; reply: ResetReport };
  addFault: { request: FaultSpec; reply: FaultStatus };
  listFaults: { request: NoFields; reply: readonly FaultStatus[] };
  removeFault: { request: { readonly id: number }; reply: FaultStatus };
  removeFaults: { request: NoFields; reply: readonly FaultStatus[] };
  recordTrace: { request: TraceRequest; reply: TraceSample };
}

/** Name of an operation. */
export type ControlOperationName = keyof ControlOperations;

/** What an operation takes. */
export type ControlRequest<N extends ControlOperationName> = ControlOperations[N]['request'];

/** What an operation answers. */
export type ControlReply<N extends ControlOperationName> = ControlOperations[N]['reply'];

/** Where an operation is over HTTP. */
export interface ControlRoute {
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
};

/** A request without fields. */
export type NoFields = Record<never, never>;

/** Entries of a list that one reply has at most: it has to fit a frame of the socket. */
export const LIST_MAX = 8192;

/** Which part of a long list is wanted. */
export interface ListWindow {
  /** Entries to leave out at the beginning. Default: 0. */
  readonly offset?: number;
  /** 1 to `LIST_MAX`, the default: whoever gets so many asks again behind them. */
  readonly limit?: number;
}

/** Which connections to list. */
export interface ConnectionFilter extends ListWindow {
  /** Name of a device. */
  readonly device?: string;
}

/** Which objects to list; all fields together. */
export interface ObjectFilter extends ListWindow {
  /** Name of a device. */
  readonly device?: string;
  /** Process id of the program that made them. */
  readonly pid?: number;
}

/** Whose an object is, and where. */
export interface ObjectOwner {
  /** Number of the client, see `ClientStatus`. */
  readonly client: number;
  readonly pid: number;
  /** Name of the program; '' when the daemon cannot see it. */
  readonly program: string;
  readonly device: string;
  /** What the client calls it. */
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
  readonly qpNum: number;
  /** As `QPState` names it: 'RESET', 'INIT', 'RTR', 'RTS', 'SQD', 'SQE', 'ERR'. */
  readonly state: string;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  /** It receives from a shared receive queue. */
  readonly srq: boolean;
  /** Work requests that were taken from its send queue, modulo 2^32. */
  readonly sendsTaken: number;
  /** Receives that were taken for it from its receive queue, or from the shared one. */
  readonly receivesTaken: number;
  /** The connection that it has now; undefined without one. */
  readonly connection?: { readonly local: SocketAddress; readonly remote: SocketAddress };
}

/** A memory region. */
export interface MRSummary extends ObjectOwner {
  /** lkey, rkey and STag. */
  readonly key: number;
  /** '0x…', since addresses of programs leave the numbers of JSON. */
  readonly address: string;
  readonly lengthBytes: number;
  /** How the daemon reaches it: 'shared', 'process_vm', 'agent' or 'local'. */
  readonly tier: string;
}

/** A completion queue. */
export interface CQSummary extends ObjectOwner {
  readonly entries: number;
}

/** A connection of an emulated device, from the first SYN to the last FIN. */
export interface ConnectionSummary {
  readonly device: string;
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
  readonly role: 'initiator' | 'responder';
  /** 'dialing' … 'established' … 'over'. */
  readonly phase: string;
  /** The queue pair that it has; undefined without one. */
  readonly qpNum?: number;
}

/** What `reset` ended. */
export interface ResetReport {
  /** Clients that still held objects, with what they held. */
  readonly leaks: readonly ClientStatus[];
  /** Clients that were cut off, the empty-handed ones too. */
  readonly clients: number;
  /** Connections that were reset. */
  readonly connections: number;
  /** Faults that were removed. */
  readonly faults: number;
}
