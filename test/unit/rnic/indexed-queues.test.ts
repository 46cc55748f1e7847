import { beforeEach, describe, expect, it } from 'vitest';
import { seededRandom } from '#base/random';
import type { QPCapabilities } from '#contract/verbs/attributes';
import { Access, AsyncEventType, MWType, QPState, QPType, WCStatus } from '#contract/verbs/enums';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import { SendElement as At } from '#daemon/rnic/rings/indexed-layout';
import { AccessRefusal, OutboundKind } from '#daemon/rnic/wire-port';
import { IndexRingClient } from '#test/support/index-ring-client';
import { NO_MESSAGE } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { ProgramRig } from '#test/support/program-rig';
import { bringTo, mappedGid, modify, PEER } from '#test/support/program-steps';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const { rc, uc, ud } = QPType;
const { RESET, INIT, RTS, SQD, ERR } = QPState;
/** `enum ibv_wr_opcode`. */
const Op = {
  write: 0,
  writeImm: 1,
  send: 2,
  sendImm: 3,
  read: 4,
  cas: 5,
  fadd: 6,
  localInv: 7,
  bind: 8,
  sendInv: 9,
  atomicWrite: 15,
} as const;
/** `enum ibv_send_flags`. */
const SIGNALED = 2;
const INLINE = 8;

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

/** A queue pair with rings as rxe's provider has them. */
class IndexedRig extends ProgramRig {
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly qp: QP;
  readonly sends: IndexRingClient;
  readonly receives: IndexRingClient;
  readonly sent: IndexRingClient;
  readonly received: IndexRingClient;

  constructor(
    type: QPType = rc,
    state: QPState = RTS,
    capabilities: Partial<QPCapabilities> = {},
    srq?: (rig: ProgramRig) => SRQ,
  ) {
    super();
    const cq = (): CQ => this.nic.createCQ({ cqe: 31, kind: 'indices', ring, tag: undefined });
    this.sendCQ = cq();
    this.recvCQ = cq();
    const rings: Uint8Array[] = [];
    const shared = srq?.(this);
    this.qp = this.createQP(type, {
      kind: 'indices',
      sendCQ: this.sendCQ,
      recvCQ: this.recvCQ,
      srq: shared,
      capabilities: {
        maxSendWr: 7,
        maxRecvWr: 7,
        maxSendSge: 2,
        maxRecvSge: 2,
        maxInlineData: 32,
        ...capabilities,
      },
      ring: (bytes) => {
        rings.push(new Uint8Array(bytes));
        return rings.at(-1) ?? new Uint8Array();
      },
    });
    this.sends = new IndexRingClient(rings[0] ?? new Uint8Array());
    this.receives = new IndexRingClient(shared?.ring ?? rings[1] ?? new Uint8Array());
    this.sent = new IndexRingClient(this.sendCQ.ring);
    this.received = new IndexRingClient(this.recvCQ.ring);
    bringTo(this.qp, state);
  }

  piece(offset: number, length: number): { addr: number; length: number; lkey: number } {
    return { addr: MEMORY_ADDRESS + offset, length, lkey: this.mr.lkey };
  }

  /** Posts one work request and rings the doorbell. */
  post(opcode: number, fields: Readonly<Record<number, number>> = {}, wrId = 1): void {
    this.sends.send(wrId, opcode, SIGNALED, [this.piece(0, 8)], fields);
    this.qp.doorbell(0);
  }

  deliver(bytes: Uint8Array, message: Partial<typeof NO_MESSAGE> = {}): AccessRefusal {
    const begun = this.qp.beginReceive();
    if (begun !== AccessRefusal.none) return begun;
    const placed = this.qp.placeReceive(0, bytes, 0, bytes.length);
    if (placed !== AccessRefusal.none) return placed;
    return this.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: bytes.length, ...message });
  }
}

let rig: IndexedRig;

beforeEach(() => {
  rig = new IndexedRig();
});

