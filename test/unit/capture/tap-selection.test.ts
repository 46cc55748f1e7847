import { describe, expect, it } from 'vitest';
import { TapSelection } from '../../../daemon/capture/tap-selection.ts';

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
  ])('%j of one with %j: %s', (filter, pairs, wanted) => {
    expect(new TapSelection(filter).wantsLink(ENDS, pairs)).toBe(wanted);
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

  it('drops the queue pairs of links closed long ago, to stay small', () => {
    const selection = new TapSelection({ port: 5000 });
    for (let qpn = 1; qpn <= 65_537; qpn += 1) selection.noteLink({ us: { device: 'a', qpn } });
    expect(selection.wantsWork('a', 1)).toBe(false);
    expect(selection.wantsWork('a', 2)).toBe(true);
    expect(selection.wantsWork('a', 65_537)).toBe(true);
  });
});
