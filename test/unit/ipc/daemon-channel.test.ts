import { rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  CLIENT_FRAME_MAX_BYTES,
  emitFrame,
  emitWelcome,
  FrameType,
  type IpcFrame,
  IpcFrameReader,
  parseHello,
  Role,
  TOKEN_BYTES,
} from '#contract/protocol/ipc-frames';
import {
  DOORBELL_BYTES,
  MAP_REPLY_BYTES,
  MAP_REQUEST_BYTES,
  RecordReader,
} from '#contract/protocol/ipc-records';
import { decodeValue, encodeValue, type IpcValue } from '#contract/protocol/ipc-value';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import { descriptorOf, sendDescriptor } from '#native-bridge/libc/unix-socket';
import { temporaryFolder } from '#test/support/temporary-folder';
import { DaemonChannel } from '#verbs-api/client/daemon-channel';

/** A daemon with answers that the test decides. */
class FakeDaemon {
  readonly directory = temporaryFolder();
  readonly path = join(this.directory, 's');
  readonly requests: { id: number; value: IpcValue }[] = [];
  readonly doorbells: number[] = [];
  readonly sockets = new Map<number, Socket>();
  /** The reply to each mapping request. */
  shared: SharedMemory | undefined;
  mappingRequests = 0;
  /** The replies to the next hellos. */
  welcome: { errno: number; text: string } = { errno: 0, text: '' };
  readonly #server: Server = createServer((socket) => this.#accept(socket));

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.path, resolve));
  }

  stop(): void {
    for (const socket of this.sockets.values()) socket.destroy();
    this.#server.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  answer(type: FrameType, id: number, value: IpcValue): void {
    this.sockets.get(Role.control)?.write(emitFrame(type, id, encodeValue(value)));
  }

  #accept(socket: Socket): void {
    let role: number | undefined;
    const doorbells = new RecordReader(
      DOORBELL_BYTES,
      () => 0,
      (record) => {
        const fields = new DataView(record.buffer, record.byteOffset, record.length);
        this.doorbells.push(fields.getUint32(0, true));
      },
    );
    const reader = new IpcFrameReader(CLIENT_FRAME_MAX_BYTES, (frame) => {
      if (role === undefined) role = this.#greet(socket, frame);
      else this.requests.push({ id: frame.id, value: decodeValue(frame.payload) });
    });
    const mappings = new RecordReader(
      MAP_REQUEST_BYTES,
      () => 0,
      () => {
        this.mappingRequests += 1;
        const reply = new Uint8Array(MAP_REPLY_BYTES);
        sendDescriptor(descriptorOf(socket) ?? -1, reply, this.shared?.descriptor);
      },
    );
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      if (role === Role.doorbell) doorbells.push(bytes);
      else if (role === Role.map) mappings.push(bytes);
      else reader.push(bytes);
    });
  }

  #greet(socket: Socket, frame: IpcFrame): number {
    const { role } = parseHello(frame);
    this.sockets.set(role, socket);
    const token = new Uint8Array(TOKEN_BYTES).fill(role);
    socket.write(emitWelcome({ ...this.welcome, daemonPid: process.pid, token }));
    return role;
  }
}

let daemon: FakeDaemon;

beforeEach(async () => {
  daemon = new FakeDaemon();
  await daemon.start();
});

afterEach(() => daemon.stop());

async function connected(): Promise<DaemonChannel> {
  return await DaemonChannel.connect({ socketPath: daemon.path });
}

