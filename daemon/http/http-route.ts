/** What a route of the HTTP server is, and what it may answer. */
import type { ControlOperationName } from '../../verbs-api/contract/control.ts';

/** A request as a route sees it: bounded, and allowed by the guard. */
export interface RouteRequest {
  /** Words of the path by the name that the route's path gives them. */
  readonly params: Readonly<Record<string, string>>;
  /** Fields behind the question mark, each once. */
  readonly query: Readonly<Record<string, string>>;
  /** Fires when the client is gone, or the server ends. */
  readonly signal: AbortSignal;
  /**
   * The body as JSON; `{}` when there is none. Rejects with `HttpRefusal`: 413, 415, or 400 for what
   * is no JSON object.
   */
  readJson(): Promise<Record<string, unknown>>;
}

/** An answer. */
export interface RouteReply {
  readonly status: number;
  /** Media type of the body, with its charset. */
  readonly type: string;
  /** All of it, or pieces as they come: these end when the client does not read them in time. */
  readonly body: string | Uint8Array | AsyncIterable<string | Uint8Array>;
  /** Further headers; they override the server's own. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** One route. */
export interface HttpRoute {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** As find-my-way takes it: `/faults/:id`, `/page/*`. */
  readonly path: string;
  /** One line for people, in the OpenAPI description. */
  readonly summary: string;
  /** Media type of what it answers. */
  readonly produces: string;
  /** The operation behind it, whose schemas describe it. */
  readonly operation?: ControlOperationName;
  /**
   * Answered without the token: only for what tells nothing about programs and changes nothing.
   * Default: false.
   */
  readonly open?: boolean;
  /** May throw `HttpRefusal` and `VerbsError`. Anything else is a broken invariant. */
  readonly handle: (request: RouteRequest) => RouteReply | Promise<RouteReply>;
}

/** Media type of JSON answers. */
export const JSON_TYPE = 'application/json; charset=utf-8';

/** A value as JSON. */
export function jsonReply(value: unknown, status = 200): RouteReply {
  return { status, type: JSON_TYPE, body: `${JSON.stringify(value)}\n` };
}

/** Text for people and programs. */
export function textReply(text: string, status = 200): RouteReply {
  return { status, type: 'text/plain; charset=utf-8', body: text };
}
