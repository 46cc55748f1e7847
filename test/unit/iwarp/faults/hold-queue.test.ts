import { beforeEach, describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import type { FaultSpec } from '#contract/protocol/faults';
import { Fault } from '#daemon/faults/fault';
import { type HoldOutput, HoldQueue } from '#daemon/iwarp/faults/hold-queue';

const fault = (spec: FaultSpec): Fault => new Fault(1, spec, undefined);
const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);

/** The output until `now`, bytes as numbers. */
function drain(queue: HoldQueue, now: number): unknown[] {
  const found: HoldOutput[] = [];
  for (;;) {
    const output = queue.poll(now);
    if (output === undefined) break;
    found.push(output);
  }
  return found.map((output) => (output.type === 'bytes' ? [...output.bytes] : output));
}

let queue: HoldQueue;

beforeEach(() => {
  queue = new HoldQueue();
});

describe('HoldQueue', () => {
  it('passes bytes in order, however long each is held', () => {
    const delay = fault({ kind: 'delay', ms: 1 });
    queue.push(bytes(1, 2), [{ fault: delay, due: 500 }], 9);
    queue.push(bytes(3), [], 9);
    expect({ held: queue.heldBytes, due: queue.nextDeadline() }).toEqual({ held: 3, due: 500 });
    expect(drain(queue, 499)).toEqual([]);
    expect(drain(queue, 500)).toEqual([[1, 2], [3]]);
    expect({ held: queue.heldBytes, due: queue.nextDeadline(), empty: queue.empty }).toEqual({
      held: 0,
      due: NEVER,
      empty: true,
    });
  });

  it('reports the bytes left of a push that has begun to leave', () => {
    queue.push(bytes(1, 2, 3, 4, 5), [], 2);
    queue.push(bytes(6, 7), [], 1);
    const left = [queue.cutBytes];
    while (queue.poll(0) !== undefined) left.push(queue.cutBytes);
    expect(left).toEqual([0, 3, 1, 0, 1, 0]);
    queue.push(bytes(8, 9), [], 1);
    queue.poll(0);
    queue.end('reset');
    queue.push(bytes(10), [], 1);
    expect(queue.cutBytes).toBe(1);
  });

  it('waits for the longest of several holds', () => {
    const both = [100, 300].map((due) => ({ fault: fault({ kind: 'delay', ms: 1 }), due }));
    queue.push(bytes(1), both, 9);
    expect(queue.nextDeadline()).toBe(300);
  });

  it('drops the holds of removed faults', () => {
    const [gone, stays] = [fault({ kind: 'stall' }), fault({ kind: 'delay', ms: 1 })];
    queue.push(bytes(1), [{ fault: gone, due: NEVER }], 9);
    queue.push(
      bytes(2),
      [
        { fault: gone, due: NEVER },
        { fault: stays, due: 50 },
      ],
      9,
    );
    queue.keepHoldsOf([stays]);
    expect(drain(queue, 0)).toEqual([[1]]);
    expect(drain(queue, 50)).toEqual([[2]]);
  });

  it('reports the bytes that it holds, and drops them', () => {
    expect(queue.withHeld(bytes(9))).toEqual(bytes(9));
    queue.push(bytes(1, 2, 3), [{ fault: fault({ kind: 'stall' }), due: NEVER }], 2);
    expect(queue.withHeld(bytes(9))).toEqual(bytes(9, 1, 2, 3));
    queue.clear();
    expect([queue.empty, queue.heldBytes]).toEqual([true, 0]);
  });

  it('cuts pieces', () => {
    queue.push(bytes(1, 2, 3, 4, 5), [], 2);
    expect(drain(queue, 0)).toEqual([[1, 2], [3, 4], [5]]);
  });

  it('ends after earlier bytes, and drops later ones', () => {
    queue.push(bytes(1), [], 9);
    queue.end('close');
    queue.end('reset');
    queue.push(bytes(2, 3), [], 9);
    expect(queue.ended).toBe(true);
    expect(drain(queue, 0)).toEqual([[1], { type: 'close' }, { type: 'lost', bytes: 2 }]);
  });

  it('paces bytes to a bandwidth, without saving up for later', () => {
    const narrow = fault({ kind: 'bandwidth', bytesPerSecond: 1000 });
    expect(queue.paced(narrow, 100, 1000, 0).due).toBe(100_000);
    expect(queue.paced(narrow, 50, 1000, 0).due).toBe(150_000);
    expect(queue.paced(narrow, 50, 1000, 1_000_000).due).toBe(1_050_000);
  });

  it('finds the byte after which a fault ends the connection, once', () => {
    const reset = fault({ kind: 'reset', afterBytes: 10 });
    expect(queue.cutBy(reset, 6, 10)).toBeUndefined();
    expect(queue.cutBy(reset, 6, 10)).toBe(4);
    expect(queue.cutBy(reset, 6, 10)).toBeUndefined();
    expect(reset.status).toMatchObject({ matched: 1, fired: 1 });
  });

  it('ignores a fault until its nth connection', () => {
    const reset = fault({ kind: 'reset', nth: 2 });
    const [first, second] = [new HoldQueue(), new HoldQueue()];
    expect(first.cutBy(reset, 6, 0)).toBeUndefined();
    expect(first.cutBy(reset, 6, 0)).toBeUndefined();
    expect(second.cutBy(reset, 6, 0)).toBe(0);
  });

  it('passes a long read in single bytes', () => {
    const read = new Uint8Array(1 << 18).map((_, at) => at);
    queue.push(read, [], 1);
    const pieces: number[] = [];
    for (let at = 0; at < 3000; at += 1) {
      const output = queue.poll(0);
      if (output?.type === 'bytes') pieces.push(output.bytes.length, output.bytes[0] ?? -1);
    }
    expect(pieces).toEqual([...read.subarray(0, 3000)].flatMap((byte) => [1, byte]));
    queue.assertInvariants();
    expect(Buffer.compare(queue.withHeld(new Uint8Array(0)), read.subarray(3000))).toBe(0);
    let rest = 0;
    while (queue.poll(0) !== undefined) rest += 1;
    expect([rest, queue.heldBytes, queue.empty]).toEqual([read.length - 3000, 0, true]);
  });
});
