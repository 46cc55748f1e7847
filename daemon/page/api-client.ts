/** The control plane of the daemon that the page came from. */
import {
  CONTROL_ROUTES,
  type ControlOperationName,
  type ControlReply,
  type ControlRequest,
} from '../../verbs-api/contract/control.ts';

/** What went wrong, as far as the page has to tell it apart. */
export type ApiFailure =
  /** Nobody answers. */
  | 'lost'
  /** A token is needed, or the one that was given is wrong. */
  | 'denied'
  /** The daemon refused the request. */
  | 'refused';

/** A request that was not done. */
export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly failure: ApiFailure;
  /** What of the request is wrong, as the daemon calls it: 'body peer'; '' when it says nothing. */
  readonly field: string;

  constructor(failure: ApiFailure, message: string, field = '') {
    super(message);
    this.failure = failure;
    this.field = field;
  }
}

const TOKEN_KEY = 'iwarpd-token';
/** A daemon on the same host or network answers at once; one that is stopped in a debugger does not. */
const TIMEOUT_MS = 5_000;

/** Asks the daemon. */
export class ApiClient {
  /** Of this tab only; gone with it. */
  get token(): string | undefined {
    return sessionStorage.getItem(TOKEN_KEY) ?? undefined;
  }

  set token(token: string | undefined) {
    if (token === undefined) sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  }

  /** Rejects with `ApiError`. `extraMs` is how much longer than others the operation may take. */
  async call<N extends ControlOperationName>(
    name: N,
    request: ControlRequest<N>,
    extraMs = 0,
  ): Promise<ControlReply<N>> {
    const response = await this.#fetch(name, request, TIMEOUT_MS + extraMs);
    const reply: unknown = await response.json().catch(() => undefined);
    if (!response.ok) throw refusalOf(response.status, reply);
    // A daemon that ends, or takes too long, breaks off.
    if (reply === undefined) throw new ApiError('lost', 'the answer broke off');
    // The page is a part of the daemon that serves it, so their types are of one version.
    return reply as ControlReply<N>;
  }

  async #fetch(name: ControlOperationName, request: object, timeoutMs: number): Promise<Response> {
    const { method, path } = CONTROL_ROUTES[name];
    const fields = new Map(Object.entries(request).filter(([, value]) => value !== undefined));
    const filled = path.replace(/:(\w+)/g, (_, field: string) => {
      const value = String(fields.get(field));
      fields.delete(field);
      return encodeURIComponent(value);
    });
    const query = new URLSearchParams([...fields].map(([field, value]) => [field, String(value)]));
    const target = method === 'POST' || fields.size === 0 ? filled : `${filled}?${query}`;
    const { token } = this;
    const headers = {
      ...(method === 'POST' ? { 'content-type': 'application/json' } : {}),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    const body = method === 'POST' ? { body: JSON.stringify(Object.fromEntries(fields)) } : {};
    try {
      const signal = AbortSignal.timeout(timeoutMs);
      return await fetch(target, { method, headers, ...body, signal, cache: 'no-store' });
    } catch (error) {
      const late = error instanceof DOMException && error.name === 'TimeoutError';
      throw new ApiError('lost', late ? 'the daemon does not answer' : 'nobody answers');
    }
  }
}

function refusalOf(status: number, reply: unknown): ApiError {
  const error = isRecord(reply) && isRecord(reply['error']) ? reply['error'] : {};
  const { message, field } = error;
  const text = typeof message === 'string' ? message : `the daemon answers ${status}`;
  const where = typeof field === 'string' ? field : '';
  return new ApiError(status === 401 ? 'denied' : 'refused', text, where);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
