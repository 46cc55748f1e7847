import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { controlRoutes } from '#daemon/http/control-routes';
import type { HttpRoute } from '#daemon/http/http-route';
import { DEFAULT_HTTP_LIMITS, HttpServer } from '#daemon/http/http-server';
import { FixedTarget } from '../support/control-target.ts';
import { patience, quiet } from '../support/patience.ts';

const LIMITS = {
  ...DEFAULT_HTTP_LIMITS,
  connectionsMax: 8,
  headersTimeoutMs: 400,
  requestTimeoutMs: 800,
  keepAliveTimeoutMs: 400,
  idleTimeoutMs: 1_000,
  checkIntervalMs: 50,
};
const JSON_TYPE = 'Content-Type: application/json';
const STAYS = '(the server does not close)';

/** An endless sequence of pieces, and whether it is still being generated. */
class Spring {
  running = 0;
  made = 0;

  readonly route: HttpRoute = {
    method: 'GET',
    path: '/spring',
    summary: 'Bytes without end',
    produces: 'application/byte-stream',
    handle: ({ signal }) => ({
      status: 200,
      type: 'application/byte-stream',
      body: this.#pieces(signal),
    }),
  };

  async *#pieces(signal: AbortSignal): AsyncGenerator<Uint8Array> {
    this.running += 1;
    try {
      while (!signal.aborted) {
        this.made += 1;
        yield new Uint8Array(64 * 1024);
        await quiet(0);
      }
    } finally {
      this.running -= 1;
    }
  }
}

let server: HttpServer;
let target: FixedTarget;
let spring: Spring;
let broken: string[];

beforeEach(async () => {
  target = new FixedTarget();
  spring = new Spring();
  broken = [];
  const failing: HttpRoute = {
    method: 'GET',
    path: '/broken',
    summary: 'Fails',
    produces: 'text/plain',
    handle: () => {
      throw new TypeError('an invariant of /secret/place does not hold');
    },
  };
  server = await HttpServer.listen({
    address: '127.0.0.1',
    port: 0,
    policy: { hostNames: new Set(['localhost']), token: undefined },
    routes: async () => [...controlRoutes(target), spring.route, failing],
    limits: LIMITS,
    note: (level, _text, { error }) => {
      if (level === 'error') broken.push(String(error));
    },
  });
  // As in a daemon that has been ready for a while.
  await server.loadRoutes();
});

afterEach(() => server.close());

/** Sends bytes and collects the response until the server closes. */
async function exchange(bytes: string): Promise<string> {
  return await collected(dial(bytes));
}

/** A client that sends bytes, and ignores how the connection ends. */
function dial(bytes: string): Socket {
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.write(bytes);
  return socket;
}

async function collected(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (bytes) => {
    text += bytes.toString('latin1');
  });
  const timer = setTimeout(() => {
    text += STAYS;
    socket.destroy();
  }, patience());
  await closeOf(socket);
  clearTimeout(timer);
  return text;
}

