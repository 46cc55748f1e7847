import { closeSync, openSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  closeDescriptor,
  duplicateDescriptor,
  sendNow,
  WOULD_BLOCK,
} from '#native-bridge/libc/descriptor';
import { DirectWriter } from '#native-bridge/libc/direct-writer';
import { tryLock } from '#native-bridge/libc/file-lock';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import {
  connectUnix,
  descriptorOf,
  peerCredentials,
  receiveDescriptor,
  sendDescriptor,
  shutdownSocket,
  unreadMemory,
} from '#native-bridge/libc/unix-socket';
import { temporaryFolder } from '#test/support/temporary-folder';

let directory: string;
let path: string;
let server: Server;
let accepted: Promise<Socket>;

beforeEach(async () => {
  directory = temporaryFolder();
  path = join(directory, 's');
  server = createServer({ pauseOnConnect: true });
  accepted = new Promise((resolve) => server.once('connection', resolve));
  await new Promise<void>((resolve) => server.listen(path, resolve));
});

afterEach(() => server.close());

/** The descriptor of the accepted end. */
async function acceptedDescriptor(): Promise<{ socket: Socket; fd: number }> {
  const socket = await accepted;
  const fd = descriptorOf(socket);
  if (fd === undefined) throw new Error('no descriptor');
  return { socket, fd };
}

describe('Unix sockets', () => {
  it('show whether the other end has read all', async () => {
    const client = connectUnix(path);
    const { socket, fd } = await acceptedDescriptor();
    expect(unreadMemory(fd)).toBe(0);
    sendNow(fd, Uint8Array.of(1, 2, 3));
    expect(unreadMemory(fd)).toBeGreaterThan(0);
    await receiveDescriptor(client, new Uint8Array(2), 1000);
    expect(unreadMemory(fd)).toBeGreaterThan(0);
    await receiveDescriptor(client, new Uint8Array(2), 1000);
    expect(unreadMemory(fd)).toBe(0);
    sendNow(fd, Uint8Array.of(1));
    closeDescriptor(client);
    expect(unreadMemory(fd)).toBe(0);
    socket.destroy();
  });

  it('identify the process at the other end', async () => {
    const client = connectUnix(path);
    const { socket, fd } = await acceptedDescriptor();
    const self = { pid: process.pid, uid: process.getuid?.(), gid: process.getgid?.() };
    expect(peerCredentials(fd)).toEqual(self);
    expect(peerCredentials(client)).toEqual(self);
    closeDescriptor(client);
    socket.destroy();
    expect(descriptorOf(socket)).toBeUndefined();
  });

  it('carry descriptors with bytes', async () => {
    const client = connectUnix(path);
    const { socket, fd } = await acceptedDescriptor();
    const memory = SharedMemory.create('unit-carried', 4096);
    const waiting = receiveDescriptor(client, new Uint8Array(8), 5_000);
    expect(sendDescriptor(fd, Uint8Array.of(1, 2, 3), memory.descriptor)).toBe(3);
    const { length, descriptor } = await waiting;
    expect(length).toBe(3);
    expect(descriptor).not.toBe(memory.descriptor);
    const mapped = SharedMemory.map(descriptor ?? -1, 4096);
    memory.view[17] = 42;
    expect(mapped.view[17]).toBe(42);
    expect(sendDescriptor(fd, Uint8Array.of(9), undefined)).toBe(1);
    const next = new Uint8Array(8);
    expect(await receiveDescriptor(client, next, 5_000)).toEqual({
      length: 1,
      descriptor: undefined,
    });
    expect(next[0]).toBe(9);
    memory.release();
    mapped.release();
    socket.destroy();
    expect(await receiveDescriptor(client, next, 5_000)).toMatchObject({ length: 0 });
    closeDescriptor(client);
  });

  it('stop waiting at the deadline, or when they are shut down', async () => {
    const client = connectUnix(path);
    await expect(receiveDescriptor(client, new Uint8Array(1), 20)).rejects.toThrow('ETIMEDOUT');
    const waiting = receiveDescriptor(client, new Uint8Array(1), 60_000);
    shutdownSocket(client);
    expect(await waiting).toMatchObject({ length: 0 });
    closeDescriptor(client);
    (await accepted).destroy();
  });

  it('report why there is no reply', () => {
    expect(() => connectUnix(join(directory, 'none'))).toThrow('ENOENT');
    expect(() => connectUnix('x'.repeat(200))).toThrow('ENAMETOOLONG');
  });

  it('accept bytes at once or report that they are full', async () => {
    const client = connectUnix(path);
    const bytes = new Uint8Array(65_536);
    expect(sendNow(client, bytes, 3)).toBe(3);
    let outcome = 0;
    for (let round = 0; round < 1000 && outcome >= 0; round++) outcome = sendNow(client, bytes);
    expect(outcome).toBe(WOULD_BLOCK);
    (await accepted).destroy();
    expect(sendNow(client, bytes)).toBeLessThan(0);
    closeDescriptor(client);
  });
});

