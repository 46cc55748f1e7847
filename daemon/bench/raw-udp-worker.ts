/**
 * The baselines of RoCE between daemons: datagrams sent and received many per system call, as segments of
 * longer messages, like the link does, or not; and round trips over Node's own sockets. Run as a worker of the
 * bench.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';
import { IncomingBatch, OutgoingBatch } from '#native-bridge/libc/datagram-batch';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { socketAddress } from '#native-bridge/libc/internet-socket';
import { openUdp, useSegments } from '#native-bridge/libc/udp-socket';
import { serveCalls } from './channel.ts';

const BATCH = 32;
const MESSAGE_BYTES = 65_536;
const BUFFER_BYTES = 4_194_304;
/** A sink without datagrams for this long has received the last one. */
const QUIET_MS = 200;
const EAGAIN = -11;

let sink: Promise<number> | undefined;
let echo: Socket | undefined;

const methods = {
  sink(argument: { address: string; port: number; bytes: number; segments: boolean }): void {
    const { address, port, bytes, segments } = argument;
    const { fd } = openUdp(address, port, BUFFER_BYTES);
    if (segments) useSegments(fd);
    const slotBytes = segments ? MESSAGE_BYTES : bytes;
    sink = receiveAll(fd, slotBytes).finally(() => closeDescriptor(fd));
  },

  /** Bytes per second that the sink has read, from the first to the last datagram. */
  async received(_: undefined): Promise<number> {
    return await (sink ?? 0);
  },

  /** Sends datagrams as fast as the kernel accepts them. */
  async stream(argument: {
    from: string;
    to: string;
    port: number;
    bytes: number;
    count: number;
    segments: boolean;
  }): Promise<void> {
    const { from, to, port, bytes, count, segments } = argument;
    const { fd } = openUdp(from, port, BUFFER_BYTES);
    const batch = new OutgoingBatch(BATCH, bytes);
    const destination = { name: socketAddress(to, port), trafficClass: 0, hopLimit: 0 };
    for (let slot = 0; slot < BATCH; slot += 1) batch.add(bytes, destination);
    if (segments) batch.join();
    for (let sent = 0; sent < count; ) {
      const taken = batch.send(fd, 0);
      if (taken < 0 && taken !== EAGAIN) throw new Error(`the kernel refuses datagrams: ${taken}`);
      sent += Math.max(taken, 0);
      await turn();
    }
    closeDescriptor(fd);
  },

  /** Sends all input back. */
  async echo(_: undefined): Promise<number> {
    const socket = createSocket('udp4');
    socket.on('message', (bytes, { address, port }) => socket.send(bytes, port, address));
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    echo = socket;
    return socket.address().port;
  },

  stop(_: undefined): void {
    echo?.close();
    echo = undefined;
  },

  /** Round trips through an echo; returns the seconds of one. */
  async pingPong(argument: { port: number; sizeBytes: number; count: number }): Promise<number> {
    const { port, sizeBytes, count } = argument;
    const socket = createSocket('udp4');
    const bytes = Buffer.alloc(sizeBytes, 0x5a);
    let start = performance.now();
    await new Promise<void>((resolve) => {
      let done = -Math.ceil(count / 10);
      socket.on('message', () => {
        done += 1;
        if (done === 0) start = performance.now();
        if (done < count) socket.send(bytes, port, '127.0.0.1');
        else resolve();
      });
      socket.send(bytes, port, '127.0.0.1');
    });
    socket.close();
    return (performance.now() - start) / 1000 / count;
  },
};

export type RawUdpMethods = typeof methods;

async function receiveAll(fd: number, slotBytes: number): Promise<number> {
  const batch = new IncomingBatch(BATCH, slotBytes);
  let [received, first, last] = [0, 0, performance.now()];
  for (;;) {
    const count = batch.receive(fd);
    const now = performance.now();
    if (count > 0) {
      if (received === 0) first = now;
      for (let slot = 0; slot < count; slot += 1) received += batch.lengthOf(slot);
      last = now;
    } else if (received > 0 && now - last > QUIET_MS) {
      return (received / (last - first)) * 1000;
    }
    await turn();
  }
}

serveCalls(methods);
