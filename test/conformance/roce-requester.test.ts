/** The requester of a reliable connection: a real queue pair and a raw peer, over UDP. */
import { describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import { hexOf } from '../support/hex.ts';
import { quiet, until } from '../support/patience.ts';
import { atomicEth, digits, Op, reth } from '../support/raw-roce.ts';
import { OUR_PSN, RoceFacing } from '../support/roce-facing.ts';

const { success } = CQEStatus;
const MTU = 256;
const RKEY = 0x1234_5600;
/** Time for an acknowledgment: 4.096 µs · 2^8, about 1 ms. */
const SHORT = 8;

function ack(count: number, syndrome = 0x1f, msn = count + 1) {
  const rest = `${digits(syndrome, 2)}${digits(msn, 6)}`;
  return { opcode: Op.acknowledge, psn: OUR_PSN + count, rest };
}

/** Posts Sends without payload, numbered from 1 on. */
function send({ end }: RoceFacing, count = 1): void {
  for (let id = 1; id <= count; id += 1) {
    end.sends.post({ opcode: SQOpcode.send, wrId: id, sges: [] });
  }
  end.ring();
}

function read({ end }: RoceFacing, wrId: number, length: number): void {
  const sges = [end.piece(4096 * wrId, length)];
  end.sends.post({ opcode: SQOpcode.read, wrId, sges, raddr: 0x1000n, rkey: RKEY });
}

/** How often the packet with this PSN was sent. */
function times({ heard }: RoceFacing, psn: number): number {
  return heard.filter((packet) => packet.psn === psn).length;
}

/** Answers each packet since its last call with an RNR NAK. */
function refuser(facing: RoceFacing): () => void {
  let answered = 0;
  return () => {
    for (; answered < facing.heard.length; answered += 1) facing.say(ack(0, 0x20 | 1, 0));
  };
}

describe('a message', () => {
  it('completes once it is acknowledged, with all before it, in order [ROCE-ACK-08, ROCE-ACK-09, ROCE-ORD-03]', async () => {
    await using facing = await RoceFacing.open();
    send(facing, 3);
    const packets = await facing.requests(3);
    expect(packets.map(({ psn }) => psn - OUR_PSN)).toEqual([0, 1, 2]);
    expect(facing.end.completions.poll()).toEqual([]);
    facing.say(ack(1));
    expect(await facing.outcome(2)).toEqual([
      [1, success],
      [2, success],
    ]);
    expect(facing.end.completions.poll()).toEqual([]);
    facing.say(ack(2));
    expect(await facing.outcome(1)).toEqual([[3, success]]);
  });

  it('is not completed by an acknowledgement of an unsent packet, nor by an old one [ROCE-ACK-10]', async () => {
    await using facing = await RoceFacing.open();
    send(facing, 1);
    await facing.requests(1);
    facing.say(ack(5), ack(-1), ack(0x3f_0000));
    await facing.arrived(3);
    await quiet(10);
    expect(facing.end.completions.poll()).toEqual([]);
    expect(facing.end.qp.state).toBe(QPState.RTS);
    facing.say(ack(0));
    expect(await facing.outcome(1)).toEqual([[1, success]]);
  });

  it('asks for an acknowledgement in its last packet [ROCE-ACK-11]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const sges = [end.piece(0, 2 * MTU)];
    for (const wrId of [1, 2]) end.sends.post({ opcode: SQOpcode.send, wrId, sges });
    end.ring();
    const packets = await facing.requests(4);
    const lasts = packets.filter(({ opcode }) => opcode === Op.sendLast);
    expect(lasts.map(({ ackRequest }) => ackRequest)).toEqual([true, true]);
  });

  it('is sent again if no answer comes, with the same PSN and bytes, and fails after retry_cnt timeouts [ROCE-RTY-01, ROCE-RTY-02, ROCE-RTY-03, ROCE-RTY-04]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { timeout: SHORT, retryCnt: 2 });
    const { end } = facing;
    send(facing, 2);
    expect(await facing.outcome(2)).toEqual([
      [1, CQEStatus.retryExcErr],
      [2, CQEStatus.wrFlushErr],
    ]);
    expect(end.qp.state).toBe(QPState.ERR);
    await quiet(10);
    expect(times(facing, OUR_PSN)).toBeGreaterThanOrEqual(3);
    const first = facing.heard.filter(({ psn }) => psn === OUR_PSN);
    expect(new Set(first.map((packet) => JSON.stringify(packet))).size).toBe(1);
    const count = facing.heard.length;
    // It has ended.
    await quiet(30);
    expect(facing.heard).toHaveLength(count);
  });

  it('waits without limit if the timeout is 0 [ROCE-RTY-06]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { timeout: 0, retryCnt: 1 });
    send(facing);
    await facing.requests(1);
    await quiet(100);
    expect([facing.counters.timeouts, facing.end.qp.state]).toEqual([0, QPState.RTS]);
    facing.say(ack(0));
    expect(await facing.outcome(1)).toEqual([[1, success]]);
  });
});

