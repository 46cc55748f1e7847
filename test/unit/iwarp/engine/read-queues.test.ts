import { describe, expect, it } from 'vitest';
import { InboundRequestQueue, OutboundRequestQueue } from '#daemon/iwarp/engine/read-queues';

describe('the IRRQ', () => {
  function push(queue: InboundRequestQueue, mark: number, held = false): boolean {
    const request = queue.spare();
    if (request === undefined) return false;
    request.segmentLength = mark;
    queue.push(held);
    return true;
  }

  it('holds no more than IRD requests, in order, round and round [RDMAP-6.1-04, RDMAP-6.1-02]', () => {
    const queue = new InboundRequestQueue(3);
    const taken: number[] = [];
    let next = 0;
    for (let round = 0; round < 20; round++) {
      while (push(queue, next)) next++;
      expect(queue.count).toBe(3);
      for (let i = 0; i <= round % 3; i++) {
        taken.push(queue.head?.segmentLength ?? -1);
        queue.shift();
      }
    }
    expect(taken).toEqual(taken.map((_, i) => i));
  });

  it('keeps its order when it grows after it has wrapped', () => {
    const queue = new InboundRequestQueue(8);
    push(queue, 0);
    push(queue, 1);
    queue.shift();
    push(queue, 2);
    push(queue, 3);
    push(queue, 4);
    const taken: (number | undefined)[] = [];
    for (let i = 0; i < 4; i++) {
      taken.push(queue.head?.segmentLength);
      queue.shift();
    }
    expect(taken).toEqual([1, 2, 3, 4]);
    expect(queue.head).toBe(undefined);
  });

  it('accepts nothing with an IRD of 0', () => {
    expect(new InboundRequestQueue(0).spare()).toBe(undefined);
  });

  it('holds back a request that must not start yet, and those after it [RDMAP-5.5-06]', () => {
    const queue = new InboundRequestQueue(4);
    push(queue, 1);
    push(queue, 2, true);
    push(queue, 3);
    expect(queue.head?.segmentLength).toBe(1);
    queue.shift();
    expect(queue.head).toBe(undefined);
    expect(queue.count).toBe(2);
    queue.release();
    expect(queue.head?.segmentLength).toBe(2);
  });
});

describe('the ORRQ', () => {
  it('holds no more than ORD requests [RDMAP-6.1-03]', () => {
    const queue = new OutboundRequestQueue(2);
    for (let i = 0; i < 2; i++) {
      expect(queue.full).toBe(false);
      expect(queue.spare()).toBeDefined();
      queue.push();
    }
    expect(queue.full).toBe(true);
    expect(queue.spare()).toBe(undefined);
    queue.shift();
    expect([queue.full, queue.count]).toEqual([false, 1]);
    queue.shift();
    queue.shift();
    expect([queue.head, queue.count]).toEqual([undefined, 0]);
  });
});
