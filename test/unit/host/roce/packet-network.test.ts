/** Packets between the RoCE devices of a host: real queue pairs, real transports, simulated time. */
import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { expectOutcome } from '#test/support/outcomes';
import { mappedGid, PEER } from '#test/support/program-steps';
import { type RoceEnd, RoceWorld } from '#test/support/roce-host';

const { success } = CQEStatus;

/** Slow memory: writes are pending until `catchUp`, and more than 96 KiB of them congest it. */
class SlowBacking implements MemoryBacking {
  readonly tier = 'shared';
  readonly view = undefined;
  pendingWrites = 0;
  /** Lengths of all writes. */
  readonly lengths: number[] = [];
  #pendingBytes = 0;
  onReady: (() => void) | undefined = undefined;
  readonly #memory: ViewBacking;

  constructor(bytes: Uint8Array) {
    this.#memory = new ViewBacking(bytes);
  }
  get congested(): boolean {
    return this.#pendingBytes > 98_304;
  }
  prepareRead(): boolean {
    return true;
  }
  read(offset: number, length: number, target: Uint8Array, start: number): boolean {
    return this.#memory.read(offset, length, target, start);
  }
  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.pendingWrites += 1;
    this.#pendingBytes += length;
    this.lengths.push(length);
    return this.#memory.write(offset, bytes, start, length);
  }
  catchUp(): void {
    this.pendingWrites = 0;
    this.#pendingBytes = 0;
    this.onReady?.();
  }
}

function fill(end: RoceEnd, length: number, seed = 1): Uint8Array {
  for (let at = 0; at < length; at += 1) end.memory[at] = at * 31 + (at >> 8) * seed + seed;
  return end.memory.slice(0, length);
}

let world: RoceWorld;

beforeEach(() => {
  world = new RoceWorld();
});

