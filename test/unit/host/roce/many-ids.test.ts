/** Thousands of connection ids with one deadline: each turn of the event loop handles a few. */
import { expect, it, vi } from 'vitest';
import type { CMParameters } from '#contract/protocol/commands';
import { CMEventType, QPState, QPType } from '#contract/verbs/enums';
import { type HostCmEvent, type HostId, PortSpace } from '#daemon/host/host-id';
import { CommunicationManager } from '#daemon/roce/cm/communication-manager';
import { MASKS } from '#test/support/program-steps';
import { type RoceEnd, RoceWorld } from '#test/support/roce-host';

const SECOND = 1_000_000;
const MANY = 150;
/** Ids whose deadline is met in one turn. */
const PER_TURN = 64;
const AT = { address: '127.0.0.3', port: 7471 };
const WISHES: CMParameters = {
  privateData: Uint8Array.of(1),
  initiatorDepth: 4,
  responderResources: 4,
  wire: undefined,
};
const PROGRAM = {
  qpn: 7,
  srq: false,
  privateData: Uint8Array.of(7),
  responderResources: 5,
  initiatorDepth: 3,
  flowControl: true,
  retryCount: 4,
  rnrRetry: 6,
  qkey: 0,
};

class ManyIds extends RoceWorld {
  readonly events: HostCmEvent[] = [];

  constructor() {
    super(2);
    this.host.onCmEvent = (_id, event) => this.events.push(event);
  }

  resolved(): HostId {
    const { cm } = this.host;
    const id = cm.createId('dialer', PortSpace.tcp, false);
    cm.resolveAddr(id, AT, { address: '127.0.0.2', port: 0 });
    this.run();
    cm.resolveRoute(id);
    this.run();
    return id;
  }

  /** An end with its queue pair in INIT, as a connection id has it. */
  initialised(): RoceEnd {
    const end = this.end(0, QPType.rc);
    end.modify(QPState.INIT, MASKS[QPType.rc][0], { accessFlags: 0 });
    return end;
  }

  count(type: CMEventType): number {
    return this.events.filter((event) => event.type === type).length;
  }

  /** Runs for `micros`; the most calls of `spy` in one turn. */
  mostInTurn(micros: number, spy: { readonly mock: { readonly calls: unknown[] } }): number {
    const end = this.time.now + micros;
    let most = 0;
    while (this.time.busy || (this.time.nextDue ?? end + 1) <= end) {
      const before = spy.mock.calls.length;
      this.time.step();
      most = Math.max(most, spy.mock.calls.length - before);
    }
    this.host.assertDeepInvariants();
    return most;
  }
}

it('retries some of the ids that found no listener', () => {
  const world = new ManyIds();
  const ids = Array.from({ length: MANY }, () => world.resolved());
  for (const id of ids) {
    id.refusalPatienceMs = 500;
    world.host.cm.request(id, PROGRAM);
  }
  const connect = vi.spyOn(CommunicationManager.prototype, 'connect');
  expect(world.mostInTurn(SECOND, connect)).toBeLessThanOrEqual(PER_TURN);
  // After 5, 10, 20, 40 ms, then each 80 ms.
  expect(connect.mock.calls.length).toBeGreaterThan(5 * MANY);
  expect(world.count(CMEventType.rejected)).toBe(MANY);
  for (const id of ids) world.host.cm.destroy(id);
});

it('ends some of the connections whose peers do not confirm it', () => {
  const world = new ManyIds();
  const { cm } = world.host;
  const listener = cm.createId('listener', PortSpace.tcp, false);
  cm.bindAddr(listener, AT);
  cm.listen(listener, MANY);
  const dialers = Array.from({ length: MANY }, (_, index) => {
    const { qp } = world.initialised();
    const id = world.resolved();
    cm.connect(id, qp, WISHES);
    world.run();
    const request = world.events.findLast(({ type }) => type === CMEventType.connectRequest);
    // This program moves its queue pair itself, and does not disconnect.
    if (request !== undefined) cm.answer(request.id, { ...PROGRAM, qpn: 1000 + index });
    world.run();
    return { id, qp };
  });
  expect(world.count(CMEventType.established)).toBe(2 * MANY);
  for (const { id } of dialers) cm.disconnect(id);
  world.host.drain();
  expect(world.count(CMEventType.disconnected)).toBe(MANY);
  world.events.length = 0;
  const end = vi.spyOn(CommunicationManager.prototype, 'destroy');
  expect(world.mostInTurn(6 * SECOND, end)).toBeLessThanOrEqual(PER_TURN);
  expect(world.count(CMEventType.disconnected)).toBe(MANY);
  expect(dialers.every(({ qp }) => qp.state === QPState.ERR)).toBe(true);
});
