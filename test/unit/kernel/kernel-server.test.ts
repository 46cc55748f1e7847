import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Role } from '#contract/protocol/ipc-frames';
import { ERRNO } from '#contract/verbs/errors';
import type { Provider } from '#contract/verbs/provider';
import { HeldReplies } from '#daemon/kernel/held-replies';
import { ProcessMemories } from '#daemon/kernel/process-memories';
import { ReplyFlag, RequestFlag, ShimOp } from '#daemon/kernel/shim-protocol';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { addressOf } from '#native-bridge/libc/libc';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import { DaemonRig } from '#test/support/daemon-rig';
import { bytesOf } from '#test/support/hex';
import { cmCommands, commands, le } from '#test/support/kernel-commands';
import { patience, quiet, until } from '#test/support/patience';
import { ShimClient } from '#test/support/shim-client';
import { RINGS } from '#test/support/uverbs-rig';
import { connectDaemon } from '#verbs-api/connect-daemon';

/** Requests in one write, and how many times. */
const BATCH = 500;
const BATCHES = 20;

let rig: DaemonRig;
/** A client that must not notice anything. */
let witness: Provider;
const clients: ShimClient[] = [];

beforeEach(async () => {
  rig = await DaemonRig.start({ devices: [{ name: 'iwarp0' }], greetingTimeoutMs: patience() });
  witness = await connectDaemon({ socketPath: rig.socketPath });
});

afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await witness.close();
  await rig.stop();
});

async function open(role: Role, token?: Uint8Array): Promise<ShimClient> {
  const client = await ShimClient.open(rig.socketPath, role, token);
  clients.push(client);
  return client;
}

/** An opened device with its context. */
async function device(): Promise<{ file: ShimClient; asyncToken: Uint8Array }> {
  const file = await ShimClient.uverbs(rig.socketPath, Role.uverbs);
  clients.push(file);
  const { descriptors } = await write(file, commands.getContext());
  return { file, asyncToken: descriptors[0]?.token ?? new Uint8Array(16) };
}

function write(file: ShimClient, payload: Uint8Array) {
  return file.call(ShimOp.write, { payload });
}

/** The kernel's programs that the daemon knows of. */
async function programs() {
  const { clients } = await rig.daemon.status();
  return clients.filter(({ usage }) => usage.objects['context'] === 1);
}

async function expectUnharmed(): Promise<void> {
  const context = await witness.open();
  await (await context.allocPD()).allocMR(4096, 1);
  await context.close();
}

describe('opening', () => {
  it('a device: the welcome names the file, status shows the program', async () => {
    const { file } = await device();
    expect(file.welcome.errno).toBe(0);
    expect(file.number).toBeGreaterThan(0);
    expect(file.welcome.token).not.toEqual(new Uint8Array(16));
    const [program] = await programs();
    expect(program).toMatchObject({ pid: process.pid, uid: process.getuid?.() ?? 0 });
    expect(program?.program).not.toBe('');
    file.close();
    await until('the program to go', async () => (await programs()).length === 0);
  });

  it('a missing device: ENODEV', async () => {
    const token = bytesOf(`${le(99)} 00*12`);
    expect((await open(Role.uverbs, token)).welcome.errno).toBe(ERRNO.ENODEV.number);
  });

  it.each<[string, Role, string]>([
    ['a device without an index', Role.uverbs, '00*16'],
    ['joining a device by a token that is none', Role.uverbs, 'aa*16'],
    ['joining rdma_cm by a token that is none', Role.rdmaCm, 'aa*16'],
    ['an event queue that is none', Role.event, 'aa*16'],
    ['an event queue without a token', Role.event, '00*16'],
    ['an agent without a client', Role.agent, 'aa*16'],
  ])('%s: EACCES', async (_what, role, token) => {
    const client = await open(role, bytesOf(token));
    expect(client.welcome.errno).toBe(ERRNO.EACCES.number);
    await client.closed();
  });

  it('joining a file in another role: EACCES', async () => {
    const { file } = await device();
    const client = await open(Role.rdmaCm, file.welcome.token);
    expect(client.welcome.errno).toBe(ERRNO.EACCES.number);
  });
});

