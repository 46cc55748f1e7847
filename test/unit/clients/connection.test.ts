/** A connection and its process, of which both may hold descriptors. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, it } from 'vitest';
import { ProgramConnection } from '#daemon/clients/connection';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { getOption, SO_SNDBUF, SOL_SOCKET } from '#native-bridge/libc/internet-socket';
import { SocketPeer } from '#native-bridge/libc/peer-process';
import { isProcessAlive } from '#native-bridge/libc/process-vm';
import { connectUnix, descriptorOf, socketPair } from '#native-bridge/libc/unix-socket';
import { temporaryFolder } from '#test/support/temporary-folder';

const opened: (() => void)[] = [];

afterEach(() => {
  for (const close of opened.splice(0).reverse()) close();
});

/** A connection from this process, as kernels without SO_PEERPIDFD (before 6.5) identify it. */
async function connectedPeer(): Promise<SocketPeer> {
  const directory = temporaryFolder();
  const server = createServer({ pauseOnConnect: true });
  server.listen(join(directory, 's'));
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  const client = connectUnix(join(directory, 's'));
  const [socket]: Socket[] = await accepted;
  opened.push(() => {
    closeDescriptor(client);
    socket?.destroy();
    server.close();
  });
  return new SocketPeer(() => socket && descriptorOf(socket), false);
}

/** Whether the process of `peer` can be reached and lives. */
function lives(peer: SocketPeer): boolean {
  const descriptor = peer.openDescriptor();
  const alive = isProcessAlive(descriptor);
  closeDescriptor(descriptor);
  return alive;
}

it('only the first connection of a process closes its descriptor', async () => {
  const peer = await connectedPeer();
  const [own, other] = socketPair();
  const further = ProgramConnection.pair(own, peer, new Uint8Array(64), 64);
  expect(further.credentials).toBe(peer);
  expect(lives(peer)).toBe(true);
  further.close();
  closeDescriptor(other);
  expect(lives(peer)).toBe(true);
  peer.close();
  expect(() => peer.openDescriptor()).toThrow('EBADF');
});

it('has a buffer in the kernel of the same length on every machine', async () => {
  const [own, other] = socketPair();
  const connection = ProgramConnection.pair(own, await connectedPeer(), new Uint8Array(64), 64);
  expect(getOption(own, SOL_SOCKET, SO_SNDBUF)).toBe(212_992);
  connection.close();
  closeDescriptor(other);
});

it('releases its owner once it has ended, however long its process is known', async () => {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  const [own, other] = socketPair();
  const connection = ProgramConnection.pair(own, await connectedPeer(), new Uint8Array(64), 64);
  const owner = ((objects: number[]) => {
    connection.serve(() => objects.length);
    connection.onClosed = () => objects.splice(0);
    connection.onDrained = () => objects.splice(0);
    connection.onEnded = () => objects.splice(0);
    connection.onClosing = () => objects.splice(0);
    return new WeakRef(objects);
  })([1, 2, 3]);
  connection.close();
  closeDescriptor(other);
  // The target of a weak reference lives until the end of the turn.
  await new Promise(setImmediate);
  collect();
  expect(owner.deref()).toBeUndefined();
  expect(connection.closed).toBe(true);
});
