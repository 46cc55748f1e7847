import { describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { AsyncEventType, WCOpcode, WCStatus } from '#contract/verbs/enums';
import { Nic } from '#daemon/rnic/nic';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import { CompletionRecord } from '#daemon/rnic/rings/completion-writer';
import { IndexRingClient } from '#test/support/index-ring-client';

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

function create(cqe: number): { nic: Nic; cq: CQ; client: IndexRingClient } {
  const nic = new Nic({ name: 'roce0', seed: 1 });
  const cq = nic.createCQ({ cqe, kind: 'indices', ring, tag: undefined });
  return { nic, cq, client: new IndexRingClient(cq.ring) };
}

function push(cq: CQ, fields: Partial<CompletionRecord>): void {
  cq.push(Object.assign(new CompletionRecord(), { opcode: SQOpcode.send, qpn: 17 }, fields));
}

function pushAll(cq: CQ, ids: readonly number[]): void {
  for (const wrIdLo of ids) push(cq, { wrIdLo });
}

/** The consumer index that the device last believed. */
function seenBy(client: IndexRingClient): number {
  return client.view.getUint32(260, true);
}

function ids(client: IndexRingClient): number[] {
  return client.outcome().map(([wrId]) => wrId);
}

describe('armed in the ring', () => {
  const fired = (nic: Nic): boolean => nic.pollEffect()?.type === 'completion';

  it('fires at the next completion, once, whatever else the program writes there', () => {
    const { nic, cq, client } = create(7);
    client.arm(2);
    client.arm(1);
    pushAll(cq, [1]);
    expect(fired(nic)).toBe(true);
    pushAll(cq, [2]);
    expect(fired(nic)).toBe(false);
    client.arm(0xfc);
    pushAll(cq, [3]);
    expect(fired(nic)).toBe(false);
    client.arm(0xff);
    pushAll(cq, [4]);
    expect(fired(nic)).toBe(true);
  });

  it('fires for completions of which neither knew, unless it has fired for them', () => {
    const { nic, cq, client } = create(7);
    pushAll(cq, [1]);
    const seen = client.shown;
    pushAll(cq, [2]);
    client.arm(2);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(true);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(false);
    client.arm(2);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(false);
    pushAll(cq, [3]);
    expect(fired(nic)).toBe(true);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(false);
  });

  it('waits for the next one if there are no others, also in a resized ring', () => {
    const { nic, cq, client } = create(3);
    pushAll(cq, [1, 2]);
    client.arm(2);
    cq.resize(7, ring);
    cq.checkArmed(new IndexRingClient(cq.ring).shown);
    expect(fired(nic)).toBe(false);
    pushAll(cq, [3]);
    expect(fired(nic)).toBe(true);
  });

  it('notices a full wrap of the ring, and counts beyond 2^32', () => {
    const { nic, cq, client } = create(1);
    const seen = client.shown;
    for (const id of [1, 2]) {
      pushAll(cq, [id]);
      expect(ids(client)).toEqual([id]);
    }
    expect(client.producer).toBe(0);
    client.arm(2);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(true);
    pushAll(cq, [3]);
    client.arm(2);
    cq.checkArmed(2 ** 32 - 1);
    expect(fired(nic)).toBe(true);
  });

  it('for solicited ones fires only if one of those was', () => {
    const { nic, cq, client } = create(7);
    push(cq, { solicited: true });
    const seen = client.shown;
    pushAll(cq, [2]);
    client.arm(1);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(false);
    push(cq, { solicited: true });
    expect(fired(nic)).toBe(true);
    push(cq, { solicited: true });
    pushAll(cq, [5]);
    client.arm(1);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(true);
    pushAll(cq, [6]);
    client.arm(1);
    cq.checkArmed(seen);
    expect(fired(nic)).toBe(false);
  });
});

describe('a completion ring with indices', () => {
  it.each([
    [1, 1],
    [2, 3],
    [3, 3],
    [4, 7],
    [7, 7],
    [8, 15],
    [100, 127],
    [128, 255],
    [32767, 32767],
  ])('for %i entries reports %i and has one slot more', (cqe, entries) => {
    const { cq, client } = create(cqe);
    expect([cq.count, client.mask, client.slotBytes]).toEqual([entries, entries, 64]);
    expect(cq.ring).toHaveLength(384 + (entries + 1) * 64);
  });

  it('is full with one slot empty: a completion is lost, which is reported once', () => {
    const { nic, cq, client } = create(3);
    pushAll(cq, [1, 2, 3, 4, 5]);
    expect(cq.lost).toBe(2);
    expect(nic.pollEffect()).toMatchObject({ type: 'async', event: AsyncEventType.cqErr });
    expect(nic.pollEffect()).toBeUndefined();
    expect(ids(client)).toEqual([1, 2, 3]);
    pushAll(cq, [6, 7, 8]);
    expect(ids(client)).toEqual([6, 7, 8]);
    expect(cq.lost).toBe(2);
  });

  it('continues when librxe has taken one more than there is', () => {
    const { cq, client } = create(7);
    pushAll(cq, [1, 2, 3]);
    expect(ids(client)).toEqual([1, 2, 3]);
    client.consumer = 4;
    pushAll(cq, [4]);
    expect([client.producer, client.consumer, seenBy(client)]).toEqual([5, 4, 4]);
    expect(ids(client)).toEqual([4]);
    for (let round = 10; round < 30; round += 1) {
      pushAll(cq, [round]);
      expect(ids(client)).toEqual([round]);
    }
    expect(cq.lost).toBe(0);
  });

  it('masks a hostile consumer index', () => {
    const { cq, client } = create(7);
    for (const index of [0xffffffff, 0x80000000, 8, 4096, 0x7fffffff]) {
      client.consumer = index;
      for (let count = 0; count < 20; count += 1) pushAll(cq, [count]);
      expect(client.producer).toBeLessThanOrEqual(7);
    }
  });

  it('arms by a command: once, and a wider request stays', () => {
    const { nic, cq } = create(7);
    const fired = (): number => {
      let count = 0;
      while (nic.pollEffect() !== undefined) count += 1;
      return count;
    };
    pushAll(cq, [1]);
    cq.arm(true);
    pushAll(cq, [2]);
    expect(fired()).toBe(0);
    push(cq, { solicited: true });
    expect(fired()).toBe(1);
    cq.arm(false);
    cq.arm(true);
    pushAll(cq, [3]);
    expect(fired()).toBe(1);
    cq.arm(true);
    push(cq, { status: CQEStatus.wrFlushErr });
    expect(fired()).toBe(1);
  });

  it('starts again at slot 0 with unread completions after a resize', () => {
    const { cq, client } = create(7);
    pushAll(cq, [1, 2, 3, 4, 5]);
    client.poll();
    client.poll();
    expect(() => cq.resize(2, ring)).toThrow('holds 3 completions');
    expect(cq.count).toBe(7);
    cq.resize(3, ring);
    let resized = new IndexRingClient(cq.ring);
    expect([resized.mask, resized.producer, resized.consumer]).toEqual([3, 3, 0]);
    cq.resize(100, ring);
    resized = new IndexRingClient(cq.ring);
    expect([resized.mask, resized.producer, resized.consumer]).toEqual([127, 3, 0]);
    pushAll(cq, [6]);
    expect(ids(resized)).toEqual([3, 4, 5, 6]);
  });

  it('keeps the order when resized across its end', () => {
    const { cq, client } = create(7);
    pushAll(cq, [1, 2, 3, 4, 5, 6]);
    expect(ids(client)).toHaveLength(6);
    pushAll(cq, [7, 8, 9, 10]);
    cq.resize(15, ring);
    expect(ids(new IndexRingClient(cq.ring))).toEqual([7, 8, 9, 10]);
  });
});

describe('a completion', () => {
  const NONE = { vendorError: 0, immediate: 0, sourceQpn: 0, sl: 0, qpn: 17 };
  const SENDS: [string, number, number, number][] = [
    ['Send', SQOpcode.send, WCOpcode.send, 0],
    ['Send with immediate', SQOpcode.sendWithImm, WCOpcode.send, 2],
    ['Send with invalidate', SQOpcode.sendRemoteInv, WCOpcode.send, 0],
    ['Write', SQOpcode.write, WCOpcode.rdmaWrite, 0],
    ['Write with immediate', SQOpcode.writeWithImm, WCOpcode.rdmaWrite, 2],
    ['Read', SQOpcode.read, WCOpcode.rdmaRead, 0],
    ['compare and swap', SQOpcode.compAndSwap, WCOpcode.compSwap, 0],
    ['fetch and add', SQOpcode.fetchAndAdd, WCOpcode.fetchAdd, 0],
    ['bind', SQOpcode.bindMW, WCOpcode.bindMW, 0],
    ['invalidation', SQOpcode.localInv, WCOpcode.localInv, 0],
  ];

  it.each(SENDS)('of a %s', (_, opcode, shown, flags) => {
    const { cq, client } = create(7);
    push(cq, { opcode, wrIdLo: 9, lengthBytes: 8 });
    const fields = { wrId: 9, status: 0, opcode: shown, byteLen: 8, flags, port: 0 };
    expect(client.poll()).toEqual({ ...NONE, ...fields });
  });

  const RECEIVES: [string, Partial<CompletionRecord>, object][] = [
    ['a plain message', {}, { flags: 1 }],
    [
      'immediate data, big endian',
      { flags: 128, immediateLo: 0x11223344 },
      { flags: 3, immediate: 0x44332211 },
    ],
    [
      'a Write with immediate',
      { flags: 128, immediateLo: 1, written: true },
      { flags: 3, opcode: WCOpcode.recvImmediate, immediate: 0x01000000 },
    ],
    [
      'an invalidation, with the flag of the verbs and that of Linux',
      { flags: 32, immediateLo: 0x80003e6 },
      { flags: 1 | 4 | 8, immediate: 0x80003e6 },
    ],
    ['a datagram', { sourceQpn: 0x11, sl: 2 }, { flags: 1, sourceQpn: 0x11, sl: 2 }],
  ];

  it.each(RECEIVES)('of a receive: %s', (_, completion, shown) => {
    const { cq, client } = create(7);
    push(cq, { opcode: SQOpcode.receive, lengthBytes: 56, ...completion });
    const fields = { wrId: 0, status: 0, opcode: WCOpcode.recv, byteLen: 56, port: 1 };
    expect(client.poll()).toEqual({ ...NONE, ...fields, ...shown });
  });

  const STATUSES = Object.entries(CQEStatus).filter(([, status]) => status !== 0);

  it.each(STATUSES)(
    'in error (%s) names its work and the cause, and nothing else',
    (name, status) => {
      const { cq, client } = create(7);
      const rest = { flags: 128, immediateLo: 5, lengthBytes: 7, sourceQpn: 3, sl: 2 };
      // A slot that was used: its old content does not show.
      for (let count = 0; count < 8; count += 1) {
        push(cq, { opcode: SQOpcode.receive, ...rest });
        client.poll();
      }
      push(cq, { opcode: SQOpcode.receive, wrIdLo: 4, wrIdHi: 1, status, ...rest });
      expect(client.poll()).toEqual({
        ...NONE,
        wrId: 2 ** 32 + 4,
        status: Reflect.get(WCStatus, name),
        opcode: 0,
        byteLen: 0,
        flags: 0,
        port: 0,
      });
    },
  );
});