describe('a NAK', () => {
  it('of a sequence error causes everything from its PSN on to be sent again, and acknowledges all before [ROCE-NAK-14, ROCE-NAK-15]', async () => {
    await using facing = await RoceFacing.open();
    send(facing, 3);
    await facing.requests(3);
    facing.say(ack(1, 0x60));
    expect(await facing.outcome(1)).toEqual([[1, success]]);
    await until('the repetition', () => times(facing, OUR_PSN + 2) >= 2);
    expect(times(facing, OUR_PSN + 1)).toBeGreaterThanOrEqual(2);
    facing.say(ack(2));
    expect(await facing.outcome(2)).toEqual([
      [2, success],
      [3, success],
    ]);
  });

  it.each([
    ['invalid request [ROCE-NAK-16]', 0x61, CQEStatus.remInvReqErr],
    ['remote access error [ROCE-NAK-17]', 0x62, CQEStatus.remAccessErr],
    ['remote operational error [ROCE-NAK-18]', 0x63, CQEStatus.remOpErr],
  ] as const)(
    'of an %s fails its message and flushes the rest [ROCE-NAK-19, IBV-ERR-02]',
    async (_name, syndrome, status) => {
      await using facing = await RoceFacing.open();
      const { end } = facing;
      end.receives.post(9, [end.piece(0, 4)]);
      send(facing, 3);
      await facing.requests(3);
      facing.say(ack(1, syndrome));
      const outcome = await facing.outcome(4);
      expect(outcome).toEqual([
        [1, success],
        [2, status],
        [3, CQEStatus.wrFlushErr],
        [9, CQEStatus.wrFlushErr],
      ]);
      expect(end.qp.state).toBe(QPState.ERR);
    },
  );

  it('that the receiver is not ready causes repetitions without limit, which do not count for retry_cnt [ROCE-RNR-07, ROCE-RNR-08]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { retryCnt: 0, rnrRetry: 7 });
    send(facing);
    const refuse = refuser(facing);
    await until('nine NAKs', () => {
      refuse();
      return facing.counters.receivedRnr >= 9;
    });
    expect(facing.end.completions.poll()).toEqual([]);
    facing.say(ack(0));
    expect(await facing.outcome(1)).toEqual([[1, success]]);
  });

  it('that the receiver is not ready fails the message after rnr_retry repetitions [ROCE-RNR-09]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { rnrRetry: 2 });
    send(facing);
    const refuse = refuser(facing);
    const outcome: [number, number][] = [];
    await until('the failure', () => {
      refuse();
      outcome.push(...facing.end.completions.outcome());
      return outcome.length > 0;
    });
    expect(outcome).toEqual([[1, CQEStatus.rnrRetryExcErr]]);
    expect(times(facing, OUR_PSN)).toBeGreaterThanOrEqual(3);
    expect(facing.end.qp.state).toBe(QPState.ERR);
  });
});

