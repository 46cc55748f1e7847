/**
 * One program of the verbs API for every backend: a server and a client of the same device run the
 * same steps and print what they see. The output contains nothing that depends on the device
 * (handles, keys, ports, times), so two backends print the same bytes.
 *
 *   exchange.js daemon|embedded|native ADDRESS
 */
import { createHash } from 'node:crypto';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { patient } from '#test/support/patience';
import {
  Access,
  type Connection,
  type CQ,
  connect,
  connectDaemon,
  isVerbsError,
  type Listener,
  listen,
  type MR,
  type Provider,
  SendFlag,
  type SendWR,
  type SGE,
  type WC,
  WC_STATUS_TEXT,
  WROpcode,
} from '#verbs-api/index';
import { createNative } from '#verbs-api/native/native-provider';

const { rdmaRead, rdmaWrite, send } = WROpcode;
const { inline, signaled, solicited } = SendFlag;
const MEMORY_BYTES = 2 * 1024 * 1024;
const LENGTHS = [0, 1, 63, 64, 65, 1448, 4096, 65_535, 1024 * 1024];
const GATHERED = [1, 4000, 77];
const RIGHTS = Access.localWrite | Access.remoteWrite | Access.remoteRead;

type Say = (line: string) => void;

interface End {
  readonly name: string;
  readonly connection: Connection;
  readonly memory: MR;
}

/** Runs the whole exchange on `provider`, whose device has `address`. */
async function exchange(provider: Provider, address: string, say: Say): Promise<void> {
  await using listener = await listen(provider, { host: address });
  const { server, client } = await establish(provider, listener, address, say);
  try {
    await sends(client, server, say);
    await sends(server, client, say);
    await writes(client, server, say);
    await reads(client, server, say);
    await scattered(client, server, say);
    await inlined(server, client, say);
    await refusals(client, say);
    await farewell(client, server, say);
  } finally {
    await client.connection.close();
    await server.connection.close();
  }
  await unserved(provider, address, listener, say);
}

async function establish(
  provider: Provider,
  listener: Listener,
  address: string,
  say: Say,
): Promise<{ server: End; client: End }> {
  const accepted = acceptOne(provider, listener, say);
  const context = await provider.open();
  const pd = await context.allocPD();
  const memory = await pd.allocMR(MEMORY_BYTES, RIGHTS);
  const connection = await connect(provider, {
    host: address,
    port: listener.address.port,
    pd,
    privateData: Buffer.from('the request'),
    initiatorDepth: 4,
    responderResources: 4,
  });
  const { privateData } = connection.established;
  say(`client: established with "${Buffer.from(privateData).toString('latin1')}"`);
  return { server: await accepted, client: { name: 'client', connection, memory } };
}

async function acceptOne(provider: Provider, listener: Listener, say: Say): Promise<End> {
  for await (const request of listener) {
    say(`server: asked with "${Buffer.from(request.privateData).toString('latin1')}"`);
    const context = await provider.open();
    const pd = await context.allocPD();
    const memory = await pd.allocMR(MEMORY_BYTES, RIGHTS);
    const privateData = Buffer.from('the answer');
    const depths = { initiatorDepth: 4, responderResources: 4 };
    const connection = await request.accept({ pd, privateData, ...depths });
    return { name: 'server', connection, memory };
  }
  throw new Error('the listener closed');
}

/** Bytes that differ by place and by exchange. */
function fill(bytes: Uint8Array, seed: number): void {
  let state = seed >>> 0;
  for (let index = 0; index < bytes.length; index += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[index] = state >>> 24;
  }
}

function digest(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 16);
}

/** `count` completions of an end, in order; receives and sends apart, since they interleave. */
async function completions({ name, connection }: End, count: number, say: Say): Promise<WC[]> {
  const taken = await take(connection.cq, count);
  for (const kind of ['sends', 'receives'] as const) {
    const some = taken.filter(({ opcode }) => opcode >= 128 === (kind === 'receives'));
    for (const { wrId, status, opcode, byteLen } of some) {
      // Of a failed request, only number and status are defined.
      const more = status === 0 ? ` opcode ${opcode}` : '';
      const length = status === 0 && kind === 'receives' ? ` length ${byteLen}` : '';
      say(`${name}: ${kind} ${wrId} ${WC_STATUS_TEXT[status]}${more}${length}`);
    }
  }
  return taken;
}