describe('a send queue with indices', () => {
  it.each([
    [1, 1, 0, 1, 256],
    [16, 1, 0, 31, 256],
    [15, 4, 100, 15, 512],
    [0, 0, 0, 0, 256],
    [7, 32, 512, 7, 1024],
  ])('for %i requests of %i SGEs, %i bytes inline', (maxSendWr, sges, inline, mask, slot) => {
    const rig = new IndexedRig(rc, INIT, { maxSendWr, maxSendSge: sges, maxInlineData: inline });
    expect([rig.sends.mask, rig.sends.slotBytes]).toEqual([mask, slot]);
  });

  it.each([[{ maxSendSge: 33 }], [{ maxRecvSge: 33 }], [{ maxInlineData: 513 }]])(
    'refuses %o',
    (capabilities) => {
      expect(() => new IndexedRig(rc, RESET, capabilities)).toThrow('must be 0 to');
    },
  );

  it('frees slots at completion, in order, including unsignaled ones', () => {
    rig.wire.budget = 0;
    for (let wrId = 0; wrId < 7; wrId += 1) {
      rig.sends.send(wrId, Op.send, wrId === 6 ? SIGNALED : 0, [rig.piece(wrId, 1)]);
    }
    expect(rig.sends.full).toBe(true);
    rig.qp.doorbell(0);
    expect([rig.qp.sendsTaken, rig.sends.consumer]).toEqual([1, 0]);
    rig.wire.budget = 3;
    rig.qp.doorbell(0);
    expect(rig.sends.consumer).toBe(3);
    expectOutcome(rig.sent);
    rig.wire.budget = Number.POSITIVE_INFINITY;
    rig.qp.doorbell(0);
    expect([rig.sends.consumer, rig.sends.producer]).toEqual([7, 7]);
    expectOutcome(rig.sent, [6, WCStatus.success]);
    for (let wrId = 10; wrId < 40; wrId += 1) {
      rig.post(Op.send, {}, wrId);
      expectOutcome(rig.sent, [wrId, WCStatus.success]);
    }
  });

  it('frees the slot before the completion is visible', () => {
    const seen: number[] = [];
    const completed = (): void => void seen.push(rig.sends.consumer);
    rig.nic.watch.observer = { posted: () => undefined, completed };
    rig.post(Op.send);
    expect(seen).toEqual([1]);
  });

  it('counts a receive as completed after its completion', () => {
    const seen: number[][] = [];
    const counts = (): number[] => [rig.receives.consumer, rig.receives.shown];
    rig.nic.watch.observer = { posted: () => undefined, completed: () => void seen.push(counts()) };
    rig.receives.receive(7, []);
    rig.receives.receive(8, []);
    modify(rig.qp, ERR);
    expect(seen).toEqual([
      [1, 0],
      [2, 1],
    ]);
    expect(counts()).toEqual([2, 2]);
    modify(rig.qp, RESET);
    expect(counts()).toEqual([2, 2]);
  });

  it('survives any producer index, and takes no more than a ring at a time', () => {
    for (const index of [0xffffffff, 8, 0x80000001, 7]) {
      rig.sends.producer = index;
      rig.qp.doorbell(0);
      rig.nic.assertDeepInvariants();
    }
    expect(rig.sends.consumer).toBeLessThanOrEqual(7);
  });

  it('in ERR flushes posted work, in RESET forgets it', () => {
    rig.wire.budget = 0;
    rig.post(Op.send, {}, 1);
    rig.post(Op.read, {}, 2);
    rig.receives.receive(7, [rig.piece(0, 8)]);
    modify(rig.qp, ERR);
    const flushed = WCStatus.wrFlushErr;
    expectOutcome(rig.sent, [1, flushed], [2, flushed]);
    expectOutcome(rig.received, [7, flushed]);
    rig.post(Op.send, {}, 3);
    expectOutcome(rig.sent, [3, flushed]);
    expect([rig.sends.consumer, rig.receives.consumer]).toEqual([3, 1]);
    modify(rig.qp, RESET);
    rig.sends.send(4, Op.send, SIGNALED, []);
    rig.receives.receive(8, []);
    bringTo(rig.qp, RTS);
    expectOutcome(rig.sent, [4, WCStatus.success]);
    modify(rig.qp, RESET);
    expect([rig.sends.consumer, rig.receives.consumer]).toEqual([4, 2]);
    expectOutcome(rig.received);
  });
});

