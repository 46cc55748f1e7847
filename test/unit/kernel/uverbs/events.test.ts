import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CMEventType, QPState } from '#contract/verbs/enums';
import { EventSink } from '#daemon/clients/objects/event-router';
import type { HostCmEvent } from '#daemon/host/host-id';
import type { EventPath } from '#daemon/kernel/event-queue';
import type { KernelReply } from '#daemon/kernel/kernel-file';
import { ReplyFlag, RequestFlag, ShimOp } from '#daemon/kernel/shim-protocol';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { hexOf } from '#test/support/hex';
import { commands, le } from '#test/support/kernel-commands';
import { until } from '#test/support/patience';
import { request, UverbsRig } from '#test/support/uverbs-rig';

const { EAGAIN, EBADF } = NEGATIVE_ERRNO;
/** Device of the rig's file. */
const DEVICE_INDEX = 0;
/** VALID, INLINE, SIGNALLED */
const INLINE_SEND = 1 | 2 | 4;
const DEPTHS = { initiatorDepth: 1, responderResources: 1 };
const parameters = { privateData: new Uint8Array(0), ...DEPTHS, wire: undefined };

let rig: UverbsRig;

beforeEach(() => {
  rig = new UverbsRig();
  rig.must(commands.getContext());
});

afterEach(() => rig.close());

type End = ReturnType<typeof makeEnd>;

/** One end: PD, channel, CQ with its ring, QP with its rings. */
function makeEnd(user: bigint) {
  const pd = rig.create(commands.allocPD());
  rig.must(commands.createCompChannel());
  const channel = [...rig.file.channels.keys()].at(-1) ?? 0;
  const cqReply = rig.must(commands.createCQ(user, 8, channel));
  const cq = cqReply.getUint32(0, true);
  const cqRing = rig.map(Number(cqReply.getBigUint64(16, true)), 8 * 32 + 8);
  const qpReply = rig.must(
    commands.createQP({ user: user + 1n, pd, sendCQ: cq, recvCQ: cq, sendWr: 4, recvWr: 4 }),
  );
  return {
    pd,
    channel,
    cq,
    cqRing,
    qp: qpReply.getUint32(0, true),
    qpn: qpReply.getUint32(4, true),
    sqRing: rig.map(Number(qpReply.getBigUint64(48, true)), 4 * 120),
    rqRing: rig.map(Number(qpReply.getBigUint64(56, true)), 4 * 112),
  };
}

/** The descriptor of a queue, which counts the bytes sent to it. */
function watch(number: number): { bytes: number } & EventPath {
  const path = {
    bytes: 0,
    write(bytes: Uint8Array) {
      path.bytes += bytes.length;
    },
    close: () => undefined,
  };
  const queue =
    number === rig.file.asyncQueue.number ? rig.file.asyncQueue : rig.file.channels.get(number);
  queue?.attach(path);
  return path;
}

/** Connects the two ends over loopback. */
async function connect(active: End, passive: End): Promise<void> {
  const { cm } = rig.host;
  const qpOf = (end: End) => {
    const qp = rig.server.findQP(DEVICE_INDEX, end.qpn, rig.client);
    if (qp === undefined) throw new Error('no such QP');
    return qp;
  };
  let count = 0;
  await new Promise<void>((resolve, reject) => {
    class Id extends EventSink {
      override handleCmEvent({ type, id }: HostCmEvent): void {
        if (type === CMEventType.connectRequest) {
          cm.accept(id, qpOf(passive), parameters);
        } else if (type === CMEventType.established) {
          count += 1;
          if (count === 2) resolve();
        } else if (type === CMEventType.connectError || type === CMEventType.rejected) {
          reject(new Error('not connected'));
        }
      }
    }
    const listener = cm.createId(new Id());
    cm.bindAddr(listener, { address: '127.0.0.1', port: 0 });
    cm.listen(listener, 1);
    const id = cm.createId(new Id());
    cm.resolveAddr(id, listener.localAddress ?? { address: '127.0.0.1', port: 0 }, undefined);
    cm.resolveRoute(id);
    cm.connect(id, qpOf(active), parameters);
  });
}

