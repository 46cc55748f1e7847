/** Packets within a host for memory that another process owns, that is slow, or that disappears. */
import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { expectOutcome } from '#test/support/outcomes';
import { type RoceEnd, RoceWorld } from '#test/support/roce-host';
import { SlowBacking } from '#test/support/test-memory';

const { success, locProtErr, remOpErr, wrFlushErr } = CQEStatus;

/** Memory that is reached by calls, which carry out deferred ones; bytes may disappear. */
class CalledBacking implements MemoryBacking {
  readonly tier = 'process_vm';
  readonly view = undefined;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;
  /** Calls, and the first offset that is gone. */
  reads = 0;
  writes = 0;
  goneFrom = Number.POSITIVE_INFINITY;
  beforeRead: () => void = () => undefined;
  beforeWrite: () => void = () => undefined;
  readonly #memory: ViewBacking;
  #readsDue: (() => boolean)[] = [];
  #writesDue: (() => boolean)[] = [];

  constructor(bytes: Uint8Array) {
    this.#memory = new ViewBacking(bytes);
  }
  prepareRead(): boolean {
    return true;
  }
  read(offset: number, length: number, target: Uint8Array, start: number): boolean {
    return offset + length <= this.goneFrom && this.#memory.read(offset, length, target, start);
  }
  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    return offset + length <= this.goneFrom && this.#memory.write(offset, bytes, start, length);
  }
  readLater(offset: number, length: number, target: Uint8Array, start: number): boolean {
    this.#readsDue.push(() => this.read(offset, length, target, start));
    return true;
  }
  writeLater(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.#writesDue.push(() => this.write(offset, bytes, start, length));
    return true;
  }
  flushReads(): boolean {
    this.beforeRead();
    this.reads += 1;
    return this.#readsDue.splice(0).every((read) => read());
  }
  flush(): boolean {
    this.beforeWrite();
    this.writes += 1;
    return this.#writesDue.splice(0).every((write) => write());
  }
}

let world: RoceWorld;

beforeEach(() => {
  world = new RoceWorld();
});

/** Two ends with memory accessed by system calls. */
function calledPair(type: QPType = QPType.rc): [RoceEnd, RoceEnd, CalledBacking, CalledBacking] {
  const backings: CalledBacking[] = [];
  const make = (bytes: Uint8Array): CalledBacking => {
    const backing = new CalledBacking(bytes);
    backings.push(backing);
    return backing;
  };
  const [a, b] = [world.end(0, type, make), world.end(1, type, make)];
  a.connect(b);
  b.connect(a);
  return [a, b, backings[0] as CalledBacking, backings[1] as CalledBacking];
}

