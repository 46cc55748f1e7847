/** A part of `user-programs.ts`: takes as much as it can of one limit of a daemon, and holds it. */
import { connect, type Socket } from 'node:net';
import { emitFrame, emitHello, FrameType, parseWelcome, Role } from '#contract/protocol/ipc-frames';
import { MAP_REPLY_BYTES } from '#contract/protocol/ipc-records';
import { encodeValue } from '#contract/protocol/ipc-value';
import { Access, QPType } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import type { Context, PD, Provider } from '#contract/verbs/provider';
import { IpcClient } from '#test/support/ipc-client';
import { ShimClient } from '#test/support/shim-client';
import { connect as connectTo } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import type { Connection } from '#verbs-api/connection';

/** More than any limit in a test. */
const ATTEMPTS = 20_000;
/** Each program has quotas, so several programs are needed. */
const PROGRAMS = 4;
const BUFFER_BYTES = 2 ** 20;
const QUEUES = { maxSendWr: 1, maxRecvWr: 1 };
/** Operations that an administrative connection requests without reading the replies. */
const UNREAD_OPERATIONS = 8;
const UNREAD_CONNECTIONS = 20;
const UNREAD_QPS = 1000;
/** Connections, each with all of a request but its last byte, until ENDED_MAX were closed. */
const HALF_REQUESTS = 300;
const HALF_REQUEST_BYTES = 60_000;
const ENDED_MAX = 3;
/** Clients, and descriptors that each has in flight: the daemon's limit for one. */
const FLIGHT_CLIENTS = 20;
const FLIGHT_PER_CLIENT = 64;

/** Where the tests listen, outside of the daemon. */
export const PEER = '127.0.0.5';
export const PEER_PORT = 47_000;

/** The outcome: how much it has, and why it has no more. */
interface Taken {
  readonly count: number;
  readonly refusal: string;
}

/** Calls `take` until a limit refuses it. */
async function untilRefused(take: (attempt: number) => Promise<unknown>): Promise<Taken> {
  for (let count = 0; count < ATTEMPTS; count += 1) {
    try {
      await take(count);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return { count, refusal: `${error.code} ${error.message}` };
    }
  }
  return { count: ATTEMPTS, refusal: 'none' };
}

/** Several programs' contexts and protection domains. */
class Programs {
  readonly #providers: Provider[] = [];
  readonly contexts: Context[] = [];
  readonly pds: PD[] = [];

  static async start(path: string): Promise<Programs> {
    const programs = new Programs();
    for (let count = 0; count < PROGRAMS; count += 1) {
      const provider = await connectDaemon({ socketPath: path });
      const context = await provider.open('r');
      programs.#providers.push(provider);
      programs.contexts.push(context);
      programs.pds.push(await context.allocPD());
    }
    return programs;
  }

  /** The programs in turn. */
  at(attempt: number): { provider: Provider; context: Context; pd: PD } {
    const index = attempt % PROGRAMS;
    const [provider, context, pd] = [this.#providers[index], this.contexts[index], this.pds[index]];
    if (provider === undefined || context === undefined || pd === undefined) throw new Error();
    return { provider, context, pd };
  }
}

async function connections(path: string): Promise<Taken> {
  for (let count = 0; count < ATTEMPTS; count += 1) {
    const { errno, text } = await (await IpcClient.open(path, Role.control)).welcome();
    if (errno !== 0) return { count, refusal: text };
  }
  return { count: ATTEMPTS, refusal: 'none' };
}

/** Memory that the clients never map: each holds a descriptor of the daemon. */
async function descriptors(path: string): Promise<Taken> {
  let count = 0;
  for (;;) {
    const client = await IpcClient.open(path, Role.control);
    const { errno, text } = await client.welcome();
    if (errno !== 0) return { count, refusal: text };
    count += 1;
    for (let id = 1; ; id += 1) {
      client.request(id, ['allocBuffer', { lengthBytes: 4096 }]);
      const { value } = await client.frame();
      if (Array.isArray(value)) break;
      count += 1;
    }
  }
}

/** A client with shared memory, and a connection on which it asks for the descriptors. */
class Mapper {
  readonly #control: IpcClient;
  readonly #map: ShimClient;