describe('the command channel over a socket', () => {
  it('rejects with the reason of the daemon’s refusal', async () => {
    daemon.welcome = { errno: 13, text: 'not you' };
    await expect(connected()).rejects.toMatchObject({
      code: 'EACCES',
      message: 'the daemon refused the connection: not you',
    });
  });

  it('matches each reply to its request, in any order', async () => {
    const channel = await connected();
    const first = channel.request('allocPD', { context: 1 });
    const second = channel.request('queryDevice', { context: 2 });
    await expect.poll(() => daemon.requests.length).toBe(2);
    const [one, two] = daemon.requests;
    expect(one?.value).toEqual(['allocPD', { context: 1 }]);
    daemon.answer(FrameType.error, two?.id ?? 0, ['ENODEV', 'gone']);
    daemon.answer(FrameType.reply, one?.id ?? 0, { pd: 5 });
    expect(await first).toEqual({ pd: 5 });
    await expect(second).rejects.toMatchObject({ code: 'ENODEV', message: 'gone' });
    await channel.close();
  });

  it('passes events on in order, between replies', async () => {
    const channel = await connected();
    const seen: unknown[] = [];
    channel.onEvent = (event) => seen.push(event);
    daemon.answer(FrameType.event, 0, { type: 'cm', n: 1 });
    daemon.answer(FrameType.event, 0, { type: 'cm', n: 2 });
    await expect
      .poll(() => seen)
      .toEqual([
        { type: 'cm', n: 1 },
        { type: 'cm', n: 2 },
      ]);
    await channel.close();
  });

  it('is lost, with the reason, when the daemon cuts it off', async () => {
    const channel = await connected();
    const lost = new Promise<Error>((resolve) => {
      channel.onLost = resolve;
    });
    const reason = { code: 'EIO', message: 'you were too slow' };
    const refused = expect(channel.request('listDevices', {})).rejects.toMatchObject(reason);
    daemon.answer(FrameType.error, 0, ['EIO', 'you were too slow']);
    daemon.sockets.get(Role.control)?.end();
    await refused;
    expect(await lost).toMatchObject({ code: 'EIO', message: 'you were too slow' });
  });

  it('is lost when the daemon sends an invalid message', async () => {
    const channel = await connected();
    const lost = new Promise<Error>((resolve) => {
      channel.onLost = resolve;
    });
    daemon.sockets.get(Role.control)?.write(new Uint8Array(64).fill(0xff));
    expect((await lost).message).toContain('sent an invalid message');
  });

  it('does not report a loss that it requested', async () => {
    const channel = await connected();
    const losses: Error[] = [];
    channel.onLost = (error) => losses.push(error);
    await channel.close();
    await channel.close();
    expect(losses).toEqual([]);
    await expect(channel.request('listDevices', {})).rejects.toMatchObject({ code: 'EIO' });
  });

  it('never blocks on a doorbell and never loses one, however long the daemon does not read', async () => {
    const channel = await connected();
    const socket = daemon.sockets.get(Role.doorbell);
    socket?.pause();
    const rings = 200_000;
    for (let ring = 0; ring < rings; ring++) channel.doorbell(1 + (ring % 3));
    channel.doorbell(77);
    socket?.resume();
    // Waiting doorbells were delivered once for each queue pair; each after its last ring.
    await expect.poll(() => daemon.doorbells.includes(77)).toBe(true);
    await expect.poll(() => daemon.doorbells.slice(-8)).toEqual(expect.arrayContaining([1, 2, 3]));
    expect(daemon.doorbells.length).toBeLessThan(rings);
    const before = daemon.doorbells.length;
    channel.doorbell(5);
    await expect.poll(() => daemon.doorbells.slice(before)).toEqual([5]);
    await channel.close();
  });
});

describe('rings in memory that several objects share', () => {
  const token = 'ab'.repeat(TOKEN_BYTES);
  const within = { offset: 64, lengthBytes: 8192 };

  it('are mapped with one request, each at its place', async () => {
    daemon.shared = SharedMemory.create('iwarpd', 8192);
    const channel = await connected();
    const places = [0, 64, 8192 - 640];
    const rings = await Promise.all(
      places.map((offset) => {
        return channel.map({ token, lengthBytes: 640, within: { ...within, offset } });
      }),
    );
    for (const [index, ring] of rings.entries()) {
      ring[0] = index + 1;
      expect(ring.length).toBe(640);
    }
    expect(places.map((offset) => daemon.shared?.view[offset])).toEqual([1, 2, 3]);
    expect(daemon.mappingRequests).toBe(1);
    await channel.close();
    daemon.shared.release();
  });

  it.each([
    ['past the end', 7600, 640],
    ['before the start', -64, 640],
    ['at a place that is no number', Number.NaN, 640],
    ['at an odd place', 4, 640],
    ['of no bytes', 64, 0],
    ['longer than the memory', 0, 8200],
  ])('EPROTO %s', async (_what, offset, lengthBytes) => {
    daemon.shared = SharedMemory.create('iwarpd', 8192);
    const channel = await connected();
    const mapping = { token, lengthBytes, within: { ...within, offset } };
    await expect(channel.map(mapping)).rejects.toMatchObject({ code: 'EPROTO' });
    await channel.close();
    daemon.shared.release();
  });

  it('ENOMEM when the file is shorter than the daemon says, and again at the next attempt', async () => {
    daemon.shared = SharedMemory.create('iwarpd', 4096);
    const channel = await connected();
    const mapping = { token, lengthBytes: 640, within };
    await expect(channel.map(mapping)).rejects.toMatchObject({ code: 'ENOMEM' });
    await expect(channel.map(mapping)).rejects.toMatchObject({ code: 'ENOMEM' });
    expect(daemon.mappingRequests).toBe(2);
    await channel.close();
    daemon.shared.release();
  });
});
