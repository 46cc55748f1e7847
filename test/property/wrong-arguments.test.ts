/**
 * For any wrong argument, a public function throws an error of the package that names the
 * argument, never a TypeError from inside. The list of functions is that of the API reference: a
 * new function needs an entry here.
 */
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { Access, AsyncEventType, MWType, QPState, QPType, WROpcode } from '#contract/verbs/enums';
import { parseGrh } from '#contract/verbs/gid';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { addressGid } from '#verbs-api/address-gid';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { incRkey } from '#verbs-api/client/memory-window';
import { connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { listenDatagrams, openDatagrams, resolveDatagrams } from '#verbs-api/datagrams';
import { createNative } from '#verbs-api/native/native-provider';
import { defineProcedure, defineProgram, voidCodec } from '#verbs-api/rpcrdma/core/program';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import { listenRpc } from '#verbs-api/rpcrdma/rpc-server';
import { RpcService } from '#verbs-api/rpcrdma/rpc-service';
import { asyncEventLog } from '#verbs-api/testing/async-event-log';
import { expectCompletion } from '#verbs-api/testing/expect-completion';
import { startPrivateDaemon } from '#verbs-api/testing/private-daemon';
import { startTwoNodes } from '#verbs-api/testing/two-nodes';
import { waitFor } from '#verbs-api/testing/waiting';
import { withFault } from '#verbs-api/testing/with-fault';
import { patience } from '../support/patience.ts';
import { entryPoints } from '../support/public-names.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const ADDRESS = '127.0.0.1';
const SHORT = { timeoutMs: 1 };

/** Functions without their own check, and why. */
const UNCHECKED: readonly { readonly names: RegExp; readonly why: string }[] = [
  { names: /^(CancelSignal|Caller|BulkSource|XdrCodec|Procedure)\./, why: 'programs implement it' },
  { names: /^(HostObserver|ServiceObserver)\./, why: 'programs implement it' },
  { names: /^Xdr(Reader|Writer)\.|^new XdrReader$/, why: 'called for each item of a message' },
  { names: /^(emitPayload|roundup)$/, why: 'called for each message' },
  { names: /^RpcService\.answer$/, why: 'called for each message' },
  { names: /^new \w+Error$/, why: 'an error must not fail' },
  { names: /^new (PrivateDaemon|TwoNodes|AsyncEventLog)$/, why: 'exported as types' },
  { names: /^(isErrnoCode|isVerbsError|parseRemoteMemory)$/, why: 'judge any value' },
  { names: /^FaultControl\./, why: 'an interface: see DaemonControl and createEmbedded' },
  { names: /^MR\.(sge|export)$/, why: 'documented RangeError, tested in test/unit/verbs-api' },
];

/** Every kind of value, for arguments that are not checked. */
const EVERY_KIND: readonly string[] = [
  ...['null', 'string', 'number', 'odd', 'bigint', 'boolean', 'symbol'],
  ...['object', 'array', 'function', 'instance', 'bytes'],
];

type Values = Readonly<Record<string, unknown>>;

/** A call with right arguments, by name. */
interface Entry {
  readonly call: (...values: never[]) => unknown;
  readonly good: Values;
  /** Names, or paths such as `options.host`, that are required. */
  readonly needed?: readonly string[];
  /** Arguments for which these kinds of values are right as well, or harmless. */
  readonly also?: Readonly<Record<string, readonly string[]>>;
  /** How the message names the argument, if not by its name. */
  readonly named?: RegExp;
}

/** The methods of an object, called by its class's name. */
function methods(
  owner: string,
  object: object,
  entries: Readonly<Record<string, Omit<Entry, 'call'>>>,
): Record<string, Entry> {
  return Object.fromEntries(
    Object.entries(entries).map(([name, entry]) => [
      `${owner}.${name}`,
      { ...entry, call: (...values) => Reflect.get(object, name).apply(object, values) },
    ]),
  );
}

const world = await openWorld();
afterAll(() => world.close());

const entries: Readonly<Record<string, Entry>> = world.entries;

describe('a wrong argument of a public function', () => {
  it('has an entry here for each function', () => {
    const calls = entryPoints(ROOT)
      .flatMap(({ names }) => names.filter(({ exported }) => exported))
      .flatMap((name) => name.calls);
    const unchecked = new Set(
      calls.filter((call) => UNCHECKED.some(({ names }) => names.test(call))),
    );
    const checked = [...new Set(calls)].filter((call) => !unchecked.has(call));
    expect(checked.sort()).toEqual(Object.keys(entries).sort());
  });

  it.each(Object.keys(entries))('of %s is named', async (name) => {
    const entry = entries[name];
    if (entry === undefined) throw new Error(name);
    for (const { path, values } of wrongCalls(entry)) {
      await refused(entry, path, values);
    }
  });

  it('throws an error of the package, whatever it is', async () => {
    const all = Object.entries(entries);
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...all),
        fc.nat(),
        fc.anything({ withBigInt: true, withDate: true, withTypedArray: true }),
        async ([name, entry], at, value) => {
          const paths = pathsOf(entry);
          const path = paths[at % paths.length] ?? '';
          if (!isWrong(entry, path, value)) return;
          const { error } = await outcomeOf(entry, replaced(entry.good, path, value));
          if (error !== undefined) expect(error, `${name}, ${path}`).toSatisfy(isOwn);
        },
      ),
      { numRuns: 400 },
    );
  });

  it('or an unknown option is rejected by name, with a suggestion', async () => {
    const near = { host: ADDRESS, port: 1, timeout: 3 } as never;
    await expect(connect(world.rnic, near)).rejects.toMatchObject({
      name: 'VerbsError',
      code: 'EINVAL',
      message: "connect: unknown option 'timeout'; did you mean 'timeoutMs'?",
    });
    await expect(connectDaemon({ instanc: 'nope' } as never)).rejects.toMatchObject({
      message: "connectDaemon: unknown option 'instanc'; did you mean 'instance'?",
    });
    await expect(connectDaemon({ colour: 'red' } as never)).rejects.toMatchObject({
      message: expect.stringMatching(/unknown option 'colour'; there are socketPath, instance/),
    });
  });

  it('of a typical first program has a message that helps', async () => {
    const said = async (call: () => unknown): Promise<unknown> => {
      try {
        return await call();
      } catch (error) {
        return error instanceof Error ? error.message : error;
      }
    };
    const { rnic, context, qp, client } = world;
    expect(await said(() => connect(rnic, undefined as never))).toBe(
      'connect: options is required: an object with host, port',
    );
    expect(await said(() => connect(rnic, { host: ADDRESS, port: '7000' } as never))).toBe(
      "connect: options.port must be a whole number from 0 to 65535, not the string '7000'",
    );
    expect(await said(() => client.send(undefined as never))).toBe(
      'send: data is required: a string, a Uint8Array or an SGE (see MR.sge)',
    );
    expect(await said(() => client.send(5 as never))).toBe(
      'send: data must be a string, a Uint8Array or an SGE (see MR.sge), not 5',
    );
    expect(await said(() => context.createCQ(undefined as never))).toBe(
      'createCQ: init is required: an object with cqe',
    );
    expect(await said(() => qp.modify({ ahAttr: {} } as never))).toBe(
      'modify: attributes.ahAttr.grh is required: an object with dgid, sgidIndex',
    );
    expect(await said(() => listen(rnic, { host: '' }))).toBe(
      "listen: options.host must be a host name or an address, as a string, not the string ''",
    );
    expect(await said(() => connectDaemon({ socketPath: '' }))).toBe(
      "connectDaemon: options.socketPath must be the path of a socket, not the string ''",
    );
    const bytes = new Uint8Array(5);
    structuredClone(bytes, { transfer: [bytes.buffer] });
    const remote = { addr: '0x0', rkey: 1, length: 8 };
    const gone = 'no longer has memory: its ArrayBuffer was transferred';
    expect(await said(() => client.send(bytes))).toBe(`send: data ${gone}`);
    expect(await said(() => client.write(remote, bytes))).toBe(`write: data ${gone}`);
    expect(await said(() => client.read(remote, bytes))).toBe(`read: into ${gone}`);
    const file = fileURLToPath(import.meta.url);
    expect(await said(() => connectDaemon({ socketPath: file }))).toBe(
      `no daemon at ${file}: that is not a socket`,
    );
  });

  it.each([
    [
      'fpduSize: 5',
      { fpduSize: 5 },
      /^options\.wire\.fpduSize must be \{ kind: 'emss' \}, .*, not 5$/,
    ],
    ['a fixed fpduSize', { fpduSize: { kind: 'fixed' } }, /fpduSize must be .*, not an object$/],
    [
      'mpaRevision: 3',
      { mpaRevision: 3 },
      /^options\.wire\.mpaRevision must be one of 1, 2, not 3$/,
    ],
    ['rtrKinds', { rtrKinds: { send: 1 } }, /^options\.wire\.rtrKinds\.send must be true or false/],
    ['crc', { crc: false }, /^unknown option 'wire\.crc'; did you mean 'crcRequested'\?$/],
  ])('of the wire of a device, %s, is named', async (_name, wire, text) => {
    const error = await createEmbedded({ network: 'isolated', wire: wire as never }).then(
      (rnic) => rnic.close(),
      (reason: unknown) => reason,
    );
    expect(error).toMatchObject({ code: 'EINVAL' });
    expect(
      String(Reflect.get(error as object, 'message')).replace(/^createEmbedded: /, ''),
    ).toMatch(text);
  });

  it('of a helper for tests has a message that helps, and no daemon is used', async () => {
    const { rnic, daemon } = world;
    const body = (): void => undefined;
    const message = (text: string | RegExp) => ({
      code: 'EINVAL',
      message: typeof text === 'string' ? text : expect.stringMatching(text),
    });
    for (const where of [
      [],
      Promise.resolve(rnic),
      { socket: '/x' },
      { socketPath: 5 },
      new Map(),
    ]) {
      await expect(withFault({ kind: 'drop' }, body, where as never)).rejects.toMatchObject(
        message(/^withFault: (where|unknown option)/),
      );
    }
    await expect(
      withFault({ kind: 'delay', ms: 1 }, body, daemon as never),
    ).resolves.toBeUndefined();
    await expect(withFault({ kind: 'dropp' } as never, body, rnic)).rejects.toMatchObject(
      message(
        "withFault: spec.kind must be a kind of fault, not the string 'dropp'; did you mean 'drop'?",
      ),
    );
    await expect(rnic.addFault({ kind: 'dropp' } as never)).rejects.toMatchObject(
      message(/^addFault: spec\.kind must be .* 'drop'\?$/),
    );
    await expect(startTwoNodes({ daemon: Promise.resolve(daemon) } as never)).rejects.toMatchObject(
      message(/^startTwoNodes: options\.daemon must be .*a Promise: `await` it$/),
    );
    await expect(daemon.waitForConnections(0, { phase: 'x' } as never)).rejects.toMatchObject(
      message(
        /^waitForConnections: which\.phase must be one of 'dialing', .*, not the string 'x'$/,
      ),
    );
  });
});

