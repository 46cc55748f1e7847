/**
 * The control plane of a running daemon for TypeScript programs: status, objects, faults, traces
 * and reset. Uses the daemon's socket, or HTTP if given a URL; both offer the same operations.
 */
import {
  CONTROL_ROUTES,
  type ConnectionSummary,
  type ControlOperationName,
  type ControlReply,
  type ControlRequest,
  type CQSummary,
  type MRSummary,
  type ObjectFilter,
  type QPSummary,
  type ResetReport,
} from '#contract/protocol/control';
import { FAULT_SPEC } from '#contract/protocol/fault-argument';
import type { FaultControl, FaultSpec, FaultStatus } from '#contract/protocol/faults';
import type { ClientStatus, DaemonStatus, DeviceStatus } from '#contract/protocol/ipc-admin';
import type { TraceRequest, TraceSample } from '#contract/protocol/trace-sample';
import {
  kind,
  oneOf,
  optional,
  options,
  PLAIN_FIELDS,
  TEXT,
  takes,
  wholeNumber,
} from '#contract/verbs/arguments';
import { type ErrnoCode, isErrnoCode, VerbsError } from '#contract/verbs/errors';
import { DAEMON_FIELDS, type DaemonOptions } from './daemon-place.ts';
import { queryDaemon } from './daemon-query.ts';

/** Location of the daemon. */
export interface DaemonControlOptions extends DaemonOptions {
  /** `http://HOST:PORT` from its ready line. Uses HTTP instead of the socket. */
  readonly url?: string | undefined;
  /** Bearer token, if HTTP requires one. */
  readonly token?: string | undefined;
}

const SOME = optional(wholeNumber(0));
export const LOCATION = options<DaemonControlOptions>({
  ...DAEMON_FIELDS,
  url: optional(
    kind('an http:// URL', (value) => typeof value === 'string' && URL.canParse(value)),
  ),
  token: optional(TEXT),
});
const DEVICE_WINDOW = { device: optional(TEXT), offset: SOME, limit: SOME } as const;
const FILTER = optional(options<ObjectFilter>({ ...DEVICE_WINDOW, pid: SOME }));

/** Checks the arguments of control operations; the daemon checks the fields of requests. */
const checkControl = {
  construct: takes('DaemonControl', { options: optional(LOCATION) }),
  call: takes('call', {
    name: oneOf(Object.keys(CONTROL_ROUTES)),
    request: PLAIN_FIELDS,
  }),
  queuePairs: takes('queuePairs', { filter: FILTER }),
  memoryRegions: takes('memoryRegions', { filter: FILTER }),
  completionQueues: takes('completionQueues', { filter: FILTER }),
  connections: takes('connections', {
    filter: optional(options<ControlRequest<'listConnections'>>(DEVICE_WINDOW)),
  }),
  addFault: takes('addFault', { spec: FAULT_SPEC }),
  removeFault: takes('removeFault', { id: wholeNumber(0) }),
  recordTrace: takes('recordTrace', {
    request: optional(
      options<TraceRequest>({ limit: SOME, ms: SOME, device: optional(TEXT), qp: SOME }),
    ),
  }),
} as const;

/**
 * Operates a running daemon: status, objects, faults, traces and reset, over its socket, or over
 * HTTP if `url` is given. Each call is independent: there is nothing to close.
 */
export class DaemonControl implements FaultControl {
  readonly #options: DaemonControlOptions;

  constructor(location: DaemonControlOptions = {}) {
    checkControl.construct(location);
    this.#options = location;
  }

