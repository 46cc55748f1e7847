/** Links over real sockets of loopback, without any protocol. */
import { afterEach, describe, expect, it } from 'vitest';
import type { CaptureTap } from '../../../daemon/capture/capture-tap.ts';
import {
  type LinkUser,
  READ_BUFFER_BYTES,
  type TcpLink,
} from '../../../daemon/transport/tcp-link.ts';
import { sourceAddress, TcpPort } from '../../../daemon/transport/tcp-port.ts';
import { until } from '../../support/rnic-node.ts';

/** Remembers what its link told it. */
class Listener implements LinkUser {
  readonly link: TcpLink;
  readonly heard: Uint8Array[] = [];
  flushedBytes = 0;
  peerClosed = false;
  closed: string | undefined | null = null;

  constructor(link: TcpLink) {
    this.link = link;
    link.user = this;
  }

  handleOctets(octets: Uint8Array): void {
    this.heard.push(octets.slice());
  }
  handleFlushed(bytes: number): void {
    this.flushedBytes += bytes;
  }
  handlePeerClosed(): void {
    this.peerClosed = true;
  }
  handleClosed(errorCode: string | undefined): void {
    this.closed = errorCode;
  }
  get heardBytes(): number {
    return this.heard.reduce((sum, { length }) => sum + length, 0);
  }
}

const ports: TcpPort[] = [];
const ends: Listener[] = [];

afterEach(() => {
  for (const { link } of ends.splice(0)) link.reset();
  for (const port of ports.splice(0)) port.release();
});

function hold(address: string, port = 0): TcpPort {
  const held = new TcpPort(address, port);
  ports.push(held);
  return held;
}

/** Two connected links: the one that dialed and the one that was accepted. */
async function pair(address = '127.0.0.1', tap?: CaptureTap): Promise<[Listener, Listener]> {
  const environment = { readBuffer: new Uint8Array(READ_BUFFER_BYTES), tap };
  const port = hold(address);
  let accepted: Listener | undefined;
  let dialed: Listener | undefined;
  const fail = (error: unknown): never => {
    throw new Error(String(error));
  };
  port.listen(environment, (link) => (accepted = new Listener(link)), fail);
  hold(address).dial(port, environment, (link) => (dialed = new Listener(link)), fail);
  await until(() => accepted !== undefined && dialed !== undefined, 'a connection');
  if (accepted === undefined || dialed === undefined) throw new Error('no connection');
  ends.push(accepted, dialed);
  return [dialed, accepted];
}

