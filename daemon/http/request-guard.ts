/**
 * Decides from the request headers alone, before any route runs, who may send requests.
 *
 * A page of another origin can make a browser send requests here, and with DNS rebinding even read
 * the responses. So the guard rejects an unknown name in Host, any foreign Origin, and requests
 * that the browser marks as cross-site. Rebinding needs a name; an IP literal cannot be rebound.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { HttpRefusal } from './http-refusal.ts';

export interface GuardPolicy {
  /** Lower-case host names by which clients may address the server, besides IP addresses. */
  readonly hostNames: ReadonlySet<string>;
  /** The required `Authorization: Bearer` token; undefined if none is required. */
  readonly token: string | undefined;
}

/** The parts of a request that the guard checks. */
interface GuardedRequest {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  /** Number of Host headers: Node keeps the first and drops the others. */
  readonly hostCount: number;
  /** The route is served without the token. */
  readonly open: boolean;
}

const HOST = /^(?<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?$/;

/** Throws `HttpRefusal` (400, 401, 403) for a request that must be rejected. */
export function guardRequest(policy: GuardPolicy, request: GuardedRequest): void {
  const { headers } = request;
  const host = judgeHost(policy, request.hostCount === 1 ? headers.host : undefined);
  judgeOrigin(host, headers.origin);
  judgeFetch(request);
  if (!request.open && policy.token !== undefined) judgeToken(policy.token, headers.authorization);
}

/** Returns the host in lower case. */
function judgeHost({ hostNames }: GuardPolicy, given: string | undefined): string {
  const host = given?.toLowerCase() ?? '';
  const name = HOST.exec(host)?.groups?.['name'];
  if (name === undefined) {
    throw new HttpRefusal(400, 'header Host', 'must name the server once, as HOST or HOST:PORT');
  }
  const bare = name.startsWith('[') ? name.slice(1, -1) : name;
  if (isIP(bare) === 0 && !hostNames.has(name)) {
    throw new HttpRefusal(
      403,
      'header Host',
      'unknown host name; use an IP address, or allow the name with --http-host-name',
    );
  }
  return host;
}

function judgeOrigin(host: string, origin: string | undefined): void {
  if (origin === undefined) return;
  const own = [`http://${host}`, `https://${host}`];
  if (own.includes(origin.toLowerCase())) return;
  throw new HttpRefusal(403, 'header Origin', 'cross-origin requests are refused');
}

/** Browsers send the origin of a request; following a link from another site is allowed. */
function judgeFetch({ method, headers }: GuardedRequest): void {
  const site = headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return;
  if (method === 'GET' && headers['sec-fetch-mode'] === 'navigate') return;
  throw new HttpRefusal(403, 'header Sec-Fetch-Site', 'cross-site requests are refused');
}

function judgeToken(token: string, authorization: string | undefined): void {
  const given = /^bearer +(.+)$/i.exec(authorization ?? '')?.[1];
  if (given !== undefined && timingSafeEqual(digest(given), digest(token))) return;
  throw new HttpRefusal(
    401,
    'header Authorization',
    given === undefined
      ? 'a bearer token is required; `iwarpd page` prints a link that contains it'
      : 'wrong token',
    { headers: { 'www-authenticate': 'Bearer realm="iwarpd"' } },
  );
}

/** Has a fixed length for any input, as the constant-time comparison requires. */
function digest(text: string): Uint8Array {
  return createHash('sha256').update(text).digest();
}