async function take(cq: CQ, count: number): Promise<WC[]> {
  const signal = patient();
  const taken: WC[] = [];
  while (taken.length < count) {
    taken.push(...(await cq.wait({ max: count - taken.length, signal })));
  }
  return taken;
}

/** A message of each length, all received into the same memory. */
async function sends(from: End, to: End, say: Say): Promise<void> {
  for (const [index, length] of LENGTHS.entries()) {
    fill(from.memory.buffer.subarray(0, length), index + 1);
    to.memory.buffer.fill(0);
    to.connection.qp.postRecv({ wrId: 100 + index, sgList: [to.memory.sge()] });
    const sgList = length === 0 ? [] : [from.memory.sge(0, length)];
    from.connection.qp.postSend({ wrId: index, opcode: send, flags: signaled, sgList });
    await completions(from, 1, say);
    await completions(to, 1, say);
    say(`${to.name}: has ${digest(to.memory.buffer)}`);
  }
}

/** Writes of each length in one list, then a Send that announces them. */
async function writes(from: End, to: End, say: Say): Promise<void> {
  fill(from.memory.buffer, 77);
  to.memory.buffer.fill(0);
  to.connection.qp.postRecv({ wrId: 200, sgList: [to.memory.sge(0, 64)] });
  let offset = 64;
  const list = LENGTHS.filter((length) => length > 0).map((length, index) => {
    const sgList = [from.memory.sge(offset, length)];
    const remoteAddr = to.memory.address + BigInt(offset);
    offset += length;
    const flags = index % 2 === 0 ? signaled : 0;
    const { rkey } = to.memory;
    return { wrId: index, opcode: rdmaWrite, flags, sgList, remoteAddr, rkey };
  });
  from.connection.qp.postSend([
    ...list,
    { wrId: 99, opcode: send, flags: signaled | solicited, sgList: [from.memory.sge(0, 1)] },
  ]);
  // The connection completes every request, flagged or not.
  await completions(from, list.length + 1, say);
  await completions(to, 1, say);
  say(`${to.name}: has ${digest(to.memory.buffer)}`);
}

async function reads(from: End, to: End, say: Say): Promise<void> {
  fill(to.memory.buffer, 5);
  from.memory.buffer.fill(0);
  let offset = 3;
  const lengths = LENGTHS.filter((length) => length > 0);
  for (const [index, length] of lengths.entries()) {
    from.connection.qp.postSend({
      wrId: index,
      opcode: rdmaRead,
      flags: signaled,
      sgList: [from.memory.sge(offset, length)],
      remoteAddr: to.memory.address + BigInt(offset),
      rkey: to.memory.rkey,
    });
    offset += length;
  }
  await completions(from, lengths.length, say);
  say(`${from.name}: has ${digest(from.memory.buffer)}`);
}

/** Several elements on both sides, cut at different places. */
async function scattered(from: End, to: End, say: Say): Promise<void> {
  const pieces = (mr: MR, lengths: readonly number[]): SGE[] => {
    let offset = 0;
    return lengths.map((length) => {
      offset += length + 10;
      return mr.sge(offset, length);
    });
  };
  fill(from.memory.buffer, 9);
  to.memory.buffer.fill(0);
  const room = pieces(to.memory, GATHERED.toReversed());
  to.connection.qp.postRecv({ wrId: 300, sgList: room });
  from.connection.qp.postSend({
    wrId: 301,
    opcode: send,
    flags: signaled,
    sgList: pieces(from.memory, GATHERED),
  });
  await completions(from, 1, say);
  await completions(to, 1, say);
  say(`${to.name}: has ${digest(to.memory.buffer)}`);
}

