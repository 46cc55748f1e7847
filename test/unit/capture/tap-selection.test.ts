import { describe, expect, it } from 'vitest';
import { TapSelection } from '#daemon/capture/tap-selection';
import { bytesOf } from '#test/support/hex';

const ENDS = {
  localAddress: '::ffff:127.0.0.2',
  localPort: 5000,
  remoteAddress: '127.0.0.3',
  remotePort: 7000,
  dialed: true,
  emssBytes: 1460,
};
const US = { device: 'a', qpn: 5 };
const PEER = { device: 'b', qpn: 9 };

describe('a selection of links', () => {
  it.each([
    [{ qps: [5] }, { us: US }, true],
    [{ qps: [9] }, { us: US, peer: PEER }, true],
    [{ device: 'b' }, { us: US, peer: PEER }, true],
    [{ device: 'b', qps: [9, 10] }, { peer: PEER }, true],
    [{ qps: [5], port: 5000 }, { us: US }, true],
    [{ qps: [5], port: 5001 }, { us: US }, false],
    [{ qps: [5] }, {}, undefined],
    [{ device: 'b', qps: [5] }, { us: US, peer: PEER }, undefined],
    [{ device: 'a' }, {}, undefined],
  ])('%j selects a link with queue pairs %j: %s', (filter, pairs, wanted) => {
    expect(new TapSelection(filter).wantsLink(ENDS, pairs)).toBe(wanted);
  });
});

describe('a selection of packets', () => {
  /** A datagram from and to the same UDP port; SCTP in it has the ports 5000 and 7000. */
  const datagram = (port: number) => {
    const udp = port.toString(16).padStart(4, '0').repeat(2);
    const ip = '45000030 00004000 40110000 7f000002 7f000003';
    return bytesOf(`${ip} ${udp} 001c0000 1388 1b58 00000000 00000000 03000008 00000000`);
  };
  const link = { localPort: 7000, remotePort: 5000 };
  const mirrored = { ...link, localAddress: '127.0.0.3', remoteAddress: '127.0.0.2' };

  it.each([
    [{}, true, true],
    [{ device: 'b' }, true, true],
    [{ qps: [6] }, false, false],
    [{ address: '127.0.0.3' }, true, true],
    [{ port: 5000 }, true, false],
    [{ port: 4791 }, false, true],
    [{ links: [mirrored] }, true, false],
    [{ links: [{ ...mirrored, localPort: 7001 }] }, false, false],
  ])('%j selects SCTP by its own ports: %s; RoCE by UDP ports: %s', (filter, sctp, roce) => {
    const wants = (bytes: Uint8Array) =>
      new TapSelection(filter).wantsPacket({ sender: US, receiver: PEER, bytes });
    expect(wants(datagram(9899))).toBe(sctp);
    expect(wants(datagram(4791))).toBe(roce);
  });
});

describe('a selection of work', () => {
  it.each([
    [{}, true],
    [{ device: 'a' }, true],
    [{ device: 'b' }, false],
    [{ qps: [4, 5] }, true],
    [{ qps: [4] }, false],
    [{ device: 'b', qps: [5] }, false],
  ])('%j: %s', (filter, wanted) => {
    expect(new TapSelection(filter).wantsWork('a', 5)).toBe(wanted);
  });

  it('by links includes the queue pairs that those links have or had', () => {
    const selection = new TapSelection({ port: 5000 });
    expect(selection.wantsWork('a', 5)).toBe(false);
    selection.noteLink({ us: US, peer: PEER });
    expect(selection.wantsWork('a', 5)).toBe(true);
    expect(selection.wantsWork('b', 9)).toBe(true);
    expect(selection.wantsWork('b', 5)).toBe(false);
  });

  it('forgets the queue pairs of links closed long ago', () => {
    const selection = new TapSelection({ port: 5000 });
    for (let qpn = 1; qpn <= 65_537; qpn += 1) selection.noteLink({ us: { device: 'a', qpn } });
    expect(selection.wantsWork('a', 1)).toBe(false);
    expect(selection.wantsWork('a', 2)).toBe(true);
    expect(selection.wantsWork('a', 65_537)).toBe(true);
  });
});
