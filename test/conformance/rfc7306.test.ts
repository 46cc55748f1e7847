/** Atomics and Immediate Data (RFC 7306) of a real host against a raw peer. */
import { afterEach, describe, expect, it } from 'vitest';
import {
  Access,
  CMEventType,
  QPState,
  SendFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { Consumer, hex32, hex64, type Region } from '../support/consumer.ts';
import { closeFacing, Facing, type FacingOptions, settled } from '../support/facing.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';

afterEach(closeFacing);

const FETCH_ADD = '00000000';
const COMPARE_SWAP = '00000002';
const ALL_ONES = 'f'.repeat(16);
const ZERO = '0'.repeat(16);

/** The head of an untagged last segment. */
function head(opcode: string, qn: number, msn: number): string {
  return `41${opcode} 00000000 ${hex32(qn)} ${hex32(msn)} 00000000`;
}

/** An Atomic Request with Request Identifier 7. `operands`: data, mask, compare data, compare mask. */
function atomic(
  msn: number,
  operation: string,
  target: string,
  operands: readonly string[],
): string {
  return `${head('4a', 1, msn)} ${operation} 00000007 ${target} ${operands.join(' ')}`;
}

function fetchAdd(msn: number, target: string, add: bigint | number): string {
  return atomic(msn, FETCH_ADD, target, [hex64(add), ZERO, ZERO, ALL_ONES]);
}

/** A word in the memory of a responder, and how a peer names it. */
async function withWord(
  value = 0n,
  options: FacingOptions = {},
): Promise<{ facing: Facing; region: Region; target: string; word: () => bigint }> {
  const facing = await Facing.responder(options);
  const region = facing.consumer.register(64);
  const view = new DataView(region.bytes.buffer);
  view.setBigUint64(8, value, true);
  const target = `${region.stag} ${hex64(0x1008)}`;
  return { facing, region, target, word: () => view.getBigUint64(8, true) };
}

/** The original value in an Atomic Response. */
function originalOf(ulpdu: string | undefined): string | undefined {
  return ulpdu?.slice(44);
}

function copying(control: string, ulpdu: string): string {
  const bytes = bytesOf(ulpdu);
  return compactHex(
    `${control} ${bytes.length.toString(16).padStart(4, '0')} ${hexOf(bytes.subarray(0, 18))}`,
  );
}

describe('a device', () => {
  it('has both atomics or none, and reports which [RDMAPX-1.1-01]', async () => {
    const { facing, target, word } = await withWord(5n);
    expect(facing.consumer.device.nic.queryDevice()).toMatchObject({ atomics: true });
    facing.say(
      fetchAdd(1, target, 1),
      atomic(2, COMPARE_SWAP, target, [hex64(9), ALL_ONES, hex64(6), ALL_ONES]),
    );
    expect((await facing.receive(2)).map(originalOf)).toEqual([hex64(5), hex64(6)]);
    expect(word()).toBe(9n);
  });
});

describe('an atomic, as responder', () => {
  it('is answered on queue 3 with identifier and original value, without a completion for the consumer [RDMAPX-4.1-01, RDMAPX-4.1-03, RDMAPX-5-03, RDMAPX-5.2-01, RDMAPX-5.2.1-08, RDMAPX-5.2.1-09, RDMAPX-5.2.1-12, RDMAPX-5.2.2-02]', async () => {
    const { facing, target, word } = await withWord(0x2an);
    facing.consumer.postReceive(64);
    facing.say(fetchAdd(1, target, 1), fetchAdd(2, target, 1));
    expect(await facing.receive(2)).toEqual(
      [
        `${head('4b', 3, 1)} 00000007 000000000000002a`,
        `${head('4b', 3, 2)} 00000007 000000000000002b`,
      ].map(compactHex),
    );
    expect(word()).toBe(0x2cn);
    expect(facing.consumer.receivedNow()).toEqual([]);
    expect(facing.consumer.sent).toEqual([]);
  });

  it.each([
    ['adds', 5n, 3n, 0n, 8n],
    ['adds modulo 2^64', 0xffff_ffff_ffff_ffffn, 2n, 0n, 1n],
    [
      'adds two fields apart',
      0xffff_ffff_ffff_ffffn,
      0x0000_0001_0000_0001n,
      0x8000_0000_8000_0000n,
      0n,
    ],
    [
      'drops the carry out of each field',
      0x00ff_00ff_00ff_00ffn,
      0x0001_0001_0001_0001n,
      0x0080_0080_0080_0080n,
      0x0000_0000_0000_0000n,
    ],
    ['is XOR if every bit is a field', 0b1100n, 0b1010n, 0xffff_ffff_ffff_ffffn, 0b0110n],
  ])(
    'FetchAdd %s [RDMAPX-5.1.1-01, RDMAPX-5.1.1-02, RDMAPX-5.1.1-03]',
    async (_name, original, add, mask, result) => {
      const { facing, target, word } = await withWord(original);
      facing.say(atomic(1, FETCH_ADD, target, [hex64(add), hex64(mask), ZERO, ZERO]));
      expect((await facing.receive(1)).map(originalOf)).toEqual([hex64(original)]);
      expect(word()).toBe(result);
    },
  );

  it.each([
    ['swaps an equal value', 5n, [9n, ~0n, 5n, ~0n], 9n],
    ['leaves a different value', 5n, [9n, ~0n, 4n, ~0n], 5n],
    ['compares under its mask', 0xab05n, [9n, ~0n, 5n, 0xffn], 9n],
    ['swaps under its mask', 0xab05n, [0x77n, 0xffn, 0xab05n, ~0n], 0xab77n],
    ['swaps anything with an empty compare mask', 5n, [9n, ~0n, 0n, 0n], 9n],
    ['changes nothing with an empty swap mask', 5n, [9n, 0n, 5n, ~0n], 5n],
  ] as const)(
    'CmpSwap %s [RDMAPX-5.1.2-01, RDMAPX-5.1.2-02]',
    async (_name, original, operands, result) => {
      const { facing, target, word } = await withWord(original);
      const fields = operands.map((operand) => hex64(BigInt.asUintN(64, operand)));
      facing.say(atomic(1, COMPARE_SWAP, target, fields));
      expect((await facing.receive(1)).map(originalOf)).toEqual([hex64(original)]);
      expect(word()).toBe(result);
    },
  );

  it('on an address that is not aligned is error 0/2/7, whatever its TO [RDMAPX-5.1.1-04, RDMAPX-5.1.2-03, RDMAPX-5.2.1-05, RDMAPX-8.1-02, RDMAPX-8.2-02]', async () => {
    for (const operation of [FETCH_ADD, COMPARE_SWAP]) {
      const { facing, region } = await withWord();
      const before = hexOf(region.bytes);
      const ulpdu = atomic(1, operation, `${region.stag} ${hex64(0x1004)}`, [
        hex64(1),
        ALL_ONES,
        ZERO,
        ALL_ONES,
      ]);
      facing.say(ulpdu);
      expect(await facing.terminate()).toBe(copying('0207c000', ulpdu));
      expect(hexOf(region.bytes)).toBe(before);
      facing.peer.finish();
      expect((await facing.event()).type).toBe(CMEventType.disconnected);
      expect(facing.consumer.qp.state).toBe(QPState.ERR);
    }
    // The address in memory decides: here TO 0x1004 is aligned, and 0x1008 is not.
    const { facing } = await withWord();
    const shifted = facing.consumer.register(64, { shift: 4 });
    facing.say(fetchAdd(1, `${shifted.stag} ${hex64(0x1004)}`, 1));
    expect(await facing.receive(1)).toHaveLength(1);
    const wrong = fetchAdd(2, `${shifted.stag} ${hex64(0x1008)}`, 1);
    facing.say(wrong);
    expect(await facing.terminate()).toBe(copying('0207c000', wrong));
  });

  it('that is unassigned is error 0/2/6 [RDMAPX-5.2.1-10, RDMAPX-8.2-01]', async () => {
    for (const operation of ['00000001', '00000003', '0000000f']) {
      const { facing, target } = await withWord();
      const ulpdu = atomic(1, operation, target, [ZERO, ZERO, ZERO, ZERO]);
      facing.say(ulpdu);
      expect(await facing.terminate()).toBe(copying('0206c000', ulpdu));
    }
  });

  it('at memory that it may not touch is a protection error [RDMAPX-8.2-01, RDMAPX-8.2-03, SEC-6.2.1-01]', async () => {
    const { facing } = await withWord();
    const stranger = new Consumer(facing.node).register(64);
    for (const [control, access, to, other] of [
      ['0100c000', undefined, '0000000000001000', 'deadbeef'],
      ['0101c000', undefined, '0000000000001040', undefined],
      ['0102c000', Access.localWrite | Access.remoteWrite, '0000000000001008', undefined],
      ['0104c000', undefined, 'fffffffffffffff8', undefined],
    ] as const) {
      const each = await withWord();
      const region = each.facing.consumer.register(64, access === undefined ? {} : { access });
      const ulpdu = fetchAdd(1, `${other ?? region.stag} ${to}`, 1);
      each.facing.say(ulpdu);
      expect(await each.facing.terminate()).toBe(copying(control, ulpdu));
      expect(region.bytes.some((byte) => byte !== 0)).toBe(false);
    }
    const ulpdu = fetchAdd(1, `${stranger.stag} ${hex64(0x1008)}`, 1);
    facing.say(ulpdu);
    expect(await facing.terminate()).toBe(copying('0103c000', ulpdu));
  });

  it('has reserved fields, which are ignored [RDMAPX-4.1-03, RDMAPX-5.2.1-03, RDMAPX-5.2.1-06]', async () => {
    const { facing, target, word } = await withWord();
    facing.consumer.postReceive(8);
    facing.say(
      `414a cafe0001 00000001 00000001 00000000 fffffff0 ffffffff ${target} ${hex64(1)} ${ZERO} 77*16`,
      '4148 cafe0001 00000000 00000001 00000000 0102030405060708',
    );
    expect(await facing.receive(1)).toEqual([compactHex(`${head('4b', 3, 1)} ffffffff ${ZERO}`)]);
    expect(word()).toBe(1n);
    expect(await facing.consumer.received(1)).toMatchObject([{ immediate: '0102030405060708' }]);
  });

  it('is done in the order sent, with Reads among them, each answered in turn [RDMAPX-5.2.1-11, RDMAPX-5.2.2-07, RDMAPX-5.4-04, RDMAPX-7-05]', async () => {
    const { facing, target } = await withWord();
    const read = (msn: number): string =>
      `${head('41', 1, msn)} 00000001 ${ZERO} 00000008 ${target}`;
    const swap = (msn: number, from: number, to: number): string =>
      atomic(msn, COMPARE_SWAP, target, [hex64(to), ALL_ONES, hex64(from), ALL_ONES]);
    facing.say(read(1), swap(2, 0, 1), swap(3, 1, 2), swap(4, 2, 3), read(5));
    const answers = await facing.receive(5);
    expect(answers.map((ulpdu) => ulpdu.slice(2, 4))).toEqual(['42', '4b', '4b', '4b', '42']);
    expect(answers.slice(1, 4).map(originalOf)).toEqual([hex64(0), hex64(1), hex64(2)]);
    expect(answers[0]?.slice(28)).toBe(ZERO);
    expect(answers[4]?.slice(28)).toBe('0300000000000000');
  });

  it('waits for the messages before it [RDMAPX-5.4-02, RDMAPX-7-02]', async () => {
    const { facing, target, word } = await withWord();
    facing.consumer.postReceive(8);
    facing.say('0143 00000000 00000000 00000001 00000000 41', fetchAdd(1, target, 1));
    expect(await facing.hearAll()).toEqual([]);
    expect(word()).toBe(0n);
    facing.say('4143 00000000 00000000 00000001 00000001 42');
    expect(await facing.consumer.payloads(1)).toEqual(['4142']);
    expect(await facing.receive(1)).toHaveLength(1);
    expect(word()).toBe(1n);
  });

  it('shares IRD with Reads, and as many as IRD are served [RDMAPX-5.2.2-03]', async () => {
    const wishes = { initiatorDepth: 2, responderResources: 2 };
    const { facing, target } = await withWord(0n, { wishes });
    facing.say(fetchAdd(1, target, 1), `${head('41', 1, 2)} 00000001 ${ZERO} 00000008 ${target}`);
    expect(await facing.receive(2)).toHaveLength(2);
    const third = fetchAdd(5, target, 1);
    facing.say(fetchAdd(3, target, 1), fetchAdd(4, target, 1), third);
    await facing.peer.overs();
    expect(facing.receivedNow().at(-1)?.slice(36)).toBe(copying('1202c000', third));
  });

  it('is atomic against those of other streams, also through another STag of the memory [RDMAPX-5-01, RDMAPX-5.3-01]', async () => {
    const { facing, region, target, word } = await withWord();
    const { node, consumer } = facing;
    const peers = [{ facing, target }];
    for (let i = 0; i < 3; i++) {
      const other = await Facing.accept(node, new Consumer(node, { pd: consumer.pd }));
      const { stag } = other.consumer.register(64, { bytes: region.bytes, to: 0x9000 });
      peers.push({ facing: other, target: `${stag} ${hex64(0x9008)}` });
    }
    const rounds = 25;
    const seen: (string | undefined)[] = [];
    for (let round = 0; round < rounds; round++) {
      const said = [1, 2, 3, 4].map((i) => 4 * round + i);
      for (const peer of peers)
        peer.facing.say(...said.map((msn) => fetchAdd(msn, peer.target, 1)));
      for (const peer of peers) seen.push(...(await peer.facing.receive(4)).map(originalOf));
    }
    const total = rounds * 4 * peers.length;
    expect(word()).toBe(BigInt(total));
    // Each got a distinct value.
    expect(new Set(seen).size).toBe(total);
  });
});

describe('an atomic, as requester', () => {
  it('is an untagged message of queue 1 with the fields of the RFC [RDMAPX-4.1-01, RDMAPX-4.1-03, RDMAPX-5.2-01, RDMAPX-5.2.1-01, RDMAPX-5.2.1-02, RDMAPX-5.2.1-06, RDMAPX-5.2.1-08, RDMAPX-5.2.1-11]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    const sink = consumer.register(8);
    consumer.fetchAdd(sink, 1n, 0x11223344, 0x1008);
    consumer.compareSwap(sink, [1n, 0xaan], 0x11223344, 0x1_0000_1008);
    const [add = '', swap = ''] = await facing.receive(2);
    expect(add.slice(0, 44)).toBe(compactHex(`${head('4a', 1, 1)} 00000000`));
    expect(add.slice(52)).toBe(
      compactHex(`11223344 ${hex64(0x1008)} ${hex64(1)} ${ZERO} ${ZERO} ${ALL_ONES}`),
    );
    expect(swap.slice(0, 44)).toBe(compactHex(`${head('4a', 1, 2)} 00000002`));
    expect(swap.slice(52)).toBe(
      compactHex(
        `11223344 ${hex64(0x1_0000_1008)} ${hex64(0xaa)} ${ALL_ONES} ${hex64(1)} ${ALL_ONES}`,
      ),
    );
    expect(add.slice(44, 52)).not.toBe(swap.slice(44, 52));
  });

  /** A FetchAdd outstanding, its sink, and the head of its Response. */
  async function outstanding(): Promise<{ facing: Facing; sink: Region; identifier: string }> {
    const facing = await Facing.initiator();
    const sink = facing.consumer.register(8);
    facing.consumer.fetchAdd(sink, 1n, 0x11223344, 0x1008);
    const [request = ''] = await facing.receive(1);
    return { facing, sink, identifier: request.slice(44, 52) };
  }

  it('completes with its Response, which brings the original value, and not before [RDMAPX-5.2.2-05, RDMAPX-5.4-01]', async () => {
    const { facing, sink, identifier } = await outstanding();
    await settled();
    facing.consumer.poll();
    expect(facing.consumer.sent).toEqual([]);
    expect(sink.bytes.every((byte) => byte === 0)).toBe(true);
    facing.say(`${head('4b', 3, 1)} ${identifier} 0102030405060708`);
    expect(await facing.consumer.sends(1)).toMatchObject([
      { status: WCStatus.success, opcode: WCOpcode.fetchAdd, byteLen: 8 },
    ]);
    // In the byte order of the host, as a 64-bit number.
    expect(new DataView(sink.bytes.buffer).getBigUint64(0, true)).toBe(0x0102_0304_0506_0708n);
  });

  it('fails when the connection ends without a Response [RDMAPX-5.4-01]', async () => {
    const { facing, sink } = await outstanding();
    facing.peer.reset();
    expect(await facing.consumer.statuses(1)).not.toEqual([WCStatus.success]);
    expect(sink.bytes.every((byte) => byte === 0)).toBe(true);
  });

  it('does not complete by a Response that does not match it [RDMAPX-5.2.2-06, RDMAPX-8.2-01]', async () => {
    for (const [make, control] of [
      [(id: string) => `${head('4b', 3, 1)} ${hex32(Number.parseInt(id, 16) ^ 1)} ${ZERO}`, '02ff'],
      [(id: string) => `${head('4b', 3, 1)} ${id} 000000000000`, '02ff'],
      [(id: string) => `${head('4b', 3, 1)} ${id} ${ZERO}00`, '1205'],
      [(id: string) => `${head('4b', 3, 2)} ${id} ${ZERO}`, '1203'],
    ] as const) {
      const { facing, identifier } = await outstanding();
      facing.say(make(identifier));
      expect((await facing.terminate()).slice(0, 4)).toBe(control);
      expect(await facing.consumer.statuses(1)).not.toEqual([WCStatus.success]);
    }
  });

  it('shares ORD with Reads, and receives as many Responses [RDMAPX-5.2-01, RDMAPX-5.2.2-04]', async () => {
    const facing = await Facing.initiator({ wishes: { initiatorDepth: 2, responderResources: 2 } });
    const { consumer } = facing;
    const sink = consumer.register(8);
    for (let i = 0; i < 4; i++) consumer.fetchAdd(sink, 1n, 1, 8);
    consumer.read(sink, 0, 1, 0);
    const first = await facing.hearAll();
    expect(first.map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['414a', '414a']);
    const answers = first.map(
      (ulpdu, i) => `${head('4b', 3, i + 1)} ${ulpdu.slice(44, 52)} ${ZERO}`,
    );
    facing.say(...answers);
    expect((await facing.receive(2)).map((ulpdu) => ulpdu.slice(0, 4))).toEqual(['414a', '414a']);
    expect(await consumer.statuses(2)).toEqual([WCStatus.success, WCStatus.success]);
  });

  it('that cannot be built ends with a Terminate without copies [RDMAPX-8.1-01]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    const sgList = [{ addr: consumer.bufferMR.address, length: 8, lkey: 0xbad }];
    const opcode = WROpcode.atomicFetchAndAdd;
    consumer.post({ opcode, sgList, rkey: 1, remoteAddr: 8, compareAdd: 1n });
    const terminate = await facing.terminate();
    expect(terminate.slice(4)).toBe('0000');
    expect(await consumer.statuses(1)).toEqual([WCStatus.locProtErr]);
  });
});