describe('memory that is reached by system calls', () => {
  it('is read once and written once for the packets of a turn', () => {
    const [a, b, from, to] = calledPair();
    const length = 65_536;
    for (let at = 0; at < length; at += 1) a.memory[at] = at * 7 + (at >> 8);
    b.receives.post(1, [b.piece(0, 16)]);
    a.write(1, 0, length, b, 100_000);
    a.send(2, 5, 16);
    a.ring();
    world.run();
    expectOutcome(a.completions, [1, success], [2, success]);
    expectOutcome(b.completions, [1, success]);
    const written = b.memory.subarray(100_000, 100_000 + length);
    expect(Buffer.compare(written, a.memory.subarray(0, length))).toBe(0);
    expect(Buffer.compare(b.memory.subarray(0, 16), a.memory.subarray(5, 21))).toBe(0);
    expect([from.reads, to.writes]).toEqual([1, 1]);
  });

  it('is read once for all Reads of a turn', () => {
    const [a, b, , from] = calledPair();
    const length = 20_000;
    for (let at = 0; at < 3 * length; at += 1) b.memory[at] = at * 7 + (at >> 8);
    for (const wrId of [1, 2, 3]) {
      a.read(wrId, wrId * 100_000, length, b, (wrId - 1) * length);
    }
    a.ring();
    world.run();
    expect(a.completions.outcome()).toEqual([1, 2, 3].map((id) => [id, success]));
    for (const id of [1, 2, 3]) {
      const came = a.memory.subarray(id * 100_000, id * 100_000 + length);
      const read = b.memory.subarray((id - 1) * length, id * length);
      expect(Buffer.compare(came, read)).toBe(0);
    }
    expect(from.reads).toBe(1);
  });

  it('refuses the Read whose source is gone, after the answers to all before it', () => {
    const [a, b, , from] = calledPair();
    from.goneFrom = 30_000;
    b.memory[8] = 40;
    b.receives.post(9, [b.piece(0, 4)]);
    const word = { raddr: b.address(8), rkey: b.mr.rkey, sges: [a.piece(500_000, 8)] };
    a.sends.post({ opcode: SQOpcode.fetchAndAdd, operand: 2n, wrId: 1, ...word });
    a.read(2, 0, 9000, b);
    a.read(3, 9000, 12_000, b, 20_000);
    a.read(4, 30_000, 8, b);
    a.ring();
    world.run(5_000_000);
    expectOutcome(a.completions, [1, success], [2, success], [3, remOpErr], [4, wrFlushErr]);
    expect(a.memory[500_000]).toBe(40);
    expect(b.memory[8]).toBe(42);
    expect([a.qp.state, b.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
  });

  it('is read once and written once for the messages of a turn on UC, too', () => {
    const [a, b, from, to] = calledPair(QPType.uc);
    const length = 20_000;
    for (let at = 0; at < 3 * length; at += 1) a.memory[at] = at * 7 + (at >> 8);
    for (const id of [1, 2, 3]) {
      b.receives.post(id, [b.piece(id * 100_000, length)]);
      a.send(id, (id - 1) * length, length);
    }
    // No completion releases memory that must still be read.
    const seen: number[] = [];
    from.beforeRead = () => seen.push(a.completions.poll().length);
    to.beforeWrite = () => seen.push(b.completions.poll().length);
    a.ring();
    world.run();
    expect(seen).toEqual([0, 0]);
    for (const end of [a, b]) {
      expectOutcome(end.completions, [1, success], [2, success], [3, success]);
    }
    for (const id of [1, 2, 3]) {
      const came = b.memory.subarray(id * 100_000, id * 100_000 + length);
      const sent = a.memory.subarray((id - 1) * length, id * length);
      expect(Buffer.compare(came, sent)).toBe(0);
    }
    expect([from.reads, to.writes]).toEqual([1, 1]);
  });

  it.each([
    ['RC', QPType.rc],
    ['UC', QPType.uc],
  ])('of %s fails only the work request whose memory is gone', (_, type) => {
    const [a, b, from] = calledPair(type);
    for (const id of [1, 2, 3]) b.receives.post(id, [b.piece(64 * id, 64)]);
    from.goneFrom = 1000;
    for (const [wrId, at] of [
      [1, 0],
      [2, 2000],
      [3, 64],
    ] as const) {
      a.send(wrId, at, 64);
    }
    a.ring();
    world.run();
    expectOutcome(a.completions, [1, wrFlushErr], [2, locProtErr], [3, wrFlushErr]);
    expect(a.qp.state).toBe(QPState.ERR);
    expectOutcome(b.completions);
  });

  it('fails every received message, without an acknowledgement, when it is gone', () => {
    const [a, b, , to] = calledPair();
    b.receives.post(1, [b.piece(2000, 64)]);
    b.receives.post(2, [b.piece(0, 64)]);
    to.goneFrom = 1000;
    for (const wrId of [1, 2]) a.send(wrId, 0, 64);
    a.ring();
    world.run();
    expectOutcome(b.completions, [1, locProtErr], [2, wrFlushErr]);
    expectOutcome(a.completions, [1, remOpErr], [2, wrFlushErr]);
    expect([a.qp.state, b.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
  });
});

describe('slow memory', () => {
  function write(a: RoceEnd, b: RoceEnd): void {
    a.memory.fill(9, 0, 100);
    a.write(1, 0, 100, b);
    a.ring();
  }

  it('acknowledges a Write only once it is placed [ROCE-ACK-06]', () => {
    const [a, b, memory] = world.pairOn((bytes) => new SlowBacking(bytes));
    write(a, b);
    world.run();
    expectOutcome(a.completions);
    expect(b.memory[0]).toBe(0);
    memory.settle();
    world.host.drain();
    world.run();
    expectOutcome(a.completions, [1, success]);
    expect(b.memory[99]).toBe(9);
  });

  it('does not acknowledge a Write by a NAK for a later packet either', () => {
    for (const spec of [
      { kind: 'nak', syndrome: 'psn-sequence', nth: 2 },
      { kind: 'rnr', nth: 2 },
    ] as const) {
      world = new RoceWorld();
      const [a, b, memory] = world.pairOn((bytes) => new SlowBacking(bytes));
      world.host.faults.add(spec, undefined);
      write(a, b);
      write(a, b);
      world.run();
      expectOutcome(a.completions);
      memory.settle();
      world.host.drain();
      world.run(10_000);
      memory.settle();
      world.host.drain();
      world.run();
      expectOutcome(a.completions, [1, success], [1, success]);
    }
  });

  it('never acknowledges a lost Write', () => {
    const [a, b, memory] = world.pairOn((bytes) => new SlowBacking(bytes));
    write(a, b);
    world.run();
    memory.lose();
    world.host.drain();
    world.run(60_000_000);
    expect(b.qp.state).toBe(QPState.ERR);
    const outcome = a.completions.outcome();
    expect(outcome).toHaveLength(1);
    expect(outcome[0]?.[1]).not.toBe(success);
    expect(a.qp.state).toBe(QPState.ERR);
  });
});
