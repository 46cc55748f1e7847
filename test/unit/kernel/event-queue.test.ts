import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventQueue } from '#daemon/kernel/event-queue';
import { EVENT_RING_BYTES, EventRing } from '#daemon/kernel/event-ring';

/** A descriptor that counts the bytes in it. */
class Path {
  bytes = 0;
  closed = 0;

  write(bytes: Uint8Array): void {
    this.bytes += bytes.length;
  }

  close(): void {
    this.closed += 1;
  }
}

function queue(): { queue: EventQueue<string, string>; path: Path } {
  return { queue: new EventQueue<string, string>(new Uint8Array(16), 7), path: new Path() };
}

describe('the bytes on a descriptor', () => {
  it('one for each record, so each wakes a program that waits for edges', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    events.push('a', 'x');
    events.push('b', 'x');
    expect(path.bytes).toBe(2);
    expect(events.pop()).toEqual({ record: 'a', owner: 'x', bytes: 1 });
    expect(events.pop()).toEqual({ record: 'b', owner: 'x', bytes: 1 });
    expect(events.pop()).toBeUndefined();
    events.push('c', 'x');
    expect(path.bytes).toBe(3);
  });

  it('at most seventeen, which are removed with the last records', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    for (let record = 0; record < 20; record += 1) events.push(`${record}`, 'x');
    expect(path.bytes).toBe(17);
    const taken = Array.from({ length: 20 }, () => events.pop()?.bytes);
    expect(taken).toEqual([0, 0, 0, ...new Array(17).fill(1)]);
  });

  it('records queued before the descriptor are signalled when it arrives, once', () => {
    const { queue: events, path } = queue();
    events.push('a', 'x');
    events.push('b', 'x');
    events.attach(path);
    expect(path.bytes).toBe(1);
    events.push('c', 'x');
    expect(path.bytes).toBe(2);
    expect(events.attached).toBe(true);
  });

  it('no byte is sent for records taken before the descriptor came', () => {
    const { queue: events, path } = queue();
    events.push('a', 'x');
    expect(events.pop()?.bytes).toBe(0);
    events.push('b', 'x');
    expect(events.purge('x')).toBe(0);
    events.attach(path);
    expect(path.bytes).toBe(0);
  });
});

describe('the records of an object', () => {
  it('a purge removes them, and reports the surplus bytes', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    for (const [record, owner] of ['ax', 'by', 'cx'].map((text) => [...text])) {
      events.push(record ?? '', owner ?? '');
    }
    expect(path.bytes).toBe(3);
    expect(events.purge('x')).toBe(2);
    expect(events.length).toBe(1);
    expect(events.purge('z')).toBe(0);
    expect(events.purge('y')).toBe(1);
    expect(events.purge('y')).toBe(0);
  });

  it('can be moved, oldest first', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    for (const record of ['a', 'b']) events.push(record, 'x');
    expect(events.take('x')).toEqual({ records: ['a', 'b'], bytes: 2 });
    expect(events.take('x')).toEqual({ records: [], bytes: 0 });
  });
});

describe('the end', () => {
  it('is reported once, closes the descriptor, and accepts no more waits', () => {
    const { queue: events, path } = queue();
    let ended = 0;
    events.onEnded = () => {
      ended += 1;
    };
    events.attach(path);
    events.push('a', 'x');
    events.end();
    events.end();
    events.push('b', 'x');
    expect([ended, path.closed, path.bytes, events.length]).toEqual([1, 1, 1, 0]);
    expect(events.ended).toBe(true);
    expect(events.pop()).toBeUndefined();
    const late = new Path();
    events.attach(late);
    expect(events.attached).toBe(false);
  });
});

/** A queue of numbers that shows them, and the preload library's side of it. */
class Shown {
  readonly memory = new Uint8Array(new SharedArrayBuffer(EVENT_RING_BYTES));
  readonly words = new Int32Array(this.memory.buffer);
  readonly events = new EventQueue<number, string>(new Uint8Array(16), 7);
  readonly path = new Path();
  readonly read: number[] = [];
  /** Bytes that were taken out of the descriptor. */
  bytesTaken = 0;

  constructor() {
    this.events.showIn({
      ring: new EventRing(this.memory),
      place: 4096,
      bytesOf: (record) => Uint8Array.of(record & 255, record >> 8, 0, 0, 0, 0, 0, 0),
      onTaken: (record) => this.read.push(record),
    });
    this.events.attach(this.path);
  }