async function connectedEnds(): Promise<[active: End, passive: End]> {
  const [active, passive] = [makeEnd(0x100n), makeEnd(0x200n)];
  await connect(active, passive);
  return [active, passive];
}

/** Posts `text` inline into slot `slot` of the send ring. */
function postSend({ sqRing }: End, slot: number, text: string, flags = INLINE_SEND): void {
  const at = slot * 120;
  const fields = new DataView(sqRing.view.buffer, sqRing.view.byteOffset + at, 120);
  fields.setBigUint64(0, 0xabcn + BigInt(slot), true);
  fields.setUint8(11, 3);
  fields.setUint32(32, text.length, true);
  sqRing.view.set(new TextEncoder().encode(text), at + 40);
  Atomics.store(sqRing.view, at + 8, flags);
}

/** Posts a receive of 64 bytes at `address`, under `key`, into slot `slot`. */
function postReceive({ rqRing }: End, slot: number, address: number, key: number): void {
  const at = slot * 112;
  const fields = new DataView(rqRing.view.buffer, rqRing.view.byteOffset + at, 112);
  fields.setBigUint64(0, 0xdefn + BigInt(slot), true);
  fields.setUint8(10, 1);
  fields.setBigUint64(16, BigInt(address), true);
  fields.setUint32(24, 64, true);
  fields.setUint32(28, key, true);
  Atomics.store(rqRing.view, at + 8, 1);
}

/** Asks for the next completion's event. */
function arm({ cqRing }: End): void {
  const notify = new Int32Array(cqRing.view.buffer, cqRing.view.byteOffset + 8 * 32, 1);
  Atomics.store(notify, 0, 3);
}

/** The completion in slot `slot`: opcode, status, bytes; undefined while there is none. */
function completion({ cqRing }: End, slot: number) {
  const fields = new DataView(cqRing.view.buffer, cqRing.view.byteOffset + slot * 32, 32);
  if ((Atomics.load(cqRing.view, slot * 32 + 8) & 1) === 0) return undefined;
  return [fields.getUint8(9), fields.getUint16(10, true), fields.getUint32(12, true)];
}

const stateOf = ({ qp }: End): QPState => rig.must(commands.queryQP(qp)).getUint8(108);

function pop(number: number): KernelReply {
  return rig.execute(request(ShimOp.pop, { argument: number }));
}

const responseOf = ({ response }: KernelReply): string => hexOf(response ?? new Uint8Array(0));

function doorbell(end: End, flags = 0): number {
  return rig.execute(request(ShimOp.doorbell, { argument: end.qp, flags })).status;
}

/** Registered memory: the device writes to its address, whether or not a test still holds it. */
const registered: Uint8Array[] = [];

/** Registers 64 bytes for receives of an end; returns them with their address and key. */
function receiveMemory({ pd }: End): { memory: Uint8Array; address: number; key: number } {
  const memory = new Uint8Array(64);
  registered.push(memory);
  const { key } = rig.register(memory, pd);
  const address = Number(rig.file.table.ofKind('mr').at(-1)?.mr.address);
  return { memory, address, key };
}

