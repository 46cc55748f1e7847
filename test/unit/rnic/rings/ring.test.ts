import { describe, expect, it } from 'vitest';
import { QueueFlag, RQE, RQE_BYTES } from '#contract/protocol/queue-layout';
import { ElementRing } from '#daemon/rnic/rings/ring';

const COUNT = 4;
const RING_BYTES = COUNT * RQE_BYTES;

/** Two adjacent rings, which do not begin where their memory does. */
function neighbours(): { memory: Uint8Array; rings: [ElementRing, ElementRing] } {
  const memory = new Uint8Array(new ArrayBuffer(64 + 2 * RING_BYTES), 64);
  const ring = (start: number) => new ElementRing(memory, start, COUNT, RQE_BYTES, RQE.flags);
  return { memory, rings: [ring(0), ring(RING_BYTES)] };
}

describe('rings with flags', () => {
  it('share the views of their buffer, and each sees its own elements only', () => {
    const { memory, rings } = neighbours();
    const [first, second] = rings;
    expect(second.bytes).toBe(first.bytes);
    expect(second.view).toBe(first.view);
    for (let slot = 0; slot < COUNT; slot++) {
      memory[RING_BYTES + slot * RQE_BYTES + RQE.flags] = QueueFlag.valid;
      memory[RING_BYTES + slot * RQE_BYTES + RQE.numSge] = slot;
    }
    expect(first.readyCount()).toBe(0);
    expect(second.readyCount()).toBe(COUNT);
    // Twice around: the ring ends where its neighbour's memory would begin.
    for (let index = 0; index < 2 * COUNT; index++) {
      expect(second.ready()).toBe(true);
      expect(second.view.getUint8(second.position + RQE.numSge)).toBe(index % COUNT);
      second.release();
      memory[RING_BYTES + (index % COUNT) * RQE_BYTES + RQE.flags] = QueueFlag.valid;
    }
    expect(first.readyCount()).toBe(0);
  });

  it('have the memory that they were given, and none once they have ended', () => {
    const { memory, rings } = neighbours();
    const [first, second] = rings;
    memory.fill(1, 0, RING_BYTES);
    memory.fill(2, RING_BYTES);
    expect(first.memory).toEqual(new Uint8Array(RING_BYTES).fill(1));
    expect(second.memory).toEqual(new Uint8Array(RING_BYTES).fill(2));
    expect(second.ready()).toBe(false);
    memory.fill(QueueFlag.valid);
    second.end();
    expect(second.readyCount()).toBe(0);
    second.release();
    expect(memory.every((byte) => byte === QueueFlag.valid)).toBe(true);
  });

  it('are refused by memory that is too short', () => {
    expect(
      () => new ElementRing(new Uint8Array(RING_BYTES), 8, COUNT, RQE_BYTES, RQE.flags),
    ).toThrow('ring exceeds its memory');
  });
});