/** One path for each argument and each field. */
function pathsOf({ good }: Entry): string[] {
  return Object.entries(good).flatMap(([name, value]) => [
    name,
    ...(isFields(value) ? Object.keys(value).map((field) => `${name}.${field}`) : []),
  ]);
}

function* wrongCalls(entry: Entry): Generator<{ path: string; values: unknown[] }> {
  for (const path of pathsOf(entry)) {
    const pool = [null, 'words', 5, 7n, -1.5, Number.NaN, true, {}, [], () => 1, Symbol('s')];
    for (const value of [...pool, new Date(0)]) {
      if (isWrong(entry, path, value)) yield { path, values: replaced(entry.good, path, value) };
    }
    if (entry.needed?.includes(path) === true) {
      yield { path, values: replaced(entry.good, path, undefined) };
    }
  }
}

/** True for a value that cannot be right in this place. */
function isWrong(entry: Entry, path: string, value: unknown): boolean {
  if (value === undefined) return entry.needed?.includes(path) === true;
  const right = valueAt(entry.good, path);
  const kinds = [kindOf(right), ...(entry.also?.[path] ?? [])];
  // Options may be an object of a class, with fields or without.
  if (isFields(right)) kinds.push('instance', 'bytes');
  return !kinds.includes(kindOf(value));
}