  /**
   * Executes an operation on the daemon. Rejects with `VerbsError`: EINVAL names the wrong field,
   * ENODEV and ECONNREFUSED mean that no daemon is running, EACCES that it serves another user.
   */
  async call<N extends ControlOperationName>(
    name: N,
    request: ControlRequest<N>,
  ): Promise<ControlReply<N>> {
    checkControl.call(name, request);
    const { url, token } = this.#options;
    if (url === undefined) return await queryDaemon(name, request, this.#options);
    return await callOverHttp(url, token, name, request);
  }

  /** State of the daemon, its devices with their counters, and its clients with their resources. */
  status(): Promise<DaemonStatus> {
    return this.call('status', {});
  }

  /** Devices with their counters. */
  devices(): Promise<readonly DeviceStatus[]> {
    return this.call('listDevices', {});
  }

  /** Clients with their resources. */
  clients(): Promise<readonly ClientStatus[]> {
    return this.call('listClients', {});
  }

  /** Queue pairs that match `filter`. */
  async queuePairs(filter: ObjectFilter = {}): Promise<readonly QPSummary[]> {
    checkControl.queuePairs(filter);
    return await this.call('listQPs', filter);
  }

  /** Memory regions that match `filter`. */
  async memoryRegions(filter: ObjectFilter = {}): Promise<readonly MRSummary[]> {
    checkControl.memoryRegions(filter);
    return await this.call('listMRs', filter);
  }

  /** Completion queues that match `filter`. */
  async completionQueues(filter: ObjectFilter = {}): Promise<readonly CQSummary[]> {
    checkControl.completionQueues(filter);
    return await this.call('listCQs', filter);
  }

  /** Connections, from the first SYN to the last FIN. */
  async connections(
    filter: ControlRequest<'listConnections'> = {},
  ): Promise<readonly ConnectionSummary[]> {
    checkControl.connections(filter);
    return await this.call('listConnections', filter);
  }

  /**
   * Adds a fault, which lasts until it is removed. Rejects with EINVAL that names a wrong field.
   */
  async addFault(spec: FaultSpec): Promise<FaultStatus> {
    checkControl.addFault(spec);
    return await this.call('addFault', spec);
  }

  /** Faults, with how often each has fired. */
  faults(): Promise<readonly FaultStatus[]> {
    return this.call('listFaults', {});
  }

  /** Removes a fault and releases what it held back. ENOENT if no fault has this number. */
  async removeFault(id: number): Promise<FaultStatus> {
    checkControl.removeFault(id);
    return await this.call('removeFault', { id });
  }

  /** Removes all faults. */
  removeFaults(): Promise<readonly FaultStatus[]> {
    return this.call('removeFaults', {});
  }

  /**
   * Records a trace until `limit` records have arrived or the time is up. EBUSY while too many
   * traces are running; EINVAL names a wrong field.
   */
  async recordTrace(request: TraceRequest = {}): Promise<TraceSample> {
    checkControl.recordTrace(request);
    return await this.call('recordTrace', request);
  }

  /**
   * Disconnects all clients and resets all connections, this program's included. Reports the objects
   * that were still open.
   */
  reset(): Promise<ResetReport> {
    return this.call('reset', {});
  }
}

async function callOverHttp<N extends ControlOperationName>(
  url: string,
  token: string | undefined,
  name: N,
  request: ControlRequest<N>,
): Promise<ControlReply<N>> {
  const { method, path } = CONTROL_ROUTES[name];
  const { target, rest } = routeOf(path, request);
  const query = method === 'POST' ? '' : `?${new URLSearchParams(textsOf(rest))}`;
  const headers: Record<string, string> = {
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    ...(method === 'POST' ? { 'content-type': 'application/json' } : {}),
  };
  const body = method === 'POST' ? { body: JSON.stringify(rest) } : {};
  const response = await fetched(`${url.replace(/\/$/, '')}${target}${query}`, {
    method,
    headers,
    ...body,
  });
  const value: unknown = await response.json().catch(() => undefined);
  if (!response.ok) throw refusal(response.status, value);
  // The daemon has the same release, so its replies are trusted to have the right shape.
  return value as ControlReply<N>;
}

/** The path with its fields filled in, and the remaining fields. */
function routeOf(path: string, request: object): { target: string; rest: Record<string, unknown> } {
  const rest: Record<string, unknown> = { ...request };
  const target = path.replace(/:(\w+)/g, (_, name: string) => {
    const value = rest[name];
    delete rest[name];
    return encodeURIComponent(String(value));
  });
  return { target, rest };
}

function textsOf(fields: Readonly<Record<string, unknown>>): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}

/** Limit for the daemon's answer. */
const ANSWER_TIMEOUT_MS = 30_000;

async function fetched(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...init, signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') {
      throw new VerbsError('ETIMEDOUT', `cannot connect to ${url}`);
    }
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new VerbsError('ECONNREFUSED', `no daemon at ${url}: ${text}`);
  }
}

/** The error in the daemon's answer; EPROTO for a malformed answer. */
function refusal(status: number, value: unknown): VerbsError {
  const error = fieldOf(value, 'error');
  const message = fieldOf(error, 'message');
  const field = fieldOf(error, 'field');
  const code = fieldOf(error, 'code');
  if (typeof message !== 'string') {
    return new VerbsError('EPROTO', `not an iwarpd daemon: HTTP status ${status}`);
  }
  const text = typeof field === 'string' && field !== '' ? `${field}: ${message}` : message;
  return new VerbsError(errnoOf(code), text);
}

function errnoOf(code: unknown): ErrnoCode {
  return typeof code === 'string' && isErrnoCode(code) ? code : 'EPROTO';
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