describe('a work request', () => {
  const KEY = 0x80001de;

  it.each([
    ['Write', Op.write, { 24: 0x1000, 28: 2, 32: KEY }, OutboundKind.write, { remoteStag: KEY }],
    [
      'Write with immediate',
      Op.writeImm,
      { 20: 0x44332211, 24: 0x1000, 28: 2, 32: KEY },
      OutboundKind.writeWithImmediate,
      { immediateLo: 0x11223344, remoteToHi: 2, remoteToLo: 0x1000 },
    ],
    ['Send', Op.send, {}, OutboundKind.send, {}],
    [
      'Send with immediate',
      Op.sendImm,
      { 20: 0x01000000 },
      OutboundKind.sendWithImmediate,
      { immediateLo: 1 },
    ],
    [
      'Send with invalidate',
      Op.sendInv,
      { 20: KEY },
      OutboundKind.sendWithInvalidate,
      { invalidateStag: KEY },
    ],
    ['Read', Op.read, { 24: 0x1000, 32: KEY }, OutboundKind.readRequest, { remoteStag: KEY }],
    [
      'compare and swap',
      Op.cas,
      { 24: 0x1000, 32: 5, 40: 77, 48: KEY },
      OutboundKind.atomic,
      { atomicOperation: 2, atomicCompareLo: 5, atomicOperandLo: 77, remoteStag: KEY },
    ],
    [
      'fetch and add',
      Op.fadd,
      { 24: 0x1000, 32: 5, 36: 1, 40: 77, 48: KEY },
      OutboundKind.atomic,
      { atomicOperation: 0, atomicOperandLo: 5, atomicOperandHi: 1, remoteStag: KEY },
    ],
  ] as const)('of a %s becomes a message', (_, opcode, fields, kind, expected) => {
    const rig = new IndexedRig();
    rig.post(opcode, fields);
    expect(rig.wire.sent).toMatchObject([{ kind, lengthBytes: 8, ...expected }]);
  });

  it('of an atomic write is a Write of 8 bytes from the element', () => {
    rig.post(Op.atomicWrite, { 24: 0x1000, 32: KEY, 208: 0x04030201, 212: 0x08070605 });
    const payload = [1, 2, 3, 4, 5, 6, 7, 8];
    expect(rig.wire.sent).toMatchObject([{ kind: OutboundKind.write, remoteStag: KEY, payload }]);
    expect(rig.sent.poll()).toMatchObject({ status: 0, opcode: 1, byteLen: 8 });
  });

  it('has the length of its SGEs, whatever librxe wrote', () => {
    rig.memory.set([1, 2, 3, 4, 5, 6], 0);
    rig.sends.send(1, Op.send, SIGNALED, [rig.piece(0, 2), rig.piece(3, 3)], { [At.length]: 4 });
    rig.qp.doorbell(0);
    expect(rig.wire.sent).toMatchObject([{ lengthBytes: 5, payload: [1, 2, 4, 5, 6] }]);
    expect(rig.sent.poll()).toMatchObject({ byteLen: 5 });
  });

  it.each([
    ['with the flag', INLINE | SIGNALED],
    ['without it, as ibv_wr_set_inline_data posts', SIGNALED],
  ])('has inline payload %s', (_, flags) => {
    const rig = new IndexedRig();
    rig.sends.send(1, Op.send, flags, [], { [At.length]: 6, 208: 0x41414141, 212: 0x4242 });
    rig.qp.doorbell(0);
    const payload = [0x41, 0x41, 0x41, 0x41, 0x42, 0x42];
    expect(rig.wire.sent).toMatchObject([{ lengthBytes: 6, payload }]);
  });

  it.each([
    ['an unknown operation', 99, {}, WCStatus.locQpOpErr],
    ['more SGEs than its slot holds', Op.send, { [At.numSge]: 4 }, WCStatus.locQpOpErr],
    ['any number of SGEs', Op.send, { [At.numSge]: 0xffffffff }, WCStatus.locQpOpErr],
    ['an unknown lkey', Op.send, { 220: 0x777 }, WCStatus.locProtErr],
    ['a range beyond its region', Op.write, { 216: 5000 }, WCStatus.locProtErr],
    [
      'more inline payload than its slot holds',
      Op.send,
      { [At.flags]: INLINE, [At.length]: 49 },
      WCStatus.locLenErr,
    ],
    ['an atomic of 4 bytes', Op.fadd, { 216: 4 }, WCStatus.locLenErr],
    ['a key that may not be invalidated', Op.localInv, { 20: 0x7777 }, WCStatus.locQpOpErr],
    ['a window that is none', Op.bind, { 44: 0x7777 }, WCStatus.mwBindErr],
  ] as const)(
    'with %s fails, and its completion has only its number and status',
    (_, op, fields, status) => {
      const rig = new IndexedRig();
      rig.post(op, fields);
      expect(rig.sent.poll()).toMatchObject({ wrId: 1, status, opcode: 0, byteLen: 0 });
      expect(rig.qp.state).toBe(ERR);
      expect(rig.asyncEvents()).toEqual([]);
    },
  );

  it.each([
    ['UC', uc, [Op.read, Op.cas, Op.fadd, Op.sendInv]],
    ['UD', ud, [Op.write, Op.writeImm, Op.read, Op.cas, Op.sendInv, Op.bind, Op.localInv]],
  ] as const)('on %s has no such operation', (_, type, opcodes) => {
    for (const opcode of opcodes) {
      const rig = new IndexedRig(type);
      rig.post(opcode);
      expectOutcome(rig.sent, [1, WCStatus.locQpOpErr]);
      expect(rig.wire.sent).toEqual([]);
    }
  });

  it('of a Read scatters the response over its SGEs', () => {
    rig.sends.send(1, Op.read, SIGNALED, [rig.piece(0, 3), rig.piece(100, 5)], { 32: KEY });
    rig.qp.doorbell(0);
    const bytes = Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(rig.qp.placeReadPart(0, bytes, 0, 5)).toBe(AccessRefusal.none);
    expect(rig.qp.placeReadPart(5, bytes, 5, 3)).toBe(AccessRefusal.none);
    rig.qp.readCompleted();
    expect([...rig.memory.subarray(0, 4)]).toEqual([1, 2, 3, 0]);
    expect([...rig.memory.subarray(99, 106)]).toEqual([0, 4, 5, 6, 7, 8, 0]);
    expect(rig.sent.poll()).toMatchObject({ status: 0, opcode: 2, byteLen: 8 });
    expect(rig.qp.placeReadPart(0, bytes, 0, 1)).toBe(AccessRefusal.stagInvalid);
  });

  it('waits in SQD and starts in RTS', () => {
    modify(rig.qp, SQD);
    rig.post(Op.send);
    expect([rig.wire.sent.length, rig.sends.consumer]).toEqual([0, 0]);
    modify(rig.qp, RTS);
    expect([rig.wire.sent.length, rig.sends.consumer]).toEqual([1, 1]);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.sqDrained]);
  });
});