  /** The preload library takes one byte, and all others with the last record. */
  #takeBytes(isLast: boolean): void {
    const more = Atomics.load(this.words, 1);
    const taken = isLast ? more : Math.min(more, 1);
    Atomics.sub(this.words, 1, taken);
    this.bytesTaken += taken + (isLast ? 1 : 0);
  }

  noteEmptied(bytes = 0): void {
    if (bytes > 0) this.#takeBytes(true);
  }

  get readable(): boolean {
    return this.path.bytes > this.bytesTaken;
  }

  /** The result of a read: a record of the ring, or one from the daemon. */
  take(): number | undefined {
    const word = Atomics.load(this.words, 0);
    const [head, tail, asks] = [word & 0x7fff, (word >> 15) & 0x7fff, word >> 30 !== 0];
    if (head === tail) {
      if (!asks) return undefined;
      const popped = this.events.pop();
      this.noteEmptied(popped?.bytes);
      return popped?.record;
    }
    const at = 64 + 8 * (head % 256);
    const record = (this.memory[at] ?? 0) + 256 * (this.memory[at + 1] ?? 0);
    const next = (head + 1) & 0x7fff;
    Atomics.store(this.words, 0, (word & ~0x7fff) | next);
    this.#takeBytes(next === tail && !asks);
    return record;
  }
}

describe('records that the program sees', () => {
  it('are taken without a request, with one byte each', () => {
    const shown = new Shown();
    for (const record of [1, 2]) shown.events.push(record, 'x');
    expect(shown.path.bytes).toBe(2);
    expect([shown.take(), shown.readable, shown.take(), shown.readable]).toEqual([
      1,
      true,
      2,
      false,
    ]);
    expect(shown.take()).toBeUndefined();
    shown.events.push(3, 'x');
    expect([shown.readable, shown.path.bytes, shown.read]).toEqual([true, 3, [1, 2]]);
    expect(shown.events.welcome).toBe('7 4096');
  });

  it('are requested once they fill the memory, in order, and then fill it again', () => {
    const shown = new Shown();
    const all = Array.from({ length: 1000 }, (_, index) => index);
    for (const record of all) shown.events.push(record, 'x');
    const taken = all.map(() => shown.take());
    expect(taken).toEqual(all);
    expect([shown.readable, shown.path.bytes, shown.take()]).toEqual([false, 17, undefined]);
    shown.events.push(7, 'x');
    expect([shown.readable, shown.take(), shown.readable]).toEqual([true, 7, false]);
  });

  it('agree with a plain queue in any order of operations', () => {
    const operation = fc.oneof(
      { weight: 6, arbitrary: fc.record({ push: fc.integer({ min: 0, max: 2 }) }) },
      { weight: 1, arbitrary: fc.record({ burst: fc.integer({ min: 200, max: 400 }) }) },
      { weight: 6, arbitrary: fc.constant('take' as const) },
      { weight: 1, arbitrary: fc.constant('drain' as const) },
      { weight: 1, arbitrary: fc.constant('pop' as const) },
      { weight: 2, arbitrary: fc.record({ purge: fc.integer({ min: 0, max: 2 }) }) },
    );
    const run = (operations: readonly unknown[]): void => {
      const shown = new Shown();
      let model: { record: number; owner: string }[] = [];
      let count = 0;
      const push = (owner: number): void => {
        count += 1;
        model.push({ record: count, owner: `${owner}` });
        shown.events.push(count, `${owner}`);
      };
      for (const each of operations) {
        const { push: owner, burst, purge } = Object(each);
        if (owner !== undefined) push(owner);
        for (let left: number = burst ?? 0; left > 0; left -= 1) push(left % 3);
        if (each === 'take') expect(shown.take()).toBe(model.shift()?.record);
        if (each === 'drain') {
          while (model.length > 0) expect(shown.take()).toBe(model.shift()?.record);
        }
        if (each === 'pop') {
          const popped = shown.events.pop();
          shown.noteEmptied(popped?.bytes);
          expect(popped?.record).toBe(model.shift()?.record);
        }
        if (purge !== undefined) {
          model = model.filter(({ owner: of }) => of !== `${purge}`);
          shown.noteEmptied(shown.events.purge(`${purge}`));
        }
        const more = Atomics.load(shown.words, 1);
        expect(shown.path.bytes - shown.bytesTaken).toBe(model.length > 0 ? 1 + more : 0);
        expect(shown.events.length).toBe(model.length);
        shown.events.assertInvariants();
      }
    };
    fc.assert(fc.property(fc.array(operation, { maxLength: 60 }), run), { numRuns: 300 });
  });

  it('a program that writes anything there loses its own events, and nothing else', () => {
    const run = (words: readonly number[]): void => {
      const shown = new Shown();
      for (const word of words) {
        shown.events.push(1, 'x');
        Atomics.store(shown.words, 0, word);
        shown.events.push(2, 'y');
        shown.events.purge('y');
        Atomics.store(shown.words, 0, ~word);
        shown.events.pop();
        shown.events.assertInvariants();
        expect(shown.events.length).toBeLessThanOrEqual(words.length);
      }
      shown.events.end();
      expect(shown.read.length).toBeLessThanOrEqual(2 * words.length);
    };
    fc.assert(fc.property(fc.array(fc.integer(), { maxLength: 50 }), run));
  });

  it('count as read when the descriptor ends', () => {
    const shown = new Shown();
    for (const record of [1, 2]) shown.events.push(record, 'x');
    shown.take();
    shown.events.end();
    expect([shown.read, shown.events.length]).toEqual([[1], 0]);
  });
});
