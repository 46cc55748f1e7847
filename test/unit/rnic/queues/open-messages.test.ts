/** Several messages of one send queue at once, as a wire that retransmits needs them. */
import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState } from '#contract/verbs/enums';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import { AccessRefusal, MessageFailure, OutboundMessage } from '#daemon/rnic/wire-port';
import { NicRig } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { ALL_ACCESS, MEMORY_ADDRESS } from '#test/support/test-memory';

const FLUSHED = CQEStatus.wrFlushErr;

/** A rig whose messages the test takes itself. */
let rig: NicRig;

function start(): void {
  rig = new NicRig();
  rig.stream.open = false;
  for (let index = 0; index < 256; index += 1) rig.memory[index] = index;
}

beforeEach(start);

/** Posts a Send of `length` bytes from `at` on, which the wire takes. Returns its slot. */
function open(wrId: number, at: number, length: number): number {
  rig.send({ opcode: SQOpcode.send, wrId, sges: [rig.piece(at, length)] });
  return take();
}

function take(): number {
  const message = new OutboundMessage();
  expect(rig.qp.nextMessage(message)).toBe(true);
  return message.slot;
}

function bytesOf(slot: number, offset: number, length: number): number[] {
  const bytes = new Uint8Array(length);
  expect(rig.qp.prepareGather(slot, offset, length)).toBe(true);
  expect(rig.qp.gather(slot, offset, length, bytes, 0)).toBe(0);
  return [...bytes];
}

describe('open messages', () => {
  it('gathers any part of any of them, repeatedly', () => {
    const slots = [open(1, 10, 4), open(2, 20, 4), open(3, 30, 4)];
    expect(new Set(slots).size).toBe(3);
    for (let again = 0; again < 2; again += 1) {
      for (const index of [2, 0, 1]) {
        const at = 10 * (index + 1);
        expect(bytesOf(slots[index] ?? 0, 1, 2)).toEqual([at + 1, at + 2]);
        expect(bytesOf(slots[index] ?? 0, 0, 4)).toEqual([at, at + 1, at + 2, at + 3]);
      }
    }
    expectOutcome(rig.sendCompletions);
  });

  it('completes the oldest one when the wire is done with it, and uses its slot again', () => {
    const first = open(1, 10, 1);
    const second = open(2, 20, 1);
    rig.qp.messageDone();
    expectOutcome(rig.sendCompletions, [1, 0]);
    const third = open(3, 30, 1);
    expect(third).toBe(first);
    expect(bytesOf(second, 0, 1)).toEqual([20]);
    expect(bytesOf(third, 0, 1)).toEqual([30]);
    rig.qp.messageDone();
    rig.qp.messageDone();
    rig.qp.messageDone();
    expectOutcome(rig.sendCompletions, [2, 0], [3, 0]);
  });

  it('needs no more slots than were open at once, in any order of takes and ends', () => {
    const seen = new Set<number>();
    let openNow = 0;
    for (let wrId = 0; wrId < 100; wrId += 1) {
      seen.add(open(wrId, wrId, 1));
      openNow += 1;
      while (openNow > wrId % 4) {
        rig.qp.messageDone();
        openNow -= 1;
      }
      rig.sendCompletions.poll();
    }
    expect(seen.size).toBeLessThanOrEqual(4);
    rig.qp.assertInvariants();
  });

  it('completes a Read by its response, and the Sends around it in order', () => {
    open(1, 10, 1);
    rig.send({ opcode: SQOpcode.read, wrId: 2, sges: [rig.piece(64, 4)] });
    take();
    open(3, 30, 1);
    rig.qp.messageDone();
    expect(rig.qp.placeReadPart(0, Uint8Array.of(7, 8), 0, 2)).toBe(0);
    expect(rig.qp.placeReadPart(2, Uint8Array.of(9, 6), 0, 2)).toBe(0);
    expect(rig.qp.placeReadPart(3, Uint8Array.of(9, 6), 0, 2)).not.toBe(0);
    rig.qp.readCompleted();
    rig.qp.messageDone();
    expect([...rig.memory.subarray(64, 68)]).toEqual([7, 8, 9, 6]);
    rig.qp.messageDone();
    expectOutcome(rig.sendCompletions, [1, 0], [2, 0], [3, 0]);
  });

  it('refuses a Write that ends beyond its target before any of it is placed', () => {
    const size = rig.memory.length;
    expect(rig.qp.checkWriteTarget(rig.mr.rkey, 0, MEMORY_ADDRESS, size)).toBe(AccessRefusal.none);
    expect(rig.qp.checkWriteTarget(rig.mr.rkey, 0, MEMORY_ADDRESS, size + 1)).toBe(
      AccessRefusal.bounds,
    );
    rig.qp.modify(QPState.ERR, 0);
    expect(rig.qp.checkWriteTarget(rig.mr.rkey, 0, MEMORY_ADDRESS, size)).not.toBe(
      AccessRefusal.none,
    );
  });

  it('gives the oldest one the status of its failure, and flushes the others', () => {
    for (const [failure, status] of [
      [MessageFailure.remoteAccess, CQEStatus.remAccessErr],
      [MessageFailure.remoteInvalidRequest, CQEStatus.remInvReqErr],
      [MessageFailure.remoteOperation, CQEStatus.remOpErr],
      [MessageFailure.retriesExceeded, CQEStatus.retryExcErr],
      [MessageFailure.rnrRetriesExceeded, CQEStatus.rnrRetryExcErr],
      [MessageFailure.badResponse, CQEStatus.badRespErr],
    ] as const) {
      start();
      open(1, 10, 1);
      open(2, 20, 1);
      open(3, 30, 1);
      rig.qp.messageDone();
      rig.qp.messageFailed(failure);
      rig.qp.wireEnded({ kind: 'protocol', text: 'refused' }, 0);
      expectOutcome(rig.sendCompletions, [1, 0], [2, status], [3, FLUSHED]);
      rig.qp.messageFailed(failure);
      rig.qp.messageDone();
      expectOutcome(rig.sendCompletions);
    }
  });

  it('fails the message with lost memory, wherever it is', () => {
    open(1, 10, 1);
    const other = rig.register(rig.pd, {
      access: ALL_ACCESS,
      backing: new ViewBacking(rig.memory),
    });
    rig.send({ opcode: SQOpcode.send, wrId: 2, sges: [rig.piece(20, 1, other)] });
    const slot = take();
    open(3, 30, 1);
    other.close();
    expect(rig.qp.gather(slot, 0, 1, new Uint8Array(1), 0)).not.toBe(0);
    rig.qp.modify(QPState.ERR, 0);
    expectOutcome(rig.sendCompletions, [1, FLUSHED], [2, CQEStatus.locProtErr], [3, FLUSHED]);
  });
});