describe('hostile elements', () => {
  it.each([rc, uc, ud])('never disturb the device (type %i)', (type) => {
    const random = seededRandom(type);
    const statuses = new Set<number>();
    const rig = new IndexedRig(type);
    const handle = rig.nic.createAH(rig.pd, PEER).number;
    for (let element = 0; element < 2_000; element += 1) {
      if (rig.qp.state === ERR) {
        modify(rig.qp, RESET);
        bringTo(rig.qp, RTS);
      }
      const position = rig.sends.slot(rig.sends.producer);
      for (let at = 0; at < rig.sends.slotBytes; at += 4) {
        rig.sends.view.setUint32(position + at, random(), true);
      }
      // Mostly elements that get further than their operation and number of SGEs.
      if (element % 4 !== 0) {
        rig.sends.view.setUint32(position + At.opcode, random() % 16, true);
        rig.sends.view.setUint32(position + At.numSge, random() % 4, true);
        rig.sends.view.setUint32(position + At.addressHandle, handle, true);
        rig.sends.view.setUint32(position + 216, random() % 100, true);
        rig.sends.view.setUint32(position + 220, rig.mr.lkey, true);
        rig.sends.view.setBigUint64(position + 208, BigInt(MEMORY_ADDRESS + 64), true);
      }
      rig.sends.producer = (rig.sends.producer + 1 + (random() % 2)) & rig.sends.mask;
      rig.receives.view.setUint32(128, random(), true);
      rig.qp.doorbell(0);
      if (rig.qp.beginReceive() === AccessRefusal.none) rig.qp.completeReceive(NO_MESSAGE);
      for (const [, status] of [...rig.sent.outcome(), ...rig.received.outcome()]) {
        statuses.add(status);
      }
      rig.asyncEvents();
      rig.nic.assertDeepInvariants();
    }
    expect(
      [...statuses].filter((status) => !Object.values<number>(WCStatus).includes(status)),
    ).toEqual([]);
    expect(statuses).toContain(WCStatus.success);
    expect(statuses).toContain(WCStatus.locQpOpErr);
  });
});