describe('Immediate Data', () => {
  it('is 8 bytes on queue 0, in one sequence with the Sends [RDMAPX-4.1-01, RDMAPX-4.1-03, RDMAPX-6.3-01, RDMAPX-6.3-04]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    consumer.send('41');
    consumer.post({ opcode: WROpcode.immediate, immData: 0x0102_0304_0506_0708n });
    consumer.post({ opcode: WROpcode.immediate, immData: 9, flags: SendFlag.solicited });
    const sgList = consumer.payload('42') ?? [];
    const remote = { rkey: 0x11223344, remoteAddr: 0x1000 };
    consumer.post({ opcode: WROpcode.rdmaWriteWithImm, sgList, immData: 10, ...remote });
    consumer.send('43');
    expect(await facing.receive(6)).toEqual(
      [
        `${head('43', 0, 1)} 41`,
        `${head('48', 0, 2)} 0102030405060708`,
        `${head('49', 0, 3)} ${hex64(9)}`,
        `c140 11223344 ${hex64(0x1000)} 42`,
        `${head('48', 0, 4)} ${hex64(10)}`,
        `${head('43', 0, 5)} 43`,
      ].map(compactHex),
    );
  });

  it('consumes one receive each and is delivered in order with Sends [RDMAPX-6.3-02, RDMAPX-6.3-03, RDMAPX-7-01]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(8);
    consumer.postReceive(8, 4);
    facing.say(
      `${head('48', 0, 1)} 0000000000000001`,
      `${head('43', 0, 2)} 41`,
      `c140 ${region.stag} ${hex64(0x1000)} 51`,
      `${head('49', 0, 3)} 0000000000000002`,
    );
    const received = await consumer.received(3);
    expect(received.map(({ payload, immediate }) => immediate ?? payload)).toEqual([
      hex64(1),
      '41',
      hex64(2),
    ]);
    expect(region.bytes[0]).toBe(0x51);
    // One of the four is left.
    facing.say(`${head('48', 0, 4)} ${ZERO}`, `${head('48', 0, 5)} ${ZERO}`);
    expect((await facing.terminate()).slice(0, 4)).toBe('1202');
  });

  it('that is not 8 bytes long is error 0/2/255 and consumes no receive [RDMAPX-6.3-05, RDMAPX-8.1-02, RDMAPX-8.2-01]', async () => {
    for (const length of [0, 7, 9]) {
      const facing = await Facing.responder();
      facing.consumer.postReceive(64);
      const ulpdu = `${head('48', 0, 1)} ${'00'.repeat(length)}`;
      facing.say(ulpdu);
      expect(await facing.terminate()).toBe(copying('02ffc000', ulpdu));
      expect(await facing.consumer.received(1)).toMatchObject([{ status: WCStatus.wrFlushErr }]);
    }
  });

  it('raises a solicited event with opcode 9 only [RDMAPX-6.3-06]', async () => {
    const facing = await Facing.responder();
    const { consumer, node } = facing;
    let events = 0;
    node.host.onCompletion = () => {
      events += 1;
    };
    consumer.postReceive(8, 2);
    consumer.arm(true);
    facing.say(`${head('48', 0, 1)} ${ZERO}`);
    await consumer.received(1);
    expect(events).toBe(0);
    facing.say(`${head('49', 0, 2)} ${ZERO}`);
    await until('the event', () => events === 1);
  });
});
