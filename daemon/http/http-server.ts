/**
 * The HTTP server of the control plane: limits every connection, checks every request, and passes it to
 * its route. No request accesses the disk: the table of routes lists everything the server can return.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { endText } from '#base/address';
import { VerbsError } from '#contract/verbs/errors';
import { HttpRefusal, refusalOf } from './http-refusal.ts';
import { type HttpRoute, JSON_TYPE, type RouteReply } from './http-route.ts';
import type { HttpRouter } from './http-router.ts';
import { RefusalLog } from './refusal-log.ts';
import { readJsonBody } from './request-body.ts';
import { type GuardPolicy, guardRequest } from './request-guard.ts';

/** Where the server listens and whom it serves. */
export interface HttpServerOptions {
  /** IP address or 'localhost'. */
  readonly address: string;
  /** 0 selects a free port. */
  readonly port: number;
  readonly policy: GuardPolicy;
  /** Called once, by `loadRoutes` or the first request. */
  readonly routes: () => Promise<readonly HttpRoute[]>;
  /** Default: `DEFAULT_HTTP_LIMITS`. */
  readonly limits?: HttpLimits;
  /** Called when a request was rejected or a route failed. */
  readonly note: (
    level: 'debug' | 'warn' | 'error',
    text: string,
    fields: Readonly<Record<string, unknown>>,
  ) => void;
}

interface HttpLimits {
  readonly connectionsMax: number;
  readonly headerMaxBytes: number;
  readonly headersMax: number;
  /** Time limits for a client to send the request headers, and the whole request. */
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  /** Time that a connection may wait for its next request. */
  readonly keepAliveTimeoutMs: number;
  /** Timeout of an idle connection, including a client that does not read its response. */
  readonly idleTimeoutMs: number;
  readonly checkIntervalMs: number;
}

/** Sized for a browser, a scraper and a few scripts, all nearby. */
export const DEFAULT_HTTP_LIMITS: HttpLimits = {
  connectionsMax: 64,
  headerMaxBytes: 8 * 1024,
  headersMax: 64,
  headersTimeoutMs: 5_000,
  requestTimeoutMs: 10_000,
  keepAliveTimeoutMs: 5_000,
  idleTimeoutMs: 30_000,
  checkIntervalMs: 1_000,
};

const TARGET_MAX_CHARACTERS = 2048;

/** Sent with every response: forbids storing, framing, sniffing, and access by other origins. */
const COMMON_HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  #loading: Promise<HttpRouter> | undefined;
  #router: HttpRouter | undefined;
  readonly #ending = new AbortController();
  readonly #refusals = new RefusalLog();

  private constructor(options: HttpServerOptions) {
    this.#options = options;
    const limits = options.limits ?? DEFAULT_HTTP_LIMITS;
    this.#server = createServer(
      {
        connectionsCheckingInterval: limits.checkIntervalMs,
        headersTimeout: limits.headersTimeoutMs,
        keepAliveTimeout: limits.keepAliveTimeoutMs,
        maxHeaderSize: limits.headerMaxBytes,
        requestTimeout: limits.requestTimeoutMs,
      },
      (request, response) => void this.#serve(request, response),
    );
    this.#server.maxConnections = limits.connectionsMax;
    this.#server.maxHeadersCount = limits.headersMax;
    this.#server.timeout = limits.idleTimeoutMs;
  }

  /** Listens. Rejects with `VerbsError`: EADDRINUSE, EADDRNOTAVAIL, EACCES. */
  static async listen(options: HttpServerOptions): Promise<HttpServer> {
    const server = new HttpServer(options);
    await server.#listen();
    return server;
  }

  /**
   * Loads the routes, otherwise loaded by the first request. A daemon calls it after it reports
   * ready: it is ready sooner, and later requests do not depend on the package's files.
   */
  async loadRoutes(): Promise<HttpRouter> {
    this.#loading ??= Promise.all([import('./http-router.ts'), this.#options.routes()]).then(
      ([{ HttpRouter: Router }, routes]) => {
        this.#router = new Router(routes);
        return this.#router;
      },
    );
    return await this.#loading;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** `http://HOST:PORT`, as reached from this host. */
  get url(): string {
    const { address } = this.#options;
    return `http://${endText(address, this.port)}`;
  }

  /** Closes every connection; pending responses are cut off. */
  async close(): Promise<void> {
    this.#ending.abort();
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }

  #listen(): Promise<void> {
    const { address, port, note } = this.#options;
    return new Promise((resolve, reject) => {
      this.#server.once('error', (error: NodeJS.ErrnoException) => {
        reject(listenError(error, `${address} port ${port}`));
      });
      this.#server.listen(port, address, () => {
        this.#server.on('error', (error) => note('warn', 'http', { error: error.message }));
        resolve();
      });
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    try {
      const signal = AbortSignal.any([gone.signal, this.#ending.signal]);
      const reply = await this.#answer(request, signal);
      await this.#send(response, reply);
    } catch (error) {
      this.#fail(request, response, error);
    }
  }

  async #answer(request: IncomingMessage, signal: AbortSignal): Promise<RouteReply> {
    const { method = '', url = '' } = request;
    const { path, query } = splitTarget(url);
    const router = this.#router ?? (await this.loadRoutes());
    const found = router.find(method, path);
    // Throws ENOENT only after the guard: a rejected client must not learn which paths exist.
    const open = found?.route.open === true;
    const { headers, headersDistinct } = request;
    const hostCount = headersDistinct['host']?.length ?? 0;
    guardRequest(this.#options.policy, { method, headers, hostCount, open });
    if (found === undefined) throw notFound(router, path);
    return await found.route.handle({
      params: found.params,
      query: parseQuery(query),
      signal,
      readJson: () => readJsonBody(request),
    });
  }

  async #send(response: ServerResponse, reply: RouteReply): Promise<void> {
    const { status, type, body, headers } = reply;
    if (typeof body === 'string' || body instanceof Uint8Array) {
      sendWhole(response, { status, type, body, headers });
      return;
    }
    response.writeHead(status, { ...COMMON_HEADERS, 'content-type': type, ...headers });
    await pipeline(Readable.from(body), response);
  }

  #fail(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    // The client is gone, or a response was cut off: no error can be sent.
    if (response.headersSent || response.destroyed || request.socket === null) {
      response.destroy();
      return;
    }
    const refusal = refusalOf(error);
    const { method, url } = request;
    const about = { method, url: url?.slice(0, 256), remote: request.socket.remoteAddress };
    if (refusal === undefined) {
      this.#options.note('error', 'request failed', { ...about, error: String(error) });
    } else {
      const { status, field, message: reason } = refusal;
      const { level, heldBack } = this.#refusals.judge(refusal, performance.now());
      const more = heldBack === 0 ? {} : { heldBack };
      const fields = { ...about, status, field, reason, ...more };
      this.#options.note(level, 'refused a request', fields);
    }
    const { status, code, field, message, headers } = refusal ?? BROKEN;
    const body = JSON.stringify({ error: { status, code, field, message } });
    // Close instead of waiting for the rest of an unread body.
    const close = request.complete ? {} : { connection: 'close' };
    sendWhole(response, { status, type: JSON_TYPE, body, headers: { ...headers, ...close } });
  }
}