describe('a datagram', () => {
  it('goes to the address of its handle', () => {
    const rig = new IndexedRig(ud);
    const ah = rig.nic.createAH(rig.pd, PEER);
    expect(ah.number).toBe(1);
    rig.post(Op.send, { 24: 0x12, 28: 0x11111111, 36: ah.number });
    expect(rig.wire.sent).toMatchObject([
      { address: ah, remoteQpn: 0x12, qkey: 0x11111111, payload: new Array(8).fill(0) },
    ]);
  });

  it('fails without a handle, with that of another domain, or with a closed one', () => {
    for (const number of [0, 2, 3, 0xffffffff]) {
      const rig = new IndexedRig(ud);
      rig.nic.createAH(rig.pd, PEER);
      rig.nic.createAH(rig.pd, PEER).close();
      rig.nic.createAH(rig.nic.allocPD(), PEER);
      rig.post(Op.send, { 24: 0x12, 36: number });
      expectOutcome(rig.sent, [1, WCStatus.locQpOpErr]);
      expect(rig.qp.state).toBe(ERR);
    }
  });

  it('needs a handle with a good address, and its domain stays until it is closed', () => {
    const rig = new ProgramRig();
    const create = (fields: object): unknown => rig.nic.createAH(rig.pd, { ...PEER, ...fields });
    expect(() => create({ isGlobal: false })).toThrow('GID');
    expect(() => create({ sgidIndex: 5 })).toThrow('sgidIndex 5 is an empty entry');
    expect(() => create({ portNum: 2 })).toThrow('port');
    expect(() => create({ dgid: mappedGid(192, 0, 2, 1) })).toThrow('no route');
    expect(create({ dgid: mappedGid(239, 0, 0, 1) })).toMatchObject({ number: 1 });
    const pd = rig.nic.allocPD();
    const ah = rig.nic.createAH(pd, PEER);
    expect(() => pd.close()).toThrow('use the protection domain');
    ah.close();
    ah.close();
    pd.close();
  });

  it('arrives after 40 bytes of GRH, with its sender and the packet type that UCX looks for', () => {
    for (const [first, sl] of [
      [0x00, 2],
      [0x60, 1],
    ] as const) {
      const rig = new IndexedRig(ud);
      rig.receives.receive(9, [rig.piece(0, 64)]);
      const bytes = new Uint8Array(56);
      bytes[0] = first;
      expect(rig.deliver(bytes, { sourceQpn: 0x11 })).toBe(AccessRefusal.none);
      expect(rig.received.poll()).toMatchObject({ byteLen: 56, flags: 1, sourceQpn: 0x11, sl });
    }
  });

  it('leaks nothing of its sender into the watch of a later send', () => {
    const rig = new IndexedRig(ud);
    const notified: object[] = [];
    rig.nic.watch.observer = {
      posted: () => undefined,
      completed: (work) => notified.push({ ...work }),
    };
    rig.receives.receive(9, [rig.piece(0, 64)]);
    rig.deliver(new Uint8Array(56), { sourceQpn: 0x11 });
    rig.post(Op.send, { 24: 0x12, 36: 0 });
    expect(notified).toMatchObject([
      { sourceQpn: 0x11, sl: 2 },
      { sourceQpn: 0, sl: 0 },
    ]);
  });
});

