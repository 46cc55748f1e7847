/** The responder of a reliable connection: a real queue pair and a raw peer, over UDP. */
import { describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { Access, AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import { hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { atomicEth, digits, Op, type RawPacket, reth } from '../support/raw-roce.ts';
import { PEER_PSN, PEER_QPN, RoceFacing } from '../support/roce-facing.ts';

const { success } = CQEStatus;
const MTU = 256;
const SYNDROME = {
  ack: 0x1f,
  rnr: 0x20,
  sequence: 0x60,
  invalid: 0x61,
  access: 0x62,
  operation: 0x63,
};
const PAYLOAD = '01020304';
/** The peer's PSN after this many packets. */
const psnAt = (count: number): number => (PEER_PSN + count) & 0xff_ffff;

/** A Send of one packet, the `count`-th of the peer. */
function send(count: number, fields: Partial<RawPacket> = {}) {
  return { opcode: Op.sendOnly, psn: psnAt(count), ackRequest: true, rest: PAYLOAD, ...fields };
}

/** PSN, syndrome and MSN of an ACK or NAK. */
function said({ opcode, destQpn, psn, rest }: RawPacket): [number, number, number] {
  expect([opcode, destQpn, rest.length]).toEqual([Op.acknowledge, PEER_QPN, 8]);
  return [psn, Number.parseInt(rest.slice(0, 2), 16), Number.parseInt(rest.slice(2), 16)];
}

async function answer(facing: RoceFacing): Promise<[number, number, number]> {
  const [packet] = await facing.answers(1);
  if (packet === undefined) throw new Error('no answer');
  return said(packet);
}

function receives({ end }: RoceFacing, count: number, length = 1024): void {
  for (let id = 1; id <= count; id += 1) end.receives.post(id, [end.piece(0, length)]);
}

/** A Write, Read or atomic of the peer to the end's memory. */
function targetOf({ end }: RoceFacing, offset: number, length: number): string {
  return reth(end.address(offset), end.mr.rkey, length);
}

function atomic(facing: RoceFacing, count: number, operand: bigint, compare?: bigint) {
  const { end } = facing;
  return {
    opcode: compare === undefined ? Op.fetchAdd : Op.compareSwap,
    psn: psnAt(count),
    ackRequest: true,
    rest: atomicEth(end.address(0), end.mr.rkey, operand, compare),
  };
}

const word = ({ end }: RoceFacing): bigint => Buffer.from(end.memory.buffer).readBigUInt64LE(0);

describe('acknowledgement', () => {
  it('names the last executed packet and counts executed messages, without credits [ROCE-ACK-01, ROCE-ACK-02, ROCE-ACK-03, ROCE-CRD-01, ROCE-BTH-20]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 2);
    facing.say(
      { opcode: Op.sendFirst, psn: psnAt(0), rest: '55'.repeat(MTU) },
      { opcode: Op.sendMiddle, psn: psnAt(1), ackRequest: true, rest: '66'.repeat(MTU) },
    );
    expect(await answer(facing)).toEqual([psnAt(1), SYNDROME.ack, 0]);
    facing.say({ opcode: Op.sendLast, psn: psnAt(2), ackRequest: true, rest: PAYLOAD });
    expect(await answer(facing)).toEqual([psnAt(2), SYNDROME.ack, 1]);
    expect(await facing.outcome(1)).toEqual([[1, success]]);
    const { memory } = facing.end;
    expect(hexOf(memory.subarray(MTU - 1, MTU + 1))).toBe('5566');
    expect(hexOf(memory.subarray(2 * MTU, 2 * MTU + 4))).toBe(PAYLOAD);
  });

  it('is sent when a packet requests it, and not otherwise [ROCE-ACK-04]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 2);
    facing.say(send(0, { ackRequest: false }));
    expect(await facing.outcome(1)).toEqual([[1, success]]);
    await facing.silence();
    facing.say(send(1));
    expect(await answer(facing)).toEqual([psnAt(1), SYNDROME.ack, 2]);
  });

  it('of several packets may be one, up to the last of them [ROCE-ACK-05]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 8);
    facing.say(...Array.from({ length: 8 }, (_, count) => send(count)));
    await facing.outcome(8);
    await until('the last acknowledgement', () => facing.heard.at(-1)?.psn === psnAt(7));
    const answers = await facing.answers(facing.heard.length);
    const psns = answers.map((packet) => said(packet)[0]);
    expect(psns.length).toBeLessThanOrEqual(8);
    expect(
      [...psns].sort((a, b) => ((a - PEER_PSN) & 0xff_ffff) - ((b - PEER_PSN) & 0xff_ffff)),
    ).toEqual(psns);
    await facing.silence();
  });

  it('comes once a Write is in memory [ROCE-ACK-06]', async () => {
    await using facing = await RoceFacing.open();
    facing.say({
      opcode: Op.writeOnly,
      psn: psnAt(0),
      ackRequest: true,
      rest: `${targetOf(facing, 64, 4)}${PAYLOAD}`,
    });
    expect(await answer(facing)).toEqual([psnAt(0), SYNDROME.ack, 1]);
    expect(hexOf(facing.end.memory.subarray(64, 68))).toBe(PAYLOAD);
    // It took no receive, and no program was notified.
    expect(facing.end.completions.poll()).toEqual([]);
  });
});