describe('connections of one file', () => {
  it('share its objects, which live until the last of them closes', async () => {
    const { file } = await device();
    const child = await open(Role.uverbs, file.welcome.token);
    expect(child.welcome).toMatchObject({ errno: 0, text: String(file.number) });
    expect((await child.call(ShimOp.child, { payload: bytesOf(le(process.pid)) })).status).toBe(0);
    expect((await write(file, commands.allocPD())).response).toEqual(bytesOf(le(0)));
    file.close();
    await quiet(20);
    expect((await write(child, commands.deallocPD(0))).status).toBe(0);
    expect(await programs()).toHaveLength(1);
    child.close();
    await until('the program to go', async () => (await programs()).length === 0);
  });

  it('a killed program’s objects are destroyed with its connections', async () => {
    const { file } = await device();
    await write(file, commands.allocPD());
    await write(file, commands.createCQ(1n, 16));
    await write(file, commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }));
    const { nic } = rig.daemon.host.devices[0] ?? { nic: undefined };
    const qpn = 1;
    expect(nic?.findQP(qpn)).toBeDefined();
    file.close();
    await until('the queue pair to go', () => nic?.findQP(qpn) === undefined);
    expect((await rig.daemon.status()).clients).toHaveLength(1);
  });
});

describe('a reply that is held while agents copy', () => {
  const oneWay = { flags: RequestFlag.oneWay, argument: 0 };

  /** The copies into this process, of which one does not end; every command is concerned. */
  async function copying(file: ShimClient) {
    const find = vi.spyOn(ProcessMemories.prototype, 'find');
    await write(file, commands.allocPD());
    const incoming = find.mock.results.at(-1)?.value?.incoming;
    find.mockRestore();
    if (incoming === undefined) throw new Error('the process has no memory');
    let concerned = 0;
    Object.defineProperty(incoming, 'concerned', {
      get: () => {
        concerned += 1;
        return concerned;
      },
    });
    incoming.beginEnding();
    return incoming;
  }

  it('comes after reminders, and doorbells meanwhile leave nothing behind', async () => {
    const { file } = await device();
    const incoming = await copying(file);
    const hold = vi.spyOn(HeldReplies.prototype, 'hold');
    const id = file.ask(ShimOp.write, { payload: commands.allocPD() });
    await until('the reply to be held', () => hold.mock.calls.length === 1);
    for (let batch = 0; batch < BATCHES; batch += 1) {
      file.askTogether(ShimOp.doorbell, new Array(BATCH).fill(oneWay));
      // Answered once all of these are read.
      await rig.daemon.status();
    }
    hold.mock.calls[0]?.[3]();
    expect(await file.reply()).toMatchObject({ id, status: 0, flags: ReplyFlag.later });
    incoming.endEnding();
    expect(await file.reply()).toMatchObject({ id, status: 0, flags: 0 });
    expect(await file.pending(20)).toBe(0);
    expect(hold).toHaveBeenCalledTimes(1);
    hold.mockRestore();
  });

  it('is the only one: a further command ends the file, and no other is kept', async () => {
    const { file } = await device();
    const incoming = await copying(file);
    const hold = vi.spyOn(HeldReplies.prototype, 'hold');
    file.askTogether(ShimOp.write, new Array(BATCH).fill({ payload: commands.allocPD() }));
    await until('the file to end', async () => {
      return hold.mock.calls.length > 1 || (await programs()).length === 0;
    });
    expect(hold).toHaveBeenCalledTimes(1);
    incoming.endEnding();
    hold.mockRestore();
    await expectUnharmed();
  });
});

describe('the file of the rings', () => {
  it('is sent again only once it was received, so no program uses up the descriptors in flight', async () => {
    const { file } = await device();
    for (let round = 0; round < 3; round += 1) {
      const ids = [file.ask(ShimOp.rings, {}), file.ask(ShimOp.rings, {})];
      const first = await file.reply();
      expect(first).toMatchObject({ id: ids[0], status: 0, descriptor: expect.any(Number) });
      closeDescriptor(first.descriptor ?? -1);
      const second = await file.reply();
      const refused = { id: ids[1], status: -ERRNO.EMFILE.number, descriptor: undefined };
      expect(second).toMatchObject(refused);
    }
    expect((await write(file, commands.allocPD())).status).toBe(0);
  });
});

