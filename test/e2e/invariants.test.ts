/** A device's invariants hold after any sequence of events, and violations are detected. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InvariantError } from '#base/assert';
import { MWType, QPState, WROpcode } from '#contract/verbs/enums';
import { DEFAULT_QUOTAS, QuotaLedger } from '#daemon/clients/objects/quotas';
import { NicRig } from '../support/nic-rig.ts';
import { until } from '../support/patience.ts';
import { type ConnectedPair, connectPair, RnicNode } from '../support/rnic-node.ts';
import { ALL_ACCESS } from '../support/test-memory.ts';

let near: RnicNode;
let far: RnicNode;
let pair: ConnectedPair;

beforeEach(async () => {
  near = new RnicNode();
  far = new RnicNode();
  pair = await connectPair(near, far);
});

afterEach(() => Promise.all([near, far].map(({ host }) => host.close())));

function check(): void {
  near.host.assertDeepInvariants();
  far.host.assertDeepInvariants();
}

describe('the accounts of two hosts', () => {
  it('are right at each step of a connection and after it', async () => {
    const { active, activeId, passive } = pair;
    check();
    passive.receive(0, 64);
    active.send(0, 64);
    await active.completions(1);
    check();
    near.host.cm.disconnect(activeId);
    check();
    await until('the end', () => passive.qp.state === QPState.ERR);
    check();
    for (const [node, { qp }] of [
      [near, active],
      [far, passive],
    ] as const) {
      qp.modify(QPState.RESET, node.host.now());
      node.host.drain();
      check();
      qp.close(node.host.now());
      node.host.drain();
      check();
    }
  });

  it('are right while a connection is refused, rejected and cancelled', async () => {
    const listener = far.listen('127.0.0.1', 1);
    const rejected = await near.connect(near.channel(), listener.at);
    const request = await far.event(listener.id);
    check();
    far.host.cm.reject(request.id, new Uint8Array(0));
    await near.event(rejected);
    check();
    const given = await near.connect(near.channel(), listener.at);
    check();
    near.host.cm.destroy(given);
    check();
    far.host.cm.destroy(listener.id);
    check();
    const refused = await near.connect(near.channel(), listener.at);
    check();
    await near.event(refused);
    check();
  });

  it('are right for a QP that fails and is reset before its stream notices', () => {
    const { active } = pair;
    active.postSend({ opcode: WROpcode.send, sgList: [{ addr: 1, length: 8, lkey: 1 }] });
    check();
    active.qp.modify(QPState.RESET, near.host.now());
    check();
  });
});

describe('a wrong entry', () => {
  const wrong: [string, (rig: NicRig) => void][] = [
    [
      'a stream too many',
      ({ pd }) => {
        pd.streams += 1;
      },
    ],
    [
      'a stream too few',
      ({ pd }) => {
        pd.streams -= 1;
      },
    ],
    [
      'a member too few',
      ({ pd }) => {
        pd.members -= 3;
      },
    ],
    [
      'a user of a CQ too many',
      ({ sendCQ }) => {
        sendCQ.users += 1;
      },
    ],
    [
      'a user of a CQ too few',
      ({ recvCQ }) => {
        recvCQ.users -= 2;
      },
    ],
    [
      'a window that was never bound',
      ({ mr }) => {
        mr.entry.windows += 1;
      },
    ],
    [
      'an STag that changed',
      ({ mr }) => {
        mr.entry.stag ^= 0x100;
      },
    ],
    [
      'a region that is dead',
      ({ mr }) => {
        mr.entry.alive = false;
      },
    ],
    [
      'a window without its QP',
      (rig) => {
        const mw = rig.nic.allocMW(rig.pd, MWType.type2);
        const bind = { key: 1, access: 0, lkey: rig.mr.lkey, addressHi: 0, addressLo: 0x10000 };
        expect(mw.bind({ ...bind, lengthBytes: 8 }, rig.qp)).toBe(true);
        rig.qp.ownWindows.clear();
      },
    ],
  ];
  it.each(wrong)('is detected: %s', (_, change) => {
    const rig = new NicRig({ access: ALL_ACCESS });
    rig.nic.assertDeepInvariants();
    change(rig);
    expect(() => rig.nic.assertDeepInvariants()).toThrow(InvariantError);
  });

  it('is detected at the next command, without a deep check', () => {
    const rig = new NicRig();
    rig.pd.streams -= 2;
    expect(() => rig.qp.modify(QPState.ERR, 0)).toThrow(InvariantError);
  });

  it('is detected when more is released than was taken', () => {
    const ledger = new QuotaLedger(DEFAULT_QUOTAS);
    ledger.take('pinnedBytes', 10);
    ledger.give('pinnedBytes', 10);
    expect(() => ledger.give('pinnedBytes', 1)).toThrow(InvariantError);
    expect(() => ledger.note('qp', -1)).toThrow(InvariantError);
  });
});
