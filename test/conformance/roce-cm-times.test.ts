/** Lost messages of connection management, and its times: real hosts, on simulated time. */
import { describe, expect, it } from 'vitest';
import { CMEventType, QPState } from '#contract/verbs/enums';
import { PortSpace } from '#daemon/host/host-id';
import { AT, CmWorld, WISHES } from '../support/roce-cm-world.ts';

const SECOND = 1_000_000;
const { established, connectRequest, disconnected, rejected, unreachable } = CMEventType;

/** A world in which the message with this number of the packets from now on is lost. */
function losing(world: CmWorld, nth: number): { fired(): number } {
  const fault = world.host.faults.add({ kind: 'drop', nth }, undefined);
  return { fired: () => fault.status.fired };
}

describe('a lost message', () => {
  it.each([
    ['REQ [IBCM-RTY-01]', 1],
    ['REP [IBCM-RTY-02]', 2],
    ['RTU [IBCM-RTY-03]', 3],
  ] as const)('is sent again, and reported once: a %s', (_name, nth) => {
    const world = new CmWorld();
    world.listener();
    const [active, passive] = [world.initialised(0), world.initialised(1)];
    const dialer = world.resolved();
    const lost = losing(world, nth);
    world.cm.connect(dialer, active.qp, WISHES);
    if (nth === 1) {
      world.run(6 * SECOND);
      expect(world.types).toEqual([]);
      // rdma_cm repeats after 6.4 s.
      world.run(SECOND);
    }
    const { id: acceptor } = world.take(connectRequest);
    world.cm.accept(acceptor, passive.qp, WISHES);
    world.run(140 * SECOND);
    expect(lost.fired()).toBe(1);
    expect(world.types).toEqual([established, established]);
    expect([active.qp.state, passive.qp.state]).toEqual([QPState.RTS, QPState.RTS]);
  });

  it('is sent again: a DREQ, and its answer [IBCM-RTY-04]', () => {
    for (const nth of [1, 2]) {
      const world = new CmWorld();
      const { active, passive, dialer } = world.connected();
      const lost = losing(world, nth);
      world.cm.disconnect(dialer);
      world.run(20 * SECOND);
      expect(lost.fired()).toBe(1);
      expect(world.types.sort()).toEqual([disconnected, disconnected]);
      expect([active.qp.state, passive.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
    }
  });

  it('is sent again: a REJ, to the repeated request [IBCM-REJ-06]', () => {
    const world = new CmWorld();
    const dialer = world.resolved();
    losing(world, 2);
    world.cm.connect(dialer, world.initialised(0).qp, WISHES);
    world.run(6 * SECOND);
    expect(world.types).toEqual([]);
    world.run(SECOND);
    expect(world.take(rejected).ib?.status).toBe(8);
  });

  it('is sent again: a SIDR REQ, and its answer [IBCM-SIDR-05]', () => {
    for (const nth of [1, 2]) {
      const world = new CmWorld();
      const dialer = world.resolved(AT, PortSpace.udp);
      losing(world, nth);
      const nothing = { qpn: 5, srq: false, privateData: new Uint8Array(0), qkey: 0 };
      world.cm.request(dialer, {
        ...nothing,
        ...{ responderResources: 0, initiatorDepth: 0, flowControl: false },
        ...{ retryCount: 0, rnrRetry: 0 },
      });
      world.run(30 * SECOND);
      expect(world.take(unreachable).ib?.status).toBe(1);
      expect(world.types).toEqual([]);
    }
  });
});

describe('a peer that does not answer', () => {
  it('is unreachable after 16 requests, 103 s [IBCM-RTY-05, IBCM-RTY-06]', () => {
    const world = new CmWorld();
    world.listener();
    const dialer = world.resolved();
    const fault = world.host.faults.add({ kind: 'drop', every: 1 }, undefined);
    world.cm.connect(dialer, world.initialised(0).qp, WISHES);
    world.run(102 * SECOND);
    expect(world.types).toEqual([]);
    world.run(2 * SECOND);
    world.take(unreachable);
    // And a REJ, for a peer that has received one of the requests.
    expect(fault.status.fired).toBe(16 + 1);
  });

  it('with an RTU leaves the connection of its acceptor unreachable [IBCM-RTY-07]', () => {
    const world = new CmWorld();
    world.listener();
    const passive = world.initialised(1);
    world.cm.connect(world.resolved(), world.initialised(0).qp, WISHES);
    const { id } = world.take(connectRequest);
    world.host.faults.add({ kind: 'drop', every: 1 }, undefined);
    world.cm.accept(id, passive.qp, WISHES);
    world.run(80 * SECOND);
    const types = world.events.filter((event) => event.id === id).map(({ type }) => type);
    expect(types[0]).toBe(unreachable);
    expect(passive.qp.state).toBe(QPState.ERR);
  });

  it('with a DREP is considered gone [IBCM-RTY-08]', () => {
    const world = new CmWorld();
    const { active, dialer } = world.connected();
    world.host.faults.add({ kind: 'drop', every: 1 }, undefined);
    world.cm.disconnect(dialer);
    world.run(10 * SECOND);
    expect(world.events.filter(({ id }) => id === dialer).map(({ type }) => type)).toEqual([
      disconnected,
    ]);
    expect(active.qp.state).toBe(QPState.ERR);
    world.run(120 * SECOND);
    expect(world.events).toHaveLength(1);
  });
});

describe('a slow server', () => {
  it('makes its client wait, by an MRA for the repeated request [IBCM-MRA-02]', () => {
    const world = new CmWorld();
    world.listener();
    const [active, passive] = [world.initialised(0), world.initialised(1)];
    world.cm.connect(world.resolved(), active.qp, WISHES);
    const { id } = world.take(connectRequest);
    // Longer than a client waits for a peer that does not answer.
    world.run(200 * SECOND);
    expect(world.types).toEqual([]);
    world.cm.accept(id, passive.qp, WISHES);
    world.run(60 * SECOND);
    expect(world.types).toEqual([established, established]);
  });
});

describe('the end of a connection', () => {
  it('may come from both ends at once [IBCM-DREQ-04]', () => {
    const world = new CmWorld();
    const { active, passive, dialer, acceptor } = world.connected();
    world.cm.disconnect(dialer);
    world.cm.disconnect(acceptor);
    world.run(SECOND);
    expect(world.types).toEqual([disconnected, disconnected]);
    expect([active.qp.state, passive.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
  });
});
