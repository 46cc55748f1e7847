import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { seededRandom } from '#base/random';
import {
  COPY_MAX_BYTES,
  COPY_ORDERS,
  COPY_RING_BYTES,
  CopyRing,
  CopyState,
} from '#daemon/clients/objects/copy-ring';
import { DirectCopies } from '#daemon/clients/objects/direct-copies';
import { IncomingCopies } from '#daemon/clients/objects/incoming-copies';
import { ProcessBacking } from '#daemon/clients/objects/process-backing';
import type { CopyEnd } from '#daemon/rnic/memory/memory-backing';
import { addressOf } from '#native-bridge/libc/libc';
import { ProcessMemory } from '#native-bridge/libc/process-vm';
import { SharedMemory } from '#native-bridge/libc/shared-memory';

const BYTES = COPY_MAX_BYTES;
const SERVED = 0;
const IDLE = 1;
const AWAITED = 16;
const EPERM = 1;
const EFAULT = 14;
const ECANCELED = 125;

/** The program's side of the ring: carries out orders when told to. */
class Agent {
  readonly words: Int32Array;
  next = 0;
  readonly #process = new ProcessMemory(process.pid);

  constructor(ring: CopyRing) {
    const { view } = SharedMemory.mapPart(ring.descriptor ?? -1, 0, COPY_RING_BYTES);
    this.words = new Int32Array(view.buffer, view.byteOffset, COPY_RING_BYTES / 4);
    this.words[IDLE] = 1;
    this.words[SERVED] = 1;
  }

