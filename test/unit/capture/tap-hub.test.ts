import { beforeEach, describe, expect, it } from 'vitest';
import type { QueuePairName } from '#contract/protocol/tap-records';
import type { LinkAddresses, LinkPosition, LinkTap } from '#daemon/capture/capture-tap';
import { TapHub, type TapWatcher } from '#daemon/capture/tap-hub';
import { bytesOf, hexOf } from '#test/support/hex';

// Written by hand after RFC 5044 §7.1: revision 1; the second one asks for markers.
const REQUEST = bytesOf('4d504120494420526571204672616d65 40 01 0002 aabb');
const MARKED_REQUEST = bytesOf('4d504120494420526571204672616d65 c0 01 0000');
const REPLY = bytesOf('4d504120494420526570204672616d65 40 01 0000');

const ENDS: LinkAddresses = {
  localAddress: '127.0.0.2',
  localPort: 5000,
  remoteAddress: '127.0.0.3',
  remotePort: 7000,
  dialed: true,
  emssBytes: 1460,
};

class Link implements LinkPosition {
  readonly tap: LinkTap;
  held = new Uint8Array(0);
  midOutput = false;
  pair: QueuePairName | undefined = undefined;

  constructor(hub: TapHub, ends: Partial<LinkAddresses> = {}) {
    this.tap = hub.opened({ ...ENDS, ...ends }, this);
  }

  get heldInput(): Uint8Array {
    return this.held;
  }

  get congested(): boolean {
    return this.midOutput;
  }

  get queuePair(): QueuePairName | undefined {
    return this.pair;
  }

  established(): this {
    this.tap.outbound(REQUEST);
    this.tap.inbound(REPLY);
    return this;
  }
}

/** Watches the links that `wants` selects. */
function watch(wants: TapWatcher['wants'] = () => true) {
  const notified: string[] = [];
  const user: TapWatcher = {
    wants,
    opened: (link) => notified.push(`${link} opened`),
    joined: (link, { us, peer }) => notified.push(`${link} joined ${us?.qpn} ${peer?.qpn}`),
    bytes: (link, by, bytes) => notified.push(`${link} ${by} ${hexOf(bytes)}`),
    finished: (link, by) => notified.push(`${link} ${by} FIN`),
    closed: (link, reset) => notified.push(`${link} closed ${reset}`),
    skipped: (link) => notified.push(`${link} skipped`),
  };
  return { notified, stop: hub.watch(user) };
}

let hub: TapHub;

beforeEach(() => {
  hub = new TapHub();
});

