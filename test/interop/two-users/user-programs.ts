/** The programs of the users in `two-users.test.ts`: `node user-programs.js PART PATH`. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { connect, createServer, Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { CommandName, CommandRequest } from '#contract/protocol/commands';
import {
  DAEMON_FRAME_MAX_BYTES,
  emitHello,
  emitValueFrame,
  FrameType,
  type IpcFrame,
  IpcFrameReader,
  Role,
} from '#contract/protocol/ipc-frames';
import { decodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { Access } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import { FakeDaemon } from '#test/support/fake-daemon';
import { quiet } from '#test/support/patience';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { watchTraffic } from '#verbs-api/client/traffic-watch';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { glutton } from './glutton.ts';
import { lowPorts } from './low-ports.ts';
import { roceThief, roceVictim } from './roce-parts.ts';

const EVERYONE = 0o666;
/** The descriptor of the socket that `heir` inherits. */
const INHERITED = 3;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Returns the outcome of a call: 'done', or its error. */
async function tried(call: () => Promise<unknown>): Promise<string> {
  try {
    await call();
    return 'done';
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    return `${error.code} ${error.message}`;
  }
}

/** Listens in place of a daemon, and prints the bytes that clients send. */
function trap(path: string): void {
  const server = createServer((socket) => {
    say('a client connected');
    socket.on('data', (bytes) => say(`a client sent ${bytes.length} bytes`));
    socket.on('error', () => undefined);
  });
  server.listen(path, () => {
    chmodSync(path, EVERYONE);
    say('listening');
  });
}

/** A daemon that makes the agent of a program copy any range. */
async function hostileDaemon(): Promise<void> {
  const daemon = new FakeDaemon();
  await daemon.start();
  chmodSync(daemon.directory, 0o755);
  chmodSync(daemon.socketPath, EVERYONE);
  process.stdin.on('end', () => daemon.stop()).resume();
  say(`listening at ${daemon.socketPath}`);
}

/** A program that registers memory, until its standard input ends. */
async function holder(path: string): Promise<void> {
  await using provider = await connectDaemon({ socketPath: path });
  const pd = await (await provider.open()).allocPD();
  const shared = await pd.allocMR(64, Access.localWrite | Access.remoteWrite);
  const own = await pd.regMR(new Uint8Array(4096), Access.localWrite);
  say(`key ${shared.rkey} address 0x${shared.address.toString(16)} tier ${own.tier}`);
  await new Promise((resolve) => process.stdin.on('end', resolve).resume());
}

/** Sends a daemon every request, and prints the outcomes. */
async function lookAround(path: string): Promise<void> {
  const control = new DaemonControl({ socketPath: path });
  const outcomes = {
    status: await tried(() => control.status()),
    clients: await tried(() => control.clients()),
    regions: await control.memoryRegions(),
    trace: await tried(() => control.recordTrace({ ms: 1 })),
    reset: await tried(() => control.reset()),
    addFault: await tried(() => control.addFault({ kind: 'stall' })),
    removeFaults: await tried(() => control.removeFaults()),
    tap: await tried(async () => {
      const options = { socketPath: path, filter: {}, onRecord: () => undefined };
      (await watchTraffic(options)).stop();
    }),
  };
  say(JSON.stringify(outcomes));
}

/** Connects, hands the connection to a child, and ends. */
function parent(path: string): void {
  const socket = connect(path, () => socket.write(emitHello(Role.control)));
  socket.once('data', () => {
    socket.pause();
    const self = fileURLToPath(import.meta.url);
    const child = spawn(process.execPath, [self, 'heir', path], {
      stdio: ['inherit', 'inherit', 'inherit', socket],
      detached: true,
    });
    child.once('spawn', () => process.exit(0));
  });
}

/**
 * Holds the connection of a process that is gone, and registers the memory whose address it finds
 * in a file beside the socket: its standard input ended with its parent.
 */
async function heir(path: string): Promise<void> {
  const socket = new Socket({ fd: INHERITED, readable: true, writable: true });
  const frames: ((frame: IpcFrame) => void)[] = [];
  const reader = new IpcFrameReader(DAEMON_FRAME_MAX_BYTES, (frame) => frames.shift()?.(frame));
  socket.on('data', (bytes) => reader.push(bytes));
  const ask = async <N extends CommandName>(name: N, request: CommandRequest<N>) => {
    const frame = emitValueFrame(FrameType.request, 1, [name, request as unknown as IpcValue]);
    const reply = new Promise<IpcFrame>((resolve) => frames.push(resolve));
    socket.write(frame);
    const { type, payload } = await reply;
    return { done: type === FrameType.reply, value: decodeValue(payload) };
  };
  const handle = (value: IpcValue, name: string): number =>
    Number(Reflect.get(Object(value), name));
  const context = handle((await ask('openDevice', { name: undefined })).value, 'context');
  const pd = handle((await ask('allocPD', { context })).value, 'pd');
  say('heir is ready');
  const { done, value } = await ask('regMR', {
    pd,
    source: { kind: 'process', address: BigInt(await contentOf(`${path}.address`)) },
    lengthBytes: 64,
    address: undefined,
    iova: undefined,
    access: Access.localWrite | Access.remoteRead,
    key: undefined,
  });
  const text = JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? String(each) : each));
  say(`registration ${done ? 'done' : 'refused'}: ${text}`);
  process.exit(0);
}

/** The contents of a file, once it exists. */
async function contentOf(path: string): Promise<string> {
  while (!existsSync(path)) await quiet(10);
  return readFileSync(path, 'utf8');
}

const [part = '', path = '', ...words] = process.argv.slice(2);
switch (part) {
  case 'trap':
    trap(path);
    break;
  case 'hostile-daemon':
    await hostileDaemon();
    break;
  case 'connect':
    say(await tried(async () => await (await connectDaemon({ socketPath: path })).close()));
    break;
  case 'holder':
    await holder(path);
    break;
  case 'look-around':
    await lookAround(path);
    break;
  case 'parent':
    parent(path);
    break;
  case 'heir':
    await heir(path);
    break;
  case 'low-ports':
    say(JSON.stringify(await lowPorts(path, words, tried)));
    break;
  case 'glutton':
    await glutton(path, words, say);
    break;
  case 'roce-victim':
    await roceVictim(path, say);
    break;
  case 'roce-thief':
    await roceThief(path, words, say);
    break;
  default:
    throw new Error(`no part '${part}'`);
}
