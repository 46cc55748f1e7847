/** Links over real sockets of loopback, without any protocol. */
import { readdirSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import { transmitOf } from '#base/transmit';
import type { CaptureTap } from '#daemon/capture/capture-tap';
import type { Link } from '#daemon/host/links/link';
import { READS_PER_TURN, ReadingShares } from '#daemon/host/links/reading-share';
import { TappedLink } from '#daemon/host/links/tapped-link';
import { READ_BUFFER_BYTES } from '#daemon/host/links/tcp-link';
import { sourceAddress, TcpPort } from '#daemon/host/links/tcp-port';
import { LinkListener } from '#test/support/link-listener';
import { quiet, until } from '#test/support/patience';

const environment = {
  readBuffer: new Uint8Array(READ_BUFFER_BYTES),
  readings: new ReadingShares(setImmediate),
};
const ports: TcpPort[] = [];
const ends: LinkListener[] = [];

afterEach(() => {
  for (const { link } of ends.splice(0)) link.reset();
  for (const port of ports.splice(0)) port.release();
});

function hold(address: string, port = 0): TcpPort {
  const held = new TcpPort(address, port, environment);
  ports.push(held);
  return held;
}

/** Links from one address, which are accepted at one port. */
async function many(count: number): Promise<{ dialed: LinkListener[]; accepted: LinkListener[] }> {
  const port = hold('127.0.0.1');
  const [dialed, accepted]: [LinkListener[], LinkListener[]] = [[], []];
  const fail = (error: unknown): never => {
    throw new Error(String(error));
  };
  port.listen((link) => accepted.push(new LinkListener(link)), fail);
  for (let index = 0; index < count; index += 1) {
    hold('127.0.0.1').dial(port, (link) => dialed.push(new LinkListener(link)), fail);
  }
  await until('the connections', () => accepted.length === count && dialed.length === count);
  ends.push(...dialed, ...accepted);
  return { dialed, accepted };
}

/** Two connected links: the one that dialed and the one that was accepted. */
async function pair(
  address = '127.0.0.1',
  tap?: CaptureTap,
): Promise<[LinkListener, LinkListener]> {
  const port = hold(address);
  const dressed = (link: Link, dialed: boolean): LinkListener =>
    new LinkListener(
      tap === undefined ? link : new TappedLink(link, tap, dialed, link.emssBytes()),
    );
  let accepted: LinkListener | undefined;
  let dialed: LinkListener | undefined;
  const fail = (error: unknown): never => {
    throw new Error(String(error));
  };
  port.listen((link) => (accepted = dressed(link, false)), fail);
  hold(address).dial(port, (link) => (dialed = dressed(link, true)), fail);
  await until('a connection', () => accepted !== undefined && dialed !== undefined);
  if (accepted === undefined || dialed === undefined) throw new Error('no connection');
  ends.push(accepted, dialed);
  return [dialed, accepted];
}

describe('a link', () => {
  it.each(['127.0.0.9', '::1'])(
    'over %s carries bytes both ways and knows its ends',
    async (address) => {
      const [dialed, accepted] = await pair(address);
      expect(dialed.link.localAddress).toBe(address);
      expect(dialed.link.remotePort).toBe(accepted.link.localPort);
      expect(dialed.link.localPort).toBe(accepted.link.remotePort);
      expect(dialed.link.write(transmitOf(Uint8Array.of(1, 2, 3)))).toBe(3);
      expect(accepted.link.write(transmitOf(Uint8Array.of(9)))).toBe(1);
      await until('the bytes', () => accepted.receivedBytes === 3 && dialed.receivedBytes === 1);
      expect([Buffer.concat(accepted.received), Buffer.concat(dialed.received)]).toEqual([
        Buffer.of(1, 2, 3),
        Buffer.of(9),
      ]);
    },
  );

  it('of ports at every address knows the addresses of the connection', async () => {
    const [dialed, accepted] = await pair('0.0.0.0');
    for (const { link } of [dialed, accepted]) {
      expect([link.localAddress, link.remoteAddress]).toEqual(['127.0.0.1', '127.0.0.1']);
    }
    expect(dialed.link.remotePort).toBe(accepted.link.localPort);
    expect(dialed.link.localPort).toBe(accepted.link.remotePort);
  });

  it('has one descriptor at either end, and closes it at the end', async () => {
    const count = (): number => readdirSync('/proc/self/fd').length;
    const [first] = await pair();
    const before = count();
    const more = await Promise.all([pair(), pair(), pair()]);
    // For each pair: a port, the listening copy of it, and one for each link.
    expect(count() - before).toBe(3 * 4);
    for (const [dialed, accepted] of more) {
      dialed.link.reset();
      accepted.link.reset();
    }
    for (const port of ports.splice(2)) port.release();
    await until('descriptors to be closed', () => count() === before);
    expect(first.link.writable).toBe(true);
  });

  it('reports the segment size of its socket [MPA-5.1-01]', async () => {
    const [dialed] = await pair();
    expect(dialed.link.emssBytes()).toBeGreaterThan(500);
    expect(dialed.link.emssBytes()).toBeLessThanOrEqual(65_535);
  });

  it.each([false, true])(
    'reports how much the kernel accepted and when it accepted the rest (aligned: %s)',
    async (aligned) => {
      const [dialed, accepted] = await pair();
      dialed.link.segmentAligned = aligned;
      const bytes = Uint8Array.from({ length: 16 << 20 }, (_, index) => (index * 31) & 0xff);
      const taken = dialed.link.write(transmitOf(bytes));
      expect(taken).toBeGreaterThan(0);
      expect(taken).toBeLessThan(bytes.length);
      expect([dialed.link.writable, dialed.link.congested]).toEqual([false, true]);
      expect(() => dialed.link.write(transmitOf(bytes))).toThrow('not writable');
      await until('room', () => dialed.flushedBytes > 0);
      expect(dialed.flushedBytes).toBe(bytes.length - taken);
      expect([dialed.link.writable, dialed.link.congested]).toEqual([true, false]);
      await until('all bytes', () => accepted.receivedBytes === bytes.length);
      expect(Buffer.compare(Buffer.concat(accepted.received), bytes)).toBe(0);
      expect(Math.max(...accepted.received.map(({ length }) => length))).toBeLessThanOrEqual(
        READ_BUFFER_BYTES,
      );
    },
  );

  it('a FIN ends one direction only [DDP-6.2.1-04, DDP-6.2.1-06, MPA-7.2-01]', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.write(transmitOf(Uint8Array.of(1)));
    dialed.link.finish();
    dialed.link.finish();
    expect(dialed.link.writable).toBe(false);
    await until('the FIN', () => accepted.peerClosed);
    expect(accepted.receivedBytes).toBe(1);
    await quiet(10);
    expect([accepted.link.writable, accepted.closed, dialed.closed]).toEqual([true, null, null]);
    accepted.link.write(transmitOf(Uint8Array.of(2, 3)));
    accepted.link.finish();
    await until('both to close', () => dialed.closed !== null && accepted.closed !== null);
    expect(dialed.receivedBytes).toBe(2);
    expect([dialed.closed, accepted.closed]).toEqual([undefined, undefined]);
  });

  it('sends its FIN after bytes that had to wait', async () => {
    const [dialed, accepted] = await pair();
    const bytes = new Uint8Array(16 << 20);
    dialed.link.write(transmitOf(bytes));
    dialed.link.finish();
    await until('the FIN', () => accepted.peerClosed);
    expect(accepted.receivedBytes).toBe(bytes.length);
  });

  it.each(['nothing', 'bytes'] as const)('resets at once, after %s', async (before) => {
    const [dialed, accepted] = await pair();
    if (before === 'bytes') dialed.link.write(transmitOf(new Uint8Array(16 << 20)));
    dialed.link.reset();
    await until('both to close', () => dialed.closed !== null && accepted.closed !== null);
    expect([dialed.closed, accepted.closed]).toEqual([undefined, 'ECONNRESET']);
    dialed.link.reset();
    dialed.link.finish();
  });

  it('resets after its own FIN; the peer notices when it finishes', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.finish();
    await until('the FIN', () => accepted.peerClosed);
    dialed.link.reset();
    await until('the end', () => dialed.closed !== null);
    accepted.link.finish();
    await until('the end', () => accepted.closed !== null);
  });

  it('closes with a FIN after the bytes that the kernel has taken', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.write(transmitOf(new Uint8Array(100_000)));
    dialed.link.close();
    await until('the FIN', () => accepted.peerClosed);
    expect(accepted.receivedBytes).toBe(100_000);
    expect(dialed.closed).toBeUndefined();
  });

  it('throws nothing when the peer disappears during a write', async () => {
    const [dialed, accepted] = await pair();
    accepted.link.reset();
    await until('the reset', () => accepted.closed !== null);
    while (dialed.link.writable) dialed.link.write(transmitOf(new Uint8Array(1000)));
    await until('the end', () => dialed.closed !== null);
    expect(['ECONNRESET', 'EPIPE']).toContain(dialed.closed);
  });

  it('shows its tap every byte once, in order, and its ends', async () => {
    const seen: string[] = [];
    let outboundBytes = 0;
    const tap: CaptureTap = {
      opened: ({ dialed }) => {
        const side = dialed ? 'dialed' : 'accepted';
        return {
          watched: true,
          outbound: (bytes) => {
            if (dialed) outboundBytes += bytes.length;
            else seen.push(`${side} out ${bytes.length}`);
          },
          inbound: (bytes) => dialed && seen.push(`${side} in ${bytes.length}`),
          finished: (by) => seen.push(`${side} finished by ${by}`),
          closed: (reset) => seen.push(`${side} closed ${reset ? 'reset' : 'gracefully'}`),
        };
      },
    };
    const [dialed, accepted] = await pair('127.0.0.1', tap);
    dialed.link.write(transmitOf(new Uint8Array(16 << 20)));
    await until('all bytes', () => accepted.receivedBytes === 16 << 20);
    expect(outboundBytes).toBe(16 << 20);
    accepted.link.write(transmitOf(new Uint8Array(5)));
    await until('the answer', () => dialed.receivedBytes === 5);
    accepted.link.finish();
    await until('the FIN', () => dialed.peerClosed);
    dialed.link.finish();
    await until('both to close', () => dialed.closed !== null && accepted.closed !== null);
    expect(seen.slice(0, 4)).toEqual([
      'accepted out 5',
      'dialed in 5',
      'accepted finished by us',
      'dialed finished by peer',
    ]);
    expect(seen.slice(4).sort()).toEqual([
      'accepted closed gracefully',
      'accepted finished by peer',
      'dialed closed gracefully',
      'dialed finished by us',
    ]);
  });
});

