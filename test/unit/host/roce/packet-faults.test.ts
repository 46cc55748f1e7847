/** Faults of packets between the RoCE devices of a host: real queue pairs, simulated time. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { FaultKind, FaultSpec } from '#contract/protocol/faults';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import type { Fault, FaultPeer } from '#daemon/faults/fault';
import { parseFaultPeer } from '#daemon/host/fault-peer';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { Prng } from '#test/support/prng';
import { type RoceEnd, RoceWorld } from '#test/support/roce-host';
import { VirtualClock, VirtualTime } from '#test/support/virtual-time';

const SECOND = 1_000_000;
const LENGTH = 3 * 4096;
/** Timeout 14 as programs use it, 67 ms, and a few retries. */
const RETRIES = { timeout: 14, retryCnt: 3, rnrRetry: 3, minRnrTimer: 12 };

class Faulty extends RoceWorld {
  readonly ends: readonly [RoceEnd, RoceEnd] = this.pair(QPType.rc, RETRIES);
  #messages = 0;

  fault(spec: FaultSpec): Fault {
    const peer = spec.peer === undefined ? undefined : parseFaultPeer(spec.peer);
    return this.host.faults.add(spec, peer as FaultPeer | undefined);
  }

  counters(device: number): Readonly<Record<string, number>> {
    return this.device(device).hwCounters ?? {};
  }