describe('a Read', () => {
  it('takes the PSNs of its answer, and its data in order [ROCE-READ-07, ROCE-READ-08, ROCE-PSN-04]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    read(facing, 1, 2 * MTU + 4);
    end.sends.post({ opcode: SQOpcode.send, wrId: 2, sges: [] });
    end.ring();
    const [request, next] = await facing.requests(2);
    expect(request).toMatchObject({
      opcode: Op.readRequest,
      psn: OUR_PSN,
      rest: reth(0x1000n, RKEY, 2 * MTU + 4),
    });
    expect(next).toMatchObject({ opcode: Op.sendOnly, psn: OUR_PSN + 3 });
    const aeth = '1f000001';
    facing.say(
      { opcode: Op.readFirst, psn: OUR_PSN, rest: `${aeth}${'aa'.repeat(MTU)}` },
      { opcode: Op.readMiddle, psn: OUR_PSN + 1, rest: 'bb'.repeat(MTU) },
      { opcode: Op.readLast, psn: OUR_PSN + 2, rest: `${aeth}cccccccc` },
      ack(3, 0x1f, 2),
    );
    expect(await facing.outcome(2)).toEqual([
      [1, success],
      [2, success],
    ]);
    const { memory } = end;
    expect(hexOf(memory.subarray(4096 + MTU - 1, 4096 + MTU + 1))).toBe('aabb');
    expect(hexOf(memory.subarray(4096 + 2 * MTU - 1, 4096 + 2 * MTU + 4))).toBe('bbcccccccc');
  });

  it('asks again from the first missing byte on [ROCE-READ-09]', async () => {
    await using facing = await RoceFacing.open();
    read(facing, 1, 3 * MTU);
    facing.end.ring();
    await facing.requests(1);
    facing.say(
      { opcode: Op.readFirst, psn: OUR_PSN, rest: `1f000001${'aa'.repeat(MTU)}` },
      { opcode: Op.readLast, psn: OUR_PSN + 2, rest: `1f000001${'cc'.repeat(MTU)}` },
    );
    const [again] = await facing.requests(1);
    expect(again).toMatchObject({
      opcode: Op.readRequest,
      psn: OUR_PSN + 1,
      rest: reth(0x1100n, RKEY, 2 * MTU),
    });
  });

  it('is not completed by the acknowledgement of a later message, which causes the Read to be repeated [ROCE-READ-10]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    read(facing, 1, 4);
    end.sends.post({ opcode: SQOpcode.send, wrId: 2, sges: [] });
    end.ring();
    await facing.requests(2);
    facing.say(ack(1));
    await until('the repetition', () => times(facing, OUR_PSN) >= 2);
    expect(end.completions.poll()).toEqual([]);
    facing.say({ opcode: Op.readOnly, psn: OUR_PSN, rest: '1f00000109090909' }, ack(1));
    expect(await facing.outcome(2)).toEqual([
      [1, success],
      [2, success],
    ]);
  });

  it('waits while max_rd_atomic of them have no answer [ROCE-READ-11]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { maxRdAtomic: 2 });
    for (const wrId of [1, 2, 3]) read(facing, wrId, 4);
    facing.end.ring();
    await facing.requests(2);
    await quiet(20);
    expect(times(facing, OUR_PSN + 2)).toBe(0);
    facing.say({ opcode: Op.readOnly, psn: OUR_PSN, rest: '1f00000101010101' });
    expect(await facing.requests(1)).toMatchObject([{ psn: OUR_PSN + 2 }]);
  });

  it('delays a fenced message until its data is there [ROCE-ORD-04]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    read(facing, 1, 4);
    const flags = QueueFlag.signalled | QueueFlag.readFence;
    end.sends.post({ opcode: SQOpcode.send, wrId: 2, flags, sges: [end.piece(4096, 4)] });
    end.ring();
    await facing.requests(1);
    await quiet(20);
    expect(times(facing, OUR_PSN + 1)).toBe(0);
    facing.say({ opcode: Op.readOnly, psn: OUR_PSN, rest: '1f00000107080910' });
    expect(await facing.requests(1)).toMatchObject([{ psn: OUR_PSN + 1, rest: '07080910' }]);
  });

  it('with an answer of another kind or length fails [ROCE-READ-12]', async () => {
    for (const answer of [
      { opcode: Op.readOnly, psn: OUR_PSN, rest: `1f000001${'00'.repeat(8)}` },
      { opcode: Op.atomicAcknowledge, psn: OUR_PSN, rest: `1f000001${'00'.repeat(8)}` },
    ]) {
      await using facing = await RoceFacing.open();
      read(facing, 1, 4);
      facing.end.ring();
      await facing.requests(1);
      facing.say(answer);
      expect(await facing.outcome(1)).toEqual([[1, CQEStatus.badRespErr]]);
    }
  });
});

