import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DirectWriter } from '#native-bridge/libc/direct-writer';
import { temporaryFolder } from '#test/support/temporary-folder';

let directory: string;
let server: Server;
let writing: Socket;
const received: Buffer[] = [];

beforeEach(async () => {
  directory = temporaryFolder();
  received.length = 0;
  server = createServer((socket) => socket.on('data', (bytes) => received.push(bytes)));
  await new Promise<void>((resolve) => server.listen(join(directory, 's'), resolve));
  writing = connect(join(directory, 's'));
  await new Promise<void>((resolve) => writing.once('connect', resolve));
});

afterEach(() => {
  writing.destroy();
  server.close();
});

describe('gathered bytes', () => {
  it.each([
    ['next to each other', [0, 4, 8, 12]],
    ['apart', [0, 8, 16, 40]],
    ['in another order', [12, 8, 4, 0]],
    ['partly next to each other', [0, 4, 20, 24]],
  ])('arrive in order when they lie %s', async (_where, offsets) => {
    const writer = new DirectWriter(writing);
    const memory = Uint8Array.from({ length: 64 }, (_, index) => index);
    const expected: number[] = [];
    for (const offset of offsets) {
      const bytes = memory.subarray(offset, offset + 4);
      writer.gather(bytes);
      expected.push(...bytes);
    }
    const other = Uint8Array.of(200, 201);
    writer.gather(other);
    expected.push(...other);
    expect(writer.pendingBytes).toBe(18);
    await expect.poll(() => [...Buffer.concat(received)]).toEqual(expected);
    expect(writer.pendingBytes).toBe(0);
  });
});