describe('receives with indices', () => {
  it('free their slot when they complete', () => {
    rig.receives.receive(5, [rig.piece(0, 4), rig.piece(8, 4)]);
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.none);
    expect(rig.receives.consumer).toBe(0);
    rig.qp.placeReceive(0, Uint8Array.from([1, 2, 3, 4, 5, 6]), 0, 6);
    rig.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: 6 });
    expect(rig.receives.consumer).toBe(1);
    expect([...rig.memory.subarray(0, 10)]).toEqual([1, 2, 3, 4, 0, 0, 0, 0, 5, 6]);
    expect(rig.received.poll()).toMatchObject({ wrId: 5, byteLen: 6, opcode: 128, flags: 1 });
  });

  it('take a Write with immediate without touching their memory', () => {
    rig.receives.receive(5, []);
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.none);
    const written = { written: true, hasImmediate: true, immediateLo: 0x11223344 };
    rig.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: 4096, ...written });
    const wc = { wrId: 5, byteLen: 4096, opcode: 129, flags: 3, immediate: 0x44332211 };
    expect(rig.received.poll()).toMatchObject(wc);
  });

  it('with more SGEs than a slot holds fail', () => {
    rig.receives.receive(5, [], 100);
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.receiveInvalid);
    expectOutcome(rig.received, [5, WCStatus.locQpOpErr]);
  });

  it('of a shared queue free it at once, raise the limit event, and can be resized', () => {
    let srq: SRQ | undefined;
    const rig = new IndexedRig(rc, RTS, {}, ({ nic, pd }) => {
      const init = { maxWr: 7, maxSge: 0, srqLimit: 100, ring, tag: undefined };
      srq = nic.createSRQ(pd, { ...init, kind: 'indices' });
      return srq;
    });
    if (srq === undefined) throw new Error('no shared queue');
    expect([srq.capacity, srq.count, rig.receives.slotBytes]).toEqual([7, 8, 64]);
    expect(() => srq?.modify({ srqLimit: 8 })).toThrow('0 to 7');
    srq.modify({ srqLimit: 2 });
    for (const wrId of [1, 2, 3]) rig.receives.receive(wrId, [rig.piece(0, 8)]);
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.none);
    expect(rig.receives.consumer).toBe(1);
    expect(rig.asyncEvents()).toEqual([]);
    rig.qp.completeReceive(NO_MESSAGE);
    expect(() => srq?.resize(1, ring)).toThrow('holds 2 receives');
    srq.resize(20, ring);
    const resized = new IndexRingClient(srq.ring);
    expect([resized.mask, resized.producer, resized.consumer]).toEqual([31, 2, 0]);
    expect(rig.deliver(new Uint8Array(1))).toBe(AccessRefusal.none);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.srqLimitReached]);
    expectOutcome(rig.received, [1, WCStatus.success], [2, WCStatus.success]);
    modify(rig.qp, ERR);
    expectOutcome(rig.received);
    expect(rig.asyncEvents()).toEqual([AsyncEventType.qpLastWqeReached]);
  });
});

describe('arming a queue with indices', () => {
  it('reports completions after the client’s last poll, not those it left unpolled', () => {
    const fired = (): number => {
      let count = 0;
      for (let effect = rig.nic.pollEffect(); effect !== undefined; effect = rig.nic.pollEffect()) {
        if (effect.type === 'completion' && effect.cq === rig.recvCQ) count += 1;
      }
      return count;
    };
    const arm = (solicitedOnly: boolean, seen: number): void => {
      rig.recvCQ.arm(solicitedOnly);
      rig.recvCQ.checkArmed(seen);
    };
    for (let wrId = 0; wrId < 7; wrId += 1) rig.receives.receive(wrId, [rig.piece(0, 8)]);
    const receive = (solicited = false): void => {
      expect(rig.deliver(Uint8Array.of(1), { solicited })).toBe(AccessRefusal.none);
    };
    receive();
    receive();
    // Both were there, whether the client has taken them or not: rxe does not fire either.
    arm(false, 2);
    expect(fired()).toBe(0);
    receive();
    expect(fired()).toBe(1);
    // The queue has fired for the last one, which was written while the request was on its way.
    arm(false, 2);
    expect(fired()).toBe(0);
    receive();
    expect(fired()).toBe(1);
    // It has not fired for this one.
    receive();
    arm(false, 4);
    expect(fired()).toBe(1);
    // Arming for solicited completions does not change a pending request for any completion.
    arm(false, 5);
    arm(true, 5);
    receive();
    expect(fired()).toBe(1);
    arm(true, 5);
    expect(fired()).toBe(0);
    receive(true);
    expect(fired()).toBe(1);
  });
});

