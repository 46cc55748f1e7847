import { describe, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { Fault } from '#daemon/faults/fault';
import { Lane, type LaneOutput } from '#daemon/iwarp/faults/lane';
import { NEVER } from '#daemon/rnic/wire-port';

const fault = (spec: FaultSpec): Fault => new Fault(1, spec, undefined);
const bytes = (...values: number[]): Uint8Array => Uint8Array.from(values);

/** What comes out until `now`, bytes as numbers. */
function drain(lane: Lane, now: number): unknown[] {
  const found: LaneOutput[] = [];
  for (;;) {
    const output = lane.poll(now);
    if (output === undefined) break;
    found.push(output);
  }
  return found.map((output) => (output.type === 'bytes' ? [...output.bytes] : output));
}

describe('Lane', () => {
  it('passes bytes in order, however long each is held', () => {
    const lane = new Lane();
    const delay = fault({ kind: 'delay', ms: 1 });
    lane.push(bytes(1, 2), [{ fault: delay, due: 500 }], 9);
    lane.push(bytes(3), [], 9);
    expect({ held: lane.heldBytes, due: lane.nextDeadline() }).toEqual({ held: 3, due: 500 });
    expect(drain(lane, 499)).toEqual([]);
    expect(drain(lane, 500)).toEqual([[1, 2], [3]]);
    expect({ held: lane.heldBytes, due: lane.nextDeadline(), empty: lane.empty }).toEqual({
      held: 0,
      due: NEVER,
      empty: true,
    });
  });

  it('reports how much is left of what has begun to leave', () => {
    const lane = new Lane();
    lane.push(bytes(1, 2, 3, 4, 5), [], 2);
    lane.push(bytes(6, 7), [], 1);
    const left = [lane.cutBytes];
    while (lane.poll(0) !== undefined) left.push(lane.cutBytes);
    expect(left).toEqual([0, 3, 1, 0, 1, 0]);
    lane.push(bytes(8, 9), [], 1);
    lane.poll(0);
    lane.end('reset');
    lane.push(bytes(10), [], 1);
    expect(lane.cutBytes).toBe(1);
  });

  it('waits for the longest of several holds', () => {
    const lane = new Lane();
    const both = [100, 300].map((due) => ({ fault: fault({ kind: 'delay', ms: 1 }), due }));
    lane.push(bytes(1), both, 9);
    expect(lane.nextDeadline()).toBe(300);
  });

  it('drops the holds of removed faults', () => {
    const lane = new Lane();
    const [gone, stays] = [fault({ kind: 'stall' }), fault({ kind: 'delay', ms: 1 })];
    lane.push(bytes(1), [{ fault: gone, due: NEVER }], 9);
    lane.push(
      bytes(2),
      [
        { fault: gone, due: NEVER },
        { fault: stays, due: 50 },
      ],
      9,
    );
    lane.keepHoldsOf([stays]);
    expect(drain(lane, 0)).toEqual([[1]]);
    expect(drain(lane, 50)).toEqual([[2]]);
  });

  it('reports what it holds, and drops it', () => {
    const lane = new Lane();
    expect(lane.heldBehind(bytes(9))).toEqual(bytes(9));
    lane.push(bytes(1, 2, 3), [{ fault: fault({ kind: 'stall' }), due: NEVER }], 2);
    expect(lane.heldBehind(bytes(9))).toEqual(bytes(9, 1, 2, 3));
    lane.clear();
    expect([lane.empty, lane.heldBytes]).toEqual([true, 0]);
  });

  it('cuts pieces', () => {
    const lane = new Lane();
    lane.push(bytes(1, 2, 3, 4, 5), [], 2);
    expect(drain(lane, 0)).toEqual([[1, 2], [3, 4], [5]]);
  });

  it('ends after earlier bytes, and drops later ones', () => {
    const lane = new Lane();
    lane.push(bytes(1), [], 9);
    lane.end('close');
    lane.end('reset');
    lane.push(bytes(2, 3), [], 9);
    expect(lane.ended).toBe(true);
    expect(drain(lane, 0)).toEqual([[1], { type: 'close' }, { type: 'lost', bytes: 2 }]);
  });

  it('paces bytes to a bandwidth, without saving up for later', () => {
    const lane = new Lane();
    const narrow = fault({ kind: 'bandwidth', bytesPerSecond: 1000 });
    expect(lane.paced(narrow, 100, 1000, 0).due).toBe(100_000);
    expect(lane.paced(narrow, 50, 1000, 0).due).toBe(150_000);
    expect(lane.paced(narrow, 50, 1000, 1_000_000).due).toBe(1_050_000);
  });

  it('finds the byte after which a fault ends the connection, once', () => {
    const lane = new Lane();
    const reset = fault({ kind: 'reset', afterBytes: 10 });
    expect(lane.cutBy(reset, 6, 10)).toBeUndefined();
    expect(lane.cutBy(reset, 6, 10)).toBe(4);
    expect(lane.cutBy(reset, 6, 10)).toBeUndefined();
    expect(reset.status).toMatchObject({ matched: 1, fired: 1 });
  });

  it('ignores a fault until its nth connection', () => {
    const reset = fault({ kind: 'reset', nth: 2 });
    const [first, second] = [new Lane(), new Lane()];
    expect(first.cutBy(reset, 6, 0)).toBeUndefined();
    expect(first.cutBy(reset, 6, 0)).toBeUndefined();
    expect(second.cutBy(reset, 6, 0)).toBe(0);
  });

  it('passes a long read that is cut into single bytes', () => {
    const lane = new Lane();
    const read = new Uint8Array(1 << 18).map((_, at) => at);
    lane.push(read, [], 1);
    const pieces: number[] = [];
    for (let at = 0; at < 3000; at += 1) {
      const output = lane.poll(0);
      if (output?.type === 'bytes') pieces.push(output.bytes.length, output.bytes[0] ?? -1);
    }
    expect(pieces).toEqual([...read.subarray(0, 3000)].flatMap((byte) => [1, byte]));
    lane.assertInvariants();
    expect(Buffer.compare(lane.heldBehind(new Uint8Array(0)), read.subarray(3000))).toBe(0);
    let rest = 0;
    while (lane.poll(0) !== undefined) rest += 1;
    expect([rest, lane.heldBytes, lane.empty]).toEqual([read.length - 3000, 0, true]);
  });
});