describe('a response of a Read of two packets', () => {
  const first = { opcode: Op.readFirst, psn: OUR_PSN, rest: `1f000001${'aa'.repeat(MTU)}` };
  it.each([
    ['says that its first packet is the only one', [{ ...first, opcode: Op.readOnly }]],
    [
      'says that its first packet is a middle',
      [{ ...first, opcode: Op.readMiddle, rest: 'aa'.repeat(MTU) }],
    ],
    ['does not say that its last packet is the last', [first, { ...first, psn: OUR_PSN + 1 }]],
  ])('fails if it %s [ROCE-READ-13]', async (_what, packets) => {
    await using facing = await RoceFacing.open();
    read(facing, 1, 2 * MTU);
    facing.end.ring();
    await facing.requests(1);
    facing.say(...packets);
    expect(await facing.outcome(1)).toEqual([[1, CQEStatus.badRespErr]]);
  });
});

describe('an atomic', () => {
  it('carries its operands, and places the value that was there before [ROCE-ATOM-06, ROCE-ATOM-07]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    const target = { raddr: 0x2000n, rkey: RKEY, sges: [end.piece(64, 8)] };
    end.sends.post({ opcode: SQOpcode.fetchAndAdd, wrId: 1, ...target, operand: 5n });
    end.ring();
    const [add] = await facing.requests(1);
    expect(add).toMatchObject({ opcode: Op.fetchAdd, rest: atomicEth(0x2000n, RKEY, 5n) });
    const rest = '1f000001 0102030405060708';
    facing.say({ opcode: Op.atomicAcknowledge, psn: OUR_PSN, rest });
    expect(await facing.outcome(1)).toEqual([[1, success]]);
    // A number of the program, in its machine's order.
    expect(hexOf(end.memory.subarray(64, 72))).toBe('0807060504030201');
    const swap = { opcode: SQOpcode.compAndSwap, wrId: 2, ...target, operand: 6n, compare: 9n };
    end.sends.post(swap);
    end.ring();
    const [compare] = await facing.requests(1);
    expect(compare).toMatchObject({
      opcode: Op.compareSwap,
      psn: OUR_PSN + 1,
      rest: atomicEth(0x2000n, RKEY, 6n, 9n),
    });
  });
});

describe('a queue pair in SQD', () => {
  it('repeats and completes the started requests, and starts no others until RTS [IBV-QP-22, IBV-QP-23]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    send(facing);
    await facing.requests(1);
    end.modify(QPState.SQD, 1);
    end.sends.post({ opcode: SQOpcode.send, wrId: 2, sges: [] });
    end.ring();
    facing.say(ack(0));
    expect(await facing.outcome(1)).toEqual([[1, success]]);
    await quiet(20);
    expect(times(facing, OUR_PSN + 1)).toBe(0);
    end.modify(QPState.RTS, 1);
    expect(await facing.requests(1)).toMatchObject([{ psn: OUR_PSN + 1 }]);
  });
});
