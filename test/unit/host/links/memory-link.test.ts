/** Connections within one host: links through memory, and which connections get them. */
import { readdirSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { isLoopback } from '#base/address';
import { transmitOf } from '#base/transmit';
import { hostAddresses } from '#daemon/host/host-addresses';
import type { Dial, Link } from '#daemon/host/links/link';
import { MemoryLink } from '#daemon/host/links/memory-link';
import type { LinkPort, Network } from '#daemon/host/links/network';
import { hostSystem } from '#daemon/host/links/system';
import { TcpLink } from '#daemon/host/links/tcp-link';
import { LinkListener } from '#test/support/link-listener';
import { until } from '#test/support/patience';
import { pattern } from '#test/support/pattern';

/** More than a link copies. */
const LARGE_BYTES = 200_000;

let network: Network = hostSystem().network;
const ports: LinkPort[] = [];
const ends: LinkListener[] = [];

afterEach(() => {
  for (const { link } of ends.splice(0)) link.reset();
  for (const port of ports.splice(0)) port.release();
  network = hostSystem().network;
});

function hold(address: string, port = 0, v6Only?: boolean): LinkPort {
  const held = network.hold(address, port, v6Only);
  ports.push(held);
  return held;
}

function fail(error: unknown): never {
  throw new Error(String(error));
}

/** Accepts connections at `port` into the returned list. */
function accepting(port: LinkPort): LinkListener[] {
  const accepted: LinkListener[] = [];
  port.listen((link) => {
    accepted.push(new LinkListener(link));
    ends.push(...accepted.slice(-1));
  }, fail);
  return accepted;
}

async function connect(address: string, port: number, from = address): Promise<LinkListener> {
  let dialed: LinkListener | undefined;
  hold(from).dial({ address, port }, (link) => (dialed = new LinkListener(link)), fail);
  await until('a connection', () => dialed !== undefined);
  if (dialed === undefined) throw new Error('no connection');
  ends.push(dialed);
  return dialed;
}

/** Two connected links: the one that dialed and the one that was accepted. */
async function pair(address = '127.0.0.1'): Promise<[LinkListener, LinkListener]> {
  const port = hold(address);
  const accepted = accepting(port);
  const dialed = await connect(address, port.port);
  await until('the other end', () => accepted.length === 1);
  const [other] = accepted;
  if (other === undefined) throw new Error('no connection');
  return [dialed, other];
}

async function someTurns(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise<void>((next) => setImmediate(next));
}

describe('a link through memory', () => {
  it.each(['127.0.0.9', '::1'])(
    'over %s carries bytes both ways and knows its ends',
    async (address) => {
      const [dialed, accepted] = await pair(address);
      expect([dialed.link, accepted.link].every((link) => link instanceof MemoryLink)).toBe(true);
      expect([dialed.link.localAddress, dialed.link.remoteAddress]).toEqual([address, address]);
      expect([accepted.link.localAddress, accepted.link.remoteAddress]).toEqual([address, address]);
      expect(dialed.link.remotePort).toBe(accepted.link.localPort);
      expect(dialed.link.localPort).toBe(accepted.link.remotePort);
      dialed.link.write(transmitOf(Uint8Array.of(1, 2, 3)));
      accepted.link.write(transmitOf(Uint8Array.of(9)));
      await until('the bytes', () => accepted.receivedBytes === 3 && dialed.receivedBytes === 1);
      expect([Buffer.concat(accepted.received), Buffer.concat(dialed.received)]).toEqual([
        Buffer.of(1, 2, 3),
        Buffer.of(9),
      ]);
    },
  );

  it('accepts small writes at once, and delivers nothing from inside a call', async () => {
    const [dialed, accepted] = await pair();
    const bytes = Uint8Array.of(1, 2);
    expect(dialed.link.write(transmitOf(bytes))).toBe(2);
    expect([dialed.link.writable, dialed.link.congested]).toEqual([true, false]);
    bytes.fill(0);
    expect(dialed.link.write(transmitOf(Uint8Array.of(3)))).toBe(1);
    dialed.link.finish();
    expect([accepted.receivedBytes, accepted.peerClosed]).toEqual([0, false]);
    await until('the FIN', () => accepted.peerClosed);
    expect(Buffer.concat(accepted.received)).toEqual(Buffer.of(1, 2, 3));
  });

  it('lends a large write to the peer, between the small ones around it', async () => {
    const [dialed, accepted] = await pair();
    const bytes = pattern(LARGE_BYTES);
    dialed.link.write(transmitOf(Uint8Array.of(7)));
    expect(dialed.link.write(transmitOf(bytes))).toBe(0);
    expect([dialed.link.writable, dialed.link.congested]).toEqual([false, true]);
    expect(() => dialed.link.write(transmitOf(bytes))).toThrow('not writable');
    await until('room', () => dialed.flushedBytes > 0);
    expect(dialed.flushedBytes).toBe(LARGE_BYTES);
    expect(accepted.lent).toContain(bytes.buffer);
    expect(dialed.link.write(transmitOf(Uint8Array.of(8)))).toBe(1);
    await until('all bytes', () => accepted.receivedBytes === LARGE_BYTES + 2);
    const all = Buffer.concat([Buffer.of(7), bytes, Buffer.of(8)]);
    expect(Buffer.compare(Buffer.concat(accepted.received), all)).toBe(0);
  });

  it('keeps bytes, and then the FIN, from a peer that does not read', async () => {
    const [dialed, accepted] = await pair();
    accepted.link.pauseReading();
    let taken = 0;
    while (dialed.link.writable) taken += dialed.link.write(transmitOf(new Uint8Array(1000)));
    expect(taken).toBeLessThan(10_000);
    dialed.link.finish();
    await someTurns();
    expect([accepted.receivedBytes, accepted.peerClosed, dialed.flushedBytes]).toEqual([
      0,
      false,
      0,
    ]);
    accepted.link.resumeReading();
    expect(accepted.receivedBytes).toBe(0);
    await until('the FIN', () => accepted.peerClosed);
    expect(accepted.receivedBytes).toBe(taken + 1000);
  });

  it('a FIN ends one direction only [DDP-6.2.1-04, DDP-6.2.1-06, MPA-7.2-01]', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.write(transmitOf(Uint8Array.of(1)));
    dialed.link.finish();
    dialed.link.finish();
    expect(dialed.link.writable).toBe(false);
    await until('the FIN', () => accepted.peerClosed);
    await someTurns();
    expect([accepted.link.writable, accepted.closed, dialed.closed]).toEqual([true, null, null]);
    accepted.link.write(transmitOf(pattern(LARGE_BYTES)));
    accepted.link.finish();
    await until('both to close', () => dialed.closed !== null && accepted.closed !== null);
    expect(dialed.receivedBytes).toBe(LARGE_BYTES);
    expect([dialed.closed, accepted.closed]).toEqual([undefined, undefined]);
  });

  it.each([0, 10, LARGE_BYTES])('resets at once, after %s bytes', async (bytes) => {
    const [dialed, accepted] = await pair();
    if (bytes > 0) dialed.link.write(transmitOf(new Uint8Array(bytes)));
    dialed.link.reset();
    expect(accepted.closed).toBeNull();
    await until('both to close', () => dialed.closed !== null && accepted.closed !== null);
    expect([dialed.closed, accepted.closed]).toEqual([undefined, 'ECONNRESET']);
    expect([accepted.receivedBytes, dialed.flushedBytes]).toEqual([0, 0]);
    dialed.link.reset();
    dialed.link.finish();
    dialed.link.close();
  });

  it('a reset reaches a peer that does not read', async () => {
    const [dialed, accepted] = await pair();
    accepted.link.pauseReading();
    dialed.link.reset();
    await until('the reset', () => accepted.closed !== null);
    expect(accepted.closed).toBe('ECONNRESET');
  });

  it('closes with a FIN after the bytes that it has accepted', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.write(transmitOf(pattern(100)));
    dialed.link.close();
    await until('the FIN', () => accepted.peerClosed);
    expect(accepted.receivedBytes).toBe(100);
    expect(dialed.closed).toBeUndefined();
    // As a closed socket answers.
    accepted.link.write(transmitOf(Uint8Array.of(1)));
    await until('the end', () => accepted.closed !== null);
    expect(accepted.closed).toBe('ECONNRESET');
  });

  it('resets when it is closed with unread input, as the kernel does', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.pauseReading();
    accepted.link.write(transmitOf(Uint8Array.of(1)));
    dialed.link.close();
    await until('the reset', () => accepted.closed !== null);
    expect([accepted.closed, accepted.peerClosed]).toEqual(['ECONNRESET', false]);
  });

  it('an endless ping-pong yields to others', async () => {
    const [dialed, accepted] = await pair();
    let rounds = 0;
    dialed.onBytes = () => dialed.link.write(transmitOf(Uint8Array.of(1)));
    accepted.onBytes = () => {
      rounds += 1;
      accepted.link.write(transmitOf(Uint8Array.of(2)));
    };
    dialed.link.write(transmitOf(Uint8Array.of(1)));
    await someTurns();
    const before = rounds;
    await someTurns();
    expect(rounds).toBeGreaterThan(before);
    expect(rounds).toBeLessThan(1000);
  });

  it('needs no descriptor but those of ports, and leaves none behind', async () => {
    const count = (): number => readdirSync('/proc/self/fd').length;
    const [first] = await pair();
    const before = count();
    const [dialed, accepted] = await pair();
    // The listening port, the listener's copy of it, and the port of the connection.
    expect(count() - before).toBe(3);
    dialed.link.finish();
    accepted.link.finish();
    await until('both to close', () => dialed.closed !== null && accepted.closed !== null);
    for (const port of ports.splice(2)) port.release();
    await until('descriptors to be closed', () => count() === before);
    expect(first.link.writable).toBe(true);
  });
});

