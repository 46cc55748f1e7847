import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { SystemCallError } from '#native-bridge/libc/libc';
import { SocketPeer } from '#native-bridge/libc/peer-process';
import { isProcessAlive } from '#native-bridge/libc/process-vm';
import { connectUnix, descriptorOf } from '#native-bridge/libc/unix-socket';
import { temporaryFolder } from '#test/support/temporary-folder';

/** Connects and stays until its standard input ends. */
const CLIENT =
  "require('net').connect(process.argv[1]); process.stdin.resume().on('end', process.exit)";

let directory: string;
let path: string;
let server: Server;
const opened: { close(): void }[] = [];

beforeEach(async () => {
  directory = temporaryFolder();
  path = join(directory, 's');
  server = createServer({ pauseOnConnect: true });
  await new Promise<void>((resolve) => server.listen(path, resolve));
});

afterEach(() => {
  for (const each of opened.splice(0)) each.close();
  server.close();
});

async function accepted(): Promise<Socket> {
  const [socket] = await once(server, 'connection');
  opened.push({ close: () => socket.destroy() });
  return socket;
}

/** Another process that has connected. */
async function client() {
  const child = spawn(process.execPath, ['-e', CLIENT, path], {
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  const socket = await accepted();
  return {
    pid: child.pid,
    socket,
    end: async () => {
      const exited = once(child, 'exit');
      child.stdin?.end();
      await exited;
    },
  };
}

/** Whether the process of `peer` is still accessible and alive. */
function lives(peer: SocketPeer): boolean {
  try {
    const descriptor = peer.openDescriptor();
    const alive = isProcessAlive(descriptor);
    closeDescriptor(descriptor);
    return alive;
  } catch (error) {
    if (error instanceof SystemCallError) return false;
    throw error;
  }
}

describe.each([
  ['as the socket reports it', true],
  ['as found when the connection arrived', false],
])('the process of a connection, %s', (_how, asksSocket) => {
  function peerOf(socket: Socket): SocketPeer {
    const peer = new SocketPeer(() => descriptorOf(socket), asksSocket);
    opened.push(peer);
    return peer;
  }

  it('is the same for two connections of one process, and another for another process', async () => {
    const first = accepted();
    const descriptors = [connectUnix(path)];
    const one = peerOf(await first);
    const second = accepted();
    descriptors.push(connectUnix(path));
    const two = peerOf(await second);
    expect(one.pid).toBe(process.pid);
    expect(one.identity).toBe(two.identity);
    const other = await client();
    const stranger = peerOf(other.socket);
    expect(stranger.pid).toBe(other.pid);
    expect(stranger.identity).not.toBe(one.identity);
    expect(lives(stranger)).toBe(true);
    for (const descriptor of descriptors) closeDescriptor(descriptor);
    await other.end();
  });

  it('is known to have ended, even if its number is reused', async () => {
    const { socket, end } = await client();
    const peer = peerOf(socket);
    expect(lives(peer)).toBe(true);
    await end();
    expect(lives(peer)).toBe(false);
  });

  it('matches no other if it ended before it was identified', async () => {
    const { socket, end } = await client();
    await end();
    const [one, two] = [peerOf(socket), peerOf(socket)];
    expect(lives(one)).toBe(false);
    expect(one.identity).not.toBe(two.identity);
    expect(one.identity).toBe(one.identity);
  });
});
