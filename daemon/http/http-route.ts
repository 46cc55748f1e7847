/** Routes of the HTTP server, and their requests and replies. */
import type { ControlOperationName } from '#contract/protocol/control';

/** A request as passed to a route: bounded, and accepted by the guard. */
interface RouteRequest {
  /** Path segments, by the names in the route's path. */
  readonly params: Readonly<Record<string, string>>;
  /** Query parameters, each at most once. */
  readonly query: Readonly<Record<string, string>>;
  /** Fires when the client disconnects or the server closes. */
  readonly signal: AbortSignal;
  /**
   * The body as JSON; `{}` if empty. Rejects with `HttpRefusal`: 413, 415, or 400 if it is not a
   * JSON object.
   */
  readJson(): Promise<Record<string, unknown>>;
}

export interface RouteReply {
  readonly status: number;
  /** Media type of the body, including the charset. */
  readonly type: string;
  /**
   * The whole body, or pieces as they become available; these end if the client does not read them
   * in time.
   */
  readonly body: string | Uint8Array | AsyncIterable<string | Uint8Array>;
  /** Additional headers; they override the server's own. */
  readonly headers?: Readonly<Record<string, string>>;
}

export interface HttpRoute {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** In find-my-way syntax: `/faults/:id`, `/page/*`. */
  readonly path: string;
  /** One line, for the OpenAPI description. */
  readonly summary: string;
  /** Media type of the response. */
  readonly produces: string;
  /** The operation it executes, whose schemas describe it. */
  readonly operation?: ControlOperationName;
  /**
   * Served without the token: only for routes that reveal nothing about programs and change
   * nothing. Default: false.
   */
  readonly open?: boolean;
  /** May throw `HttpRefusal` and `VerbsError`; any other error is a bug. */
  readonly handle: (request: RouteRequest) => RouteReply | Promise<RouteReply>;
}

/** Media type of JSON responses. */
export const JSON_TYPE = 'application/json; charset=utf-8';

export function jsonReply(value: unknown, status = 200): RouteReply {
  return { status, type: JSON_TYPE, body: `${JSON.stringify(value)}\n` };
}

export function textReply(text: string, status = 200): RouteReply {
  return { status, type: 'text/plain; charset=utf-8', body: text };
}