describe('a shared queue whose client changes its index while it is resized', () => {
  it('moves the receives posted before the resize', () => {
    const { nic, pd } = new IndexedRig();
    const init = { maxWr: 63, maxSge: 1, srqLimit: 0, ring, tag: undefined };
    const srq = nic.createSRQ(pd, { ...init, kind: 'indices' });
    const receives = new IndexRingClient(srq.ring);
    for (const wrId of [1, 2]) receives.receive(wrId, []);
    const before = new DataView(srq.ring.buffer, srq.ring.byteOffset);
    srq.resize(3, (bytes) => {
      before.setUint32(128, 60, true);
      return ring(bytes);
    });
    const resized = new IndexRingClient(srq.ring);
    expect([resized.mask, resized.producer, resized.consumer]).toEqual([3, 2, 0]);
  });
});

describe('memory windows of a program’s queue pair', () => {
  const bind = (rig: IndexedRig, rkey: number, key: number, length = 64): void => {
    rig.post(Op.bind, {
      24: MEMORY_ADDRESS,
      32: length,
      40: rig.mr.lkey,
      44: rkey,
      48: key,
      52: Access.remoteWrite,
    });
  };
  const write = (rig: IndexedRig, key: number): AccessRefusal =>
    rig.qp.placeWrite(key, 0, MEMORY_ADDRESS, new Uint8Array(8), 0, 8);

  it('of type 1 are bound, opened to peers and unbound in the send queue', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    const first = mw.rkey;
    const second = (first & ~0xff) | ((first + 1) & 0xff);
    bind(rig, first, second);
    expect(rig.sent.poll()).toMatchObject({ status: 0, opcode: 5, byteLen: 0 });
    expect([mw.rkey, write(rig, second >>> 0), write(rig, first)]).toEqual([
      second >>> 0,
      AccessRefusal.none,
      AccessRefusal.stagInvalid,
    ]);
    bind(rig, mw.rkey, first, 0);
    expectOutcome(rig.sent, [1, WCStatus.success]);
    expect(write(rig, first)).toBe(AccessRefusal.stagInvalid);
  });

  it('named by an old key are not bound', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type1);
    bind(rig, mw.rkey ^ 1, 5);
    expectOutcome(rig.sent, [1, WCStatus.mwBindErr]);
  });

  it('of type 2 are bound once, until they are invalidated', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type2);
    bind(rig, mw.rkey, 7);
    expect(write(rig, mw.rkey)).toBe(AccessRefusal.none);
    rig.post(Op.localInv, { 20: mw.rkey });
    expectOutcome(rig.sent, [1, WCStatus.success], [1, WCStatus.success]);
    expect(write(rig, mw.rkey)).toBe(AccessRefusal.stagInvalid);
    bind(rig, mw.rkey, 8);
    rig.receives.receive(1, [rig.piece(0, 8)]);
    const message = { invalidates: true, invalidateStag: mw.rkey };
    expect(rig.deliver(new Uint8Array(8), message)).toBe(AccessRefusal.none);
    expect(rig.received.poll()).toMatchObject({ status: 0, flags: 13, immediate: mw.rkey });
    expect(write(rig, mw.rkey)).toBe(AccessRefusal.stagInvalid);
    bind(rig, mw.rkey, 9);
    bind(rig, mw.rkey, 10);
    expect(rig.sent.outcome().at(-1)).toEqual([1, WCStatus.mwBindErr]);
  });

  it('are invalidated only once everything before is done', () => {
    const mw = rig.nic.allocMW(rig.pd, MWType.type2);
    bind(rig, mw.rkey, 7);
    rig.wire.budget = 0;
    rig.post(Op.send, {}, 2);
    rig.post(Op.localInv, { 20: mw.rkey }, 3);
    expect(write(rig, mw.rkey)).toBe(AccessRefusal.none);
    rig.wire.budget = 9;
    rig.qp.doorbell(0);
    expect(write(rig, mw.rkey)).toBe(AccessRefusal.stagInvalid);
    expect(rig.sent.outcome().map(([wrId]) => wrId)).toEqual([1, 2, 3]);
  });

  it('and nothing else: a region is not invalidated, by either side', () => {
    rig.receives.receive(1, [rig.piece(0, 8)]);
    const message = { invalidates: true, invalidateStag: rig.mr.rkey };
    expect(rig.deliver(new Uint8Array(8), message)).toBe(AccessRefusal.cannotInvalidate);
    expectOutcome(rig.received, [1, WCStatus.remInvReqErr]);
    rig.post(Op.localInv, { 20: rig.mr.rkey });
    expectOutcome(rig.sent, [1, WCStatus.locQpOpErr]);
  });
});
