import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ApiClient } from '#daemon/page/api-client';
import { takeTokenOfLink } from '#daemon/page/token-view';

let asked: { target: string; init: RequestInit }[];
let answer: () => Response | Promise<Response>;

beforeEach(() => {
  asked = [];
  const kept = new Map<string, string>();
  vi.stubGlobal('sessionStorage', {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => kept.set(key, value),
    removeItem: (key: string) => kept.delete(key),
  });
  vi.stubGlobal('fetch', async (target: string, init: RequestInit) => {
    asked.push({ target, init });
    return await answer();
  });
});

afterEach(() => vi.unstubAllGlobals());

function json(value: unknown, status = 200): () => Response {
  return () => new Response(JSON.stringify(value), { status });
}

describe('the client of the control plane', () => {
  it('calls the routes of the contract: path, query, body', async () => {
    answer = json([]);
    const api = new ApiClient();
    await api.call('status', {});
    await api.call('listQPs', { device: 'a b', limit: 200 });
    await api.call('removeFault', { id: 7 });
    await api.call('addFault', { kind: 'delay', ms: 5 });
    expect(asked.map(({ target, init }) => [init.method, target, init.body])).toEqual([
      ['GET', '/status', undefined],
      ['GET', '/qps?device=a+b&limit=200', undefined],
      ['DELETE', '/faults/7', undefined],
      ['POST', '/faults', '{"kind":"delay","ms":5}'],
    ]);
    expect(asked[3]?.init.headers).toEqual({ 'content-type': 'application/json' });
  });

  it('sends the token as the daemon requires it, if there is one', async () => {
    answer = json({});
    const api = new ApiClient();
    api.token = 'sesame';
    await api.call('status', {});
    api.token = undefined;
    await api.call('status', {});
    expect(asked.map(({ init }) => init.headers)).toEqual([{ authorization: 'Bearer sesame' }, {}]);
  });

  it('reports a refusal in the daemon’s words', async () => {
    const error = { status: 400, code: 'EINVAL', field: 'body peer', message: 'no address' };
    answer = json({ error }, 400);
    await expect(new ApiClient().call('reset', {})).rejects.toMatchObject({
      failure: 'refused',
      field: 'body peer',
      message: 'no address',
    });
    answer = json({ error: { ...error, status: 401, message: 'wrong token' } }, 401);
    await expect(new ApiClient().call('status', {})).rejects.toMatchObject({
      failure: 'denied',
      message: 'wrong token',
    });
    answer = () => new Response('<html>', { status: 502 });
    await expect(new ApiClient().call('status', {})).rejects.toMatchObject({
      failure: 'refused',
      message: 'the daemon answers 502',
    });
  });

  it('reports a daemon that is not running, does not respond, or breaks off', async () => {
    const lost = (message: string) =>
      expect(new ApiClient().call('status', {})).rejects.toMatchObject({
        failure: 'lost',
        message,
      });
    answer = () => Promise.reject(new TypeError('fetch failed'));
    await lost('cannot connect to the daemon');
    answer = () => Promise.reject(new DOMException('', 'TimeoutError'));
    await lost('the daemon does not answer');
    answer = () => new Response('{"version":');
    await lost('the response was cut off');
  });
});

describe('the link of `iwarpd page`', () => {
  const addresses: unknown[] = [];
  const history = {
    replaceState: (_state: unknown, _unused: string, address?: string | URL | null) => {
      addresses.push(address);
    },
  };

  beforeEach(() => {
    addresses.length = 0;
  });

  it('carries the token after its #, which is removed from the address', () => {
    const api = new ApiClient();
    expect(takeTokenOfLink(api, { hash: '#token=a%2Bb-c_d', pathname: '/' }, history)).toBe(true);
    expect(api.token).toBe('a+b-c_d');
    expect(addresses).toEqual(['/']);
  });

  it.each(['', '#', '#devices', '#token', '#token='])('is not taken from %j', (hash) => {
    const api = new ApiClient();
    api.token = 'earlier';
    expect(takeTokenOfLink(api, { hash, pathname: '/' }, history)).toBe(false);
    expect(api.token).toBe('earlier');
    expect(addresses).toEqual([]);
  });
});
