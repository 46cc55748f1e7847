import { readFileSync } from 'node:fs';
import { createServer, type Server, Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { getOption } from '#native-bridge/libc/internet-socket';
import { libc } from '#native-bridge/libc/libc';
import { bindTcp, keepAlive, listenTcp } from '#native-bridge/libc/tcp-socket';

const accept4 = libc.func('int accept4(int fd, void *name, void *length, int flags)') as (
  fd: number,
  name: null,
  length: null,
  flags: number,
) => number;
const getsockopt = libc.func(
  'int getsockopt(int fd, int level, int option, void *value, void *length)',
) as (fd: number, level: number, option: number, value: Uint8Array, length: Uint8Array) => number;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_USER_TIMEOUT = 18;
const SOL_SOCKET = 1;
const SO_KEEPALIVE = 9;

const held: number[] = [];

function bound(address: string, port: number): number {
  const socket = bindTcp(address, port);
  held.push(socket.fd);
  return socket.port;
}

function portOf(server: Server): number {
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('it does not listen');
  return address.port;
}

afterEach(() => {
  for (const fd of held.splice(0)) closeDescriptor(fd);
});

describe('a listening socket', () => {
  it('accepts sockets that do not wait to fill segments [MPA-5.1-03]', async () => {
    const { fd, port } = bindTcp('127.0.0.9', 0);
    held.push(fd);
    listenTcp(fd, 8);
    const client = new Socket().connect(port, '127.0.0.9');
    await new Promise<void>((resolve) => client.once('connect', resolve));
    const accepted = accept4(fd, null, null, 0);
    held.push(accepted);
    const value = new Uint8Array(4);
    expect(getsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, value, Uint8Array.of(4, 0, 0, 0))).toBe(
      0,
    );
    expect(value[0]).toBe(1);
    client.destroy();
  });
});

describe('held ports', () => {
  it.each(['127.0.0.9', '0.0.0.0', '::1'])(
    'are free ones of the host when 0 is asked for: %s',
    (address) => {
      const range = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').trim();
      const [low, high] = range.split(/\s+/).map(Number);
      const ports = Array.from({ length: 500 }, () => bound(address, 0));
      expect(new Set(ports).size).toBe(ports.length);
      expect(Math.min(...ports)).toBeGreaterThanOrEqual(low ?? 0);
      expect(Math.max(...ports)).toBeLessThanOrEqual(high ?? 0);
    },
  );

  it('can be listened on again while a connection from there is in TIME_WAIT', async () => {
    const server = createServer((socket) => socket.resume());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.9', resolve));
    const { fd, port } = bindTcp('127.0.0.8', 0);
    const client = new Socket({ fd });
    await new Promise<void>((resolve) => {
      client.connect({ host: '127.0.0.9', port: portOf(server) }, resolve);
    });
    // The side that closes first keeps the port for a minute.
    client.resume();
    client.end();
    await new Promise((resolve) => client.once('close', resolve));
    expect(bound('127.0.0.8', port)).toBe(port);
    listenTcp(held.at(-1) ?? -1, 1);
    await new Promise((resolve) => server.close(resolve));
  });

  it('are refused when another process listens on them', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.9', resolve));
    expect(() => bound('127.0.0.9', portOf(server))).toThrow(/EADDRINUSE/);
    await new Promise((resolve) => server.close(resolve));
  });
});

it('clamps the timeout of unacknowledged data to what the kernel takes', () => {
  const { fd } = bindTcp('127.0.0.9', 0);
  held.push(fd);
  keepAlive(fd, 32_767, 32_767, 127);
  expect(getOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT)).toBe(0x7fffffff);
  expect(getOption(fd, SOL_SOCKET, SO_KEEPALIVE)).toBe(1);
});
