/**
 * One program makes requests with sizes of up to 2^20, or many at once, while another makes round
 * trips. The daemon's own watch judges its turns by their processor time: see
 * `test/support/watched-turns.ts`.
 */
import { readFileSync, writeSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { emitFrame, FrameType, Role } from '#contract/protocol/ipc-frames';
import { encodeValue } from '#contract/protocol/ipc-value';
import { ROCE_PROFILE } from '#daemon/host/roce/roce-profile';
import { RequestFlag, ShimOp } from '#daemon/kernel/shim-protocol';
import { TURN_WATCH_VARIABLE } from '#daemon/main/turn-watch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { DaemonProcess } from '../support/daemon-process.ts';
import { IpcClient } from '../support/ipc-client.ts';
import { commands, le, plain, RSP } from '../support/kernel-commands.ts';
import { until } from '../support/patience.ts';
import { ShimClient } from '../support/shim-client.ts';

/** Entries of the deepest queues. */
const DEPTH = 2 ** 20 - 1;
/** Entries of the deepest completion queues. */
const CQE_MAX = ROCE_PROFILE.maxCqe;
/** Offset of the producer index in a ring. */
const PRODUCER = 128;
/** QP states, and bits of a modification's mask. */
const RESET = 0;
const INIT = 1;
const ERR = 6;
const STATE = 1;
const INIT_MASK = 0x39;

let daemon: DaemonProcess;
let program: Program;
let canary: Canary;

/** A program of a RoCE device, by its commands. */
class Program {
  readonly shim: ShimClient;
  /** The file of its rings. */
  #rings = -1;

  constructor(shim: ShimClient) {
    this.shim = shim;
  }

  static async open(): Promise<Program> {
    const program = new Program(await ShimClient.uverbs(daemon.socketPath, Role.uverbs));
    await program.run(commands.getContext());
    await program.run(commands.allocPD());
    const { descriptor } = await program.shim.call(ShimOp.rings);
    program.#rings = descriptor ?? -1;
    return program;
  }

  /** Runs a command that must succeed; returns its response. */
  async run(payload: Uint8Array): Promise<DataView> {
    const { status, response } = await this.shim.call(ShimOp.write, { payload });
    if (status < 0) throw new Error(`refused with ${status}`);
    return new DataView(response.buffer, response.byteOffset, response.length);
  }

  /** Sends commands in one write, then waits for the replies; returns their statuses. */
  async pipeline(payloads: readonly Uint8Array[]): Promise<Set<number>> {
    const requests = payloads.map((payload) => ({ payload }));
    this.shim.askTogether(ShimOp.write, requests);
    const statuses = new Set<number>();
    for (const _ of payloads) statuses.add((await this.shim.reply()).status);
    return statuses;
  }

  /** Marks the first `index` elements of the ring at `offset` as posted; by default all of them. */
  post(offset: number, index = DEPTH): void {
    const word = new Uint8Array(4);
    new DataView(word.buffer).setUint32(0, index, true);
    writeSync(this.#rings, word, 0, 4, offset + PRODUCER);
  }

  close(): void {
    this.shim.close();
    if (this.#rings >= 0) closeDescriptor(this.#rings);
    this.#rings = -1;
  }
}

/** A program that makes round trips all the time. */
class Canary {
  rounds = 0;
  #stopped = false;
  readonly #program: Program;
  readonly #end: Promise<void>;

  constructor(program: Program) {
    this.#program = program;
    this.#end = this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      await this.#program.run(commands.queryDevice());
      this.rounds += 1;
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#end;
    this.#program.close();
  }
}

/** The output of the daemon's turn watch, up to the turn before this call. */
async function longTurns(): Promise<string> {
  await program.run(commands.queryDevice());
  return readFileSync(process.env[TURN_WATCH_VARIABLE] ?? '', 'utf8');
}

beforeEach(async () => {
  daemon = await DaemonProcess.start({
    devices: [{ name: 'roce0', addresses: ['127.0.0.9'], transport: 'roce' }],
    native: false,
  });
  await daemon.loaded;
  program = await Program.open();
  canary = new Canary(await Program.open());
});

afterEach(async () => {
  await canary.stop();
  program.close();
  await daemon.clean();
});

/** A deep queue pair with a completion queue of `cqe` entries; their handles, and the pair's rings. */
async function deepQP(
  cqe: number,
): Promise<{ cq: number; qp: number; sends: number; receives: number }> {
  const cq = (await program.run(commands.createCQ(1n, cqe))).getUint32(0, true);
  const pair = { pd: 0, sendCQ: cq, recvCQ: cq, sendWr: DEPTH, recvWr: DEPTH };
  const reply = await program.run(commands.createQP(pair));
  const [receives, sends] = [32, 48].map((at) => Number(reply.getBigUint64(at, true)));
  const qp = reply.getUint32(0, true);
  await program.run(toInit(qp));
  return { cq, qp, sends: sends ?? 0, receives: receives ?? 0 };
}

function toInit(qp: number): Uint8Array {
  return commands.modifyQP(qp, INIT_MASK, { state: INIT, port: 1 });
}

describe('no program delays the others', () => {
  it('by resizing a deep shared receive queue, sixty times at once', async () => {
    const create = plain(32, 40, `${RSP} ${le(1, 8)} ${le(0)} ${le(DEPTH)} ${le(27)} ${le(0)}`);
    const reply = await program.run(create);
    const srq = reply.getUint32(0, true);
    program.post(Number(reply.getBigUint64(16, true)), DEPTH - 1);
    const resize = plain(33, 0, `${le(srq)} ${le(1)} ${le(DEPTH)} ${le(0)} ${le(0, 8)}`);
    const statuses = await program.pipeline(Array.from({ length: 60 }, () => resize));
    // Once there are many rings, no memory is left for another one.
    expect([...statuses].every((status) => status === 0 || status === -12)).toBe(true);
    expect(canary.rounds).toBeGreaterThan(0);
    expect(await longTurns()).toBe('');
  });

  it.each([16, CQE_MAX])('by flushing deep queues into %i completions', async (cqe) => {
    for (let round = 0; round < 3; round += 1) {
      const { qp, sends, receives } = await deepQP(cqe);
      program.post(sends);
      program.post(receives);
      await program.run(commands.modifyQP(qp, STATE, { state: ERR }));
      await program.run(commands.queryDevice());
    }
    expect(await longTurns()).toBe('');
  });

  it('by resizing a completion queue that is almost full, twenty times at once', async () => {
    const { cq, qp, sends } = await deepQP(CQE_MAX);
    program.post(sends, CQE_MAX - 1);
    await program.run(commands.modifyQP(qp, STATE, { state: ERR }));
    const resize = plain(19, 24, `${RSP} ${le(cq)} ${le(CQE_MAX)}`);
    const statuses = await program.pipeline(Array.from({ length: 20 }, () => resize));
    expect([...statuses]).toEqual([0]);
    expect(canary.rounds).toBeGreaterThan(0);
    expect(await longTurns()).toBe('');
  });

  it('by failing and resetting a deep queue pair again and again', async () => {
    const { qp, sends, receives } = await deepQP(CQE_MAX);
    const [fail, reset] = [ERR, RESET].map((state) => commands.modifyQP(qp, STATE, { state }));
    const states = [fail, reset, toInit(qp)].filter((each) => each !== undefined);
    for (let round = 0; round < 20; round += 1) {
      program.post(sends, (round * 7919) % DEPTH);
      program.post(receives, (round * 7919) % DEPTH);
      const statuses = await program.pipeline(Array.from({ length: 40 }, () => states).flat());
      expect([...statuses]).toEqual([0]);
    }
    await program.run(commands.destroyQP(qp));
    expect(await longTurns()).toBe('');
  });

  it('by sending as many cheap commands and doorbells as one read returns', async () => {
    const before = canary.rounds;
    for (let round = 0; round < 10; round += 1) {
      await program.pipeline(Array.from({ length: 300 }, () => commands.queryDevice()));
      const doorbell = { flags: RequestFlag.oneWay, argument: 3 };
      program.shim.askTogether(
        ShimOp.doorbell,
        Array.from({ length: 2000 }, () => doorbell),
      );
      await program.run(commands.queryDevice());
    }
    expect(canary.rounds).toBeGreaterThan(before);
    expect(await longTurns()).toBe('');
  });

  it('by requesting long lists, and by ending with all the objects listed', async () => {
    const cq = (await program.run(commands.createCQ(1n, 1))).getUint32(0, true);
    const pair = { pd: 0, sendCQ: cq, recvCQ: cq, sendWr: 1, recvWr: 1 };
    for (let count = 0; count < 8000; count += 100) {
      await program.pipeline(Array.from({ length: 100 }, () => commands.createQP(pair)));
    }
    const admin = await IpcClient.open(daemon.socketPath, Role.admin);
    const list = encodeValue(['listQPs', {}]);
    const frames = Array.from({ length: 4 }, (_, id) => emitFrame(FrameType.request, id, list));
    admin.send(Buffer.concat(frames));
    for (const _ of frames) expect((await admin.frame()).type).toBe(FrameType.reply);
    admin.socket.destroy();
    program.close();
    program = await Program.open();
    await until('the end of the queue pairs', async () => {
      const { clients } = await daemon.status();
      return clients.every(({ usage }) => (usage.objects['qp'] ?? 0) === 0);
    });
    expect(await longTurns()).toBe('');
  });

  it('by asking for the status of a thousand clients, which a reset then ends', async () => {
    const clients: IpcClient[] = [];
    for (let count = 0; count < 1000; count += 1) {
      const client = await IpcClient.open(daemon.socketPath, Role.control);
      client.request(1, ['openDevice', { name: 'roce0' }]);
      expect((await client.frame()).type).toBe(FrameType.reply);
      clients.push(client);
    }
    await canary.stop();
    const admin = await IpcClient.open(daemon.socketPath, Role.admin);
    for (const name of ['status', 'listClients', 'status', 'reset']) {
      admin.request(1, [name, {}]);
      const { type, value } = await admin.frame();
      expect(type).toBe(FrameType.reply);
      if (name !== 'status') continue;
      expect(value).toMatchObject({ clients: { length: clients.length + 1 } });
    }
    admin.socket.destroy();
    for (const { socket } of clients) socket.destroy();
    program.close();
    program = await Program.open();
    canary = new Canary(await Program.open());
    expect(await longTurns()).toBe('');
  });

  it('by a reset that destroys thousands of objects, and is seen complete or not at all', async () => {
    const cq = (await program.run(commands.createCQ(1n, 1))).getUint32(0, true);
    const pair = { pd: 0, sendCQ: cq, recvCQ: cq, sendWr: 1, recvWr: 1 };
    for (let count = 0; count < 8000; count += 100) {
      await program.pipeline(Array.from({ length: 100 }, () => commands.createQP(pair)));
    }
    await canary.stop();
    const admin = await IpcClient.open(daemon.socketPath, Role.admin);
    const ask = (id: number, name: string) => {
      return emitFrame(FrameType.request, id, encodeValue([name, {}]));
    };
    admin.send(Buffer.concat([ask(1, 'reset'), ask(2, 'listQPs'), ask(3, 'status')]));
    const frames = [await admin.frame(), await admin.frame(), await admin.frame()];
    // A reply names its request; replies arrive in any order.
    frames.sort((one, other) => one.id - other.id);
    expect(frames.map(({ id, type }) => [id, type])).toEqual(
      [1, 2, 3].map((id) => [id, FrameType.reply]),
    );
    expect(frames[1]?.value).toEqual([]);
    admin.socket.destroy();
    program.close();
    program = await Program.open();
    canary = new Canary(await Program.open());
    expect(await longTurns()).toBe('');
  });
});
