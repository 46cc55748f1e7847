/**
 * One misuse of the native bridge, or one fault below it, in a separate process, which must survive
 * it. Each case prints its results as lines of JSON: `{"step": …, "error": {…}}`, or
 * `{"step": …, "value": …}` on success. The exit status is 0 when the case ran to its end.
 *
 *   hostile.js CASE ADDRESS [ARGUMENT]
 */
import { MessageChannel } from 'node:worker_threads';
import { patient } from '#test/support/patience';
import {
  Access,
  type Connection,
  connect,
  type Listener,
  listen,
  type MR,
  type Provider,
  SendFlag,
  type WC,
  WC_STATUS_TEXT,
  WROpcode,
} from '#verbs-api/index';
import { createNative, type NativeOptions } from '#verbs-api/native/native-provider';

const MEMORY_BYTES = 4096;
const BIG_BYTES = 16 * 1024 * 1024;
const RIGHTS = Access.localWrite | Access.remoteWrite | Access.remoteRead;

function print(line: Readonly<Record<string, unknown>>): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Runs one step and prints its error, if it throws one, else its result. */
async function step(name: string, run: () => unknown): Promise<void> {
  try {
    const value = await run();
    print({ step: name, value: value === undefined ? 'done' : value });
  } catch (error) {
    const { name: thrown, message } = error instanceof Error ? error : new Error(String(error));
    const { code, kind } = error as { code?: unknown; kind?: unknown };
    print({ step: name, error: { name: thrown, code, kind, message } });
  }
}

interface Pair {
  readonly provider: Provider;
  readonly listener: Listener;
  readonly server: Connection;
  readonly client: Connection;
  readonly serverMemory: MR;
  readonly clientMemory: MR;
}

/** A server and a client of the device at `address`. */
async function connectedPair(address: string): Promise<Pair> {
  const provider = await createNative();
  const listener = await listen(provider, { host: address });
  const accepted = accept(listener);
  const client = await connect(provider, { host: address, port: listener.address.port });
  const server = await accepted;
  const serverMemory = await server.pd.allocMR(MEMORY_BYTES, RIGHTS);
  const clientMemory = await client.pd.allocMR(MEMORY_BYTES, RIGHTS);
  return { provider, listener, server, client, serverMemory, clientMemory };
}

async function accept(listener: Listener): Promise<Connection> {
  for await (const request of listener) return await request.accept();
  throw new Error('the listener closed');
}

function sendOf(memory: MR, length = 8) {
  return { opcode: WROpcode.send, flags: SendFlag.signaled, sgList: [memory.sge(0, length)] };
}

async function completion({ cq }: Connection): Promise<string> {
  const [wc] = await cq.wait({ max: 1, signal: patient() });
  return statusText(wc);
}

function statusText(wc: WC | undefined): string {
  return wc === undefined ? 'none' : WC_STATUS_TEXT[wc.status];
}

/** Sends a message and waits for it: proof that everything still works. */
async function exchange(pair: Pair): Promise<string> {
  const { server, client, serverMemory, clientMemory } = pair;
  clientMemory.buffer.fill(0x5a);
  server.qp.postRecv({ sgList: [serverMemory.sge()] });
  client.qp.postSend(sendOf(clientMemory));
  const statuses = [await completion(client), await completion(server)];
  return `${statuses.join(', ')}, ${serverMemory.buffer[7]}`;
}

async function create(options?: NativeOptions): Promise<void> {
  await step('create', async () => void (await createNative(options)));
}

/** The bridge without a device: its list, and the error of opening one. */
async function withoutDevice(): Promise<void> {
  const provider = await createNative();
  await step('devices', async () => (await provider.devices()).length);
  await step('open', () => provider.open());
  await step('open siw0', () => provider.open('siw0'));
  await step('createId', () => provider.createId());
  await step('close', () => provider.close());
}

/** A device that may be seen, but not opened. */
async function withoutPermission(): Promise<void> {
  const provider = await createNative();
  await step('devices', async () => (await provider.devices()).length > 0);
  await step('open', () => provider.open());
  await step('createId', () => provider.createId());
  await step('close', () => provider.close());
}

/** More memory than may be locked. */
async function lockedMemory(): Promise<void> {
  const provider = await createNative();
  const context = await provider.open();
  const pd = await context.allocPD();
  await step('regMR', () => pd.regMR(new Uint8Array(BIG_BYTES), RIGHTS));
  await step('allocMR', () => pd.allocMR(BIG_BYTES, RIGHTS));
  await step('a page', async () => (await pd.allocMR(MEMORY_BYTES, RIGHTS)).length);
  await step('close', () => provider.close());
}

/** The device disappears, by a line on standard input or the caller's action at `ready`. */
async function disappears(address: string): Promise<void> {
  const pair = await connectedPair(address);
  const { provider, server, client, clientMemory } = pair;
  await step('before', () => exchange(pair));
  client.qp.postRecv({ wrId: 1, sgList: [clientMemory.sge()] });
  const lost = (async () => {
    for await (const event of client.context.asyncEvents()) print({ event: event.text });
  })();
  // Both wait for events that never arrive; neither may hang, nor end the process by a stray rejection.
  const gone = step('asyncEvents', () => lost);
  const disconnected = step('disconnected', () => client.disconnected({ signal: patient() }));
  print({ step: 'ready' });
  await disconnected;
  await step('send', () => client.qp.postSend(sendOf(clientMemory)));
  await step('receive', () => server.qp.postRecv({ sgList: [] }));
  await step('poll', () => client.cq.poll().length >= 0);
  await step('query', () => client.qp.query());
  await step('register', async () => (await client.pd.allocMR(MEMORY_BYTES, RIGHTS)).length);
  await step('open', async () => (await provider.open(client.context.device.name)).device);
  await step('listen', () => listen(provider, { host: address }));
  await step('close connections', async () => {
    await client.close();
    await server.close();
  });
  await step('close', () => provider.close());
  await gone;
}

