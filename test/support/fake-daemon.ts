/**
 * A daemon with canned answers, for the shim's tests. It serves device files in place of the
 * kernel, but knows no verbs: commands of 128 and above tell it what to do next (`probe.h`).
 */

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type Server, Socket } from 'node:net';
import { constants, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import {
  emitWelcome,
  FRAME_HEADER_BYTES,
  type Hello,
  IpcFrameReader,
  parseHello,
  Role,
  TOKEN_BYTES,
  tokenText,
} from '#contract/protocol/ipc-frames';
import { AGENT_REPLY_BYTES, emitAgentRequest } from '#contract/protocol/ipc-records';
import {
  emitReply,
  ReplyFlag,
  RequestReader,
  ShimOp,
  type ShimReply,
  type ShimRequest,
} from '#daemon/kernel/shim-protocol';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { SharedFile } from '#native-bridge/libc/shared-memory';
import { descriptorOf, sendDescriptor, socketPair } from '#native-bridge/libc/unix-socket';

const Told = {
  push: 128,
  silence: 129,
  die: 130,
  break: 131,
  purge: 132,
  connected: 133,
  slow: 134,
  agent: 135,
  agentCopy: 136,
} as const;

const { ENOENT, EAGAIN, ENODEV, EINVAL, EPROTO, EOPNOTSUPP, ENOTCONN, ENOMEM } = constants.errno;

/** Where the arguments of an uverbs command begin. */
const ARGUMENTS = 16;
const COMPLETION_BYTES = 8;
const ASYNC_BYTES = 16;
const CM_EVENT_BYTES = 336;
/** Protection domains that select how the fake daemon handles REG_MR. */
const RegisterAs = { refused: 77, usedAtOnce: 88, firstHandle: 1000 } as const;
const CQ_KEY = 0x1000;
const RQ_KEY = 0x3000;
const SQ_KEY = 0x4000;

class FakeQueue {
  readonly token: Uint8Array;
  readonly number: number;
  readonly recordBytes: number;
  readonly #values: bigint[] = [];
  #socket: Socket | undefined;

  constructor(token: Uint8Array, number: number, recordBytes: number) {
    this.token = token;
    this.number = number;
    this.recordBytes = recordBytes;
  }

  attach(socket: Socket): void {
    this.#socket = socket;
    if (this.#values.length > 0) socket.write(Uint8Array.of(1));
  }

  push(value: bigint): void {
    this.#values.push(value);
    if (this.#values.length === 1) this.#socket?.write(Uint8Array.of(1));
  }

  pop(): ShimReply {
    const value = this.#values.shift();
    if (value === undefined) return { status: -EAGAIN };
    const response = new Uint8Array(this.recordBytes);
    const fields = new DataView(response.buffer);
    fields.setBigUint64(0, value, true);
    if (this.recordBytes === CM_EVENT_BYTES) {
      // The value holds the program's name of the id, and above it the type of the event.
      fields.setBigUint64(0, value & 0xffffn, true);
      fields.setBigUint64(8, (value & 0xffffn) + 1000n + ((value >> 16n) << 32n), true);
    }
    return { status: 0, response, flags: this.#values.length === 0 ? ReplyFlag.takeByte : 0 };
  }

  purge(): ShimReply {
    const purged = this.#values.length > 0 ? [this.number] : [];
    this.#values.length = 0;
    return { status: 0, purged };
  }

  end(): void {
    this.#socket?.destroy();
  }
}

/** An open file of the fake daemon, with the shim's actions on it. */
export class FakeFile {
  readonly token: Uint8Array;
  readonly number: number;
  readonly role: number;
  readonly connections = new Set<Socket>();
  /** uverbs: the asynchronous queue, then completion channels. rdma_cm: its own queue. */
  readonly queues: FakeQueue[] = [];
  /** Parents that forked children named, and the pids that sent requests. */
  readonly parents: number[] = [];
  readonly pids = new Set<number>();
  readonly commands: number[] = [];
  /** Doorbells that requested no reply. */
  readonly doorbells: number[] = [];
  /** Arguments of CREATE_CQ, SET_OPTION and MIGRATE_ID. */
  readonly channels: number[] = [];
  readonly options: string[] = [];
  readonly sources: number[] = [];
  /** Number of completed REG_MRs. */
  regions = 0;
  closed = false;

  constructor(token: Uint8Array, number: number, role: number) {
    this.token = token;
    this.number = number;
    this.role = role;
  }
}

export class FakeDaemon {
  readonly directory = mkdtempSync(join(tmpdir(), 'iwarpd-unit-'));
  readonly socketPath = join(this.directory, 's');
  readonly sysfsPath = join(this.directory, 'sysfs');
  readonly files: FakeFile[] = [];
  /** Connections of any role that greeted. */
  greetings = 0;
  /** If set, the protocol version in its refusal of every greeting. */
  version: number | undefined;
  readonly #server: Server = createServer((socket) => this.#accept(socket));
  readonly #sockets = new Set<Socket>();
  readonly #rings = new SharedFile('unit-rings');
  readonly #memory = this.#rings.map(CQ_KEY, 8192);
  readonly #receiveQueue = this.#rings.map(RQ_KEY, 4096);
  readonly #sendQueue = this.#rings.map(SQ_KEY, 4096);
  #nextNumber = 100;
  #agent: Socket | undefined;
  #agentCount = 0;
  #agentDone: ((error: number, bytes: Uint8Array) => void) | undefined;

  async start(): Promise<void> {
    const words = new Uint32Array(this.#memory.view.buffer, 0, 2048);
    for (let word = 0; word < words.length; word += 1024) words[word] = 0x1000 + 4 * word;
    for (const [path, text] of [
      ['class/infiniband/iwarp0/node_type', '4: RNIC\n'],
      ['class/infiniband_verbs/abi_version', '6\n'],
      ['dev/infiniband/rdma_cm', ''],
      ['devices/pci1000:01/1000:01:00.0/infiniband/roce0/node_type', '1: CA\n'],
      ['devices/pci1000:01/1000:01:00.0/net/rail0/ifindex', '7\n'],
    ] as const) {
      mkdirSync(dirname(join(this.sysfsPath, path)), { recursive: true });
      writeFileSync(join(this.sysfsPath, path), text);
    }
    for (const [link, target] of [
      ['class/infiniband/roce0', 'infiniband/roce0'],
      ['class/net/rail0', 'net/rail0'],
    ] as const) {
      mkdirSync(dirname(join(this.sysfsPath, link)), { recursive: true });
      symlinkSync(`../../devices/pci1000:01/1000:01:00.0/${target}`, join(this.sysfsPath, link));
    }
    await new Promise<void>((resolve) => this.#server.listen(this.socketPath, resolve));
  }

  stop(): void {
    this.#die();
    this.#memory.release();
    this.#sendQueue.release();
    this.#receiveQueue.release();
    this.#rings.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  #die(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.#sockets.delete(socket));
    let receive = (bytes: Uint8Array): void => void reader.push(bytes);
    const reader = new IpcFrameReader(64, (frame) => {
      receive = this.#greet(socket, parseHello(frame));
    });
    socket.on('data', (bytes) => receive(bytes));
  }

  /** Answers a greeting; returns the handler of later bytes. */
  #greet(socket: Socket, hello: Hello): (bytes: Uint8Array) => void {
    this.greetings += 1;
    if (this.version !== undefined) return this.#refuse(socket, EPROTO);
    const ignore = (): void => undefined;
    const welcome = (token: Uint8Array, number: number): void => {
      const text = String(number);
      socket.write(emitWelcome({ errno: 0, daemonPid: process.pid, token, text }));
    };
    if (hello.role === Role.event) {
      const queue = this.#queueOf(hello.token);
      if (queue === undefined) return this.#refuse(socket, 13);
      welcome(hello.token, queue.number);
      queue.attach(socket);
      const file = this.files.find(({ token }) => tokenText(token) === tokenText(hello.token));
      if (file !== undefined) this.#join(file, socket);
      return ignore;
    }
    if (hello.role === Role.agent) {
      if (this.#fileOf(hello) === undefined) return this.#refuse(socket, 13);
      welcome(hello.token, 0);
      this.#agent = socket;
      this.#agentCount += 1;
      return this.#agentReader();
    }
    const opens = hello.token.subarray(4).every((byte) => byte === 0);
    if (opens && hello.role === Role.uverbs && hello.token[0] !== 1) {
      return this.#refuse(socket, ENODEV);
    }
    const file = opens ? this.#open(hello.role) : this.#fileOf(hello);
    if (file === undefined) return this.#refuse(socket, 13);
    this.#join(file, socket);
    welcome(file.token, file.number);
    const requests = new RequestReader((request) => this.#execute(file, socket, request));
    return (bytes) => requests.push(bytes);
  }

  #refuse(socket: Socket, errno: number): () => void {
    const token = new Uint8Array(TOKEN_BYTES);
    const bytes = emitWelcome({ errno, daemonPid: process.pid, token, text: 'no' });
    if (this.version !== undefined) {
      new DataView(bytes.buffer).setUint16(FRAME_HEADER_BYTES + 4, this.version, true);
    }
    socket.end(bytes);
    return () => undefined;
  }

  #number(): { token: Uint8Array; number: number } {
    this.#nextNumber += 1;
    const token = new Uint8Array(TOKEN_BYTES).fill(this.#nextNumber % 250, 0, 8);
    new DataView(token.buffer).setUint32(8, this.#nextNumber, true);
    return { token, number: this.#nextNumber };
  }

  #open(role: number): FakeFile {
    const { token, number } = this.#number();
    const file = new FakeFile(token, number, role);
    if (role === Role.rdmaCm) {
      file.queues.push(new FakeQueue(token, this.#number().number, CM_EVENT_BYTES));
    }
    this.files.push(file);
    return file;
  }

  #fileOf(hello: Hello): FakeFile | undefined {
    const text = tokenText(hello.token);
    return this.files.find((file) => tokenText(file.token) === text && !file.closed);
  }

  #queueOf(token: Uint8Array): FakeQueue | undefined {
    const text = tokenText(token);
    const queues = this.files.filter((file) => !file.closed).flatMap((file) => file.queues);
    return queues.find((queue) => tokenText(queue.token) === text);
  }

  #join(file: FakeFile, socket: Socket): void {
    file.connections.add(socket);
    socket.on('close', () => {
      file.connections.delete(socket);
      if (file.connections.size > 0) return;
      file.closed = true;
      for (const queue of file.queues) queue.end();
    });
  }

  #execute(file: FakeFile, socket: Socket, request: ShimRequest): void {
    const { id, argument, payload } = request;
    const answer = (reply: ShimReply): void => void socket.write(emitReply(id, reply));
    file.pids.add(request.pid);
    switch (request.op) {
      case ShimOp.write:
        this.#command(file, socket, request, answer);
        break;
      case ShimOp.rings: {
        const fd = descriptorOf(socket);
        const bytes = emitReply(id, { status: 0 });
        if (fd !== undefined) sendDescriptor(fd, bytes, this.#rings.descriptor);
        break;
      }
      case ShimOp.connect: {
        const fd = descriptorOf(socket);
        const [own, other] = socketPair();
        this.#accept(new Socket({ fd: own, readable: true, writable: true }));
        if (fd !== undefined) sendDescriptor(fd, emitReply(id, { status: 0 }), other);
        closeDescriptor(other);
        break;
      }
      case ShimOp.pop: {
        const queue = file.queues.find(({ number }) => number === argument);
        answer(queue?.pop() ?? { status: -ENOENT });
        break;
      }
      case ShimOp.netlink:
        answer({ status: 0, response: datagrams(payload, new TextEncoder().encode('second')) });
        break;
      case ShimOp.doorbell:
        file.doorbells.push(argument);
        break;
      case ShimOp.child:
        file.parents.push(u32(payload, 0));
        answer({ status: 0 });
        break;
      default:
        answer({ status: -EINVAL });
    }
  }

  #command(
    file: FakeFile,
    socket: Socket,
    request: ShimRequest,
    answer: (reply: ShimReply) => void,
  ): void {
    const bytes = request.payload.slice();
    const number = u32(bytes, 0);
    file.commands.push(number);
    if (number >= Told.push && number <= Told.agentCopy) {
      this.#told(number, file, socket, bytes, request.id, answer);
    } else if (file.role === Role.rdmaCm) answer(cmReply(file, number, bytes));
    else if (number === 9) this.#register(file, bytes, answer);
    else answer(this.#uverbsReply(file, number, bytes));
  }

  #uverbsReply(file: FakeFile, number: number, bytes: Uint8Array): ShimReply {
    const done = (length: number, fields: Readonly<Record<number, number>> = {}): ShimReply => {
      return { status: 0, response: put(new Uint8Array(length), fields) };
    };
    switch (number) {
      case 0: {
        const { token } = this.#addQueue(file, 0, ASYNC_BYTES);
        return { ...done(16, { 4: 1, 8: 0x1234 }), descriptors: [{ offset: 0, token }] };
      }
      case 3:
        // More than the program has room for.
        return done(64, { 0: 7 });
      case 4:
        return { ...done(64), status: -ENOENT };
      case 17: {
        if (file.queues.length === 0) this.#addQueue(file, 0, ASYNC_BYTES);
        const { token } = this.#addQueue(file, file.queues.length, COMPLETION_BYTES);
        return { ...done(4), descriptors: [{ offset: 0, token }] };
      }
      case 18:
        file.channels.push(u32(bytes, 32));
        return done(24, { 0: 9, 12: 8, 16: CQ_KEY });
      case 24:
        return done(64, { 0: 5, 4: 6, 36: 4, 40: 4, 48: SQ_KEY, 56: RQ_KEY });
      case 13:
        return { status: 0 };
      case 27:
        return done(4);
      case 28:
        return { status: -ENOTCONN };
      case 0x8000_0001:
        return { status: 0, response: new Uint8Array(64).fill(1) };
      default:
        return { status: -EOPNOTSUPP };
    }
  }

  /** REG_MR. The response is the handle and, if the agent was asked meanwhile, its errno. */
  #register(file: FakeFile, bytes: Uint8Array, answer: (reply: ShimReply) => void): void {
    const pd = u32(bytes, 40);
    if (pd === RegisterAs.refused) {
      answer({ status: -ENOMEM });
      return;
    }
    const response = put(new Uint8Array(12), {
      0: pd >= RegisterAs.firstHandle ? pd : file.regions,
    });
    file.regions += 1;
    if (pd !== RegisterAs.usedAtOnce) {
      answer({ status: 0, response });
      return;
    }
    const address = u32(bytes, 16) + u32(bytes, 20) * 2 ** 32;
    this.#copyByAgent({ operation: 1, address, length: 4 }, 0, ({ response: copied }) => {
      put(response, { 4: copied === undefined ? 0 : u32(copied, 0) });
      answer({ status: 0, response });
    });
  }

  #addQueue(file: FakeFile, index: number, recordBytes: number): FakeQueue {
    const { token, number } = this.#number();
    const queue = new FakeQueue(token, number, recordBytes);
    file.queues[index] = queue;
    return queue;
  }

  #told(
    number: number,
    file: FakeFile,
    socket: Socket,
    bytes: Uint8Array,
    id: number,
    answer: (reply: ShimReply) => void,
  ): void {
    const first = u32(bytes, ARGUMENTS);
    const second = u32(bytes, ARGUMENTS + 4);
    const value = BigInt(u32(bytes, ARGUMENTS + 8)) + (BigInt(u32(bytes, ARGUMENTS + 12)) << 32n);
    const last = u32(bytes, ARGUMENTS + 16);
    switch (number) {
      case Told.push: {
        const queue = file.queues[first];
        const push = (): void => {
          for (let index = 0; index < second; index++) queue?.push(value + BigInt(index));
        };
        if (last === 0) push();
        else setTimeout(push, last);
        answer({ status: 0 });
        break;
      }
      case Told.silence:
        break;
      case Told.die:
        this.#die();
        break;
      case Told.break:
        sendBroken(socket, id, first);
        break;
      case Told.purge:
        answer(file.queues[first]?.purge() ?? { status: -ENOENT });
        break;
      case Told.connected:
        new DataView(this.#sendQueue.view.buffer).setUint32(4096 - 8, first, true);
        answer({ status: 0 });
        break;
      case Told.slow:
        // Two reminders: alone, and mostly in one read with the reply.
        answer({ status: 0, flags: ReplyFlag.later });
        setTimeout(() => {
          answer({ status: 0, flags: ReplyFlag.later });
          answer({ status: 0 });
        }, first);
        break;
      case Told.agent:
        if (this.#agentCount <= first) answer({ status: -EAGAIN, flags: ReplyFlag.startAgent });
        else answer({ status: 0 });
        break;
      default:
        this.#copyByAgent(
          { operation: first, address: Number(value), length: second },
          last,
          answer,
        );
    }
  }

  #copyByAgent(
    request: { operation: number; address: number; length: number },
    fill: number,
    answer: (reply: ShimReply) => void,
  ): void {
    const head = new Uint8Array(24);
    emitAgentRequest({ ...request, id: 77 }, head);
    this.#agent?.write(head);
    if (request.operation === 2) this.#agent?.write(new Uint8Array(request.length).fill(fill));
    this.#agentDone = (error, bytes) => {
      const sum = bytes.reduce((total, byte) => total + byte, 0);
      answer({ status: 0, response: put(new Uint8Array(8), { 0: error, 4: sum }) });
    };
  }

  #agentReader(): (bytes: Uint8Array) => void {
    let rest = Buffer.alloc(0);
    return (bytes) => {
      rest = Buffer.concat([rest, bytes]);
      if (rest.length < AGENT_REPLY_BYTES) return;
      const length = rest.readUInt32LE(8);
      if (rest.length < AGENT_REPLY_BYTES + length) return;
      if (rest.readUInt32LE(0) !== 77) throw new Error('an answer to another request');
      this.#agentDone?.(rest.readUInt32LE(4), rest.subarray(AGENT_REPLY_BYTES));
      rest = Buffer.alloc(0);
    };
  }
}