  private constructor(control: IpcClient, map: ShimClient) {
    this.#control = control;
    this.#map = map;
  }

  static async open(path: string): Promise<Mapper> {
    const control = await IpcClient.open(path, Role.control);
    const { token } = await control.welcome();
    return new Mapper(control, await ShimClient.open(path, Role.map, token));
  }

  /** Requests this many descriptors, and reads none. */
  async askUnread(count: number): Promise<void> {
    for (let each = 0; each < count; each += 1) await this.#ask();
  }

  /** Asks for one and reads it. Returns the errno. */
  async get(): Promise<number> {
    await this.#ask();
    const reply = await this.#map.take(MAP_REPLY_BYTES);
    return new DataView(reply.buffer, reply.byteOffset).getUint32(0, true);
  }

  /** Breaks the protocol: the daemon drops the client, and its descriptors stay in flight. */
  async end(): Promise<void> {
    this.#control.send(emitFrame(FrameType.reply, 0, new Uint8Array(0)));
    await this.#control.closed();
  }

  async #ask(): Promise<void> {
    this.#control.request(1, ['allocBuffer', { lengthBytes: 4096 }]);
    const { value } = await this.#control.frame();
    if (!isMapping(value)) throw new Error(`no shared memory: ${JSON.stringify(value)}`);
    this.#map.send(Buffer.from(value.mapping.token, 'hex'));
  }
}

function isMapping(value: unknown): value is { readonly mapping: { readonly token: string } } {
  return typeof value === 'object' && value !== null && 'mapping' in value;
}

/** Descriptors that clients request and do not receive; half of the clients end. */
async function descriptorsInFlight(path: string): Promise<Taken> {
  const reader = await Mapper.open(path);
  for (let count = 1; count <= FLIGHT_CLIENTS; count += 1) {
    const client = await Mapper.open(path);
    await client.askUnread(FLIGHT_PER_CLIENT);
    const errno = await reader.get();
    if (errno !== 0) return { count: count * FLIGHT_PER_CLIENT, refusal: `errno ${errno}` };
    if (count % 2 === 0) await client.end();
  }
  return { count: FLIGHT_CLIENTS * FLIGHT_PER_CLIENT, refusal: 'none' };
}

/** Answers that it never reads. */
async function unreadBytes(path: string): Promise<Taken> {
  const programs = await Programs.start(path);
  const { context, pd } = programs.at(0);
  const cq = await context.createCQ({ cqe: 1 });
  // Objects that make answers long.
  for (let count = 0; count < UNREAD_QPS; count += 1) {
    await pd.createQP({ sendCQ: cq, recvCQ: cq, ...QUEUES });
  }
  let ended = 0;
  const open: Socket[] = [];
  for (let count = 0; count < UNREAD_CONNECTIONS; count += 1) {
    const socket = connect(path);
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.once('connect', resolve));
    socket.write(emitHello(Role.admin));
    const [greeting] = await new Promise<Buffer[]>((resolve) => {
      socket.once('data', (bytes) => resolve([bytes]));
      socket.once('close', () => resolve([]));
    });
    if (greeting === undefined) break;
    parseWelcome({ type: FrameType.welcome, id: 0, payload: greeting.subarray(12) });
    socket.pause();
    socket.once('close', () => {
      ended += 1;
    });
    open.push(socket);
    for (let id = 1; id <= UNREAD_OPERATIONS; id += 1) {
      socket.write(emitFrame(FrameType.request, id, encodeValue(['listQPs', {}])));
    }
    // The daemon has taken the requests before it answers this.
    await context.queryDevice();
  }
  return { count: open.length, refusal: `${ended} ended` };
}