  get #at(): number {
    return 32 + (this.next % COPY_ORDERS) * 16;
  }

  get state(): number {
    return this.words[this.#at] ?? 0;
  }

  /** True if the next order has begun now. */
  begin(): boolean {
    const { posted, started } = CopyState;
    return Atomics.compareExchange(this.words, this.#at, posted, started) === posted;
  }

  /** Ends the order that has begun, with a copy unless it fails. */
  finish(error = 0): void {
    const at = this.#at;
    const field = (word: number): number => (this.words[at + word] ?? 0) >>> 0;
    const [source, target, length] = [
      field(2) + field(3) * 2 ** 32,
      field(4) + field(5) * 2 ** 32,
      field(6),
    ];
    const bytes = new Uint8Array(length);
    if (error === 0) {
      expect(this.#process.read(source, bytes, 0, length)).toBe(true);
      expect(field(7)).toBe(process.pid);
      expect(this.#process.write(target, bytes, 0, length)).toBe(true);
    }
    this.words[at + 1] = error;
    this.words[at] = CopyState.done;
    this.next += 1;
  }

  /** Passes cancelled orders. */
  pass(): void {
    for (; this.state === CopyState.cancelled; this.next += 1) {
      this.words[this.#at + 1] = ECANCELED;
      this.words[this.#at] = CopyState.done;
    }
  }

  run(): number {
    let count = 0;
    for (; this.begin(); count += 1) this.finish();
    return count;
  }
}

let memory: ProcessMemory;
let ring: CopyRing;
let agent: Agent;
let copies: DirectCopies;
let incoming: IncomingCopies;
let open: boolean;
let ended: boolean;
let wakes: number;
let released: number;
let turns: (() => void)[];
let alarms: (() => void)[];
let results: CopyEnd[];
let ready: number;
let unread: number;
const lender = {
  lent: 0,
  returned: () => {
    lender.lent -= 1;
  },
  lendingFailed: () => {
    unread += 1;
  },
};
const taker = { copied: (end: CopyEnd) => void results.push(end) };

/** Registered memory of this process. */
class Region {
  readonly bytes = new Uint8Array(4 * BYTES);
  readonly backing: ProcessBacking;

  constructor(fill = 0) {
    this.bytes.fill(fill);
    const start = Number(addressOf(this.bytes));
    this.backing = new ProcessBacking(memory, start, this.bytes.length, {
      copies,
      incoming,
      takesCopies: true,
    });
    this.backing.onReady = () => {
      ready += 1;
    };
  }

  order(source: Region, offset = 0, length = BYTES): void {
    lender.lent += 1;
    const placed = this.backing.copyFrom(offset, source.backing, offset, length, {
      lender,
      message: lender,
      taker,
    });
    expect(placed).toBe(true);
  }
}

/** Runs turns of the event loop until nothing is due but alarms. */
function settle(): void {
  for (let left = 1000; turns.length > 0; left -= 1) {
    expect(left).toBeGreaterThan(0);
    for (const run of turns.splice(0)) run();
  }
  copies.assertInvariants();
}

beforeEach(() => {
  [open, ended, wakes, released, turns, alarms, results, ready] = [
    true,
    false,
    0,
    0,
    [],
    [],
    [],
    0,
  ];
  lender.lent = 0;
  unread = 0;
  memory = new ProcessMemory(process.pid);
  ring = new CopyRing();
  agent = new Agent(ring);
  incoming = new IncomingCopies();
  copies = new DirectCopies(
    ring,
    {
      soon: (run) => void turns.push(run),
      after: (_, run) => void alarms.push(run),
      drain: () => undefined,
      yieldCore: () => undefined,
      readClock: () => undefined,
    },
    {
      get agentOpen() {
        return open;
      },
      get ended() {
        return ended;
      },
      asleep: false,
      wake: () => {
        wakes += 1;
      },
      release: () => {
        released += 1;
      },
    },
  );
});

afterEach(() => {
  memory.close();
});

describe('copies by an agent', () => {
  it('are reported once they are in place, in order', () => {
    const [source, target] = [new Region(5), new Region()];
    target.order(source);
    target.order(source, BYTES, 1000);
    expect([wakes, lender.lent]).toEqual([1, 2]);
    settle();
    expect(results).toEqual([]);
    expect(agent.words[AWAITED]).toBe(1);
    expect(agent.begin()).toBe(true);
    copies.handleCopied();
    expect(results).toEqual([]);
    agent.finish();
    expect(agent.run()).toBe(1);
    copies.handleCopied();
    settle();
    expect([results, ready, lender.lent]).toEqual([['placed', 'placed'], 2, 0]);
    expect(target.bytes.subarray(0, BYTES + 1000).every((byte) => byte === 5)).toBe(true);
    expect(target.bytes[BYTES + 1000]).toBe(0);
  });

  it('fill the ring again and again', () => {
    const [source, target] = [new Region(7), new Region()];
    for (let count = 0; count < 3 * COPY_ORDERS + 1; count += 1) target.order(source, 0, 1 + count);
    let done = 0;
    for (let turn = 0; turn < 5; turn += 1) {
      done += agent.run();
      copies.handleCopied();
      settle();
    }
    expect([done, results.length, copies.count]).toEqual([
      3 * COPY_ORDERS + 1,
      3 * COPY_ORDERS + 1,
      0,
    ]);
  });

  it('are made by the daemon after a failure, in order, and the next by the agent again', () => {
    const [source, target] = [new Region(3), new Region()];
    for (let at = 0; at < 3; at += 1) target.order(source, at * BYTES);
    agent.begin();
    agent.finish(EFAULT);
    agent.words[IDLE] = 1;
    const before = wakes;
    copies.handleCopied();
    settle();
    expect([results, wakes > before]).toEqual([['placed', 'placed', 'placed'], true]);
    expect(target.bytes.subarray(0, 3 * BYTES).every((byte) => byte === 3)).toBe(true);
    agent.pass();
    target.order(source, 3 * BYTES);
    expect(agent.run()).toBe(1);
    copies.handleCopied();
    expect(results).toHaveLength(4);
    expect(copies.usable).toBe(true);
  });

  it('are the last ones if the kernel forbids them', () => {
    const [source, target] = [new Region(3), new Region()];
    target.order(source);
    target.order(source, BYTES);
    agent.begin();
    agent.finish(EPERM);
    copies.handleCopied();
    expect([results, copies.usable, source.backing.lender]).toEqual([
      ['placed', 'placed'],
      false,
      undefined,
    ]);
  });

  it('are unread if their source is gone, for which the receiver is not blamed', () => {
    const [source, target] = [new Region(3), new Region()];
    target.order(source);
    source.backing.release();
    agent.begin();
    agent.finish(EFAULT);
    copies.handleCopied();
    expect([results, unread, lender.lent]).toEqual([['unread'], 1, 0]);
  });

  it('are refused by memory of a process that has ended', () => {
    const [source, target] = [new Region(3), new Region()];
    memory.close();
    const ends = { lender, message: lender, taker };
    expect(target.backing.copyFrom(0, source.backing, 0, 1, ends)).toBe(false);
  });

  it('never write where a region was, and its end waits for one that has begun', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    target.order(source, BYTES);
    agent.begin();
    target.backing.release();
    expect(incoming.ending).toBe(true);
    let over = 0;
    incoming.whenOver(() => {
      over += 1;
    });
    settle();
    for (const run of alarms.splice(0)) run();
    expect([over, results]).toEqual([0, []]);
    agent.finish();
    expect(agent.begin()).toBe(false);
    copies.handleCopied();
    expect([over, incoming.ending, results]).toEqual([1, false, ['placed', 'lost']]);
    expect(target.bytes[BYTES]).toBe(1);
  });

  it('are dropped when their taker ends', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    copies.abandon(taker);
    copies.handleCopied();
    expect([results, target.bytes[0]]).toEqual([['lost'], 1]);
  });

  it('are made by the daemon, in order, when their lender ends, and the sender waits for that', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    target.order(source, BYTES);
    agent.begin();
    copies.hasten(lender);
    settle();
    // The first has begun: the second must not overtake it.
    expect([results, target.bytes[BYTES], incoming.ending]).toEqual([[], 1, true]);
    agent.finish();
    expect(agent.begin()).toBe(false);
    copies.handleCopied();
    expect([results, target.bytes[BYTES]]).toEqual([['placed', 'placed'], 3]);
    expect(incoming.ending).toBe(false);
  });

  it('that a program allows no longer are made, and the program waits for them', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    target.order(source, BYTES);
    agent.begin();
    copies.conclude(taker);
    target.order(source, 2 * BYTES);
    expect([incoming.ending, results]).toEqual([true, []]);
    agent.finish();
    copies.handleCopied();
    // The daemon has made the one that had not begun.
    expect([incoming.ending, results]).toEqual([false, ['placed', 'placed']]);
  });

  it('are forgotten by the receivers when the sender ends', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    copies.close();
    settle();
    expect([results, released, [...incoming.makers]]).toEqual([['placed'], 1, []]);
  });

  it('follow memory that its process moves', () => {
    const [source, target, room] = [new Region(3), new Region(1), new Region(1)];
    target.order(source);
    target.backing.move(Number(addressOf(room.bytes)));
    copies.handleCopied();
    expect([results, target.bytes[0], room.bytes[0]]).toEqual([['placed'], 1, 3]);
  });

  it.each(['before', 'after'])(
    'do not overtake an earlier one whose memory has moved: ordered %s the move',
    (when) => {
      const [source, room] = [new Region(3), new Region(1)];
      const [first, second, flag] = [new Region(1), new Region(1), new Region(1)];
      first.order(source);
      second.order(source);
      if (when === 'before') flag.order(source, 0, 64);
      agent.begin();
      second.backing.move(Number(addressOf(room.bytes)));
      if (when === 'after') flag.order(source, 0, 64);
      agent.finish();
      agent.pass();
      expect(agent.run()).toBe(0);
      copies.handleCopied();
      // The next order may be the agent's again.
      agent.run();
      expect([room.bytes[0], flag.bytes[0]]).toEqual([3, 3]);
    },
  );

  it('of a message after one that could not be read are not placed', () => {
    const [bad, good, first, later] = [new Region(3), new Region(4), new Region(1), new Region(1)];
    first.order(bad);
    later.order(good);
    bad.backing.release();
    agent.begin();
    agent.finish(EFAULT);
    copies.handleCopied();
    settle();
    expect([results[0], first.bytes[0], later.bytes[0]]).toEqual(['unread', 1, 1]);
  });

  it('ordered after an earlier one has failed, which a drop noticed, do not overtake it', () => {
    const [source, first, flag, gone] = [
      new Region(3),
      new Region(1),
      new Region(1),
      new Region(1),
    ];
    first.order(source);
    gone.order(source);
    agent.begin();
    agent.finish(EFAULT);
    gone.backing.release();
    flag.order(source, 0, 64);
    agent.pass();
    agent.run();
    expect([first.bytes[0], flag.bytes[0]]).not.toEqual([1, 3]);
  });

  it.each(['hasten', 'handleClosed', 'close'] as const)(
    'do not overtake an earlier one that the daemon takes back while the agent works: %s',
    (how) => {
      const [source, data, flag] = [new Region(3), new Region(1), new Region(1)];
      data.order(source);
      flag.order(source, 0, 64);
      // The agent sees the first cancellation before the second.
      const cancel = ring.cancel.bind(ring);
      ring.cancel = (slot) => {
        const done = cancel(slot);
        agent.pass();
        if (agent.begin()) agent.finish();
        return done;
      };
      let early = false;
      const write = data.backing.write.bind(data.backing);
      data.backing.write = (...parts) => {
        early ||= flag.bytes[0] === 3;
        return write(...parts);
      };
      if (how === 'hasten') copies.hasten(lender);
      else copies[how]();
      settle();
      expect(early).toBe(false);
    },
  );

  it('are made by the daemon if the agent goes, except those that it has begun', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    target.order(source, BYTES);
    agent.begin();
    open = false;
    copies.handleClosed();
    settle();
    expect([results, copies.usable]).toEqual([[], false]);
    ended = true;
    for (const run of alarms.splice(0)) run();
    expect([results, target.bytes[0], target.bytes[BYTES]]).toEqual([['placed', 'placed'], 3, 3]);
    copies.close();
    expect(released).toBe(1);
  });

  it('into an ended process are dropped', () => {
    const [source, target] = [new Region(3), new Region(1)];
    target.order(source);
    copies.dropAllInto(incoming);
    settle();
    expect([results, target.bytes[0], agent.begin()]).toEqual([['lost'], 1, false]);
  });

  it('of a program that writes anything into the ring harm no other memory', () => {
    const random32 = seededRandom(7);
    const draw = (count: number): number => random32() % count;
    const [source, target] = [new Region(3), new Region(1)];
    const other = new Region(6);
    let ordered = 0;
    for (let step = 0; step < 3000; step += 1) {
      for (let writes = draw(4); writes > 0; writes -= 1) {
        const random = draw(2) === 0 ? draw(6) : draw(2 ** 31);
        agent.words[draw(agent.words.length)] = random;
      }
      if (draw(3) === 0 && copies.count < 200) {
        target.order(source, draw(3) * BYTES, 1 + draw(BYTES));
        ordered += 1;
      }
      if (draw(20) === 0) copies.abandon(taker);
      copies.handleCopied();
      for (const run of turns.splice(0)) run();
      expect(results.length + copies.count).toBe(ordered);
    }
    ended = true;
    for (const run of turns.splice(0)) run();
    copies.close();
    for (let turn = 0; turn < 100; turn += 1) {
      for (const run of [...turns.splice(0), ...alarms.splice(0)]) run();
    }
    expect([copies.count, lender.lent, released]).toEqual([0, 0, 1]);
    expect(other.bytes.every((byte) => byte === 6)).toBe(true);
  });
});