describe('a port', () => {
  const ignore = (): void => {};

  it('is held until it is released, and refuses connections while there is no listener', async () => {
    const port = hold('127.0.0.1');
    let failure: string | undefined;
    hold('127.0.0.1').dial(port, ignore, (code) => (failure = code));
    await until('the refusal', () => failure !== undefined);
    expect(failure).toBe('ECONNREFUSED');
    port.listen(ignore, ignore);
    const taken = () => hold('127.0.0.1', port.port).listen(ignore, ignore);
    expect(taken).toThrow(expect.objectContaining({ code: 'EADDRINUSE' }));
    port.release();
    hold('127.0.0.1', port.port);
  });

  it('is held while another socket has it, and used once that is gone', () => {
    const other = hold('127.0.0.1');
    other.listen(ignore, ignore);
    const port = hold('127.0.0.1', other.port);
    expect(port).toMatchObject({ taken: true, port: other.port });
    const inUse = expect.objectContaining({ code: 'EADDRINUSE' });
    expect(() => port.listen(ignore, ignore)).toThrow(inUse);
    expect(() => port.dial({ address: '127.0.0.1', port: 9 }, ignore, ignore)).toThrow(inUse);
    other.release();
    port.listen(ignore, ignore);
    expect(port).toMatchObject({ taken: false, listens: true });
  });

  it('serves one use', () => {
    const port = hold('127.0.0.1');
    port.listen(ignore, ignore);
    const again = () => port.listen(ignore, ignore);
    expect(again).toThrow(expect.objectContaining({ code: 'EINVAL' }));
  });

  it('reports the errno when the host refuses', () => {
    const fails = (code: string) => expect.objectContaining({ code });
    expect(() => hold('192.0.2.1')).toThrow(fails('EADDRNOTAVAIL'));
    expect(() => hold('nowhere')).toThrow(fails('EINVAL'));
    expect(() => sourceAddress('127.0.0.1', '192.0.2.1')).toThrow(fails('EADDRNOTAVAIL'));
    expect(sourceAddress('127.0.0.9', undefined)).toBe('127.0.0.1');
    expect(sourceAddress('127.0.0.9', '127.0.0.8')).toBe('127.0.0.8');
  });

  it('reports nothing about a cancelled dial', async () => {
    const port = hold('127.0.0.1');
    let links = 0;
    port.listen(() => links++, ignore);
    let notified = false;
    const notify = (): void => {
      notified = true;
    };
    hold('127.0.0.1').dial(port, notify, notify).cancel();
    await quiet(20);
    expect(notified).toBe(false);
  });
});

describe('hundreds of links of one address', () => {
  it('end a few in each turn of the event loop when they end together', async () => {
    const { dialed, accepted } = await many(400);
    for (const { link } of dialed) link.finish();
    let [most, before] = [0, 0];
    while (before < accepted.length) {
      await new Promise((resolve) => setImmediate(resolve));
      const { length } = accepted.filter(({ peerClosed }) => peerClosed);
      most = Math.max(most, length - before);
      before = length;
    }
    expect(most).toBeLessThanOrEqual(READS_PER_TURN);
  });

  it('are read whenever they have input, unless their users pause', async () => {
    const { dialed, accepted } = await many(400);
    accepted[0]?.link.pauseReading();
    for (const { link } of dialed) link.write(transmitOf(Uint8Array.of(1, 2)));
    const received = () => accepted.filter(({ receivedBytes }) => receivedBytes === 2).length;
    await until('bytes on all links but one', () => received() === 399);
    await quiet(20);
    expect(received()).toBe(399);
    accepted[0]?.link.resumeReading();
    await until('bytes on the last link', () => received() === 400);
  });
});