/** Payload that is copied when it is posted, so later changes to its memory do not matter. */
async function inlined(from: End, to: End, say: Say): Promise<void> {
  const bytes = new Uint8Array(Buffer.from('copied while posting'));
  to.memory.buffer.fill(0);
  to.connection.qp.postRecv({ wrId: 400, sgList: [to.memory.sge(0, 64)] });
  from.connection.qp.postSend({
    wrId: 401,
    opcode: send,
    flags: signaled | inline,
    inlineData: bytes,
  });
  bytes.fill(0);
  await completions(from, 1, say);
  await completions(to, 1, say);
  say(`${to.name}: reads "${Buffer.from(to.memory.buffer.subarray(0, 20)).toString('latin1')}"`);
}

/** Requests refused before they reach the device. */
async function refusals({ connection, memory }: End, say: Say): Promise<void> {
  const { qp, context, pd, cq } = connection;
  const one = { opcode: send, sgList: [memory.sge(0, 1)] };
  const many = Array.from({ length: 100 }, () => memory.sge(0, 1));
  // @ts-expect-error: a Write without a key does not compile
  const keyless: SendWR = { opcode: rdmaWrite, sgList: one.sgList };
  const attempts: readonly (readonly [string, () => unknown])[] = [
    ['too many elements', () => qp.postSend({ ...one, sgList: many })],
    ['too many elements to receive', () => qp.postRecv({ sgList: many })],
    ['no key', () => qp.postSend(keyless)],
    ['no bytes', () => pd.regMR(new Uint8Array(0), Access.localWrite)],
    ['rights that contradict', () => pd.regMR(new Uint8Array(8), Access.remoteWrite)],
    ['no entries', () => context.createCQ({ cqe: 0 })],
    ['a port that is not', () => context.queryPort(9)],
    ['a queue in use', () => cq.close()],
    ['a domain in use', () => pd.close()],
    ['a device that is not', () => context.provider.open('nosuchdevice')],
  ];
  for (const [what, attempt] of attempts) say(`client: ${what}: ${await outcome(attempt)}`);
}

async function outcome(attempt: () => unknown): Promise<string> {
  try {
    await attempt();
    return 'done';
  } catch (error) {
    return isVerbsError(error) ? error.code : String(error);
  }
}

/** The client closes while the server has receives posted, which are flushed in order. */
async function farewell(client: End, server: End, say: Say): Promise<void> {
  for (const wrId of [500, 501, 502]) {
    server.connection.qp.postRecv({ wrId, sgList: [server.memory.sge(0, 64)] });
  }
  const signal = patient();
  await client.connection.id.disconnect();
  await client.connection.disconnected({ signal });
  say('client: disconnected');
  await server.connection.disconnected({ signal });
  say('server: disconnected');
  for (const { wrId, status } of await take(server.connection.cq, 3)) {
    say(`server: receives ${wrId} ${WC_STATUS_TEXT[status]}`);
  }
}

/** A connection that the listener refuses, and one to a port without a listener. */
async function unserved(
  provider: Provider,
  address: string,
  listener: Listener,
  say: Say,
): Promise<void> {
  const { port } = listener.address;
  const rejected = (async () => {
    for await (const request of listener) return await request.reject(Buffer.from('not now'));
    return undefined;
  })();
  say(`client: rejected: ${await outcome(() => connect(provider, { host: address, port }))}`);
  await rejected;
  await listener.close();
  say(`client: no listener:  ${await outcome(() => connect(provider, { host: address, port }))}`);
}

async function openProvider(backend: string | undefined, address: string): Promise<Provider> {
  switch (backend) {
    case 'daemon':
      return await connectDaemon();
    case 'embedded':
      return await createEmbedded({ devices: [{ name: 'rnic0', addresses: [address] }] });
    case 'native':
      return await createNative();
    default:
      throw new Error('name a backend: daemon, embedded or native');
  }
}

const [backend, address = '127.0.0.1'] = process.argv.slice(2);
const provider = await openProvider(backend, address);
try {
  await exchange(provider, address, (line) => process.stdout.write(`${line}\n`));
} finally {
  await provider.close();
}