describe('the hub of taps', () => {
  it('reports everything of a link that opens while a watcher is attached', () => {
    const { notified } = watch();
    const { tap } = new Link(hub);
    tap.outbound(REQUEST);
    tap.inbound(Uint8Array.of(1));
    tap.finished('us');
    tap.closed(true);
    expect(notified).toEqual([
      '1 opened',
      `1 us ${hexOf(REQUEST)}`,
      '1 peer 01',
      '1 us FIN',
      '1 closed true',
    ]);
  });

  it('begins a link that was open with its startup frames and the bytes of a partial FPDU', () => {
    const link = new Link(hub).established();
    link.tap.outbound(Uint8Array.of(1, 2, 3));
    link.tap.inbound(Uint8Array.of(4, 5));
    link.held = Uint8Array.of(5);
    const { notified, stop } = watch();
    link.tap.inbound(Uint8Array.of(6));
    stop();
    link.tap.inbound(Uint8Array.of(7));
    expect(notified).toEqual([
      '1 opened',
      `1 us ${hexOf(REQUEST)}`,
      `1 peer ${hexOf(REPLY)}`,
      '1 peer 05',
      '1 peer 06',
    ]);
  });

  it('begins with the next write if one was in progress', () => {
    const link = new Link(hub).established();
    link.midOutput = true;
    const { notified } = watch();
    link.tap.outbound(Uint8Array.of(1));
    link.tap.outbound(Uint8Array.of(2));
    expect(notified.slice(3)).toEqual(['1 us 02']);
  });

  it('reports a partial startup frame, and sent FINs', () => {
    const link = new Link(hub);
    link.tap.outbound(REQUEST.subarray(0, 10));
    link.tap.finished('peer');
    const { notified } = watch();
    link.tap.outbound(REQUEST.subarray(10));
    expect(notified).toEqual([
      '1 opened',
      `1 us ${hexOf(REQUEST.subarray(0, 10))}`,
      '1 peer FIN',
      `1 us ${hexOf(REQUEST.subarray(10))}`,
    ]);
  });

  it('leaves out a link with markers that was open already', () => {
    const link = new Link(hub);
    link.tap.outbound(MARKED_REQUEST);
    link.tap.inbound(REPLY);
    const { notified } = watch();
    link.tap.inbound(Uint8Array.of(1));
    expect(notified).toEqual(['1 skipped']);
  });

  it('reports a connection between two devices of the host once', () => {
    const { notified } = watch();
    new Link(hub).established();
    const mirrored = { localAddress: '127.0.0.3', localPort: 7000, dialed: false };
    new Link(hub, { ...mirrored, remoteAddress: '127.0.0.2', remotePort: 5000 }).established();
    expect(notified).toHaveLength(3);
  });

  it('asks each watcher which links it wants', () => {
    const first = watch(({ localPort }) => localPort === 5001);
    const second = watch();
    new Link(hub);
    new Link(hub, { localPort: 5001 });
    expect(first.notified).toEqual(['2 opened']);
    expect(second.notified).toEqual(['1 opened', '2 opened']);
  });

  it('reports the queue pairs of a link before their bytes', () => {
    const { notified } = watch();
    const link = new Link(hub);
    link.tap.inbound(Uint8Array.of(1));
    link.pair = { device: 'a', qpn: 5 };
    link.tap.outbound(Uint8Array.of(2));
    link.tap.outbound(Uint8Array.of(3));
    expect(notified).toEqual([
      '1 opened',
      '1 peer 01',
      '1 joined 5 undefined',
      '1 us 02',
      '1 us 03',
    ]);
    const later = watch();
    expect(later.notified.slice(0, 2)).toEqual(['1 opened', '1 joined 5 undefined']);
  });

  it('reports the queue pair of the other end if it is on the same host', () => {
    const { notified } = watch();
    const link = new Link(hub);
    link.pair = { device: 'a', qpn: 5 };
    link.tap.outbound(Uint8Array.of(1));
    const mirrored = { localAddress: '127.0.0.3', localPort: 7000, dialed: false };
    const far = new Link(hub, { ...mirrored, remoteAddress: '127.0.0.2', remotePort: 5000 });
    link.tap.outbound(Uint8Array.of(2));
    far.pair = { device: 'b', qpn: 9 };
    link.tap.inbound(Uint8Array.of(3));
    expect(notified).toEqual([
      '1 opened',
      '1 joined 5 undefined',
      '1 us 01',
      '1 us 02',
      '1 joined 5 9',
      '1 peer 03',
    ]);
  });

  it('asks again once queue pairs are known, and then begins with the startup frames', () => {
    const { notified, stop } = watch((_, { us }) => (us === undefined ? undefined : us.qpn === 5));
    const wanted = new Link(hub);
    const other = new Link(hub, { localPort: 5001 });
    wanted.tap.outbound(REQUEST);
    other.tap.outbound(REQUEST);
    expect(notified).toEqual([]);
    wanted.pair = { device: 'a', qpn: 5 };
    other.pair = { device: 'a', qpn: 6 };
    for (const { tap } of [wanted, other]) tap.inbound(REPLY);
    expect(notified).toEqual([
      '1 opened',
      '1 joined 5 undefined',
      `1 us ${hexOf(REQUEST)}`,
      `1 peer ${hexOf(REPLY)}`,
    ]);
    stop();
    for (const { tap } of [wanted, other]) tap.inbound(Uint8Array.of(1));
    expect(notified).toHaveLength(4);
  });

  it('keeps a link between the ends of an earlier one that was not yet seen to close', () => {
    const earlier = new Link(hub).established();
    new Link(hub).established();
    earlier.tap.closed(true);
    const { notified } = watch();
    expect(notified[0]).toBe('2 opened');
  });

  it('forgets a link that closed', () => {
    new Link(hub).established().tap.closed(false);
    const { notified } = watch();
    expect(notified).toEqual([]);
  });
});