describe('a connection goes through memory', () => {
  it.each([
    ['0.0.0.0', undefined, '127.0.0.8', '127.0.0.1'],
    ['::', false, '127.0.0.8', '127.0.0.1'],
    ['::', true, '::1', '::1'],
  ] as const)('to a listener at %s (IPv6 only: %s) from %s', async (any, only, to, from) => {
    const port = hold(any, 0, only);
    const accepted = accepting(port);
    const dialed = await connect(to, port.port, from);
    await until('the other end', () => accepted.length === 1);
    expect(dialed.link).toBeInstanceOf(MemoryLink);
    expect([dialed.link.localAddress, dialed.link.remoteAddress]).toEqual([from, to]);
  });

  it('to every address of this machine', async () => {
    const port = hold('0.0.0.0');
    accepting(port);
    for (const { address } of hostAddresses()) {
      if (address.includes(':') || isLoopback(address)) continue;
      expect((await connect(address, port.port)).link).toBeInstanceOf(MemoryLink);
    }
    const open = await connect('127.0.0.1', port.port, '0.0.0.0');
    expect([open.link.localAddress, open.link instanceof MemoryLink]).toEqual(['127.0.0.1', true]);
  });

  it('but not to an IPv6-only listener over IPv4, nor without a listener', async () => {
    const port = hold('::', 0, true);
    accepting(port);
    let failure: string | undefined;
    hold('127.0.0.1').dial(
      { address: '127.0.0.1', port: port.port },
      () => fail('connected'),
      (code) => (failure = code),
    );
    await until('the refusal', () => failure !== undefined);
    expect(failure).toBe('ECONNREFUSED');
  });

  it('but not to another host, nor on request', async () => {
    const port = hold('127.0.0.1');
    accepting(port);
    network = hostSystem().network;
    expect((await connect('127.0.0.1', port.port)).link).toBeInstanceOf(TcpLink);
    network = hostSystem('tcp').network;
    const [dialed] = await pair();
    expect(dialed.link).toBeInstanceOf(TcpLink);
  });

  it('to a late listener, for which sent bytes wait', async () => {
    const port = hold('127.0.0.1');
    accepting(port);
    port.suspend();
    const dialed = await connect('127.0.0.1', port.port);
    dialed.link.write(transmitOf(Uint8Array.of(5)));
    dialed.link.write(transmitOf(pattern(LARGE_BYTES)));
    await someTurns();
    expect(dialed.flushedBytes).toBe(0);
    const late = accepting(port);
    await until('the bytes', () => late[0]?.receivedBytes === LARGE_BYTES + 1);
  });

  it('that ends with a listener that never accepted it', async () => {
    const port = hold('127.0.0.1');
    accepting(port);
    port.suspend();
    const dialed = await connect('127.0.0.1', port.port);
    port.release();
    await until('the reset', () => dialed.closed !== null);
    expect(dialed.closed).toBe('ECONNRESET');
  });

  it('unless the backlog of a kernel is full', async () => {
    const port = hold('127.0.0.1');
    accepting(port);
    port.suspend();
    const links: Link[] = [];
    const dial = (): Dial => hold('127.0.0.1').dial(port, (link) => links.push(link), fail);
    for (let count = 0; count < 1024; count += 1) dial();
    await until('the connections', () => links.length === 1024);
    expect(links.every((link) => link instanceof MemoryLink)).toBe(true);
    dial();
    await until('one more', () => links.length === 1025);
    expect(links[1024]).toBeInstanceOf(TcpLink);
    for (const link of links) link.reset();
  });

  it('and an attempt that is cancelled calls no callback', async () => {
    const port = hold('127.0.0.1');
    const accepted = accepting(port);
    const from = hold('127.0.0.1');
    const dial = from.dial(port, () => fail('connected'), fail);
    dial.cancel();
    await until('the end', () => accepted.length === 0 || accepted[0]?.closed !== null);
    await someTurns();
    // Its port is free again.
    accepting(hold('127.0.0.1', from.port));
  });

  it.each(['memory', 'tcp'] as const)(
    'by %s, one at a time between two ports, until both ends are gone',
    async (loopback) => {
      network = hostSystem(loopback).network;
      const port = hold('127.0.0.1');
      const accepted = accepting(port);
      const from = hold('127.0.0.1');
      const again = hold('127.0.0.1', from.port);
      let dialed: LinkListener | undefined;
      from.dial(port, (link) => (dialed = new LinkListener(link)), fail);
      await until('a connection', () => dialed !== undefined && accepted.length === 1);
      let failure: string | undefined;
      again.dial(
        port,
        () => fail('connected'),
        (code) => (failure = code),
      );
      await until('the refusal', () => failure !== undefined);
      expect(failure).toBe('EADDRNOTAVAIL');
      dialed?.link.reset();
      await until('both ends to be gone', () => accepted[0]?.closed !== null);
      const third = hold('127.0.0.1', from.port);
      let connected = false;
      third.dial(
        port,
        (link) => {
          ends.push(new LinkListener(link));
          connected = true;
        },
        fail,
      );
      await until('another connection', () => connected);
    },
  );

  it('from a port for a single use', async () => {
    const port = hold('127.0.0.1');
    accepting(port);
    const from = hold('127.0.0.1');
    const dial = (): Dial => from.dial(port, (link) => ends.push(new LinkListener(link)), fail);
    dial();
    expect(dial).toThrow('in use');
    expect(() => from.listen(fail, fail)).toThrow('in use');
    expect(() => port.dial(from, fail, fail)).toThrow('in use');
    await someTurns();
  });
});