/** Everything is closed twice, owned objects before their owners. */
async function twice(address: string): Promise<void> {
  const pair = await connectedPair(address);
  await step('before', () => exchange(pair));
  const { provider, listener, server, client, clientMemory } = pair;
  const { context, pd, cq, qp, id } = client;
  const channel = await context.createCompChannel();
  const srq = await pd.createSRQ({ maxWr: 4 });
  await step('domain in use', () => pd.close());
  await step('queue in use', () => cq.close());
  const objects = { qp, id, srq, clientMemory, cq, channel, pd, context, server, client };
  for (const [name, object] of Object.entries({ ...objects, listener, provider })) {
    await step(`close ${name}`, () => object.close());
    await step(`close ${name} again`, () => object.close());
  }
}

/** A queue pair is used after it was closed, and so is everything else. */
async function afterwards(address: string): Promise<void> {
  const pair = await connectedPair(address);
  const { provider, client, clientMemory } = pair;
  const { context, pd, cq, qp, id } = client;
  await step('before', () => exchange(pair));
  await qp.close();
  await step('send', () => qp.postSend(sendOf(clientMemory)));
  await step('receive', () => qp.postRecv({ sgList: [clientMemory.sge()] }));
  await step('modify', () => qp.modify({ state: 6 }));
  await step('query', () => qp.query());
  await step('disconnect', () => id.disconnect());
  await clientMemory.close();
  await context.close();
  await step('poll', () => cq.poll().length);
  await step('arm', () => cq.requestNotify());
  await step('wait', () => cq.wait({ signal: patient() }));
  await step('register', () => pd.regMR(new Uint8Array(8), RIGHTS));
  await step('create', () => context.createCQ({ cqe: 4 }));
  await step('ask', () => context.queryDevice());
  await provider.close();
  await step('open', () => provider.open());
  await step('createId', () => provider.createId());
}

/** Registered bytes are removed in every possible way. */
async function freed(address: string): Promise<void> {
  const pair = await connectedPair(address);
  const { pd } = pair.client;
  const buffer = new ArrayBuffer(MEMORY_BYTES);
  const memory = await pd.regMR(new Uint8Array(buffer), RIGHTS);
  const { port1, port2 } = new MessageChannel();
  await step('clone', () => structuredClone(buffer, { transfer: [buffer] }).byteLength);
  await step('post', () => port1.postMessage(buffer, [buffer]));
  port1.close();
  port2.close();
  if ('transfer' in buffer) {
    await step('transfer', () => (buffer.transfer as () => ArrayBuffer)().byteLength);
  }
  await step('length', () => [buffer.byteLength, memory.length]);
  const growing: ArrayBuffer = Reflect.construct(ArrayBuffer, [8, { maxByteLength: 4096 }]);
  await step('resizable', () => pd.regMR(new Uint8Array(growing), RIGHTS));
  const detached = new Uint8Array(8);
  structuredClone(detached, { transfer: [detached.buffer] });
  await step('detached', () => pd.regMR(detached, RIGHTS));
  await collected(pair);
  await step('used', () => exchange({ ...pair, clientMemory: memory }));
  await memory.close();
  await step('closed', () => exchange({ ...pair, clientMemory: memory }));
  await pair.provider.close();
}

/** A region that only the device references is written to after many garbage collections. */
async function collected({ client, server, clientMemory }: Pair): Promise<void> {
  const place = await (async () => {
    const { address, rkey } = await server.pd.regMR(new Uint8Array(MEMORY_BYTES), RIGHTS);
    return { remoteAddr: address, rkey };
  })();
  for (let round = 0; round < 50; round += 1) {
    new Uint8Array(BIG_BYTES).fill(round);
    await new Promise((resolve) => setImmediate(resolve));
  }
  client.qp.postSend({ ...sendOf(clientMemory, 1024), opcode: WROpcode.rdmaWrite, ...place });
  await step('written to what only the device knows', () => completion(client));
}

const [name = '', address = '127.0.0.1', argument = ''] = process.argv.slice(2);
const CASES: Readonly<Record<string, () => Promise<void>>> = {
  'missing-verbs': () => create({ libraries: { verbs: argument } }),
  'missing-cm': () => create({ libraries: { cm: argument } }),
  libraries: () => create(),
  'no-device': withoutDevice,
  'no-permission': withoutPermission,
  'locked-memory': lockedMemory,
  disappears: () => disappears(address),
  twice: () => twice(address),
  afterwards: () => afterwards(address),
  freed: () => freed(address),
};
const run = CASES[name];
if (run === undefined) throw new Error(`name a case: ${Object.keys(CASES).join(', ')}`);
await run();
