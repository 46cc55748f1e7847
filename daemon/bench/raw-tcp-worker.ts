/**
 * The baseline: the same traffic over Node's own TCP sockets, in a separate process. Run as a worker
 * of the bench.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { serveCalls } from './channel.ts';

const HOST = '127.0.0.1';
/** Pauses at this many bytes queued in the socket; larger values were not faster. */
const WRITE_QUEUE_BYTES = 1024 * 1024;

const servers: Server[] = [];

const methods = {
  /** Listens; reads all input, and after `totalBytes` replies with one byte. */
  async sink({ totalBytes }: { totalBytes: number }): Promise<number> {
    return await listen((socket) => {
      let received = 0;
      socket.on('data', (bytes) => {
        received += bytes.length;
        if (received >= totalBytes) {
          received -= totalBytes;
          socket.write('.');
        }
      });
    });
  },

  /** Listens; sends all input back. */
  async echo(_: undefined): Promise<number> {
    return await listen((socket) => {
      socket.on('data', (bytes) => {
        socket.write(bytes);
      });
    });
  },

  stop(_: undefined): void {
    for (const server of servers.splice(0)) server.close();
  },

  /** Writes to a sink and waits for its reply; returns seconds. Gathers each `cork` writes into one. */
  async stream(argument: {
    port: number;
    writeBytes: number;
    totalBytes: number;
    cork: number;
  }): Promise<number> {
    const { port, writeBytes, totalBytes, cork } = argument;
    const socket = await open(port);
    const bytes = Buffer.alloc(writeBytes, 0x5a);
    const start = performance.now();
    const answered = once(socket, 'data');
    for (let sent = 0; sent < totalBytes; ) {
      if (cork > 1) socket.cork();
      for (let count = 0; count < cork && sent < totalBytes; count++) {
        socket.write(bytes);
        sent += writeBytes;
      }
      if (cork > 1) socket.uncork();
      if (socket.writableLength > WRITE_QUEUE_BYTES) await once(socket, 'drain');
    }
    await answered;
    const seconds = (performance.now() - start) / 1000;
    socket.destroy();
    return seconds;
  },

  /** Round trips of `sizeBytes` bytes through an echo; returns the seconds of one. */
  async pingPong(argument: { port: number; sizeBytes: number; count: number }): Promise<number> {
    const { port, sizeBytes, count } = argument;
    const socket = await open(port);
    const bytes = Buffer.alloc(sizeBytes, 0x5a);
    const seconds = await new Promise<number>((resolve) => {
      const warmUp = Math.ceil(count / 10);
      let done = -warmUp;
      let received = 0;
      let start = 0;
      socket.on('data', (part) => {
        received += part.length;
        if (received < sizeBytes) return;
        received = 0;
        done += 1;
        if (done === 0) start = performance.now();
        if (done < count) socket.write(bytes);
        else resolve((performance.now() - start) / 1000 / count);
      });
      socket.write(bytes);
    });
    socket.destroy();
    return seconds;
  },

  /** Opens `count` connections at once and waits for all; returns seconds. */
  async connections({ port, count }: { port: number; count: number }): Promise<number> {
    const start = performance.now();
    const sockets = await Promise.all(Array.from({ length: count }, () => open(port)));
    const seconds = (performance.now() - start) / 1000;
    for (const socket of sockets) socket.destroy();
    return seconds;
  },
};

export type RawTcpMethods = typeof methods;

async function listen(handle: (socket: Socket) => void): Promise<number> {
  const server = createServer({ noDelay: true }, handle);
  servers.push(server);
  server.listen(0, HOST);
  await once(server, 'listening');
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

async function open(port: number): Promise<Socket> {
  const socket = connect({ port, host: HOST, noDelay: true });
  await once(socket, 'connect');
  return socket;
}

serveCalls(methods);
