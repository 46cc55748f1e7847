/**
 * Hostile HTTP against a whole daemon: heads, bodies, paths, tokens. Connections are in-process
 * streams, for speed; `http-socket` sends the same over TCP.
 */
import { connect, Server as NetServer } from 'node:net';
import { Duplex } from 'node:stream';
import { CONTROL_ROUTES } from '#contract/protocol/control';
import { FAULT_KINDS, FAULT_OPCODES, FAULT_VERBS } from '#contract/protocol/faults';
import { HttpServer } from '#daemon/http/http-server';
import { DaemonRig } from '#test/support/daemon-rig';
import type { Draws } from '#test/support/draws';
import { inPieces, mutated } from '#test/support/mutate';
import { oddNumber } from '../ipc-commands.ts';
import { claim, type FuzzState, type FuzzTarget, type Outcome, patch } from '../target.ts';

const TOKEN = 'fuzz-token-of-good-length';
/** Answered without a token. */
const OPEN_PATHS = ['/', '/healthz', '/readyz', '/openapi.json', '/favicon.ico'];
/** Maximum turns of the event loop until an answer; a trace takes some milliseconds. */
const TURNS_MAX = 200;

const METHODS = ['GET', 'GET', 'POST', 'DELETE', 'HEAD', 'PUT', 'OPTIONS', 'BREW', 'get', ''];
const PATHS = [
  ...Object.values(CONTROL_ROUTES).map(({ path }) => path),
  ...OPEN_PATHS,
  '/metrics',
  '/../../etc/passwd',
  '/%2e%2e/status',
  '/status/',
  '//status',
  '/faults/%31',
  '/faults/%ff',
  '/STATUS',
  '*',
  'http://127.0.0.1/status',
  '/\u00e9',
];
const HOSTS = [
  '127.0.0.1',
  'localhost:7',
  '[::1]:80',
  'evil.example',
  '',
  'a b',
  '127.0.0.1:999999',
];