describe('packets between two devices of a host', () => {
  it('carry Sends of any length, across the wrap of PSNs [ROCE-PSN-02, ROCE-ORD-01]', () => {
    const [a, b] = world.pair();
    const lengths = [1, 4095, 4096, 4097, 65_537, 524_288];
    lengths.forEach((length, index) => {
      const expected = fill(a, length, index);
      b.receives.post(index, [b.piece(0, length)]);
      a.send(index, 0, length);
      a.ring();
      world.run();
      expectOutcome(a.completions, [index, success]);
      const [completion] = b.completions.poll();
      expect(completion).toMatchObject({ wrId: index, status: success, bytes: length });
      expect(Buffer.compare(b.memory.subarray(0, length), expected)).toBe(0);
      b.memory.fill(0);
    });
    // 6 messages, 147 packets, and the acknowledgments of the other side.
    const packets = lengths.reduce((sum, length) => sum + Math.ceil(length / 4096), 0);
    const [from, to] = [world.device(0), world.device(1)].map((one) => one.rocePort?.counters);
    expect(from).toMatchObject({ sentPackets: packets, undeliverable: 0, receivedRnr: 0 });
    expect(to).toMatchObject({ receivedPackets: packets, undeliverable: 0 });
    expect(to?.sentPackets).toBe(from?.receivedPackets);
    expect(to?.sentPackets).toBeGreaterThanOrEqual(lengths.length);
  });

  it('carry Writes, Reads and atomics both ways at once [ROCE-ORD-03]', () => {
    const [a, b] = world.pair();
    const length = 300_000;
    const own = fill(a, length, 3);
    const theirs = fill(b, length, 5);
    for (const [end, peer] of [
      [a, b],
      [b, a],
    ] as const) {
      end.write(1, 0, length, peer, 400_000);
      end.read(2, 704_000, length, peer);
      const target = { raddr: peer.address(1_048_000), rkey: peer.mr.rkey };
      const word = { wrId: 3, sges: [end.piece(1_040_000, 8)], ...target };
      end.sends.post({ opcode: SQOpcode.fetchAndAdd, operand: 7n, ...word });
    }
    a.ring();
    b.ring();
    world.run();
    for (const [end, data] of [
      [a, theirs],
      [b, own],
    ] as const) {
      expectOutcome(end.completions, [1, success], [2, success], [3, success]);
      for (const at of [400_000, 704_000]) {
        expect(Buffer.compare(end.memory.subarray(at, at + length), data)).toBe(0);
      }
      expect([...end.memory.subarray(1_048_000, 1_048_008)]).toEqual([7, 0, 0, 0, 0, 0, 0, 0]);
    }
  });

  it('connect queue pairs of one device', () => {
    const world = new RoceWorld(1);
    const [a, b] = [world.end(0), world.end(0)];
    a.connect(b);
    b.connect(a);
    const expected = fill(a, 100);
    b.receives.post(9, [b.piece(0, 100)]);
    a.send(8, 0, 100);
    a.ring();
    world.run();
    expectOutcome(a.completions, [8, success]);
    expectOutcome(b.completions, [9, success]);
    expect(Buffer.compare(b.memory.subarray(0, 100), expected)).toBe(0);
  });

  it('wait for a receive by RNR NAK, and arrive once it is posted [ROCE-RNR-03, ROCE-RNR-07]', () => {
    const [a, b] = world.pair(QPType.rc, { rnrRetry: 7, minRnrTimer: 12 });
    fill(a, 10);
    a.send(1, 0, 10);
    a.ring();
    world.run(50_000);
    expect(a.completions.poll()).toEqual([]);
    const naks = world.device(1).rocePort?.counters.sentRnr ?? 0;
    expect(naks).toBeGreaterThan(1);
    expect(world.device(0).hwCounters).toMatchObject({ rcvd_rnr_err: naks, send_err: 0 });
    expect(world.device(1).hwCounters).toMatchObject({ send_rnr_err: naks, rcvd_rnr_err: 0 });
    // An empty receive queue is not an access error.
    const { missingReceives, accessErrors } = world.device(1).nic.counters;
    expect([missingReceives, accessErrors]).toEqual([naks, 0]);
    b.receives.post(2, [b.piece(0, 10)]);
    world.run(50_000);
    expectOutcome(a.completions, [1, success]);
    expectOutcome(b.completions, [2, success]);
  });

  it('are lost on the way to a missing queue pair, and the sender gives up [ROCE-RTY-03, IBV-WC-05]', () => {
    const [a, b] = world.pair(QPType.rc, { timeout: 10, retryCnt: 3 });
    b.qp.close(world.host.now());
    world.host.drain();
    a.send(1, 0, 10);
    a.send(2, 0, 10);
    a.ring();
    world.run(1_000_000);
    expectOutcome(a.completions, [1, CQEStatus.retryExcErr], [2, CQEStatus.wrFlushErr]);
    expect(a.qp.state).toBe(QPState.ERR);
    const counters = { completer_retry_err: 3, retry_exceeded_err: 1, send_err: 8, sent_pkts: 8 };
    expect(world.device(0).hwCounters).toMatchObject(counters);
  });

  it('fail a queue pair without a command: later receives are flushed', () => {
    const [a, b] = world.pair(QPType.rc, { timeout: 10, retryCnt: 3 });
    b.qp.close(world.host.now());
    world.host.drain();
    // The timer for queue pairs in error has found none, and ended.
    world.run(1_000_000);
    a.send(1, 0, 10);
    a.ring();
    world.run(1_000_000);
    expectOutcome(a.completions, [1, CQEStatus.retryExcErr]);
    a.receives.post(2, [a.piece(0, 10)]);
    world.run(1_000_000);
    expectOutcome(a.completions, [2, CQEStatus.wrFlushErr]);
  });

  it('are counted when no receive was ever posted [ROCE-RNR-09]', () => {
    const [a] = world.pair(QPType.rc, { rnrRetry: 2 });
    a.send(1, 0, 10);
    a.ring();
    world.run(1_000_000);
    expectOutcome(a.completions, [1, CQEStatus.rnrRetryExcErr]);
    expect(world.device(0).hwCounters).toMatchObject({
      rcvd_rnr_err: 3,
      retry_rnr_exceeded_err: 1,
      retry_exceeded_err: 0,
    });
  });

  it('do not pass a port without carrier, and pass again once it is back', () => {
    const [a, b] = world.pair(QPType.rc, { timeout: 14, retryCnt: 7 });
    world.device(1).portDown = true;
    b.receives.post(2, [b.piece(0, 10)]);
    a.send(1, 0, 10);
    a.ring();
    world.run(100_000);
    expect(a.completions.poll()).toEqual([]);
    expect(world.device(1).hwCounters).toMatchObject({ link_downed: 1, rcvd_pkts: 0 });
    world.device(1).portDown = false;
    world.run(100_000);
    expectOutcome(a.completions, [1, success]);
    expectOutcome(b.completions, [2, success]);
    expect(world.device(1).hwCounters).toMatchObject({ link_downed: 1, rcvd_pkts: 1 });
  });

  it('report a refused access to the sender before the refusing queue pair is gone', () => {
    const [a, b] = world.pair();
    const sges = [a.piece(0, 10)];
    a.sends.post({ opcode: SQOpcode.write, wrId: 1, sges, raddr: 5n, rkey: 0xdead00 });
    a.ring();
    // No timeout has passed: the NAK arrived.
    world.run();
    expectOutcome(a.completions, [1, CQEStatus.remAccessErr]);
    expect([a.qp.state, b.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
  });

  it('acknowledge received packets even if the receiver is destroyed at once', () => {
    const [a, b] = world.pair();
    world.host.onCompletion = () => {
      world.host.onCompletion = () => {};
      b.qp.close(world.host.now());
    };
    b.completions.arm(1);
    b.receives.post(2, [b.piece(0, 10)]);
    a.send(1, 0, 10);
    a.ring();
    world.run();
    expectOutcome(a.completions, [1, success]);
  });

  it('are accepted only from the queue pair that their receiver has named [ROCE-GRH-01]', () => {
    const world = new RoceWorld(3);
    const [a, b] = world.pair(QPType.uc);
    const stranger = world.end(2, QPType.uc);
    stranger.connect(b);
    stranger.memory.fill(0xee, 0, 10);
    stranger.write(1, 0, 10, b);
    stranger.ring();
    world.run();
    expectOutcome(stranger.completions, [1, success]);
    expect(b.memory[0]).toBe(0);
    expect(world.device(2).rocePort?.counters.undeliverable).toBe(1);
    a.write(2, 0, 10, b);
    a.memory.fill(0x77, 0, 10);
    a.ring();
    world.run();
    expect(b.memory[0]).toBe(0x77);
  });

  it('pass between the addresses of the connection only [ROCE-GRH-01, IBV-GID-03]', () => {
    const [a, b] = [world.end(0), world.end(1)];
    const second = mappedGid(127, 0, 1, 2);
    a.connect(b, { retryCnt: 1, timeout: 10 });
    // It expects the peer at the peer's other address.
    b.connect(a, { ahAttr: { ...PEER, dgid: second } });
    b.receives.post(2, [b.piece(0, 10)]);
    a.send(1, 0, 10);
    a.ring();
    world.run(1_000_000);
    expectOutcome(a.completions, [1, CQEStatus.retryExcErr]);
    expectOutcome(b.completions);
    const [c, d] = [world.end(0), world.end(1)];
    c.connect(d, { ahAttr: { ...PEER, dgid: mappedGid(127, 0, 0, 3), sgidIndex: 2 } });
    d.connect(c, { ahAttr: { ...PEER, dgid: second } });
    d.receives.post(4, [d.piece(0, 10)]);
    c.send(3, 0, 10);
    c.ring();
    world.run();
    expectOutcome(c.completions, [3, success]);
  });

  it('make no zero-length requests that their receiver does not permit [ROCE-NAK-10]', () => {
    const raddr = 0n;
    const requests = [
      { opcode: SQOpcode.write, wrId: 1, raddr, rkey: 0 },
      { opcode: SQOpcode.writeWithImm, wrId: 1, raddr, rkey: 0 },
      { opcode: SQOpcode.read, wrId: 1, raddr, rkey: 0 },
    ];
    for (const request of requests) {
      const world = new RoceWorld();
      const [a, b] = world.pair(QPType.rc, { accessFlags: 0 });
      b.receives.post(2, [b.piece(0, 10)]);
      a.sends.post({ ...request, sges: [] });
      a.ring();
      world.run();
      expectOutcome(a.completions, [1, CQEStatus.remInvReqErr]);
      expectOutcome(b.completions, [2, CQEStatus.wrFlushErr]);
    }
  });

  it('notify a queue pair in RTR of the first message, even of zero length [IBV-AE-01]', () => {
    for (const opcode of [SQOpcode.write, SQOpcode.read]) {
      const world = new RoceWorld();
      const [a, b] = [world.end(0), world.end(1)];
      const notified: string[] = [];
      world.host.onAsync = (device, { event }) => notified.push(`${device.name} ${event}`);
      a.connect(b);
      b.connect(a, {}, QPState.RTR);
      a.sends.post({ opcode, wrId: 1, sges: [], raddr: 0n, rkey: 0 });
      a.ring();
      world.run();
      expectOutcome(a.completions, [1, success]);
      expect(notified).toEqual([`roce1 ${AsyncEventType.commEst}`]);
    }
  });

  it('are held back, not lost, while the memory of their receiver lags', () => {
    const [a, b, memory] = world.pairOn((bytes) => new SlowBacking(bytes));
    // The packets of one turn, before the network checks the memory again.
    const burst = 32;
    const length = 4 * burst * 4096;
    const expected = fill(a, length);
    a.write(1, 0, length, b);
    a.ring();
    world.run();
    const counters = world.device(0).rocePort?.counters;
    expect(counters?.sentPackets).toBe(burst);
    for (let turn = 2; turn <= 4; turn += 1) {
      memory.catchUp();
      world.host.drain();
      world.run();
      expect(counters?.sentPackets).toBe(burst * turn);
    }
    memory.catchUp();
    world.host.drain();
    world.run();
    expectOutcome(a.completions, [1, success]);
    expect(Buffer.compare(b.memory.subarray(0, length), expected)).toBe(0);
    expect(counters).toMatchObject({ undeliverable: 0, sentPackets: 4 * burst });
  });

  it('stand for several of a network, which are counted', () => {
    const [a, b, memory] = world.pairOn((bytes) => new SlowBacking(bytes));
    const length = 65_536 + 100;
    const expected = fill(a, length);
    a.write(1, 0, length, b);
    a.ring();
    world.run();
    memory.catchUp();
    world.host.drain();
    world.run();
    expectOutcome(a.completions, [1, success]);
    expect(memory.lengths).toEqual([65_536, 100]);
    expect(Buffer.compare(b.memory.subarray(0, length), expected)).toBe(0);
    expect(world.device(0).rocePort?.counters.sentPackets).toBe(17);
    expect(world.device(1).rocePort?.counters.receivedPackets).toBe(17);
  });

  it('fail a queue pair whose receive finds its completion queue full, without a reply to its peer [IBV-CQ-02]', () => {
    const [a, b] = world.pair(QPType.rc, { retryCnt: 1, timeout: 10 });
    const room = b.qp.recvCQ.count;
    for (let sent = 0; sent <= room; sent += 1) {
      b.receives.post(sent, [b.piece(0, 8)]);
      a.send(sent, 0, 8);
      a.ring();
      world.run();
      if (sent < room) expectOutcome(a.completions, [sent, success]);
    }
    expect(b.qp.state).toBe(QPState.ERR);
    expect([b.qp.recvCQ.written, b.qp.recvCQ.lost]).toEqual([room, 1]);
    world.run(1_000_000);
    expectOutcome(a.completions, [room, CQEStatus.retryExcErr]);
    expect(a.qp.state).toBe(QPState.ERR);
  });

  it('share turns: a small message does not wait for a large one to end', () => {
    const [bulk, sink] = world.pair();
    const [quick, target] = world.pair();
    for (let index = 0; index < 32; index += 1) {
      bulk.write(index, 0, 1_000_000, sink);
    }
    bulk.ring();
    // The host has yielded before all of it was sent.
    expect(bulk.completions.poll().length).toBeLessThan(32);
    expect(world.time.busy).toBe(true);
    target.receives.post(1, [target.piece(0, 10)]);
    quick.send(1, 0, 10);
    quick.ring();
    world.time.step();
    expectOutcome(quick.completions, [1, success]);
    expect(bulk.completions.poll().length).toBeLessThan(32);
    world.run();
    expect(world.device(0).rocePort?.counters.undeliverable).toBe(0);
  });
});