describe('event descriptors', () => {
  it('become readable with the first record, and are notified when it is taken', async () => {
    const { file } = await device();
    const { descriptors } = await write(file, commands.createCompChannel());
    const channel = await open(Role.event, descriptors[0]?.token);
    expect(channel.welcome.errno).toBe(0);
    await write(file, commands.allocPD());
    await write(file, commands.createCQ(0xbeefn, 4, channel.number));
    await write(file, commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }));
    // The channel's ring is the first one.
    const cq = await map(file, RINGS.first + RINGS.step, 4 * 32 + 8);
    const sq = await map(file, RINGS.first + 2 * RINGS.step, 4 * 120);
    Atomics.store(new Int32Array(cq.view.buffer, cq.view.byteOffset + 128, 1), 0, 3);
    await write(file, commands.modifyQP(2, 1, { state: 6 }));
    expect(await channel.pending(10)).toBe(0);
    Atomics.store(sq.view, 8, 1);
    expect((await file.call(ShimOp.doorbell, { argument: 2 })).status).toBe(0);
    expect(await channel.take(1)).toHaveLength(1);
    const event = await file.call(ShimOp.pop, { argument: channel.number });
    expect(event).toMatchObject({ status: 0, flags: ReplyFlag.takeByte });
    expect(event.response).toEqual(bytesOf(le(0xbeef, 8)));
    await write(file, commands.destroyQP(2));
    expect((await write(file, commands.destroyCQ(1))).response).toEqual(bytesOf(le(1) + le(0)));
    channel.close();
    await until(
      'the channel to go',
      async () => (await programs())[0]?.usage.objects['channel'] === 0,
    );
  });

  it('that a program writes itself are counted until they are read', async () => {
    const cm = await open(Role.rdmaCm);
    await write(cm, cmCommands.createId(1n));
    expect((await write(cm, cmCommands.writeEvent(0, 18))).status).toBe(0);
    rig.daemon.assertDeepInvariants();
    expect((await write(cm, cmCommands.getEvent())).status).toBe(0);
    rig.daemon.assertDeepInvariants();
  });

  it('a second one of the same queue: EBUSY', async () => {
    const { asyncToken } = await device();
    expect((await open(Role.event, asyncToken)).welcome.errno).toBe(0);
    expect((await open(Role.event, asyncToken)).welcome.errno).toBe(ERRNO.EBUSY.number);
  });

  it('incoming bytes end only that descriptor', async () => {
    const { file, asyncToken } = await device();
    const descriptor = await open(Role.event, asyncToken);
    descriptor.send(bytesOf('00'));
    await descriptor.closed();
    expect((await write(file, commands.allocPD())).status).toBe(0);
  });

  it('end with the file', async () => {
    const { file, asyncToken } = await device();
    const descriptor = await open(Role.event, asyncToken);
    file.close();
    await descriptor.closed();
  });
});

describe('a connection that is passed over another one', () => {
  async function paired(over: ShimClient, role: Role, token?: Uint8Array): Promise<ShimClient> {
    const { status, descriptor } = await over.call(ShimOp.connect);
    expect(status).toBe(0);
    const client = await ShimClient.open(rig.socketPath, role, token, descriptor);
    clients.push(client);
    return client;
  }

  it('becomes an event descriptor of the process that requested it', async () => {
    const { file, asyncToken } = await device();
    const events = await paired(file, Role.event, asyncToken);
    expect(events.welcome.errno).toBe(0);
    events.close();
    expect((await write(file, commands.allocPD())).status).toBe(0);
  });

  it('has no other role, so rights that the process dropped stay dropped', async () => {
    const { file } = await device();
    const index = bytesOf(`${le(1)} 00*12`);
    for (const role of [Role.admin, Role.control, Role.tap, Role.rdmaCm, Role.uverbs]) {
      const client = await paired(file, role, role === Role.uverbs ? index : undefined);
      expect(client.welcome.errno).toBe(ERRNO.EACCES.number);
      await client.closed();
    }
    const stranger = await paired(file, Role.event, bytesOf('aa*16'));
    expect(stranger.welcome.errno).toBe(ERRNO.EACCES.number);
    await expectUnharmed();
  });
});