  /** Sends a message of three packets from the first end to the second, without running. */
  send(): Uint8Array {
    const [a, b] = this.ends;
    this.#messages += 1;
    const at = this.#messages * LENGTH;
    for (let index = 0; index < LENGTH; index += 1) a.memory[at + index] = index * 31 + at;
    b.receives.post(this.#messages, [b.piece(at, LENGTH)]);
    a.sends.post({ opcode: SQOpcode.send, wrId: this.#messages, sges: [a.piece(at, LENGTH)] });
    return a.memory.slice(at, at + LENGTH);
  }

  /** Sends some messages and expects all of them, once, in order, with their data. */
  expectMessages(count: number, micros = SECOND): void {
    const [a, b] = this.ends;
    const first = this.#messages + 1;
    const expected = Array.from({ length: count }, () => this.send());
    a.ring();
    this.run(micros);
    const outcome = expected.map((_, index) => [first + index, CQEStatus.success]);
    expect(a.completions.outcome()).toEqual(outcome);
    expect(b.completions.outcome()).toEqual(outcome);
    expected.forEach((data, index) => {
      const at = (first + index) * LENGTH;
      expect(Buffer.compare(b.memory.subarray(at, at + LENGTH), data)).toBe(0);
    });
  }

  sendAndRun(micros: number): void {
    this.send();
    this.ends[0].ring();
    this.run(micros);
  }

  /** Sends one message; returns its completion. */
  outcome(): number | undefined {
    this.sendAndRun(10 * SECOND);
    return this.ends[0].completions.outcome()[0]?.[1];
  }
}

let world: Faulty;

beforeEach(() => {
  world = new Faulty();
});

describe('a fault of packets', () => {
  it('drop: a lost packet is retransmitted, and counted [ROCE-RTY-08]', () => {
    const fault = world.fault({ kind: 'drop', opcode: 'send', nth: 2 });
    world.expectMessages(2);
    expect(fault.status.fired).toBe(1);
    expect(world.counters(1)).toMatchObject({ out_of_seq_request: expect.any(Number) });
    expect(world.counters(1)['out_of_seq_request']).toBeGreaterThan(0);
    expect(world.counters(0)['rcvd_seq_err']).toBe(1);
  });

  it('drop: also for a fault added before the network of the devices', () => {
    const world = new RoceWorld(2, null);
    const fault = world.host.faults.add({ kind: 'drop', opcode: 'send', nth: 1 }, undefined);
    world.host.addRoceNetwork(ROCE_NETWORK);
    const [a, b] = world.pair(QPType.rc, RETRIES);
    b.receives.post(1, [b.piece(0, 64)]);
    a.send(1, 0, 64);
    a.ring();
    world.run(SECOND);
    expect(b.completions.outcome()).toEqual([[1, CQEStatus.success]]);
    expect(fault.status.fired).toBe(1);
  });

  it('drop: the last packet of a message arrives after a timeout [ROCE-RTY-01, ROCE-RTY-08]', () => {
    world.fault({ kind: 'drop', opcode: 'send', nth: 3 });
    world.expectMessages(1);
    expect(world.counters(0)['completer_retry_err']).toBe(1);
  });

  it('drop: a lost acknowledgment makes a duplicate request [ROCE-RTY-08]', () => {
    world.fault({ kind: 'drop', opcode: 'acknowledge', nth: 1 });
    world.expectMessages(1);
    expect(world.counters(1)['duplicate_request']).toBeGreaterThan(0);
  });

  it('drop: with every packet lost, the sender gives up [ROCE-RTY-03]', () => {
    world.fault({ kind: 'drop' });
    expect(world.outcome()).toBe(CQEStatus.retryExcErr);
    expect(world.counters(0)).toMatchObject({ completer_retry_err: 3, retry_exceeded_err: 1 });
    expect(world.counters(1)).toMatchObject({ rcvd_pkts: 0 });
  });

  it('duplicate: a request is carried out once [ROCE-DUP-02]', () => {
    world.fault({ kind: 'duplicate', opcode: 'send', every: 2 });
    world.expectMessages(4);
    expect(world.counters(1)['duplicate_request']).toBe(6);
  });

  it('reorder: requests that arrive early are retransmitted [ROCE-ORD-01]', () => {
    const fault = world.fault({ kind: 'reorder', opcode: 'send', nth: 2 });
    world.expectMessages(2);
    expect(fault.status.fired).toBe(1);
    expect(world.counters(1)['out_of_seq_request']).toBeGreaterThan(0);
  });

  it('reorder: a packet that nothing overtakes is delayed', () => {
    world.fault({ kind: 'reorder', opcode: 'send', nth: 3 });
    world.sendAndRun(9_000);
    expect(world.ends[1].completions.outcome()).toEqual([]);
    world.run(2_000);
    expect(world.ends[1].completions.outcome()).toEqual([[1, CQEStatus.success]]);
    expect(world.counters(0)['completer_retry_err']).toBe(0);
  });

  it('corrupt-icrc: the receiver drops the packet and counts it [ROCE-ICRC-03]', () => {
    world.fault({ kind: 'corrupt-icrc', opcode: 'send', nth: 1 });
    world.expectMessages(1);
    expect(world.device(1).rocePort?.counters.icrcErrors).toBe(1);
    expect(world.device(0).rocePort?.counters.icrcErrors).toBe(0);
  });

  it('delay: every packet is late, and the order stays', () => {
    world.fault({ kind: 'delay', ms: 20, device: 'roce0', direction: 'out' });
    world.sendAndRun(19_000);
    expect(world.ends[1].completions.outcome()).toEqual([]);
    world.run(2_000);
    expect(world.ends[1].completions.outcome()).toEqual([[1, CQEStatus.success]]);
    expect(world.counters(1)).toMatchObject({ out_of_seq_request: 0, duplicate_request: 0 });
  });

  it('delay: its packets arrive when it is removed', () => {
    const { id } = world.fault({ kind: 'delay', ms: 3_600_000, direction: 'out', opcode: 'send' });
    world.sendAndRun(1000);
    expect(world.ends[1].completions.outcome()).toEqual([]);
    world.host.faults.remove(id);
    world.run(1000);
    expect(world.ends[1].completions.outcome()).toEqual([[1, CQEStatus.success]]);
  });

  it.each([
    ['invalid-request', CQEStatus.remInvReqErr],
    ['remote-access', CQEStatus.remAccessErr],
    ['remote-operation', CQEStatus.remOpErr],
  ] as const)('nak %s: ends the connection', (syndrome, status) => {
    const world = new Faulty();
    world.fault({ kind: 'nak', syndrome, device: 'roce1', direction: 'in' });
    expect(world.outcome()).toBe(status);
    expect(world.ends[0].qp.state).toBe(QPState.ERR);
    // As after a genuine NAK.
    expect(world.ends[1].qp.state).toBe(QPState.ERR);
    expect(world.ends[1].completions.outcome()).toEqual([[1, CQEStatus.wrFlushErr]]);
  });

  it('nak psn-sequence: the request is retransmitted', () => {
    world.fault({ kind: 'nak', syndrome: 'psn-sequence', nth: 2 });
    world.expectMessages(2);
    expect(world.counters(0)['rcvd_seq_err']).toBeGreaterThanOrEqual(1);
  });

  it('rnr: the sender waits for the receiver’s timer, then retries [ROCE-RNR-06]', () => {
    const fault = world.fault({ kind: 'rnr', nth: 1 });
    world.sendAndRun(600);
    expect(world.ends[0].completions.outcome()).toEqual([]);
    world.run(2000);
    expect(world.ends[0].completions.outcome()).toEqual([[1, CQEStatus.success]]);
    expect(fault.status).toMatchObject({ matched: 2, fired: 1 });
    expect(world.counters(0)['rcvd_rnr_err']).toBe(1);
    expect(world.counters(1)['send_rnr_err']).toBe(1);
  });

  it('rnr: without limit, the sender gives up', () => {
    world.fault({ kind: 'rnr' });
    expect(world.outcome()).toBe(CQEStatus.rnrRetryExcErr);
    expect(world.counters(0)['retry_rnr_exceeded_err']).toBe(1);
  });

  it('qp-fatal: a packet of a kind triggers it', () => {
    world.fault({ kind: 'qp-fatal', device: 'roce1', nth: 2 });
    world.sendAndRun(SECOND);
    expect(world.ends[1].qp.state).toBe(QPState.ERR);
  });

  it.each([
    ['127.0.0.3', true, false],
    ['127.0.0.2', false, true],
    ['127.0.0.3:4791', true, false],
    ['127.0.0.3:4790', false, false],
    ['127.0.0.9', false, false],
  ])('qp-fatal with peer %s: at once, the queue pairs that send to it', (peer, first, second) => {
    const world = new Faulty();
    world.expectMessages(1);
    const fault = world.fault({ kind: 'qp-fatal', peer });
    const inError = world.ends.map(({ qp }) => qp.state === QPState.ERR);
    expect(inError).toEqual([first, second]);
    expect(fault.status.fired).toBe(Number(first) + Number(second));
  });

  it.each(['qp-fatal', 'device-fatal'] as const)(
    '%s: does not affect a queue pair in RESET',
    (kind) => {
      const idle = world.end(0);
      const fault = world.fault({ kind });
      expect(fault.status.fired).toBeGreaterThan(0);
      expect(idle.qp.state).toBe(QPState.RESET);
      for (const { qp } of world.ends) expect(qp.state).toBe(QPState.ERR);
    },
  );

  it('makes the same choices with the same seed', () => {
    const fired = (seed: number) => {
      const world = new Faulty();
      const fault = world.fault({ kind: 'drop', probability: 0.2, seed, opcode: 'send' });
      world.expectMessages(8, 20 * SECOND);
      return [fault.status, world.counters(0)];
    };
    expect(fired(7)).toEqual(fired(7));
    expect(fired(7)).not.toEqual(fired(8));
  });
});

describe('the scope of a fault of packets', () => {
  it.each<[Partial<FaultSpec>, number]>([
    [{}, 4],
    [{ opcode: 'send' }, 3],
    [{ opcode: 'acknowledge' }, 1],
    [{ opcode: 'read-request' }, 0],
    [{ device: 'roce0' }, 4],
    [{ device: 'roce0', direction: 'out' }, 3],
    [{ device: 'roce0', direction: 'in' }, 1],
    [{ peer: '127.0.0.3' }, 4],
    [{ peer: '127.0.0.3:4791', direction: 'out' }, 3],
    [{ peer: '127.0.0.3:4790' }, 0],
    [{ peer: '127.0.0.4' }, 0],
    [{ qp: 0xff_ffff }, 0],
  ])('%j has %d occasions in a message of three packets', (scope, occasions) => {
    const world = new Faulty();
    const fault = world.fault({ kind: 'duplicate', nth: 1000, ...scope });
    world.expectMessages(1);
    expect(fault.status.matched).toBe(occasions);
  });

  it('selects a queue pair at either end', () => {
    const { qpn } = world.ends[1].qp;
    const fault = world.fault({ kind: 'duplicate', nth: 1000, qp: qpn, direction: 'in' });
    world.expectMessages(1);
    expect(fault.status.matched).toBe(3);
  });
});

describe('kinds of the other transport', () => {
  const wrong = (host: RnicHost, kind: FaultKind, device?: string) =>
    host.faults.wrongTransport({ kind, ...(device === undefined ? {} : { device }) });

  it('are refused on a RoCE device, with those that it has', () => {
    const { host } = new RoceWorld();
    expect(wrong(host, 'slice', 'roce0')).toMatch(
      /^slice acts on iWARP devices, and roce0 is RoCE; use one of delay, drop, duplicate, /,
    );
    expect(wrong(host, 'slice')).toMatch(
      /^slice acts on iWARP devices, and all devices are RoCE; /,
    );
    for (const kind of ['drop', 'delay', 'qp-fatal', 'errno', 'cq-overrun'] as const) {
      expect(wrong(host, kind, 'roce0')).toBeUndefined();
    }
  });

  it('are refused on an iWARP device, with those that it has', () => {
    const network = {
      hold: () => {
        throw new Error('no TCP here');
      },
      sourceAddress: () => '127.0.0.1',
    };
    const clock = new VirtualClock(new VirtualTime(), new Prng(1));
    const devices = [
      { name: 'i', addresses: ['127.0.0.2'] },
      { name: 'r', addresses: ['127.0.0.2'], transport: 'roce' as const },
    ];
    const host = new RnicHost({ system: { clock, network }, devices, roce: ROCE_NETWORK });
    expect(wrong(host, 'drop', 'i')).toMatch(
      /^drop acts on RoCE devices, and i is iWARP; use one of delay, bandwidth, slice, /,
    );
    for (const device of ['r', undefined]) expect(wrong(host, 'drop', device)).toBeUndefined();
    expect(wrong(host, 'slice')).toBeUndefined();
  });
});