function cmReply(file: FakeFile, number: number, bytes: Uint8Array): ShimReply {
  const done = (first: number): ShimReply => {
    return { status: 0, response: put(new Uint8Array(16), { 0: first }) };
  };
  switch (number) {
    case 0:
      return done(41);
    case 1:
      return done(0);
    case 12:
      return file.queues[0]?.pop() ?? { status: -ENOENT };
    case 14:
      file.options.push(Buffer.from(bytes.subarray(32)).toString('hex'));
      return { status: 0 };
    case 18:
      file.sources.push(u32(bytes, 20));
      return done(2);
    default:
      return { status: -EINVAL };
  }
}

/** Fields of replies that break the protocol, each in its own way; other kinds are cut replies. */
const BROKEN: readonly Readonly<Record<number, number>>[] = [
  { 0: 23 },
  { 0: 0xffff_ffff },
  { 0: 24 },
  { 8: -1 },
  { 16: 0xffff_fff0 },
  { 20: 0x4000_0000 },
  { 20: 1 },
  { 12: ReplyFlag.purged },
  { 12: ReplyFlag.purged, 16: 0 },
  { 4: -5000 },
];

function sendBroken(socket: Socket, id: number, kind: number): void {
  const bytes = emitReply(id, { status: 0, response: new Uint8Array(64).fill(0xee) });
  const fields = BROKEN[kind];
  if (fields === undefined) socket.end(bytes.subarray(0, kind === 10 ? 10 : 40));
  else socket.write(put(bytes, fields));
}

/** Writes u32 by position. */
function put(bytes: Uint8Array, fields: Readonly<Record<number, number>>): Uint8Array {
  const view = new DataView(bytes.buffer);
  for (const [at, value] of Object.entries(fields)) view.setUint32(Number(at), value, true);
  return bytes;
}

function u32(bytes: Uint8Array, at: number): number {
  if (at + 4 > bytes.length) return 0;
  return new DataView(bytes.buffer, bytes.byteOffset).getUint32(at, true);
}

/** Joins datagrams, each after its length. */
function datagrams(...parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(
    parts.flatMap((part) => {
      const length = Buffer.alloc(4);
      length.writeUInt32LE(part.length);
      return [length, Buffer.from(part)];
    }),
  );
}