/** Requests that it never completes. */
async function inputBytes(path: string): Promise<Taken> {
  let ended = 0;
  let count = 0;
  for (; count < HALF_REQUESTS && ended < ENDED_MAX; count += 1) {
    const client = await IpcClient.open(path, Role.control);
    if ((await client.welcome()).errno !== 0) break;
    client.socket.once('close', () => {
      ended += 1;
    });
    // Each byte but the last; the daemon has taken them before it answers on another connection.
    const request = emitFrame(FrameType.request, 1, new Uint8Array(HALF_REQUEST_BYTES));
    client.socket.write(request.subarray(0, -1));
    await (await IpcClient.open(path, Role.control)).welcome();
  }
  return { count, refusal: `${ended} ended` };
}

/**
 * Connections, each from a separate program, since those of one program share SCTP associations.
 */
async function connected(path: string, source: string): Promise<Taken> {
  return await untilRefused(async () => {
    await connectToPeer(await connectDaemon({ socketPath: path }), source);
  });
}

/** Connects from a device of a daemon to where the tests listen. */
export async function connectToPeer(provider: Provider, address: string): Promise<Connection> {
  const source = { address, port: 0 };
  return await connectTo(provider, { host: PEER, port: PEER_PORT, source, messages: true });
}

/** How to exhaust each limit, by name. */
const WAYS: Readonly<Record<string, (path: string) => Promise<Taken>>> = {
  connections,
  descriptors,
  descriptorsInFlight,
  unreadBytes,
  inputBytes,
  associations: (path) => connected(path, '127.0.0.4'),
  roceConnections: (path) => connected(path, '127.0.0.2'),
  sharedBytes: async (path) => {
    const programs = await Programs.start(path);
    return await untilRefused((at) => programs.at(at).pd.allocMR(BUFFER_BYTES, Access.localWrite));
  },
  mappings: async (path) => {
    const programs = await Programs.start(path);
    return await untilRefused((at) => programs.at(at).pd.allocMR(1, Access.localWrite));
  },
  objects: async (path) => {
    const programs = await Programs.start(path);
    return await untilRefused((at) => programs.at(at).context.allocPD());
  },
  ids: async (path) => {
    const programs = await Programs.start(path);
    return await untilRefused((at) => programs.at(at).provider.createId());
  },
  'descriptors of listeners': async (path) => {
    const programs = await Programs.start(path);
    return await untilRefused(async (at) => {
      const id = await programs.at(at).provider.createId();
      await id.bindAddr({ address: '127.0.0.3', port: 0 });
      await id.listen();
    });
  },
  ports: async (path) => {
    const programs = await Programs.start(path);
    return await untilRefused(async (at) => {
      const id = await programs.at(at).provider.createId();
      await id.bindAddr({ address: '127.0.0.2', port: 0 });
    });
  },
  groups: async (path) => {
    const programs = await Programs.start(path);
    const qps = await Promise.all(
      programs.contexts.map(async (context, at) => {
        const cq = await context.createCQ({ cqe: 1 });
        const type = QPType.ud;
        return await programs.at(at).pd.createQP({ type, sendCQ: cq, recvCQ: cq, ...QUEUES });
      }),
    );
    return await untilRefused(async (at) => {
      const group = at.toString(16).padStart(4, '0');
      await qps[at % PROGRAMS]?.attachMcast(`0000:0000:0000:0000:0000:ffff:ef01:${group}`);
    });
  },
  'qp of r': async (path) => {
    const programs = await Programs.start(path);
    const cqs = await Promise.all(programs.contexts.map((each) => each.createCQ({ cqe: 1 })));
    return await untilRefused(async (at) => {
      const cq = cqs[at % PROGRAMS];
      if (cq === undefined) throw new Error();
      return await programs.at(at).pd.createQP({ sendCQ: cq, recvCQ: cq, ...QUEUES });
    });
  },
};

/** Exhausts a limit, prints the outcome, and holds everything until its standard input ends. */
export async function glutton(
  path: string,
  [name = '']: readonly string[],
  say: (line: string) => void,
): Promise<void> {
  const take = WAYS[name];
  if (take === undefined) throw new Error(`nothing takes ${name}`);
  const { count, refusal } = await take(path);
  say(`took ${count}: ${refusal}`);
  await new Promise((resolve) => process.stdin.on('end', resolve).resume());
  process.exit(0);
}
