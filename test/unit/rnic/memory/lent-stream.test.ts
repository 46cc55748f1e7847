import { beforeEach, describe, expect, it } from 'vitest';
import { LentStream } from '#daemon/rnic/memory/lent-stream';
import type {
  Copier,
  CopyEnd,
  CopyParties,
  LentMessage,
  MemoryBacking,
} from '#daemon/rnic/memory/memory-backing';

const BYTES_MAX = 1000;
const COPY_BYTES_MAX = 65_536;

const copier: Copier = {
  hasten: () => undefined,
  abandon: () => undefined,
  conclude: () => undefined,
};

/** A copy that was ordered: from here, to there, and how many bytes. */
type Order = readonly [at: number, to: number, length: number];

let orders: Order[];
let parties: CopyParties[];
let ends: CopyEnd[];
let stream: LentStream;
let message: LentMessage;
let failed: object[];
let lends: boolean;

/** Memory with `fill` everywhere; undefined if it cannot be read. */
function memory(fill: number | undefined, takes = true): MemoryBacking {
  return {
    tier: 'process_vm',
    view: undefined,
    pendingWrites: 0,
    onReady: undefined,
    prepareRead: () => true,
    read: (_offset, length, target, start) => {
      if (fill === undefined) return false;
      target.fill(fill, start, start + length);
      return true;
    },
    write: () => true,
    lender: copier,
    copyFrom: (to, _source, at, length, both) => {
      if (!takes) return false;
      orders.push([at, to, length]);
      parties.push(both);
      return true;
    },
  };
}

const taker = {
  ordered: 0,
  copyOrdered: () => {
    taker.ordered += 1;
  },
  copied: (end: CopyEnd) => void ends.push(end),
};

/** One copy, the oldest, is over. */
function finish(): void {
  const [both] = parties.splice(0, 1);
  const [order] = orders.splice(0, 1);
  if (both === undefined || order === undefined) throw new Error('no copy');
  both.lender.returned(both.message, order[2]);
}

const sender = { lendingFailed: (which: object) => void failed.push(which) };

beforeEach(() => {
  orders = [];
  parties = [];
  ends = [];
  failed = [];
  lends = true;
  taker.ordered = 0;
  message = { lent: 0 };
  stream = new LentStream({
    get lends() {
      return lends;
    },
  });
  stream.begin(sender, message);
});

