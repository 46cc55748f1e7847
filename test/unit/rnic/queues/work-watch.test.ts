import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { type CompletedWork, type PostedWork, WorkQueue } from '#contract/protocol/work-records';
import { QPState } from '#contract/verbs/enums';
import { NicRig, type RigOptions } from '#test/support/nic-rig';
import { MEMORY_ADDRESS } from '#test/support/test-memory';

const RKEY = 0x11223344;

type Notified =
  | ({ readonly what: 'posted' } & PostedWork)
  | ({ readonly what: 'cqe' } & CompletedWork);

let rig: NicRig;
let notified: Notified[];

/** Watches a new NIC; reports are copied, since they are borrowed. */
function watch(options: RigOptions = {}): void {
  rig = new NicRig(options);
  notified = [];
  rig.nic.watch.observer = {
    posted: (work) => notified.push({ what: 'posted', ...work }),
    completed: (work) => notified.push({ what: 'cqe', ...work }),
  };
}

beforeEach(() => watch());

describe('a watcher of a NIC’s work', () => {
  it('sees a Send when it is taken, then its completion', () => {
    const flags = QueueFlag.signalled | QueueFlag.solicited | QueueFlag.readFence;
    rig.send({ opcode: SQOpcode.send, wrId: 7, flags, sges: [rig.piece(0, 3), rig.piece(9, 2)] });
    expect(notified).toEqual([
      {
        what: 'posted',
        qpn: rig.qp.qpn,
        queue: WorkQueue.send,
        opcode: SQOpcode.send,
        flags,
        wrIdHi: 0,
        wrIdLo: 7,
        lengthBytes: 5,
        stag: 0,
        addressHi: 0,
        addressLo: 0,
      },
      {
        what: 'cqe',
        qpn: rig.qp.qpn,
        opcode: SQOpcode.send,
        status: CQEStatus.success,
        flags: 0,
        wrIdHi: 0,
        wrIdLo: 7,
        lengthBytes: 5,
        immediateHi: 0,
        immediateLo: 0,
        solicited: false,
        written: false,
        sourceQpn: 0,
        sl: 0,
      },
    ]);
  });

  it.each([
    ['write', SQOpcode.write, 64],
    ['write with immediate', SQOpcode.writeWithImm, 64],
    ['read', SQOpcode.read, 64],
    ['atomic', SQOpcode.fetchAndAdd, 8],
  ])('sees the target of a %s', (_, opcode, length) => {
    const raddr = 0x7f00_0000_1000_0000n;
    rig.send({ opcode, rkey: RKEY, raddr, sges: [rig.piece(0, length)] });
    expect(notified[0]).toMatchObject({
      what: 'posted',
      opcode,
      lengthBytes: length,
      stag: RKEY,
      addressHi: 0x7f00_0000,
      addressLo: 0x1000_0000,
    });
  });

  it('sees local operations with the STag that they change', () => {
    const mw = rig.nic.allocMW(rig.pd, 2);
    rig.send({
      opcode: SQOpcode.bindMW,
      rkey: mw.rkey,
      raddr: BigInt(MEMORY_ADDRESS),
      bind: { key: 5, access: 4, lkey: rig.mr.lkey, length: 100n },
    });
    rig.send({ opcode: SQOpcode.localInv, rkey: mw.rkey });
    const posted = notified.filter(({ what }) => what === 'posted');
    expect(posted).toMatchObject([
      { opcode: SQOpcode.bindMW, lengthBytes: 100, addressLo: MEMORY_ADDRESS },
      { opcode: SQOpcode.localInv, lengthBytes: 0, stag: mw.rkey, addressLo: 0 },
    ]);
    const done = notified.filter(({ what }) => what === 'cqe');
    expect(done.map((each) => 'status' in each && each.status)).toEqual([0, 0]);
  });

  it('sees that a queue pair signals all, and the length of inline payload', () => {
    watch({ sqSigAll: true });
    rig.send({ opcode: SQOpcode.send, flags: 0, inline: new Uint8Array(33) });
    expect(notified[0]).toMatchObject({
      flags: QueueFlag.inline | QueueFlag.signalled,
      lengthBytes: 33,
    });
  });

  it('sees no completion for unsignalled work', () => {
    rig.send({ opcode: SQOpcode.send, flags: 0, sges: [rig.piece(0, 3)] });
    expect(notified.map(({ what }) => what)).toEqual(['posted']);
  });

  it('sees the client’s element even if it is invalid', () => {
    rig.send({ opcode: 200, wrId: 3, numSge: 255 });
    expect(notified).toMatchObject([
      { what: 'posted', opcode: 200 },
      { what: 'cqe', wrIdLo: 3, status: CQEStatus.locQpOpErr },
    ]);
  });

  it('sees the length of a request whose memory is refused', () => {
    rig.send({ opcode: SQOpcode.send, sges: [{ addr: 1, length: 70, lkey: 0xbad }] });
    expect(notified).toMatchObject([
      { what: 'posted', lengthBytes: 70 },
      { what: 'cqe', status: CQEStatus.locProtErr, lengthBytes: 0 },
    ]);
  });

  it('sees a receive when a message consumes it', () => {
    rig.receives.post(21, [rig.piece(0, 64), rig.piece(100, 4)]);
    expect(notified).toEqual([]);
    rig.receive(new Array<number>(10).fill(0));
    expect(notified).toMatchObject([
      { what: 'posted', queue: WorkQueue.receive, wrIdLo: 21, lengthBytes: 68 },
      { what: 'cqe', opcode: SQOpcode.receive, wrIdLo: 21, lengthBytes: 10 },
    ]);
  });

  it('sees which queue pair consumed a shared receive', () => {
    watch({ srq: { maxWr: 8, srqLimit: 0 } });
    const other = rig.connectedQP(rig.pd);
    rig.receives.post(1, [rig.piece(0, 8)]);
    other.beginReceive();
    expect(notified).toMatchObject([
      { what: 'posted', queue: WorkQueue.sharedReceive, qpn: other.qpn, wrIdLo: 1 },
    ]);
  });

  it('sees nothing if no receive is posted', () => {
    rig.qp.beginReceive();
    expect(notified).toEqual([]);
  });

  it('sees everything that a flush finds in the rings, request before completion', () => {
    watch({ connected: false });
    rig.sends.post({ opcode: SQOpcode.write, wrId: 1, rkey: RKEY, sges: [rig.piece(0, 4)] });
    rig.sends.post({ opcode: SQOpcode.send, wrId: 2, sges: [rig.piece(0, 4)] });
    rig.receives.post(3, [rig.piece(0, 4)]);
    rig.qp.modify(QPState.ERR, 0);
    const flushed = { what: 'cqe', status: CQEStatus.wrFlushErr };
    expect(notified).toMatchObject([
      { what: 'posted', wrIdLo: 1, stag: RKEY },
      { ...flushed, wrIdLo: 1 },
      { what: 'posted', wrIdLo: 2 },
      { ...flushed, wrIdLo: 2 },
      { what: 'posted', wrIdLo: 3, queue: WorkQueue.receive },
      { ...flushed, wrIdLo: 3 },
    ]);
  });

  it('sees completions that are written, not those that a full queue loses', () => {
    watch({ cqe: 1 });
    for (const wrId of [1, 2]) {
      rig.send({ opcode: SQOpcode.send, wrId, sges: [rig.piece(0, 1)] });
    }
    expect(rig.sendCQ.lost).toBe(1);
    expect(notified.filter(({ what }) => what === 'cqe')).toMatchObject([{ wrIdLo: 1 }]);
  });

  it('sees all 64 bits of a wr_id', () => {
    rig.sends.post({ opcode: SQOpcode.send, wrId: 2 ** 40 + 5, sges: [] });
    rig.qp.doorbell(0);
    expect(notified).toMatchObject([
      { wrIdHi: 256, wrIdLo: 5 },
      { wrIdHi: 256, wrIdLo: 5 },
    ]);
  });

  it('sees nothing after it stops watching', () => {
    rig.nic.watch.observer = undefined;
    rig.send({ opcode: SQOpcode.send, sges: [] });
    expect(notified).toEqual([]);
  });
});