function kindOf(value: unknown): string {
  if (typeof value === 'number')
    return Number.isSafeInteger(value) && value >= 0 ? 'number' : 'odd';
  if (value instanceof Uint8Array) return 'bytes';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'object' && !isFields(value)) return 'instance';
  return typeof value;
}

function isFields(value: unknown): value is Values {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function valueAt(good: Values, path: string): unknown {
  const [name = '', field] = path.split('.');
  const value = good[name];
  return field === undefined || !isFields(value) ? value : value[field];
}

function replaced(good: Values, path: string, value: unknown): unknown[] {
  const [name = '', field] = path.split('.');
  const old = good[name];
  const fresh = field === undefined || !isFields(old) ? value : { ...old, [field]: value };
  return Object.values({ ...good, [name]: fresh });
}

async function refused(entry: Entry, path: string, values: unknown[]): Promise<void> {
  const { error, result } = await outcomeOf(entry, values);
  const what = `${path} as ${String(kindOf(values.at(0)))}`;
  expect(error, `${what}: accepted, ${String(result)}`).toBeDefined();
  expect(error, what).toSatisfy(isOwn);
  const last = path.split('.').at(-1) ?? path;
  const text = error instanceof Error ? error.message : '';
  expect(entry.named?.test(text) === true || text.includes(last), `${path}: ${text}`).toBe(true);
}

async function outcomeOf(
  entry: Entry,
  values: unknown[],
): Promise<{ readonly error?: unknown; readonly result?: unknown }> {
  try {
    const result = await entry.call(...(values as never[]));
    if (typeof result === 'object' && result !== null && 'close' in result) {
      await (result as { close(): unknown }).close();
    }
    return { result };
  } catch (error) {
    return { error };
  }
}

/** An error class of the package, or the RangeError that `defineProgram` documents. */
function isOwn(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if ('code' in error && error.name !== 'Error' && error.name !== 'TypeError') return true;
  return error instanceof RangeError && /procedure|program|integer/.test(error.message);
}

/** Every kind of object, and a right call for each function. */
async function openWorld() {
  const devices = [
    { name: 'iw', addresses: [ADDRESS] },
    { name: 'ro', addresses: [ADDRESS], transport: 'roce' as const },
  ];
  const rnic = await createEmbedded({ devices });
  const context = await rnic.open('iw');
  const roce = await rnic.open('ro');
  const pd = await context.allocPD();
  const rocePd = await roce.allocPD();
  const channel = await context.createCompChannel();
  const cq = await context.createCQ({ cqe: 16 });
  const roceCq = await roce.createCQ({ cqe: 16 });
  const sizes = { maxSendWr: 4, maxRecvWr: 4 };
  const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, ...sizes });
  const ud = await rocePd.createQP({ type: QPType.ud, sendCQ: roceCq, recvCQ: roceCq, ...sizes });
  const srq = await pd.createSRQ({ maxWr: 4 });
  const listener = await listen(rnic, { host: ADDRESS });
  const { port } = listener.address;
  const accepting = listener.accept({ messages: true });
  const client = await connect(rnic, { host: ADDRESS, port, messages: true });
  const server = await accepting;
  const remote = (
    await server.pd.allocMR(64, Access.localWrite | Access.remoteRead | Access.remoteWrite)
  ).export();
  const idle = await rnic.createId();
  const datagrams = await listenDatagrams(rnic, { host: ADDRESS });
  const endpoint = await openDatagrams(rnic, { host: ADDRESS });
  const never = { answers: 'nobody' };
  const program = defineProgram({
    name: 'TEST',
    number: 7,
    version: 1,
    procedures: {
      NULL: defineProcedure({
        number: 0,
        args: voidCodec,
        result: voidCodec,
        resultMaxBytes: () => 0,
      }),
    },
  });
  const service = new RpcService().register(program, {});
  const rpcServer = await listenRpc(rnic, service, { host: ADDRESS, port: 0 });
  const rpc = await connectRpc(rnic, { host: ADDRESS, port: rpcServer.address.port });
  const daemon = await startPrivateDaemon();
  const control = new DaemonControl({ socketPath: daemon.socketPath });
  const limit = { signal: new AbortController().signal, timeoutMs: 1 };
  const endpointOptions = { ...limit, pd, cq, ...sizes, sqSigAll: true, prepare: () => undefined };
  const messages = { messages: { bytes: 64, window: 4, credits: true } };
  const depths = { privateData: new Uint8Array(1), initiatorDepth: 1, responderResources: 1 };
  const init = { sendCQ: cq, recvCQ: cq, ...sizes, sqSigAll: true, maxInlineData: 0 };
  const peer = { host: ADDRESS, port: 1, resolveTimeoutMs: 1 };
  const request = { opcode: WROpcode.send, sgList: [], wrId: 1 };

  /** A request of a peer, whose answer is never accepted. */
  const requestWith = async (kind: 'stream' | 'datagrams') => {
    if (kind === 'stream') {
      const attempt = connect(rnic, { host: ADDRESS, port, timeoutMs: patience() });
      attempt.catch(() => undefined);
      for await (const each of listener) return each;
    }
    const options = { host: ADDRESS, port: datagrams.address.port, timeoutMs: patience() };
    resolveDatagrams(rnic, options).catch(() => undefined);
    for await (const each of datagrams) return each;
    throw new Error('the listener closed');
  };
  const streamRequest = await requestWith('stream');
  const datagramRequest = await requestWith('datagrams');
  if (!('answer' in datagramRequest)) throw new Error('no datagrams');
  const vector = { grh: { dgid: '0:0:0:0:0:ffff:7f00:1', sgidIndex: 1 }, sl: 0, portNum: 1 };
  const posts = {
    named: /^request \d|instead of a request/,
    // A function has a length, as an empty list has.
    also: { wr: ['array'], 'wr.wrId': ['bigint', 'null'], 'wr.sgList': ['null', 'function'] },
  };

  const list: Record<string, Entry> = {
    ...methods('Provider', rnic, {
      open: { good: { name: 'iw' } },
      createId: { good: { init: { datagrams: false } } },
    }),
    ...methods('Context', context, {
      queryPort: { good: { port: 1 } },
      createCQ: { good: { init: { cqe: 4, channel } }, needed: ['init', 'init.cqe'] },
    }),
    ...methods('PD', pd, {
      regMR: {
        good: { buffer: new Uint8Array(8), access: 1, options: { iova: 4096n, key: 7 } },
        needed: ['buffer', 'access'],
        also: { 'options.iova': ['number'] },
      },
      allocMR: {
        good: { lengthBytes: 8, access: 1, options: { iova: 4096, key: 7 } },
        needed: ['lengthBytes', 'access'],
        also: { 'options.iova': ['bigint'] },
      },
      allocMW: { good: { type: MWType.type2 }, needed: ['type'] },
      createSRQ: {
        good: { init: { maxWr: 4, maxSge: 1, srqLimit: 0 } },
        needed: ['init', 'init.maxWr'],
      },
      createQP: {
        good: { init: { type: QPType.rc, srq, ...init } },
        needed: ['init', 'init.sendCQ', 'init.recvCQ', 'init.maxSendWr', 'init.maxRecvWr'],
      },
    }),
    ...methods('PD', rocePd, {
      createAH: { good: { attributes: vector }, needed: ['attributes', 'attributes.grh'] },
    }),
    ...methods('CompChannel', channel, { nextEvent: { good: { options: limit } } }),
    ...methods('CQ', cq, {
      poll: { good: { max: 1 } },
      requestNotify: { good: { solicitedOnly: true } },
      wait: { good: { options: { ...limit, max: 1 } } },
    }),
    ...methods('SRQ', srq, {
      postRecv: { good: { wr: { sgList: [], wrId: 1 } }, ...posts },
      modify: {
        good: { attributes: { srqLimit: 0 } },
        needed: ['attributes', 'attributes.srqLimit'],
      },
    }),
    ...methods('QP', qp, {
      postSend: { good: { wr: request }, ...posts },
      postRecv: { good: { wr: { sgList: [], wrId: 1 } }, ...posts },
      modify: {
        good: { attributes: { state: QPState.INIT, qkey: 1, ahAttr: vector, pathMtu: 1 } },
        needed: ['attributes'],
      },
    }),
    ...methods('QP', ud, {
      attachMcast: { good: { gid: '0:0:0:0:0:ffff:ef01:203' }, needed: ['gid'] },
      detachMcast: { good: { gid: '0:0:0:0:0:ffff:ef01:203' }, needed: ['gid'] },
    }),
    ...methods('ConnectionId', idle, {
      bindAddr: {
        good: { address: { address: ADDRESS, port: 1 } },
        needed: ['address', 'address.address', 'address.port'],
      },
      resolveAddr: {
        good: {
          destination: { address: ADDRESS, port: 1 },
          options: { timeoutMs: 1, source: { address: ADDRESS, port: 0 } },
        },
        needed: ['destination', 'destination.address', 'destination.port'],
      },
      resolveRoute: { good: { timeoutMs: 1 } },
      createQP: { good: { pd, init }, needed: ['pd', 'init'] },
      listen: { good: { backlog: 1 } },
      connect: { good: { parameters: { ...depths, qp, qkey: 1, wire: { crc: true } } } },
      accept: { good: { parameters: { ...depths, qp, qkey: 1, wire: {} } } },
      reject: { good: { privateData: new Uint8Array(1) } },
      nextEvent: { good: { options: limit } },
    }),
    ...methods('Listener', listener, {
      accept: {
        good: { options: { ...endpointOptions, ...messages, ...depths } },
        also: { 'options.messages': ['boolean'] },
      },
    }),
    ...methods('ConnectionRequest', streamRequest, {
      accept: {
        good: { options: { ...endpointOptions, ...messages, ...depths } },
        also: { 'options.messages': ['boolean'] },
      },
      reject: { good: { privateData: new Uint8Array(1) } },
    }),
    ...methods('Connection', client, {
      send: { good: { data: 'words', limit }, needed: ['data'], also: { data: ['bytes'] } },
      write: {
        good: { remote, data: new Uint8Array(1), options: { ...limit, offset: 0 } },
        needed: ['remote', 'data'],
      },
      read: {
        good: { remote, into: 4, options: { ...limit, offset: 0 } },
        needed: ['remote'],
        also: { into: ['bytes'] },
      },
      fetchAdd: {
        good: { remote, add: 1, options: { ...limit, offset: 0 } },
        needed: ['remote', 'add'],
        also: { add: ['bigint'] },
      },
      compareSwap: {
        good: { remote, expected: 1, value: 2n, options: { ...limit, offset: 0 } },
        needed: ['remote', 'expected', 'value'],
        also: { expected: ['bigint'], value: ['number'] },
      },
      disconnected: { good: { limit } },
    }),
    ...methods('DatagramListener', datagrams, {
      accept: { good: { options: { ...endpointOptions, privateData: new Uint8Array(1) } } },
    }),
    ...methods('DatagramRequest', datagramRequest, {
      accept: { good: { options: { ...endpointOptions, privateData: new Uint8Array(1) } } },
      answer: {
        good: { qp: ud, options: { ...limit, qkey: 1, privateData: new Uint8Array(1) } },
        needed: ['qp'],
      },
      reject: { good: { privateData: new Uint8Array(1) } },
    }),
    ...methods('DatagramEndpoint', endpoint, {
      answerTo: {
        good: { wc: { srcQp: 1 }, buffer: new Uint8Array(40) },
        needed: ['wc', 'buffer', 'wc.srcQp'],
      },
      join: { good: { group: '239.0.0.1' }, needed: ['group'] },
      leave: { good: { group: '239.0.0.1' }, needed: ['group'] },
    }),
    ...methods('DaemonControl', control, {
      call: { good: { name: 'status', request: {} }, needed: ['name', 'request'] },
      queuePairs: { good: { filter: { device: 'left', pid: 1, offset: 0, limit: 1 } } },
      memoryRegions: { good: { filter: { device: 'left', pid: 1 } } },
      completionQueues: { good: { filter: { device: 'left', pid: 1 } } },
      connections: { good: { filter: { device: 'left', limit: 1 } } },
      addFault: {
        good: { spec: { kind: 'drop', nth: 1, device: 'left' } },
        needed: ['spec', 'spec.kind'],
      },
      removeFault: { good: { id: 1 }, needed: ['id'] },
      recordTrace: { good: { request: { limit: 1, ms: 1, device: 'left', qp: 1 } } },
    }),
    ...methods('RpcClient', rpc, {
      call: {
        good: { program, procedure: 'NULL', args: undefined, options: { ...limit, bulkInto: [] } },
        needed: ['program', 'procedure'],
        also: { args: EVERY_KIND, 'program.procedures': ['array'] },
      },
      allocate: { good: { lengthBytes: 8 }, needed: ['lengthBytes'] },
    }),
    ...methods('PrivateDaemon', daemon, {
      signal: { good: { name: 'SIGCONT' }, needed: ['name'] },
      waitFor: {
        good: { what: 'it', condition: () => true, options: limit },
        needed: ['what', 'condition'],
      },
      waitForConnections: {
        good: { count: 9, which: { device: 'left', phase: 'over' }, options: SHORT },
        needed: ['count'],
      },
      waitForCounter: {
        good: { goal: { counter: 'out_sends', atLeast: 9, device: 'left' }, options: SHORT },
        needed: ['goal', 'goal.counter', 'goal.atLeast'],
      },
      reset: { good: { options: { allowLeaks: true, graceMs: 0 } } },
    }),
    connect: {
      call: connect,
      good: { provider: rnic, options: { ...endpointOptions, ...messages, ...depths, ...peer } },
      needed: ['provider', 'options', 'options.host', 'options.port'],
      also: { 'options.messages': ['boolean'] },
    },
    listen: {
      call: listen,
      good: { provider: rnic, options: { ...limit, host: ADDRESS, port: 0, backlog: 1 } },
      needed: ['provider'],
    },
    connectDaemon: {
      call: connectDaemon,
      good: { options: { socketPath: '/nowhere', instance: 'none', allowDaemonUid: 0 } },
    },
    'new DaemonControl': {
      call: (o) => new DaemonControl(o),
      good: { options: { socketPath: '/x', instance: 'x', url: 'http://h', token: 't' } },
    },
    'Connection.messages': {
      call: async (l) => {
        for await (const _ of client.messages(l)) break;
      },
      good: { limit },
    },
    openDatagrams: {
      call: openDatagrams,
      good: { provider: rnic, options: { ...endpointOptions, host: ADDRESS } },
      needed: ['provider', 'options', 'options.host'],
    },
    resolveDatagrams: {
      call: resolveDatagrams,
      good: { provider: rnic, options: { ...endpointOptions, ...peer } },
      needed: ['provider', 'options', 'options.host', 'options.port'],
    },
    listenDatagrams: {
      call: listenDatagrams,
      good: { provider: rnic, options: { ...limit, host: ADDRESS, port: 0, backlog: 1 } },
      needed: ['provider'],
    },
    incRkey: { call: incRkey, good: { rkey: 1 }, needed: ['rkey'] },
    addressGid: {
      call: addressGid,
      good: { address: ADDRESS },
      needed: ['address'],
      named: /IP address/,
    },
    parseGrh: { call: parseGrh, good: { buffer: new Uint8Array(40) }, needed: ['buffer'] },
    createEmbedded: {
      call: createEmbedded,
      good: {
        options: {
          devices: [],
          wire: { crcRequested: true },
          observer: never,
          limits: { idsMax: 5 },
          loopback: 'memory',
          crcEngine: { name: 'x' },
        },
      },
      also: { 'options.observer': ['instance', 'array'] },
    },
    createNative: { call: createNative, good: { options: { libraries: {} } } },
    connectRpc: {
      call: connectRpc,
      good: {
        provider: rnic,
        options: {
          host: ADDRESS,
          port: 1,
          timeoutMs: 1,
          credential: { flavor: 'none' },
          requester: { connectsMax: 1 },
        },
      },
      needed: ['provider', 'options', 'options.host'],
    },
    listenRpc: {
      call: listenRpc,
      good: {
        provider: rnic,
        service,
        options: { host: ADDRESS, port: 0, connectionsMax: 1, onConnection: () => undefined },
      },
      needed: ['provider', 'service'],
    },
    'new RpcService': {
      call: (o) => new RpcService(o),
      good: { observer: { handlerFailed: () => undefined } },
      named: /handlerFailed/,
    },
    'RpcService.register': {
      call: (p, h) => new RpcService().register(p, h),
      good: { program, handlers: {} },
      needed: ['program', 'handlers'],
      also: { handlers: ['array'], 'program.procedures': ['array'] },
      named: /procedure/,
    },
    defineProcedure: {
      call: defineProcedure,
      good: { procedure: { number: 0 } },
      needed: ['procedure'],
      also: { procedure: ['instance', 'array'], 'procedure.number': EVERY_KIND },
    },
    defineProgram: {
      call: defineProgram,
      good: { program: { name: 'x', number: 1, version: 1, procedures: {} } },
      needed: ['program'],
      also: { 'program.name': EVERY_KIND, 'program.procedures': ['array'] },
      named: /integer/,
    },
    startPrivateDaemon: {
      call: startPrivateDaemon,
      good: { options: { ...limit, devices: [], http: false, logLevel: 'info', words: [] } },
    },
    startTwoNodes: {
      call: startTwoNodes,
      good: { options: { daemon: {}, memoryBytes: 1, access: 1, endpoint: {} } },
      also: { 'options.endpoint': ['array', 'instance', 'bytes'] },
    },
    expectCompletion: {
      call: expectCompletion,
      good: { cq, expected: { wrId: 1n, byteLen: 1 }, options: limit },
      needed: ['cq'],
      also: { 'expected.wrId': ['number'] },
    },
    asyncEventLog: { call: asyncEventLog, good: { context }, needed: ['context'] },
    'AsyncEventLog.next': {
      call: (t, o) => asyncEventLog(context).next(t, o),
      good: { type: AsyncEventType.qpFatal, options: limit },
      needed: ['type'],
    },
    waitFor: {
      call: waitFor,
      good: { what: 'it', condition: () => true, options: limit },
      needed: ['what', 'condition'],
    },
    withFault: {
      call: withFault,
      good: { spec: { kind: 'drop', nth: 1 }, body: () => undefined, where: rnic },
      needed: ['spec', 'body'],
      also: { where: ['object'] },
    },
  };
  const close = async (): Promise<void> => {
    await rpc.close();
    await rpcServer.close();
    await rnic.close();
    await daemon.stop();
  };
  return { rnic, context, qp, client, daemon, entries: list, close };
}