describe('a gap', () => {
  it('gets one NAK for the missing PSN, and later packets are dropped until the missing one arrives [ROCE-NAK-01, ROCE-NAK-02, ROCE-NAK-03, ROCE-ORD-01]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 3);
    facing.say(send(1));
    expect(await answer(facing)).toEqual([psnAt(0), SYNDROME.sequence, 0]);
    facing.say(send(2), send(1));
    await facing.silence();
    expect(facing.end.completions.poll()).toEqual([]);
    facing.say(send(0), send(1));
    await until('the acknowledgement of both', () => facing.heard.at(-1)?.psn === psnAt(1));
    expect(await facing.outcome(2)).toEqual([
      [1, success],
      [2, success],
    ]);
    // The packet that came too early was not kept.
    await facing.answers(facing.heard.length - 1);
    await facing.silence();
    expect(facing.end.completions.poll()).toEqual([]);
  });

  it('gets another NAK once the missing packet came and another one is missing [ROCE-NAK-04]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 3);
    facing.say(send(1));
    expect(await answer(facing)).toEqual([psnAt(0), SYNDROME.sequence, 0]);
    facing.say(send(0, { ackRequest: false }), send(2));
    expect(await answer(facing)).toEqual([psnAt(1), SYNDROME.sequence, 1]);
  });
});

describe('a repeated request', () => {
  it('of a Send or Write is acknowledged again up to the last executed one, and not executed [ROCE-DUP-01, ROCE-DUP-02]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 3);
    facing.say(send(0), send(1));
    await until('both', () => facing.heard.at(-1)?.psn === psnAt(1));
    await facing.answers(facing.heard.length);
    expect(await facing.outcome(2)).toHaveLength(2);
    facing.say(send(0, { rest: 'ffffffff' }));
    expect(await answer(facing)).toEqual([psnAt(1), SYNDROME.ack, 2]);
    expect(facing.end.completions.poll()).toEqual([]);
    expect(hexOf(facing.end.memory.subarray(0, 4))).toBe(PAYLOAD);
  });

  it('of a Read returns the data again, also from the middle on [ROCE-DUP-03, ROCE-READ-04]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    for (let at = 0; at < 3 * MTU; at += 1) end.memory[at] = at / MTU + 1;
    const read = { opcode: Op.readRequest, ackRequest: true };
    facing.say({ ...read, psn: psnAt(0), rest: targetOf(facing, 0, 3 * MTU) });
    await facing.answers(3);
    facing.say({ ...read, psn: psnAt(1), rest: targetOf(facing, MTU, 2 * MTU) });
    const again = await facing.answers(2);
    expect(again.map(({ opcode, psn, rest }) => [opcode, psn, rest.slice(8, 10)])).toEqual([
      [Op.readFirst, psnAt(1), '02'],
      [Op.readLast, psnAt(2), '03'],
    ]);
    // The next new request still has the PSN after the first answer.
    receives(facing, 1);
    facing.say(send(3));
    expect(await answer(facing)).toEqual([psnAt(3), SYNDROME.ack, 2]);
  });

  it('of an atomic returns the first result, and is not executed again [ROCE-DUP-04, ROCE-ATOM-03]', async () => {
    await using facing = await RoceFacing.open();
    facing.end.memory[0] = 40;
    for (let times = 0; times < 3; times += 1) {
      facing.say(atomic(facing, 0, 2n));
      const [result] = await facing.answers(1);
      expect(result).toMatchObject({ opcode: Op.atomicAcknowledge, psn: psnAt(0) });
      expect(result?.rest.slice(8)).toBe(digits(40n, 16));
    }
    expect(word(facing)).toBe(42n);
  });

  it('of an atomic whose result is no longer kept is dropped [ROCE-DUP-05]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { maxDestRdAtomic: 2 });
    for (let count = 0; count < 3; count += 1) {
      facing.say(atomic(facing, count, 1n));
      await facing.answers(1);
    }
    facing.say(atomic(facing, 0, 1n));
    await facing.silence();
    facing.say(atomic(facing, 1, 1n));
    const [kept] = await facing.answers(1);
    expect(kept).toMatchObject({ psn: psnAt(1), rest: expect.stringMatching(/0{15}1$/) });
    expect(word(facing)).toBe(3n);
  });
});