/** One request with mostly valid parts. */
function requestText(draws: Draws): string {
  const path = draws
    .pick(PATHS)
    .replace(':id', String(draws.oneIn(4) ? oddNumber(draws) : draws.below(5)));
  const query = draws.oneIn(3) ? `?${queryText(draws)}` : '';
  const method = draws.pick(METHODS);
  const body = method === 'POST' || draws.oneIn(8) ? bodyText(draws) : '';
  const lines = [`${method} ${path}${query} HTTP/1.${draws.oneIn(8) ? draws.below(10) : 1}`];
  lines.push(`Host: ${draws.oneIn(6) ? draws.pick(HOSTS) : '127.0.0.1'}`);
  if (draws.oneIn(16)) lines.push('Host: localhost');
  if (!draws.oneIn(4)) lines.push(`Authorization: ${authorization(draws)}`);
  if (draws.oneIn(8)) {
    lines.push(`Origin: ${draws.pick(['http://127.0.0.1', 'http://evil.example', 'null', ''])}`);
  }
  if (draws.oneIn(8)) {
    lines.push(`Sec-Fetch-Site: ${draws.pick(['same-origin', 'cross-site', 'none', 'x'])}`);
  }
  if (draws.oneIn(16)) lines.push(`X-${'y'.repeat(draws.below(9000))}: z`);
  if (draws.oneIn(16)) lines.push('Expect: 100-continue');
  if (draws.oneIn(16)) lines.push('Connection: Upgrade', 'Upgrade: websocket');
  if (body === '' && method !== 'POST') return `${lines.join('\r\n')}\r\n\r\n`;
  lines.push(`Content-Type: ${draws.oneIn(6) ? 'text/plain' : 'application/json'}`);
  const length = Buffer.byteLength(body);
  if (draws.oneIn(8)) {
    lines.push('Transfer-Encoding: chunked');
    return `${lines.join('\r\n')}\r\n\r\n${length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  }
  const declared = draws.oneIn(12) ? draws.pick([-1, 0, length + 1, 70_000, 1e12, 'x']) : length;
  lines.push(`Content-Length: ${declared}`);
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

function authorization(draws: Draws): string {
  if (!draws.oneIn(4)) return `Bearer ${TOKEN}`;
  return draws.pick([
    'Bearer',
    'Bearer ',
    `Bearer ${TOKEN}x`,
    `Bearer ${TOKEN.slice(1)}`,
    `Basic ${TOKEN}`,
    'x'.repeat(4000),
  ]);
}

function queryText(draws: Draws): string {
  const fields = ['device', 'pid', 'offset', 'limit', 'ms', 'qp', 'text', 'x', '__proto__', ''];
  const values = ['fuzzed', '1', '0', '-1', '1e9', 'true', '', '%00', '%zz', 'x'.repeat(3000)];
  const parts = Array.from({ length: draws.between(1, 3) }, () => {
    const field = draws.pick(fields);
    // A long trace finds no more than a short one, but takes longer.
    return `${field}=${field === 'ms' ? draws.pick(['1', '2', '-1', '1e99']) : draws.pick(values)}`;
  });
  return parts.join('&');
}

function bodyText(draws: Draws): string {
  const spec: Record<string, unknown> = { kind: draws.pick(Object.keys(FAULT_KINDS)) };
  const values: Record<string, () => unknown> = {
    device: () => draws.pick(['fuzzed', 'x', '']),
    qp: () => draws.below(5),
    peer: () => draws.pick(['127.0.0.1', '127.0.0.1:7', '[::1]:2', 'x']),
    opcode: () => draws.pick(FAULT_OPCODES),
    direction: () => draws.pick(['in', 'out', 'x']),
    pid: () => draws.word(),
    verb: () => draws.pick(FAULT_VERBS),
    nth: () => draws.below(4),
    every: () => draws.below(4),
    once: () => draws.oneIn(2),
    probability: () => draws.below(11) / 10,
    seed: () => draws.word(),
    ms: () => draws.below(50),
    bytesPerSecond: () => draws.word(),
    bytes: () => draws.below(100),
    afterBytes: () => draws.below(1000),
    errno: () => draws.pick(['EIO', 'ENOMEM', 'EWHAT']),
    ird: () => draws.below(20),
    ord: () => draws.below(20),
  };
  for (let count = draws.below(4); count > 0; count--) {
    const field = draws.pick(Object.keys(values));
    spec[field] = draws.oneIn(8) ? oddNumber(draws) : values[field]?.();
  }
  const text = JSON.stringify(spec);
  switch (draws.below(12)) {
    case 0:
      return '{}';
    case 1:
      return '['.repeat(draws.below(3000));
    case 2:
      return `${text}${'x'.repeat(draws.below(70_000))}`;
    case 3:
      return '{"__proto__":{"kind":"delay"}}';
    default:
      return text;
  }
}

/** An in-process connection: pushed bytes go to the server, its answers are kept. */
class Pipe extends Duplex {
  readonly remoteAddress = '127.0.0.1';
  answer = '';

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.answer += chunk.toString('latin1');
    done();
  }
}

/** A daemon with access to its HTTP server. */
class HttpDaemon {
  readonly rig: DaemonRig;
  readonly server: NetServer;

  private constructor(rig: DaemonRig, server: NetServer) {
    this.rig = rig;
    this.server = server;
  }

  static async start(): Promise<HttpDaemon> {
    const servers: NetServer[] = [];
    const restore = patch(NetServer.prototype, 'listen', function (listen, ...given) {
      servers.push(this);
      return listen(...given);
    });
    try {
      const rig = await DaemonRig.start({
        devices: [{ name: 'fuzzed', addresses: ['127.0.0.1'] }],
        native: false,
        http: { address: '127.0.0.1', port: 0, token: TOKEN },
      });
      const server = servers.find((each) => {
        const at = each.address();
        return typeof at === 'object' && at?.port === rig.daemon.ready.http?.port;
      });
      if (server === undefined) throw new Error('the HTTP server does not listen');
      return new HttpDaemon(rig, server);
    } finally {
      restore();
    }
  }

  get port(): number {
    return this.rig.daemon.ready.http?.port ?? 0;
  }

  /** Throws if a request failed inside the daemon. */
  check(): void {
    this.rig.daemon.assertDeepInvariants();
    const broken = this.rig.log.find((line) => line.includes('a request broke'));
    this.rig.log.length = 0;
    claim(broken === undefined, broken ?? '');
  }
}

/** Checks that a request got an allowed answer. */
function judge(input: Buffer, answer: string): Outcome {
  const status = /^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1];
  if (answer === '') return 'no answer';
  claim(status !== undefined, `an answer begins with ${JSON.stringify(answer.slice(0, 40))}`);
  claim(Number(status) < 500 || status === '503', `answered with ${status}`);
  const text = input.toString('latin1');
  const open = OPEN_PATHS.some((path) => text.includes(` ${path} `) || text.includes(` ${path}?`));
  const allowed = open || text.includes(TOKEN);
  claim(allowed || !status.startsWith('2'), `answered with ${status} without the token`);
  return status;
}

class HttpState implements FuzzState {
  readonly #daemon: HttpDaemon;
  readonly #overTcp: boolean;

  constructor(daemon: HttpDaemon, overTcp: boolean) {
    this.#daemon = daemon;
    this.#overTcp = overTcp;
  }

  async run(draws: Draws): Promise<Outcome> {
    let input: Uint8Array = Buffer.from(requestText(draws), 'latin1');
    if (draws.oneIn(4)) input = mutated(input, [input], draws, draws.between(1, 3));
    if (draws.recording) draws.show(Buffer.from(input).toString('latin1'));
    const answer = this.#overTcp
      ? await this.#send(input, draws)
      : await this.#inject(input, draws);
    this.#daemon.check();
    return judge(Buffer.from(input), answer);
  }

  async close(): Promise<void> {
    const { daemon } = this.#daemon.rig;
    claim((await daemon.status()).ready, 'the daemon is no longer ready');
    await this.#daemon.rig.stop();
  }

  async #inject(input: Uint8Array, draws: Draws): Promise<string> {
    const pipe = new Pipe();
    pipe.on('error', () => undefined);
    this.#daemon.server.emit('connection', pipe);
    inPieces(input, draws, (start, end) => pipe.push(Buffer.from(input.subarray(start, end))));
    for (let turn = 0; turn < 4 && pipe.answer === ''; turn++) await nextTurn();
    pipe.push(null);
    for (let turn = 0; turn < TURNS_MAX && !pipe.destroyed; turn++) await nextTurn();
    pipe.destroy();
    return pipe.answer;
  }

  #send(input: Uint8Array, draws: Draws): Promise<string> {
    return new Promise((resolve) => {
      let answer = '';
      const socket = connect(this.#daemon.port, '127.0.0.1');
      const reset = draws.oneIn(8);
      socket.on('connect', () => {
        inPieces(input, draws, (start, end) => void socket.write(input.subarray(start, end)));
        if (reset) socket.resetAndDestroy();
        else socket.end();
      });
      socket.on('data', (chunk) => {
        answer += chunk.toString('latin1');
      });
      socket.on('error', () => undefined);
      socket.on('close', () => resolve(answer));
    });
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A guard that admits everyone. */
function letAllIn(): () => void {
  type Serving = { readonly listen: typeof HttpServer.listen };
  const server = HttpServer as Serving as { listen: typeof HttpServer.listen };
  return patch(server, 'listen', (listen, options) =>
    listen({ ...options, policy: { ...options.policy, token: undefined } }),
  );
}

/** Requests to a whole daemon, without sockets. */
export const httpRequest: FuzzTarget = {
  name: 'http-request',
  about: 'requests to a whole daemon: heads, bodies, paths and tokens, without sockets',
  batchInputs: 1_000,
  weight: 1_500,
  smokeInputs: 1_200,
  canary: { plant: letAllIn, inputs: 500 },
  open: async () => new HttpState(await HttpDaemon.start(), false),
};

/** The same over TCP. */
export const httpSocket: FuzzTarget = {
  name: 'http-socket',
  about: 'the same over TCP, with resets',
  batchInputs: 500,
  weight: 400,
  smokeInputs: 300,
  canary: { plant: letAllIn, inputs: 500 },
  open: async () => new HttpState(await HttpDaemon.start(), true),
};
