/** Queue pairs in error, which a host checks now and then. */
import { expect, it, vi } from 'vitest';
import { QPState, QPType } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import { Nic } from '#daemon/rnic/nic';
import { MASKS, VALUES } from '#test/support/program-steps';
import { queueSizes } from '#test/support/queue-sizes';
import { RoceWorld } from '#test/support/roce-host';

const SECOND = 1_000_000;
const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

/** A host with this many of them. */
function worldWith(count: number): RoceWorld {
  const world = new RoceWorld(1);
  const { nic } = world.device(0);
  const pd = nic.allocPD();
  const cq = nic.createCQ({ cqe: 1, ring, tag: undefined });
  const capabilities = queueSizes(1);
  const queues = { sendCQ: cq, recvCQ: cq, srq: undefined, ring, tag: undefined };
  for (let index = 0; index < count; index += 1) {
    const qp = nic.createQP(pd, { type: QPType.rc, ...queues, capabilities, sqSigAll: false });
    const now = world.host.now();
    const [init] = MASKS[QPType.rc];
    qp.modifyPath({ ...VALUES, curState: qp.state, mask: init, state: QPState.INIT }, now);
    qp.modifyPath({ ...VALUES, mask: QPAttribute.state, state: QPState.ERR }, now);
  }
  world.host.watchErrored();
  return world;
}

/** How often the host checks all of them in the next tenth of a second. */
function looks(world: RoceWorld): number {
  const look = vi.spyOn(Nic.prototype, 'flushErrored');
  world.run(SECOND / 10);
  const { length } = look.mock.calls;
  look.mockRestore();
  return length;
}

it('are not checked for once there are none', () => {
  expect(looks(worldWith(0))).toBe(1);
});

it('are visited every few milliseconds, at most a thousand at a time', () => {
  expect(looks(worldWith(1))).toBeGreaterThan(15);
  expect(looks(worldWith(4000))).toBeLessThan(6);
});

it('are visited less often while programs do nothing', () => {
  const world = worldWith(1);
  world.run(SECOND);
  expect(looks(world)).toBeLessThan(3);
  world.host.watchErrored();
  expect(looks(world)).toBeGreaterThan(15);
});