describe('a Read', () => {
  it('is answered by packets of the path MTU with the PSNs from its own on, all with an AETH but those in the middle [ROCE-READ-01, ROCE-READ-02, ROCE-READ-03, ROCE-OPC-06, ROCE-PSN-03]', async () => {
    await using facing = await RoceFacing.open();
    for (let at = 0; at < 1024; at += 1) facing.end.memory[at] = at / MTU + 1;
    facing.say({ opcode: Op.readRequest, psn: psnAt(0), rest: targetOf(facing, 0, 3 * MTU + 8) });
    const packets = await facing.answers(4);
    expect(packets.map(({ opcode, psn, rest }) => [opcode, psn, rest.length / 2])).toEqual([
      [Op.readFirst, psnAt(0), 4 + MTU],
      [Op.readMiddle, psnAt(1), MTU],
      [Op.readMiddle, psnAt(2), MTU],
      [Op.readLast, psnAt(3), 4 + 8],
    ]);
    expect(packets[0]?.rest.slice(0, 10)).toBe('1f00000101');
    // The peer's next request is due after the PSNs of the answer.
    receives(facing, 1);
    facing.say(send(4));
    expect(await answer(facing)).toEqual([psnAt(4), SYNDROME.ack, 2]);
  });

  it('of no bytes is answered by one packet, whatever its key [ROCE-READ-05]', async () => {
    await using facing = await RoceFacing.open();
    facing.say({ opcode: Op.readRequest, psn: psnAt(0), rest: reth(0n, 0xdead00, 0) });
    expect(await facing.answers(1)).toMatchObject([{ opcode: Op.readOnly, rest: '1f000001' }]);
  });

  it('acknowledges earlier requests by its answer, which comes in their order [ROCE-ACK-07, ROCE-ORD-02]', async () => {
    await using facing = await RoceFacing.open();
    const { end } = facing;
    receives(facing, 1);
    facing.say(
      send(0, { ackRequest: false }),
      { opcode: Op.readRequest, psn: psnAt(1), rest: targetOf(facing, 0, 4) },
      // It targets other bytes: without a fence, it could change the bytes that the Read returns.
      { opcode: Op.fetchAdd, psn: psnAt(2), rest: atomicEth(end.address(8), end.mr.rkey, 1n) },
    );
    const packets = await facing.answers(2);
    expect(packets.map(({ opcode, psn }) => [opcode, psn])).toEqual([
      [Op.readOnly, psnAt(1)],
      [Op.atomicAcknowledge, psnAt(2)],
    ]);
    expect(packets[0]?.rest).toBe(`1f000002${PAYLOAD}`);
  });
});