describe('queues between a program and the device', () => {
  it('a message goes from ring to memory to completion, and fires the armed channel', async () => {
    const [active, passive] = [makeEnd(0x100n), makeEnd(0x200n)];
    const { memory, address, key } = receiveMemory(passive);
    postReceive(passive, 0, address, key);
    await connect(active, passive);
    const descriptor = watch(passive.channel);
    arm(passive);
    postSend(active, 0, 'ring');
    expect(doorbell(active, RequestFlag.oneWay)).toBe(0);
    await until('a byte on the descriptor', () => descriptor.bytes === 1);
    expect(completion(passive, 0)).toEqual([8, 0, 4]);
    expect(new TextDecoder().decode(memory.subarray(0, 4))).toBe('ring');
    expect(completion(active, 0)).toEqual([3, 0, 4]);
    const event = pop(passive.channel);
    expect(responseOf(event)).toBe(le(0x200, 8));
    expect(event.flags).toBe(ReplyFlag.takeByte);
    expect(pop(passive.channel).status).toBe(EAGAIN);
    expect(pop(active.channel).status).toBe(EAGAIN);
  });

  it('work posted before the connection is carried out once connected', async () => {
    const [active, passive] = [makeEnd(0x100n), makeEnd(0x200n)];
    const { address, key } = receiveMemory(passive);
    postReceive(passive, 0, address, key);
    postSend(active, 0, 'early');
    expect(doorbell(active)).toBe(-107);
    const state = rig.file.table.ofKind('qp')[0]?.sendRing.view ?? new Uint8Array(0);
    expect(state[4096 - 8]).toBe(0);
    await connect(active, passive);
    expect(state[4096 - 8]).toBe(1);
    await until('a completion', () => completion(passive, 0) !== undefined);
    expect(completion(passive, 0)).toEqual([8, 0, 5]);
    expect(stateOf(active)).toBe(QPState.RTS);
  });

  it('work posted to a queue pair in error is flushed', async () => {
    const [active] = await connectedEnds();
    rig.must(commands.modifyQP(active.qp, 1, { state: QPState.ERR }));
    postSend(active, 0, 'late');
    expect(doorbell(active)).toBe(0);
    expect(completion(active, 0)).toEqual([3, 4, 0]);
  });

  it.each([QPState.RESET, QPState.INIT, QPState.RTR, QPState.RTS])(
    'MODIFY_QP to state %i does nothing to a connected one',
    async (state) => {
      const [active] = await connectedEnds();
      expect(rig.write(commands.modifyQP(active.qp, 1, { state })).status).toBe(0);
      expect(stateOf(active)).toBe(QPState.RTS);
    },
  );

  it('MODIFY_QP to SQD closes the connection of a connected one', async () => {
    const [active, passive] = await connectedEnds();
    rig.must(commands.modifyQP(active.qp, 1, { state: QPState.SQD }));
    await until('the error state', () => stateOf(active) === QPState.ERR);
    expect(stateOf(passive)).toBe(QPState.ERR);
  });
});

describe('the response to a destroy', () => {
  it('counts the events that were read, and removes the unread ones', async () => {
    const [active] = await connectedEnds();
    const descriptor = watch(active.channel);
    for (const slot of [0, 1]) {
      arm(active);
      postSend(active, slot, 'x');
      doorbell(active);
    }
    expect(rig.file.channels.get(active.channel)?.length).toBe(2);
    expect(descriptor.bytes).toBe(2);
    expect(pop(active.channel)).toMatchObject({ status: 0, flags: 0 });
    rig.must(commands.destroyQP(active.qp));
    const destroyed = rig.reply(commands.destroyCQ(active.cq));
    expect(responseOf(destroyed)).toBe(le(1) + le(0));
    expect(destroyed.purged).toEqual([active.channel]);
    expect(pop(active.channel).status).toBe(EAGAIN);
  });

  it('asynchronous events of a queue pair are counted, or removed with it', async () => {
    const [active, passive] = await connectedEnds();
    const { number } = rig.file.asyncQueue;
    const descriptor = watch(number);
    // A send from unregistered memory.
    const { view } = active.sqRing;
    const fields = new DataView(view.buffer, view.byteOffset, 120);
    fields.setUint8(10, 1);
    fields.setUint8(11, 3);
    fields.setUint32(32, 8, true);
    fields.setUint32(36, 0x1234500, true);
    Atomics.store(view, 8, 1);
    doorbell(active);
    expect(completion(active, 0)).toEqual([3, 2, 0]);
    await until('two events', () => rig.file.asyncQueue.length === 2);
    expect(descriptor.bytes).toBe(2);
    const event = pop(number);
    expect(event.flags).toBe(ReplyFlag.takeByte);
    expect(responseOf(event)).toBe(le(0x101, 8) + le(1) + le(0));
    expect(rig.write(commands.destroyQP(active.qp)).response).toBe(le(1));
    const other = rig.reply(commands.destroyQP(passive.qp));
    expect(responseOf(other)).toBe(le(0));
    expect(other.purged).toEqual([number]);
    expect(pop(number).status).toBe(EAGAIN);
  });

  it('a lost completion raises CQ_ERR with the name of the queue', async () => {
    const [active] = await connectedEnds();
    rig.must(commands.modifyQP(active.qp, 1, { state: QPState.ERR }));
    for (let slot = 0; slot < 9; slot++) {
      postSend(active, slot % 4, 'x');
      doorbell(active);
    }
    const event = pop(rig.file.asyncQueue.number);
    expect(responseOf(event)).toBe(le(0x100, 8) + le(0) + le(0));
    rig.must(commands.destroyQP(active.qp));
    expect(rig.write(commands.destroyCQ(active.cq)).response).toBe(le(0) + le(1));
  });
});