/** Resolves at any end of the connection; `once` would reject at a reset. */
function closeOf(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** A request with exactly these lines. */
function request(...lines: string[]): string {
  return `${lines.join('\r\n')}\r\n\r\n`;
}

const post = (...lines: string[]): string =>
  request('POST /reset HTTP/1.1', 'Host: localhost', ...lines);

function get(path: string): string {
  return request(`GET ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close');
}

/** Other clients are still served. */
async function healthy(): Promise<void> {
  expect(await exchange(get('/healthz'))).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\nok\n$/s);
  expect(broken).toEqual([]);
}

describe('invalid requests', () => {
  afterEach(healthy);

  it.each([
    ['bytes', '\u0000\u0001\u0002\u0003\r\n\r\n'],
    ['TLS', '\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003'.padEnd(600, 'x')],
    ['an unknown method', request('HELP / HTTP/1.1', 'Host: localhost')],
    ['an unknown version', request('GET /status HTTP/9.1', 'Host: localhost')],
    ['no host', request('GET /status HTTP/1.1', 'Connection: close')],
    ['no host, HTTP/1.0', request('GET /status HTTP/1.0')],
    ['a bad length', post('Content-Length: -1')],
    ['two lengths', post('Content-Length: 1', 'Content-Length: 2')],
    ['a length and chunks', post('Content-Length: 4', 'Transfer-Encoding: chunked')],
    ['bad chunks', `${post(JSON_TYPE, 'Transfer-Encoding: chunked')}zz\r\n`],
    ['a folded header', 'GET /status HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b: c\r\n\r\n'],
    ['a header without colon', request('GET /status HTTP/1.1', 'Host: localhost', 'no colon')],
    ['a zero byte', request('GET /status HTTP/1.1', 'Host: localhost', 'X: a\u0000b')],
    ['two hosts', request('GET /status HTTP/1.1', 'Host: localhost', 'Host: evil.example')],
    ['an absolute target', request('GET http://evil.example/status HTTP/1.1', 'Host: localhost')],
    ['a target without slash', request('OPTIONS * HTTP/1.1', 'Host: localhost')],
    ['bad percents', request('GET /%ff%fe HTTP/1.1', 'Host: localhost')],
  ])('%s: refused', async (_, bytes) => {
    expect(await exchange(bytes)).not.toMatch(/^HTTP\/1\.1 2/);
    expect(target.resets).toBe(0);
  });

  it('CONNECT and Upgrade lead nowhere', async () => {
    const tunnel = await exchange(request('CONNECT localhost:22 HTTP/1.1', 'Host: localhost'));
    expect(tunnel).not.toMatch(/^HTTP\/1\.1 2/);
    const upgrade = await exchange(
      request('GET /nothing HTTP/1.1', 'Host: localhost', 'Connection: Upgrade', 'Upgrade: h2c'),
    );
    expect(upgrade).toMatch(/^HTTP\/1\.1 404/);
  });

  it('heads and targets beyond their limits', async () => {
    const long = 'x'.repeat(LIMITS.headerMaxBytes);
    const large = await exchange(request('GET /status HTTP/1.1', 'Host: localhost', `X: ${long}`));
    expect(large).toMatch(/^HTTP\/1\.1 431/);
    expect(await exchange(get(`/${'x'.repeat(3000)}`))).toMatch(/^HTTP\/1\.1 414/);
    const many = Array.from({ length: 1000 }, (_, index) => `x${index}:`);
    const counted = request('GET /healthz HTTP/1.1', 'Host: localhost', ...many);
    expect(await exchange(counted)).toMatch(/^HTTP\/1\.1 (?:200|431)/);
  });

  it('bytes at random, seeded', async () => {
    let seed = 20_261_121;
    const random = (below: number): number => {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((seed / 2 ** 32) * below);
    };
    for (let round = 0; round < 200; round += 1) {
      const bytes = Buffer.from(get('/status?a=b'));
      for (let changes = 1 + random(4); changes > 0; changes -= 1) {
        bytes[random(bytes.length)] = random(256);
      }
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.end(bytes);
      socket.resume();
      await closeOf(socket);
    }
  });
});

describe('paths of files', () => {
  it.each([
    '/../../../etc/passwd',
    '/%2e%2e/%2e%2e/etc/passwd',
    '/..%2f..%2f..%2fetc%2fpasswd',
    '/.%00./etc/passwd',
    '//etc/passwd',
    '/status/../../etc/passwd',
    '/..\\..\\etc\\passwd',
    '/file:///etc/passwd',
    '/etc/passwd',
    '/package.json',
    '/.git/config',
  ])('%s: nothing', async (path) => {
    const answer = await exchange(get(path));
    expect(answer).toMatch(/^HTTP\/1\.1 40[04]/);
    expect(answer).not.toContain('root:');
  });
});

describe('slow or half-open clients', () => {
  it('a silent one is closed', async () => {
    expect(await exchange('')).not.toContain(STAYS);
    await healthy();
  });

  it('one that drips a head is closed in time', async () => {
    const socket = dial('');
    const answer = collected(socket);
    const head = request('GET /status HTTP/1.1', 'Host: localhost', `X: ${'y'.repeat(2000)}`);
    for (const letter of head) {
      if (socket.destroyed || !socket.writable) break;
      socket.write(letter);
      await quiet(20);
    }
    expect(await answer).not.toMatch(/^HTTP\/1\.1 2/);
    await healthy();
  });

  it('one that drips a body is closed in time', async () => {
    const socket = dial('');
    const answer = collected(socket);
    socket.write(post(JSON_TYPE, 'Content-Length: 60000'));
    while (!socket.destroyed && socket.writable) {
      socket.write(' ');
      await quiet(20);
    }
    const response = await answer;
    expect(response).not.toMatch(/^HTTP\/1\.1 2/);
    expect(response).not.toContain(STAYS);
    expect(target.resets).toBe(0);
    await healthy();
  });

  it('one that leaves midway leaks nothing', async () => {
    for (const bytes of [
      'GET /sta',
      'POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Le',
      `${post(JSON_TYPE, 'Content-Length: 20')}{"x"`,
    ]) {
      const socket = dial(bytes);
      await quiet(50);
      socket.resetAndDestroy();
    }
    await healthy();
    expect(target.resets).toBe(0);
  });

  it('clients beyond the limit are rejected, and others served once the earlier ones are gone', async () => {
    let open = 0;
    const ends = Array.from({ length: 40 }, async () => {
      open += 1;
      const answer = await exchange('GET /status HTTP/1.1\r\nHost: ');
      open -= 1;
      return answer;
    });
    await expect.poll(() => open, { interval: 5 }).toBeLessThanOrEqual(LIMITS.connectionsMax);
    // Rejected at once, not by the timeout: the earlier clients are still connected.
    expect(open).toBeGreaterThan(0);
    for (const answer of await Promise.all(ends)) expect(answer).not.toMatch(/^HTTP\/1\.1 2/);
    await healthy();
  });

  it('one that keeps sending requests and reads nothing is closed', async () => {
    const socket = connect(server.port, '127.0.0.1');
    socket.pause();
    socket.on('error', () => undefined);
    const one = request('GET /status HTTP/1.1', 'Host: localhost');
    const closed = closeOf(socket);
    const before = process.memoryUsage.rss();
    for (let sent = 0; sent < 20_000 && !socket.destroyed; sent += 500) {
      socket.write(one.repeat(500));
      await quiet(1);
    }
    expect(process.memoryUsage.rss() - before).toBeLessThan(128 * 2 ** 20);
    await healthy();
    socket.resume();
    socket.end();
    await closed;
  });

  it('one that does not read a stream stops it, and is closed', async () => {
    const socket = dial(get('/spring'));
    socket.pause();
    await expect.poll(() => spring.running).toBe(1);
    await expect.poll(() => spring.running).toBe(0);
    // As much as the socket buffers hold, not as much as could be generated in the time.
    expect(spring.made).toBeLessThan(1000);
    socket.destroy();
    await healthy();
  });

  it('one that leaves a stream stops it', async () => {
    const socket = dial(get('/spring'));
    await once(socket, 'data');
    socket.destroy();
    await expect.poll(() => spring.running).toBe(0);
    await healthy();
  });

  it('none delays the end of the server', async () => {
    const sockets = [get('/spring'), 'GET /', ''].map(dial);
    await expect.poll(() => spring.running).toBe(1);
    await server.close();
    await expect.poll(() => spring.running).toBe(0);
    for (const socket of sockets) socket.destroy();
  });
});

describe('a route that breaks', () => {
  it('returns 500 without details, which the log has', async () => {
    const answer = await exchange(get('/broken'));
    expect(answer).toMatch(/^HTTP\/1\.1 500/);
    expect(answer).not.toContain('secret');
    expect(broken).toEqual([expect.stringContaining('invariant')]);
  });
});