describe('payload that a stream lends', () => {
  it('is found in each of several buffers, also through views of them', () => {
    const [first, second] = [new Uint8Array(400), new Uint8Array(400)];
    const source = memory(1);
    expect(stream.read(source, 1000, 100, first, 50)).toBe(true);
    expect(stream.read(source, 2000, 100, first, 200)).toBe(true);
    expect(stream.read(source, 3000, 100, second, 50)).toBe(true);
    expect(stream.lent).toBe(3);
    for (const [start, covered] of [
      [49, false],
      [50, true],
      [149, true],
      [150, false],
      [200, true],
      [300, false],
    ] as const) {
      expect(stream.covers(first, start)).toBe(covered);
      expect(stream.covers(first.subarray(20), start - 20)).toBe(covered);
    }
    expect(stream.covers(new Uint8Array(400), 50)).toBe(false);
    const target = memory(0);
    stream.copyTo(target, 7, second.subarray(40), 20, 30, taker);
    stream.endDelivery();
    expect(orders).toEqual([[3010, 7, 30]]);
    finish();
    stream.drop();
    stream.assertInvariants();
    expect(stream.lent).toBe(0);
  });

  it('is copied at once where pieces of a message follow each other in both memories', () => {
    const output = new Uint8Array(1000);
    const [source, target] = [memory(1), memory(0)];
    for (const [at, start] of [
      [0, 10],
      [100, 120],
      [200, 230],
    ] as const)
      stream.read(source, at, 100, output, start);
    stream.copyTo(target, 500, output, 10, 100, taker);
    stream.copyTo(target, 600, output, 120, 100, taker);
    // It goes elsewhere.
    stream.copyTo(target, 800, output, 230, 100, taker);
    stream.endDelivery();
    expect(orders).toEqual([
      [0, 500, 200],
      [200, 800, 100],
    ]);
    expect(taker.ordered).toBe(2);
  });

  it('of other messages, or too long for one copy, is copied separately', () => {
    const output = new Uint8Array(200_000);
    const [source, target] = [memory(1), memory(0)];
    stream.read(source, 0, 40_000, output, 0);
    stream.read(source, 40_000, 40_000, output, 50_000);
    stream.begin(sender, { lent: 0 });
    stream.read(source, 80_000, 100, output, 100_000);
    stream.copyTo(target, 0, output, 0, 40_000, taker);
    stream.copyTo(target, 40_000, output, 50_000, 40_000, taker);
    stream.copyTo(target, 80_000, output, 100_000, 100, taker);
    stream.endDelivery();
    expect(orders.map(([, , length]) => length)).toEqual([40_000, 40_000, 100]);
    expect(Math.max(...orders.map(([, , length]) => length))).toBeLessThanOrEqual(COPY_BYTES_MAX);
  });

  it('comes back to its message when it is delivered and copied, each once', () => {
    const [first, second] = [new Uint8Array(400), new Uint8Array(400)];
    const source = memory(1);
    stream.read(source, 0, 100, first, 0);
    stream.read(source, 100, 100, first, 200);
    stream.read(source, 200, 100, second, 0);
    stream.delivered(first, 150);
    expect(stream.count).toBe(2);
    stream.copyTo(memory(0), 0, first, 200, 100, taker);
    stream.endDelivery();
    stream.delivered(first, 400);
    expect([message.lent, stream.lent]).toEqual([2, 2]);
    finish();
    stream.drop();
    expect([message.lent, stream.lent]).toEqual([0, 0]);
    stream.assertInvariants();
  });

  it('is withdrawn if its segment is not sent', () => {
    const output = new Uint8Array(400);
    stream.read(memory(1), 0, 100, output, 0);
    const { count } = stream;
    stream.read(memory(1), 100, 100, output, 200);
    stream.withdraw(count);
    expect(stream.covers(output, 0)).toBe(true);
    expect(stream.covers(output, 200)).toBe(false);
    expect(message.lent).toBe(1);
  });

  it('is bounded, and ends where the path no longer lends', () => {
    expect(stream.isOpen(BYTES_MAX)).toBe(true);
    stream.read(memory(1), 0, BYTES_MAX, new Uint8Array(BYTES_MAX), 0);
    expect(stream.isOpen(BYTES_MAX)).toBe(false);
    stream.drop();
    expect(stream.isOpen(BYTES_MAX)).toBe(true);
    lends = false;
    expect(stream.isOpen(BYTES_MAX)).toBe(false);
  });

  it('is fetched into the output on demand, which then waits for earlier copies', () => {
    const output = new Uint8Array(400);
    const source = memory(9);
    stream.read(source, 0, 100, output, 0);
    stream.copyTo(memory(0), 0, output, 0, 100, taker);
    stream.endDelivery();
    stream.delivered(output, 100);
    stream.read(source, 100, 100, output, 200);
    let woken = 0;
    stream.recall();
    stream.whenCopied(() => {
      woken += 1;
    });
    expect(output.subarray(200, 300).every((byte) => byte === 9)).toBe(true);
    expect(stream.covers(output, 200)).toBe(false);
    expect([stream.waits, stream.isOpen(BYTES_MAX), woken]).toEqual([true, false, 0]);
    finish();
    expect([stream.waits, stream.isOpen(BYTES_MAX), woken]).toEqual([false, true, 1]);
    expect(stream.lent).toBe(0);
  });

  it('fails its message if it cannot be read, and lends no more', () => {
    stream.read(memory(undefined), 0, 100, new Uint8Array(100), 0);
    stream.recall();
    expect(failed).toEqual([message]);
    expect([stream.failed, stream.lent, stream.isOpen(BYTES_MAX)]).toEqual([true, 0, false]);
  });

  it('is lost if the target is gone', () => {
    const output = new Uint8Array(100);
    stream.read(memory(1), 0, 100, output, 0);
    stream.copyTo(memory(0, false), 0, output, 0, 100, taker);
    stream.endDelivery();
    expect(ends).toEqual(['lost']);
    stream.drop();
    expect(stream.lent).toBe(0);
    stream.assertInvariants();
  });
});