describe('a program that does not read its events', () => {
  const FULL_QUEUES = 64;
  const OTHERS = 16;

  it('has 65,536 pending ones, and after that the next one of each queue', () => {
    rig.must(commands.createCompChannel());
    const [number = 0] = rig.file.channels.keys();
    const channel = rig.file.channels.get(number);
    for (let index = 0; index < FULL_QUEUES + OTHERS; index += 1) {
      rig.must(commands.createCQ(BigInt(index), 1, number));
    }
    const queues = rig.file.table.ofKind('cq');
    for (const cq of queues) for (let fired = 0; fired < 2000; fired += 1) cq.handleCompletion();
    const waiting = FULL_QUEUES * 1024 + OTHERS;
    expect([channel?.length, rig.client.unreadEvents]).toEqual([waiting, waiting]);
    const [last] = queues.slice(-1);
    expect(last?.completionsUnread).toBe(1);
    expect(pop(number).status).toBe(0);
    expect(rig.client.unreadEvents).toBe(waiting - 1);
    for (const { handle } of queues) rig.must(commands.destroyCQ(handle));
    expect([channel?.length, rig.client.unreadEvents]).toEqual([0, 0]);
  });

  it('has no more of them once its file is closed', () => {
    const file = rig.openFile(78);
    rig.must(commands.getContext(), file);
    rig.must(commands.createCompChannel(), file);
    const [own = 0] = file.channels.keys();
    rig.must(commands.createCQ(1n, 1, own), file);
    for (const each of file.table.ofKind('cq')) each.handleCompletion();
    expect(rig.client.unreadEvents).toBe(1);
    file.close();
    expect(rig.client.unreadEvents).toBe(0);
  });
});

describe('POP', () => {
  it('of a queue of another file: EBADF', () => {
    rig.must(commands.createCompChannel());
    const [number = 0] = rig.file.channels.keys();
    const other = rig.openFile(78);
    const asked = request(ShimOp.pop, { argument: number });
    expect(rig.execute(asked, other).status).toBe(EBADF);
    expect(rig.execute(asked).status).toBe(EAGAIN);
    other.close();
  });
});

describe('looking for a queue pair by its number', () => {
  it('finds those of programs of the same user only', () => {
    const { qpn } = makeEnd(0x100n);
    expect(rig.server.findQP(DEVICE_INDEX, qpn, rig.client)?.qpn).toBe(qpn);
    expect(rig.server.findQP(DEVICE_INDEX, qpn + 1, rig.client)).toBeUndefined();
    expect(rig.server.findQP(DEVICE_INDEX + 1, qpn, rig.client)).toBeUndefined();
    const { credentials } = rig.client;
    const stranger = { ...rig.client, credentials: { ...credentials, uid: credentials.uid + 1 } };
    expect(rig.server.findQP(DEVICE_INDEX, qpn, stranger as typeof rig.client)).toBeUndefined();
  });
});
