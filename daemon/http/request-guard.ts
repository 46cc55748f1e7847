/**
 * Who may ask: judged from the head of a request alone, before any route sees it.
 *
 * A page of another origin can make a browser send requests here, and by DNS rebinding even reads
 * the answers. So a name that is not ours in Host, any foreign Origin, and what the browser itself
 * calls cross-site is refused. Names are what rebinding needs; an IP literal cannot be rebound.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { HttpRefusal } from './http-refusal.ts';

/** What the guard lets through. */
export interface GuardPolicy {
  /** Names, in lower case, by which clients may call the server beside IP addresses. */
  readonly hostNames: ReadonlySet<string>;
  /** What `Authorization: Bearer` has to carry; undefined: nothing is asked for. */
  readonly token: string | undefined;
}

/** The part of a request that the guard judges. */
export interface GuardedRequest {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  /** How often it names a host: Node keeps the first and drops the others. */
  readonly hostCount: number;
  /** The route is answered without the token. */
  readonly open: boolean;
}

const HOST = /^(?<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?$/;

/** Throws `HttpRefusal` (400, 401, 403) for a request that may not be answered. */
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
    throw new HttpRefusal(
      400,
      'header Host',
      'it has to name the server once, as HOST or HOST:PORT',
    );
  }
  const bare = name.startsWith('[') ? name.slice(1, -1) : name;
  if (isIP(bare) === 0 && !hostNames.has(name)) {
    throw new HttpRefusal(
      403,
      'header Host',
      'the server has no such name; use its address, or allow the name when the daemon starts',
    );
  }
  return host;
}

function judgeOrigin(host: string, origin: string | undefined): void {
  if (origin === undefined) return;
  const own = [`http://${host}`, `https://${host}`];
  if (own.includes(origin.toLowerCase())) return;
  throw new HttpRefusal(403, 'header Origin', 'requests of other origins are not answered');
}

/** Browsers tell where a request comes from; following a link from elsewhere is allowed. */
function judgeFetch({ method, headers }: GuardedRequest): void {
  const site = headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return;
  if (method === 'GET' && headers['sec-fetch-mode'] === 'navigate') return;
  throw new HttpRefusal(403, 'header Sec-Fetch-Site', 'requests of other sites are not answered');
}

function judgeToken(token: string, authorization: string | undefined): void {
  const given = /^bearer +(.+)$/i.exec(authorization ?? '')?.[1];
  if (given !== undefined && timingSafeEqual(digest(given), digest(token))) return;
  throw new HttpRefusal(
    401,
    'header Authorization',
    given === undefined ? 'a bearer token is needed' : 'wrong token',
    { headers: { 'www-authenticate': 'Bearer realm="iwarpd"' } },
  );
}

/** Of one length, whatever was given, as the comparison needs it. */
function digest(text: string): Uint8Array {
  return createHash('sha256').update(text).digest();
}