describe('answers', () => {
  /** Requests by name, as the `count`-th of the peer. */
  const REQUESTS = {
    Send: (_facing, count) => send(count),
    Write: (facing, count) => {
      const rest = `${targetOf(facing, 16 * count, 4)}${PAYLOAD}`;
      return { opcode: Op.writeOnly, psn: psnAt(count), ackRequest: true, rest };
    },
    Read: (facing, count) => {
      return { opcode: Op.readRequest, psn: psnAt(count), rest: targetOf(facing, 16 * count, 4) };
    },
    FetchAdd: (facing, count) => atomic(facing, count, 1n),
    CompareSwap: (facing, count) => atomic(facing, count, 1n, 0n),
  } as const satisfies Readonly<
    Record<string, (facing: RoceFacing, count: number) => Partial<RawPacket> & { opcode: number }>
  >;
  const kinds = Object.keys(REQUESTS) as (keyof typeof REQUESTS)[];

  it.each(['Read', 'FetchAdd'] as const)(
    'to a %s leave before that of any request after it [ROCE-ORD-02]',
    async (first) => {
      await using facing = await RoceFacing.open();
      receives(facing, 1);
      const asked = kinds.flatMap((kind) => [first, kind]);
      facing.say(...asked.map((kind, count) => REQUESTS[kind](facing, count)));
      const psns = asked.map((_kind, count) => psnAt(count));
      // One acknowledgement may cover several Sends and Writes, but none passes an answer with data.
      await until('the last answer', () => facing.heard.at(-1)?.psn === psns.at(-1));
      const heard = facing.heard.map(({ psn }) => psns.indexOf(psn));
      expect(heard).toEqual(heard.toSorted((a, b) => a - b));
      const withData = asked.flatMap((kind, count) =>
        kind === 'Send' || kind === 'Write' ? [] : [count],
      );
      expect(heard).toEqual(expect.arrayContaining(withData));
    },
  );
});

describe('an atomic', () => {
  it('returns the old value, and adds, or swaps if the comparison holds [ROCE-ATOM-01, ROCE-ATOM-02, ROCE-ATOM-04]', async () => {
    await using facing = await RoceFacing.open();
    const results: string[] = [];
    facing.end.memory.fill(0xff, 0, 8);
    const requests = [
      // Modulo 2^64.
      atomic(facing, 0, 3n),
      atomic(facing, 1, 77n, 1n),
      atomic(facing, 2, 77n, 2n),
    ];
    for (const request of requests) {
      facing.say(request);
      const [result] = await facing.answers(1);
      expect(result?.opcode).toBe(Op.atomicAcknowledge);
      results.push(result?.rest.slice(8) ?? '');
    }
    expect(results).toEqual(['f'.repeat(16), digits(2n, 16), digits(2n, 16)]);
    expect(word(facing)).toBe(77n);
  });
});

describe('a receiver that is not ready', () => {
  it('answers with an RNR NAK that carries its timer, and executes nothing [ROCE-RNR-01, ROCE-RNR-02, ROCE-RNR-03]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { minRnrTimer: 12 });
    facing.say(send(0));
    expect(await answer(facing)).toEqual([psnAt(0), SYNDROME.rnr | 12, 0]);
    await facing.silence();
    receives(facing, 1);
    facing.say(send(0));
    expect(await answer(facing)).toEqual([psnAt(0), SYNDROME.ack, 1]);
    expect(await facing.outcome(1)).toEqual([[1, success]]);
  });

  it('delays a Write with immediate data before any part of its last packet is executed [ROCE-RNR-04]', async () => {
    await using facing = await RoceFacing.open();
    const request = {
      opcode: Op.writeOnlyImmediate,
      psn: psnAt(0),
      ackRequest: true,
      rest: `${targetOf(facing, 0, 4)}00000007${PAYLOAD}`,
    };
    facing.say(request);
    expect((await answer(facing))[1]).toBe(SYNDROME.rnr | 1);
    expect(facing.end.memory[0]).toBe(0);
    receives(facing, 1);
    facing.say(request);
    expect(await answer(facing)).toEqual([psnAt(0), SYNDROME.ack, 1]);
    await until('the completion', () => {
      const [completion] = facing.end.completions.poll();
      return completion?.immediate === 7n && completion.bytes === 4;
    });
  });

  it('drops later packets, which count as no gap [ROCE-RNR-05]', async () => {
    await using facing = await RoceFacing.open();
    facing.say(send(0), send(1));
    expect((await answer(facing))[1]).toBe(SYNDROME.rnr | 1);
    await facing.silence();
  });
});