describe('a link', () => {
  it.each(['127.0.0.9', '::1'])(
    'over %s carries octets both ways and knows its ends',
    async (address) => {
      const [dialed, accepted] = await pair(address);
      expect(dialed.link.localAddress).toBe(address);
      expect(dialed.link.remotePort).toBe(accepted.link.localPort);
      expect(dialed.link.localPort).toBe(accepted.link.remotePort);
      expect(dialed.link.write(Uint8Array.of(1, 2, 3))).toBe(3);
      expect(accepted.link.write(Uint8Array.of(9))).toBe(1);
      await until(() => accepted.heardBytes === 3 && dialed.heardBytes === 1, 'the octets');
      expect([Buffer.concat(accepted.heard), Buffer.concat(dialed.heard)]).toEqual([
        Buffer.of(1, 2, 3),
        Buffer.of(9),
      ]);
    },
  );

  it('MPA-5.1-01: tells the segment size of its socket', async () => {
    const [dialed] = await pair();
    expect(dialed.link.emssBytes()).toBeGreaterThan(500);
    expect(dialed.link.emssBytes()).toBeLessThanOrEqual(65_535);
  });

  it.each([false, true])(
    'says what the kernel took and when it took the rest (aligned: %s)',
    async (aligned) => {
      const [dialed, accepted] = await pair();
      dialed.link.segmentAligned = aligned;
      const octets = Uint8Array.from({ length: 16 << 20 }, (_, index) => (index * 31) & 0xff);
      const taken = dialed.link.write(octets);
      expect(taken).toBeGreaterThan(0);
      expect(taken).toBeLessThan(octets.length);
      expect([dialed.link.writable, dialed.link.congested]).toEqual([false, true]);
      expect(() => dialed.link.write(octets)).toThrow('not writable');
      await until(() => dialed.flushedBytes > 0, 'room');
      expect(dialed.flushedBytes).toBe(octets.length - taken);
      expect([dialed.link.writable, dialed.link.congested]).toEqual([true, false]);
      await until(() => accepted.heardBytes === octets.length, 'all octets');
      expect(Buffer.compare(Buffer.concat(accepted.heard), octets)).toBe(0);
      expect(Math.max(...accepted.heard.map(({ length }) => length))).toBeLessThanOrEqual(
        READ_BUFFER_BYTES,
      );
    },
  );

  it('DDP-6.2.1-04, DDP-6.2.1-06, MPA-7.2-01: a FIN ends one direction only', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.write(Uint8Array.of(1));
    dialed.link.finish();
    dialed.link.finish();
    expect(dialed.link.writable).toBe(false);
    await until(() => accepted.peerClosed, 'the FIN');
    expect(accepted.heardBytes).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect([accepted.link.writable, accepted.closed, dialed.closed]).toEqual([true, null, null]);
    accepted.link.write(Uint8Array.of(2, 3));
    accepted.link.finish();
    await until(() => dialed.closed !== null && accepted.closed !== null, 'both to close');
    expect(dialed.heardBytes).toBe(2);
    expect([dialed.closed, accepted.closed]).toEqual([undefined, undefined]);
  });

  it('sends its FIN behind octets that had to wait', async () => {
    const [dialed, accepted] = await pair();
    const octets = new Uint8Array(16 << 20);
    dialed.link.write(octets);
    dialed.link.finish();
    await until(() => accepted.peerClosed, 'the FIN');
    expect(accepted.heardBytes).toBe(octets.length);
  });

  it.each(['nothing', 'octets'] as const)('resets at once, behind %s', async (before) => {
    const [dialed, accepted] = await pair();
    if (before === 'octets') dialed.link.write(new Uint8Array(16 << 20));
    dialed.link.reset();
    await until(() => dialed.closed !== null && accepted.closed !== null, 'both to close');
    expect([dialed.closed, accepted.closed]).toEqual([undefined, 'ECONNRESET']);
    dialed.link.reset();
    dialed.link.finish();
  });

  it('resets behind its own FIN; the peer notices when it finishes', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.finish();
    await until(() => accepted.peerClosed, 'the FIN');
    dialed.link.reset();
    await until(() => dialed.closed !== null, 'the end');
    accepted.link.finish();
    await until(() => accepted.closed !== null, 'the end');
  });

  it('closes with a FIN behind what the kernel has taken', async () => {
    const [dialed, accepted] = await pair();
    dialed.link.write(new Uint8Array(100_000));
    dialed.link.close();
    await until(() => accepted.peerClosed, 'the FIN');
    expect(accepted.heardBytes).toBe(100_000);
    expect(dialed.closed).toBeUndefined();
  });

  it('keeps to itself a peer that went away while it writes', async () => {
    const [dialed, accepted] = await pair();
    accepted.link.reset();
    await until(() => accepted.closed !== null, 'the reset');
    while (dialed.link.writable) dialed.link.write(new Uint8Array(1000));
    await until(() => dialed.closed !== null, 'the end');
    expect(['ECONNRESET', 'EPIPE']).toContain(dialed.closed);
  });

  it('shows its tap every octet once, in order, and its ends', async () => {
    const seen: string[] = [];
    let outboundBytes = 0;
    const tap: CaptureTap = {
      opened: ({ dialed }) => {
        const side = dialed ? 'dialed' : 'accepted';
        return {
          outbound: (octets) => {
            if (dialed) outboundBytes += octets.length;
            else seen.push(`${side} out ${octets.length}`);
          },
          inbound: (octets) => dialed && seen.push(`${side} in ${octets.length}`),
          finished: (by) => seen.push(`${side} finished by ${by}`),
          closed: (reset) => seen.push(`${side} closed ${reset ? 'reset' : 'gracefully'}`),
        };
      },
    };
    const [dialed, accepted] = await pair('127.0.0.1', tap);
    dialed.link.write(new Uint8Array(16 << 20));
    await until(() => accepted.heardBytes === 16 << 20, 'all octets');
    expect(outboundBytes).toBe(16 << 20);
    accepted.link.write(new Uint8Array(5));
    await until(() => dialed.heardBytes === 5, 'the answer');
    accepted.link.finish();
    await until(() => dialed.peerClosed, 'the FIN');
    dialed.link.finish();
    await until(() => dialed.closed !== null && accepted.closed !== null, 'both to close');
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
  const environment = { readBuffer: new Uint8Array(1024), tap: undefined };
  const ignore = (): void => {};

  it('is held until it is released, and refuses connections while nobody listens', async () => {
    const port = hold('127.0.0.1');
    let failure: string | undefined;
    hold('127.0.0.1').dial(port, environment, ignore, (code) => (failure = code));
    await until(() => failure !== undefined, 'the refusal');
    expect(failure).toBe('ECONNREFUSED');
    port.listen(environment, ignore, ignore);
    const taken = () => hold('127.0.0.1', port.port).listen(environment, ignore, ignore);
    expect(taken).toThrow(expect.objectContaining({ code: 'EADDRINUSE' }));
    port.release();
    hold('127.0.0.1', port.port);
  });

  it('serves one use', () => {
    const port = hold('127.0.0.1');
    port.listen(environment, ignore, ignore);
    const again = () => port.listen(environment, ignore, ignore);
    expect(again).toThrow(expect.objectContaining({ code: 'EINVAL' }));
  });

  it('names the errno of what the host refuses', () => {
    const fails = (code: string) => expect.objectContaining({ code });
    expect(() => new TcpPort('192.0.2.1', 0)).toThrow(fails('EADDRNOTAVAIL'));
    expect(() => new TcpPort('nowhere', 0)).toThrow(fails('EINVAL'));
    expect(() => sourceAddress('127.0.0.1', '192.0.2.1')).toThrow(fails('EADDRNOTAVAIL'));
    expect(sourceAddress('127.0.0.9', undefined)).toBe('127.0.0.1');
    expect(sourceAddress('127.0.0.9', '127.0.0.8')).toBe('127.0.0.8');
  });

  it('tells nothing of a dial that was cancelled', async () => {
    const port = hold('127.0.0.1');
    let links = 0;
    port.listen(environment, () => links++, ignore);
    let told = false;
    const tell = (): void => {
      told = true;
    };
    hold('127.0.0.1').dial(port, environment, tell, tell).cancel();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(told).toBe(false);
  });
});
