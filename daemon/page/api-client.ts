/** A client of the control plane of the daemon that served the page. */
import {
  CONTROL_ROUTES,
  type ControlOperationName,
  type ControlReply,
  type ControlRequest,
} from '#contract/protocol/control';

/** Kinds of errors that the page distinguishes. */
type ApiFailure =
  /** The daemon does not respond. */
  | 'lost'
  /** The token is missing or wrong. */
  | 'denied'
  /** The daemon rejected the request. */
  | 'refused';

export class ApiError extends Error {
  override readonly name = 'ApiError';
  readonly failure: ApiFailure;
  /** The invalid field, in the daemon's words: 'body peer'; '' if unknown. */
  readonly field: string;

  constructor(failure: ApiFailure, message: string, field = '') {
    super(message);
    this.failure = failure;
    this.field = field;
  }
}

const TOKEN_KEY = 'iwarpd-token';
/** A daemon on the same host or network responds at once, unless it is stopped in a debugger. */
const TIMEOUT_MS = 5_000;

export class ApiClient {
  /** Stored for this tab only. */
  get token(): string | undefined {
    return sessionStorage.getItem(TOKEN_KEY) ?? undefined;
  }

  set token(token: string | undefined) {
    if (token === undefined) sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  }

  /** Rejects with `ApiError`. `extraMs`: added to the timeout for slow operations. */
  async call<N extends ControlOperationName>(
    name: N,
    request: ControlRequest<N>,
    extraMs = 0,
  ): Promise<ControlReply<N>> {
    const response = await this.#fetch(name, request, TIMEOUT_MS + extraMs);
    const reply: unknown = await response.json().catch(() => undefined);
    if (!response.ok) throw refusalOf(response.status, reply);
    // The daemon exited, or the request timed out.
    if (reply === undefined) throw new ApiError('lost', 'the response was cut off');
    // The daemon serves its own page, so both have the same version of the types.
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
      throw new ApiError(
        'lost',
        late ? 'the daemon does not answer' : 'cannot connect to the daemon',
      );
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