/** NAKs that end a connection: the requests of the peer, the NAK, the event. */
const REFUSALS: readonly [
  string,
  (facing: RoceFacing) => readonly (Partial<RawPacket> & { opcode: number })[],
  number,
  number,
][] = [
  [
    'a middle without a first [ROCE-OPC-07]',
    () => [send(0, { opcode: Op.sendMiddle, rest: '00'.repeat(MTU) })],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'a first within a message [ROCE-OPC-08]',
    () => [
      send(0, { opcode: Op.sendFirst, ackRequest: false, rest: '00'.repeat(MTU) }),
      send(1, { opcode: Op.sendOnly }),
    ],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'the last of a Write within a Send [ROCE-OPC-09]',
    () => [
      send(0, { opcode: Op.sendFirst, ackRequest: false, rest: '00'.repeat(MTU) }),
      send(1, { opcode: Op.writeLast }),
    ],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'a first shorter than the path MTU [ROCE-MTU-03]',
    () => [send(0, { opcode: Op.sendFirst, rest: '00'.repeat(128) })],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'a packet longer than the path MTU [ROCE-MTU-04]',
    () => [send(0, { rest: '00'.repeat(2 * MTU) })],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'a last without payload [ROCE-MTU-05]',
    () => [
      send(0, { opcode: Op.sendFirst, ackRequest: false, rest: '00'.repeat(MTU) }),
      send(1, { opcode: Op.sendLast, rest: '' }),
    ],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'a Write of another length than its RETH has [ROCE-NAK-05]',
    (facing) => [send(0, { opcode: Op.writeOnly, rest: `${targetOf(facing, 0, 8)}${PAYLOAD}` })],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'a Write of more than 2^31 bytes [ROCE-NAK-06]',
    (facing) => [
      send(0, {
        opcode: Op.writeFirst,
        rest: `${targetOf(facing, 0, 0x8000_0001)}${'00'.repeat(MTU)}`,
      }),
    ],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
  [
    'an unknown key [ROCE-NAK-07]',
    ({ end }) => [
      send(0, { opcode: Op.writeOnly, rest: `${reth(end.address(0), 0xdead00, 4)}${PAYLOAD}` }),
    ],
    SYNDROME.access,
    AsyncEventType.qpAccessErr,
  ],
  [
    'a range beyond the region [ROCE-NAK-08]',
    (facing) => [
      { opcode: Op.readRequest, psn: psnAt(0), rest: targetOf(facing, (1 << 20) - 2, 4) },
    ],
    SYNDROME.access,
    AsyncEventType.qpAccessErr,
  ],
  [
    'an atomic that is not aligned to eight bytes [ROCE-ATOM-05]',
    ({ end }) => [
      {
        opcode: Op.fetchAdd,
        psn: psnAt(0),
        rest: atomicEth(end.address(4), end.mr.rkey, 1n),
      },
    ],
    SYNDROME.invalid,
    AsyncEventType.qpReqErr,
  ],
];

describe('a NAK that ends the connection', () => {
  it.each(REFUSALS)(
    'answers %s, and then nothing [ROCE-NAK-09, IBV-ERR-01, IBV-AE-02, IBV-AE-03]',
    async (_title, packets, syndrome, event) => {
      await using facing = await RoceFacing.open();
      receives(facing, 1);
      const requests = packets(facing);
      facing.say(...requests);
      const at = psnAt(requests.length - 1);
      expect((await answer(facing)).slice(0, 2)).toEqual([at, syndrome]);
      await until('the error', () => facing.end.qp.state === QPState.ERR);
      await until('the event', () => facing.events.includes(event as AsyncEventType));
      // The receive is flushed, and nothing of the request was done.
      expect(await facing.outcome(1)).toEqual([[1, CQEStatus.wrFlushErr]]);
      expect(facing.end.memory[0]).toBe(0);
      facing.say(send(requests.length));
      await facing.silence();
    },
  );

  it('answers a request for which the queue pair gives no right: an invalid request [ROCE-NAK-10, IBV-ATTR-10]', async () => {
    const requests = (facing: RoceFacing) => [
      send(0, { opcode: Op.writeOnly, rest: `${targetOf(facing, 0, 4)}${PAYLOAD}` }),
      { opcode: Op.readRequest, psn: psnAt(0), rest: targetOf(facing, 0, 4) },
      atomic(facing, 0, 1n),
    ];
    const rights = [Access.remoteWrite, Access.remoteRead, Access.remoteAtomic];
    for (const [index, right] of rights.entries()) {
      await using facing = await RoceFacing.open(QPType.rc, { accessFlags: 15 & ~right });
      const request = requests(facing)[index];
      if (request === undefined) throw new Error('no request');
      facing.say(request);
      expect((await answer(facing)).slice(0, 2)).toEqual([psnAt(0), SYNDROME.invalid]);
      expect(facing.end.memory[0]).toBe(0);
    }
  });

  it('answers a Read if the queue pair serves none: an invalid request [ROCE-READ-06]', async () => {
    await using facing = await RoceFacing.open(QPType.rc, { maxDestRdAtomic: 0 });
    facing.say({ opcode: Op.readRequest, psn: psnAt(0), rest: targetOf(facing, 0, 4) });
    expect((await answer(facing)).slice(0, 2)).toEqual([psnAt(0), SYNDROME.invalid]);
  });

  it('answers a Send longer than its receive: a remote operational error [ROCE-NAK-11]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 1, 3);
    facing.say(send(0));
    expect((await answer(facing)).slice(0, 2)).toEqual([psnAt(0), SYNDROME.operation]);
    expect((await facing.outcome(1))[0]?.[1]).not.toBe(success);
  });

  it('comes after the answers to all earlier requests [ROCE-NAK-12]', async () => {
    await using facing = await RoceFacing.open();
    facing.say(
      { opcode: Op.readRequest, psn: psnAt(0), rest: targetOf(facing, 0, 4) },
      send(1, { opcode: Op.writeOnly, rest: `${reth(0n, 1, 4)}${PAYLOAD}` }),
    );
    const [data, nak] = await facing.answers(2);
    expect(data).toMatchObject({ opcode: Op.readOnly, psn: psnAt(0) });
    expect(nak === undefined ? [] : said(nak).slice(0, 2)).toEqual([psnAt(1), SYNDROME.access]);
  });
});

describe('a Send with invalidation', () => {
  it('of a key that is no window is acknowledged, and fails only the receiver [ROCE-NAK-13]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 1);
    const rest = `${digits(facing.end.mr.rkey, 8)}${PAYLOAD}`;
    facing.say(send(0, { opcode: Op.sendOnlyInvalidate, rest }));
    expect((await answer(facing)).slice(0, 2)).toEqual([psnAt(0), SYNDROME.ack]);
    await until('the error', () => facing.end.qp.state === QPState.ERR);
    const [[, status] = []] = await facing.outcome(1);
    expect(status).not.toBe(success);
  });
});

describe('immediate data', () => {
  it('and the key to invalidate reach the completion of the receive [ROCE-BTH-21]', async () => {
    await using facing = await RoceFacing.open();
    receives(facing, 1);
    facing.say(send(0, { opcode: Op.sendOnlyImmediate, rest: `cafe0001${PAYLOAD}` }));
    await until('the completion', () => {
      const [completion] = facing.end.completions.poll();
      return (
        completion?.immediate === 0xcafe_0001n && completion.opcode === SQOpcode.receiveWithImm
      );
    });
    expect(hexOf(facing.end.memory.subarray(0, 4))).toBe(PAYLOAD);
  });
});