describe('direct writing', () => {
  it('keeps order when the socket is full, and reports when it has drained', async () => {
    const client = connectUnix(path);
    const { socket } = await acceptedDescriptor();
    const writer = new DirectWriter(socket);
    const record = new Uint8Array(10_000);
    let drained = 0;
    const rounds = 100;
    for (let round = 0; round < rounds; round++) {
      record.fill(round);
      writer.write(record, record.length, () => {
        drained += 1;
      });
    }
    expect(writer.congested).toBe(true);
    expect(writer.pendingBytes).toBeGreaterThan(0);
    const received = new Uint8Array(65_536);
    const seen: number[] = [];
    for (let total = 0; total < rounds * record.length; ) {
      const { length } = await receiveDescriptor(client, received, 5_000);
      for (let at = 0; at < length; at++) {
        if ((total + at) % record.length === 0) seen.push(received[at] ?? -1);
      }
      total += length;
    }
    expect(seen).toEqual(Array.from({ length: rounds }, (_, round) => round));
    await expect.poll(() => writer.congested).toBe(false);
    expect(drained).toBeGreaterThan(0);
    closeDescriptor(client);
    socket.destroy();
    writer.write(record);
    expect(writer.pendingBytes).toBe(0);
  });
});

describe('gathered writing', () => {
  /** The client's input so far, as text. */
  async function textOf(client: number, lengthBytes: number): Promise<string> {
    let text = '';
    const bytes = new Uint8Array(64);
    while (text.length < lengthBytes) {
      const { length } = await receiveDescriptor(client, bytes, 5_000);
      text += Buffer.from(bytes.subarray(0, length)).toString();
    }
    return text;
  }

  it('is sent at the end of the turn, or before the next direct write', async () => {
    const client = connectUnix(path);
    const { socket } = await acceptedDescriptor();
    const writer = new DirectWriter(socket);
    writer.gather(Buffer.from('a'));
    writer.gather(Buffer.from('b'));
    expect(writer.pendingBytes).toBe(2);
    await new Promise((resolve) => setImmediate(resolve));
    expect(writer.pendingBytes).toBe(0);
    expect(await textOf(client, 2)).toBe('ab');
    writer.gather(Buffer.from('c'));
    writer.write(Buffer.from('d'));
    writer.gather(Buffer.from('e'));
    writer.flush();
    writer.write(Buffer.from('f'));
    expect(await textOf(client, 4)).toBe('cdef');
    closeDescriptor(client);
    socket.destroy();
    writer.gather(Buffer.from('g'));
    writer.flush();
    expect(writer.pendingBytes).toBe(0);
  });

  it('does not wait for the end of the turn with more than a bounded number of bytes', async () => {
    const client = connectUnix(path);
    const { socket } = await acceptedDescriptor();
    const writer = new DirectWriter(socket);
    for (let round = 0; round < 64; round++) writer.gather(new Uint8Array(1024));
    expect(writer.pendingBytes).toBe(0);
    closeDescriptor(client);
    socket.destroy();
  });
});

describe('locks', () => {
  it('keep others out until the descriptor is closed', () => {
    const first = openSync(directory, 'r');
    const second = openSync(directory, 'r');
    expect(tryLock(first)).toBe(true);
    expect(tryLock(second)).toBe(false);
    const third = duplicateDescriptor(first);
    closeSync(first);
    expect(tryLock(second)).toBe(false);
    closeDescriptor(third);
    expect(tryLock(second)).toBe(true);
    closeSync(second);
  });
});