async function map(file: ShimClient, key: number, lengthBytes: number): Promise<SharedMemory> {
  const { descriptor, status } = await file.call(ShimOp.rings);
  if (descriptor === undefined) throw new Error(`no descriptor: ${status}`);
  try {
    return SharedMemory.mapPart(descriptor, key, lengthBytes);
  } finally {
    closeDescriptor(descriptor);
  }
}

describe('doorbells and armings', () => {
  it('one-way ones have no reply, whatever they name', async () => {
    const { file } = await device();
    const flags = RequestFlag.oneWay;
    for (const argument of [0, 5, 2 ** 32]) {
      file.ask(ShimOp.doorbell, { argument, flags });
      file.ask(ShimOp.arm, { argument, flags });
    }
    expect((await write(file, commands.allocPD())).status).toBe(0);
  });
});

describe('the memory of a program', () => {
  it('belongs to the connection’s process, whatever pid a request claims', async () => {
    const { file } = await device();
    await write(file, commands.allocPD());
    const bytes = new Uint8Array(64);
    const mr = { start: addressOf(bytes), length: 64, pd: 0, access: 1 };
    expect((await write(file, commands.regMR(mr))).status).toBe(0);
    const payload = commands.regMR(mr);
    expect((await file.call(ShimOp.write, { payload, pid: 1 })).status).toBe(-1);
  });

  it('needs the agent if it cannot be accessed directly', async () => {
    await rig.stop();
    rig = await DaemonRig.start({ memoryTiers: ['shared', 'agent'] });
    const { file } = await device();
    await write(file, commands.allocPD());
    const bytes = new Uint8Array(64);
    const payload = commands.regMR({ start: addressOf(bytes), length: 64, pd: 0, access: 1 });
    expect(await write(file, payload)).toMatchObject({
      status: -ERRNO.EAGAIN.number,
      flags: ReplyFlag.startAgent,
    });
    const agent = await open(Role.agent, file.welcome.token);
    expect(agent.welcome.errno).toBe(0);
    expect((await write(file, payload)).status).toBe(0);
    expect((await programs())[0]?.usage.tiers).toEqual({ agent: 1 });
    expect((await open(Role.agent, file.welcome.token)).welcome.errno).toBe(ERRNO.EBUSY.number);
    agent.close();
    await until('a line of the log', () => rig.log.length > 0);
    expect((await write(file, commands.deregMR(1))).status).toBe(0);
    witness = await connectDaemon({ socketPath: rig.socketPath });
  });
});

describe('hostile bytes end only the file they arrive on', () => {
  it.each<[string, Uint8Array]>([
    ['a frame shorter than its header', bytesOf('10000000 00*20')],
    ['a frame that promises too much', bytesOf('ffffffff 00*20')],
    ['text', new TextEncoder().encode('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')],
    ['an operation that does not exist', bytesOf('18000000 6300 0000 00*16')],
    ['an operation of another kind of file', bytesOf('18000000 0500 0000 00*16')],
  ])('%s', async (_what, bytes) => {
    const { file } = await device();
    await write(file, commands.allocPD());
    const second = await open(Role.uverbs, file.welcome.token);
    file.send(bytes);
    await file.closed();
    await second.closed();
    expect(await programs()).toEqual([]);
    expect(rig.log.some((line) => line.includes('program was cut off'))).toBe(true);
    await expectUnharmed();
  });

  it('half a frame, then the end', async () => {
    const { file } = await device();
    file.send(bytesOf('30000000 0100 0000'));
    file.close();
    await until('the program to go', async () => (await programs()).length === 0);
    await expectUnharmed();
  });

  it('requests without reading any reply', async () => {
    await rig.stop();
    rig = await DaemonRig.start({ unreadMaxBytes: 64 * 1024 });
    const { file } = await device();
    const request = bytesOf('18000000 0100 0000 00*16');
    const many = new Uint8Array(request.length * 400);
    for (let at = 0; at < many.length; at += request.length) many.set(request, at);
    for (let i = 0; i < 2000 && (await programs()).length > 0; i++) {
      file.send(many);
      await new Promise((done) => setImmediate(done));
    }
    expect(await programs()).toEqual([]);
    witness = await connectDaemon({ socketPath: rig.socketPath });
  });
});
