/** A network that exists within a host: its addresses and ports, and unreachable destinations. */
import { createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { Link } from '#daemon/host/links/link';
import { MemoryLink } from '#daemon/host/links/memory-link';
import type { LinkPort, Network } from '#daemon/host/links/network';
import { isolatedSystem } from '#daemon/host/links/system';
import { failure } from '#test/support/outcomes';
import { until } from '#test/support/patience';

const OWN = '10.9.9.1';
const ELSEWHERE = '10.77.9.9';

const ports: LinkPort[] = [];
const links: Link[] = [];

afterEach(() => {
  for (const link of links.splice(0)) link.reset();
  for (const port of ports.splice(0)) port.release();
});

const newNetwork = (): Network => isolatedSystem([{ addresses: [OWN, 'fd77::1'] }]).network;

function hold(network: Network, address: string, port = 0, v6Only?: boolean): LinkPort {
  const held = network.hold(address, port, v6Only);
  ports.push(held);
  return held;
}

function listen(network: Network, address: string, port = 0, v6Only?: boolean): LinkPort {
  const held = hold(network, address, port, v6Only);
  held.listen(
    (link) => links.push(link),
    (error) => {
      throw error;
    },
  );
  return held;
}

/** The link, or the errno name of the failure. */
async function dial(
  network: Network,
  address: string,
  port: number,
  from = '127.0.0.1',
): Promise<Link | string> {
  let outcome: Link | string | undefined;
  hold(network, from).dial(
    { address, port },
    (link) => {
      links.push(link);
      outcome = link;
    },
    (code) => {
      outcome = code;
    },
  );
  await until('the outcome', () => outcome !== undefined);
  return outcome ?? 'nothing';
}

describe('an isolated network', () => {
  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', '127.0.0.1'],
    [OWN, OWN],
    ['::', '::1'],
    ['fd77::1', 'fd77::1'],
  ])('accepts a listener at %s and a connection to %s', async (at, to) => {
    const network = newNetwork();
    const { port } = listen(network, at, 7174);
    expect(await dial(network, to, port, to)).toBeInstanceOf(MemoryLink);
  });

  it('has its own ports: others, and a TCP server, use the same', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const port = typeof address === 'object' ? (address?.port ?? 0) : 0;
    const [one, other] = [newNetwork(), newNetwork()];
    listen(one, '127.0.0.1', port);
    expect(await dial(other, '127.0.0.1', port)).toBe('ECONNREFUSED');
    listen(other, '127.0.0.1', port);
    expect(await dial(other, '127.0.0.1', port)).toBeInstanceOf(MemoryLink);
    await new Promise((resolve) => server.close(resolve));
  });

  it.each([
    ['the same address', OWN, OWN, undefined],
    ['a wildcard', '0.0.0.0', OWN, undefined],
    ['an address below a wildcard', OWN, '0.0.0.0', undefined],
    ['IPv4 below ::', '::', OWN, undefined],
    ['IPv6 below ::', '::', 'fd77::1', true],
  ])('refuses a second listener of a port: %s', (_, first, second, v6Only) => {
    const network = newNetwork();
    listen(network, first, 700, v6Only);
    expect(() => listen(network, second, 700)).toThrow(failure('EADDRINUSE'));
  });

  it.each([
    ['another address', OWN, '127.0.0.1', undefined],
    [':: alone', '::', OWN, true],
    ['another family', '0.0.0.0', 'fd77::1', undefined],
  ])('shares a port between separate listeners: %s', (_, first, second, v6Only) => {
    const network = newNetwork();
    listen(network, first, 700, v6Only);
    expect(listen(network, second, 700).listens).toBe(true);
  });

  it('refuses the second listener of a shared port', () => {
    const network = newNetwork();
    const [first, second] = [hold(network, OWN, 700), hold(network, OWN, 700)];
    const start = (port: LinkPort) =>
      port.listen(
        () => undefined,
        () => undefined,
      );
    start(first);
    expect(() => start(second)).toThrow(failure('EADDRINUSE'));
    first.release();
    start(second);
  });

  it('chooses ports that are free at the address', () => {
    const network = newNetwork();
    const drawn = Array.from({ length: 500 }, () => hold(network, '127.0.0.1').port);
    expect(new Set(drawn).size).toBe(500);
    expect(drawn.every((port) => port >= 32_768 && port < 61_000)).toBe(true);
  });

  it('reaches its own addresses only', async () => {
    const network = newNetwork();
    expect(() => hold(network, ELSEWHERE)).toThrow(failure('EADDRNOTAVAIL'));
    expect(() => network.sourceAddress(ELSEWHERE, undefined)).toThrow(
      `no route to ${ELSEWHERE}: the network of these devices is isolated; --network host reaches`,
    );
    expect(await dial(network, ELSEWHERE, 7174)).toBe('ENETUNREACH');
    expect(await dial(network, OWN, 7174)).toBe('ECONNREFUSED');
  });

  it.each([
    ['127.0.0.7', undefined, '127.0.0.1'],
    [OWN, undefined, OWN],
    [OWN, '127.0.0.1', '127.0.0.1'],
    ['0.0.0.0', undefined, '127.0.0.1'],
    ['fd77::1', undefined, 'fd77::1'],
    ['239.1.2.3', undefined, OWN],
    ['ff0e::1', undefined, 'fd77::1'],
    ['239.1.2.3', '127.0.0.3', '127.0.0.3'],
  ])('reaches %s from %s: %s', (destination, source, expected) => {
    expect(newNetwork().sourceAddress(destination, source)).toBe(expected);
  });

  it.each([
    [OWN, ELSEWHERE, 'EADDRNOTAVAIL'],
    [OWN, '::1', 'EINVAL'],
    ['::ffff', undefined, 'ENETUNREACH'],
  ])('does not reach %s from %s: %s', (destination, source, code) => {
    expect(() => newNetwork().sourceAddress(destination, source)).toThrow(failure(code));
  });

  it('refuses connections beyond the backlog of a kernel', async () => {
    const network = newNetwork();
    listen(network, OWN, 7174).suspend();
    const dials = Array.from({ length: 1024 }, () => dial(network, OWN, 7174));
    expect((await Promise.all(dials)).every((link) => link instanceof MemoryLink)).toBe(true);
    expect(await dial(network, OWN, 7174)).toBe('ECONNREFUSED');
  });
});