/** A response of known length. */
interface WholeReply {
  readonly status: number;
  readonly type: string;
  readonly body: string | Uint8Array;
  readonly headers: Readonly<Record<string, string>> | undefined;
}

function sendWhole(response: ServerResponse, { status, type, body, headers }: WholeReply): void {
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const length = { 'content-length': bytes.length };
  response.writeHead(status, { ...COMMON_HEADERS, 'content-type': type, ...length, ...headers });
  response.end(bytes);
}

const BROKEN = new HttpRefusal(500, '', 'internal error; see the log of the daemon');

function notFound(router: HttpRouter, path: string): HttpRefusal {
  const allowed = router.methodsOf(path);
  if (allowed.length === 0) return new HttpRefusal(404, 'path', 'not found');
  const allow = allowed.join(', ');
  return new HttpRefusal(405, 'method', `not allowed for this path; use ${allow}`, {
    headers: { allow },
  });
}

/** The path, still encoded, and the query string. */
function splitTarget(target: string): { path: string; query: string } {
  if (target.length > TARGET_MAX_CHARACTERS) {
    throw new HttpRefusal(414, 'path', `must be at most ${TARGET_MAX_CHARACTERS} characters`);
  }
  if (!target.startsWith('/')) throw new HttpRefusal(400, 'path', 'must begin with /');
  const end = target.indexOf('?');
  const path = end < 0 ? target : target.slice(0, end);
  try {
    decodeURIComponent(path);
  } catch {
    throw new HttpRefusal(400, 'path', 'bad percent-encoding');
  }
  return { path, query: end < 0 ? '' : target.slice(end + 1) };
}

function parseQuery(text: string): Record<string, string> {
  const fields: Record<string, string> = Object.create(null);
  for (const [name, value] of new URLSearchParams(text)) {
    if (name in fields) throw new HttpRefusal(400, `query ${name}`, 'given twice');
    fields[name] = value;
  }
  return fields;
}

function listenError(error: NodeJS.ErrnoException, where: string): VerbsError {
  switch (error.code) {
    case 'EADDRINUSE':
      return new VerbsError(
        'EADDRINUSE',
        `cannot serve HTTP: ${where} is in use; choose another port with --http`,
      );
    case 'EADDRNOTAVAIL':
      return new VerbsError(
        'EADDRNOTAVAIL',
        `cannot serve HTTP: no interface has the address of ${where}`,
      );
    case 'EACCES':
      return new VerbsError(
        'EACCES',
        `cannot serve HTTP: permission denied for ${where}; ports below 1024 need root`,
      );
    default:
      return new VerbsError('EIO', `cannot serve HTTP at ${where}: ${error.message}`);
  }
}
