import { beforeEach, describe, expect, it } from 'vitest';
import { CQEStatus } from '#contract/protocol/queue-layout';
import { Access, QPState } from '#contract/verbs/enums';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { emitFpdu, mpaReply } from '#test/support/mpa-frames';
import { NicRig } from '#test/support/nic-rig';
import { expectOutcome } from '#test/support/outcomes';
import { pattern } from '#test/support/pattern';
import { streamOf } from '#test/support/streams';
import { KeepingBacking, MEMORY_ADDRESS, SlowBacking } from '#test/support/test-memory';

const { localWrite, remoteRead, remoteWrite } = Access;

/** A rig over memory that takes several segments in one transfer. */
let rig: NicRig;
let memory: KeepingBacking;

const keeping = (bytes: Uint8Array): KeepingBacking => {
  memory = new KeepingBacking(bytes);
  return memory;
};

beforeEach(() => {
  rig = new NicRig({ access: localWrite | remoteWrite | remoteRead, backing: keeping });
});

function write(offset: number, bytes: readonly number[]): AccessRefusal {
  return rig.write(rig.mr.rkey, BigInt(MEMORY_ADDRESS + offset), bytes);
}

describe('segments kept for one transfer', () => {
  it('are written when the input of the stream ends', () => {
    expect(write(0, [1, 2])).toBe(AccessRefusal.none);
    expect(write(2, [3])).toBe(AccessRefusal.none);
    expect([...rig.memory.subarray(0, 3)]).toEqual([0, 0, 0]);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expect([...rig.memory.subarray(0, 3)]).toEqual([1, 2, 3]);
    expect(memory.flushes).toBe(1);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expect(memory.flushes).toBe(1);
  });

  it('are in place before a later completion is reported [DDP-5.3-07]', () => {
    rig.receives.post(1, []);
    write(5, [7]);
    rig.receive([]);
    expectOutcome(rig.recvCompletions);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expectOutcome(rig.recvCompletions, [1, 0]);
    expect(memory.kept).toEqual([]);
    expect(rig.memory[5]).toBe(7);
  });

  it('are in place before an access that is not kept', () => {
    const answer = new Uint8Array(1);
    write(5, [7]);
    expect(rig.qp.gatherReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS + 5, 1, answer, 0)).toBe(0);
    expect([...answer]).toEqual([7]);
  });

  it('are written before those of other memory', () => {
    const other = new KeepingBacking(new Uint8Array(64));
    const region = rig.register(rig.pd, { backing: other, access: localWrite | remoteWrite });
    write(0, [1]);
    expect(rig.write(region.rkey, BigInt(region.iova), [2])).toBe(AccessRefusal.none);
    expect([memory.flushes, other.flushes]).toEqual([1, 0]);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expect(other.flushes).toBe(1);
  });

  it('fail the stream when the memory disappears [RDMAP-7.1-02]', () => {
    write(0, [1]);
    memory.gone = true;
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.memoryLost);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
  });

  it('fail the stream, without a successful completion of later work [RDMAP-5.5-04]', () => {
    rig.receives.post(1, []);
    write(0, [1]);
    memory.gone = true;
    expect(rig.receive([])).toBe(AccessRefusal.none);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.memoryLost);
    expectOutcome(rig.recvCompletions, [1, CQEStatus.wrFlushErr]);
    expect(rig.qp.state).toBe(QPState.ERR);
    rig.effects();
    expect(rig.stream.calls).toEqual([
      'fail: registered memory was lost while data arrived for it',
    ]);
  });

  it('fail the stream when later memory is written first', () => {
    const other = rig.register(rig.pd, {
      backing: new KeepingBacking(new Uint8Array(64)),
      access: localWrite | remoteWrite,
    });
    write(0, [1]);
    memory.gone = true;
    expect(rig.write(other.rkey, BigInt(other.iova), [2])).toBe(AccessRefusal.memoryLost);
    // Later refusals are not the peer's fault either.
    expect(rig.write(other.rkey, BigInt(other.iova), [2])).toBe(AccessRefusal.memoryLost);
  });
});

describe('Sends kept for one transfer', () => {
  const { success, locProtErr, wrFlushErr } = CQEStatus;

  /** Posts receives of 8 bytes, wrId 1 at this offset and so on, and takes messages into `count`. */
  function receiveAt(offsets: readonly number[], count = offsets.length): void {
    for (const [index, offset] of offsets.entries()) {
      rig.receives.post(index + 1, [rig.piece(offset, 8)]);
    }
    for (let message = 1; message <= count; message += 1) {
      expect(rig.receive([message, message])).toBe(AccessRefusal.none);
    }
  }

  it('complete once all of them are written, by one transfer [RDMAP-5.5-04]', () => {
    receiveAt([0, 16, 8]);
    expectOutcome(rig.recvCompletions);
    expect(memory.flushes).toBe(0);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expect(rig.recvCompletions.outcome()).toEqual([1, 2, 3].map((id) => [id, success]));
    expect([...rig.memory.subarray(0, 18)]).toEqual([
      ...[1, 1, 0, 0, 0, 0, 0, 0],
      ...[3, 3, 0, 0, 0, 0, 0, 0],
      ...[2, 2],
    ]);
    expect(memory.flushes).toBe(1);
  });

  it('fail for their own memory only: earlier ones succeed, later ones are flushed', () => {
    memory.goneFrom = 100;
    receiveAt([0, 8, 200, 16, 24], 4);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.memoryLost);
    expectOutcome(
      rig.recvCompletions,
      [1, success],
      [2, success],
      [3, locProtErr],
      [4, wrFlushErr],
      [5, wrFlushErr],
    );
    expect([...rig.memory.subarray(8, 10)]).toEqual([2, 2]);
    expect(rig.qp.state).toBe(QPState.ERR);
  });

  it('fail for it even before their last segment', () => {
    memory.goneFrom = 100;
    receiveAt([0, 200, 8], 1);
    expect(rig.qp.beginReceive()).toBe(AccessRefusal.none);
    expect(rig.qp.placeReceive(0, Uint8Array.of(9), 0, 1)).toBe(AccessRefusal.none);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.memoryLost);
    expectOutcome(rig.recvCompletions, [1, success], [2, locProtErr], [3, wrFlushErr]);
  });

  it('do not fail for a Write between them', () => {
    memory.goneFrom = 100;
    receiveAt([0, 8], 1);
    write(200, [7]);
    expect(rig.receive([2])).toBe(AccessRefusal.none);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.memoryLost);
    expectOutcome(rig.recvCompletions, [1, success], [2, wrFlushErr]);
  });

  it('are in place, though they wait for other memory, when a later one is lost', () => {
    const slow = new SlowBacking(new Uint8Array(64));
    const other = rig.register(rig.pd, { backing: slow, access: localWrite | remoteWrite });
    memory.goneFrom = 100;
    expect(rig.write(other.rkey, BigInt(other.iova), [7])).toBe(AccessRefusal.none);
    receiveAt([0, 200], 1);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expectOutcome(rig.recvCompletions);
    expect(rig.receive([2])).toBe(AccessRefusal.none);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.memoryLost);
    slow.settle();
    expectOutcome(rig.recvCompletions, [1, success], [2, locProtErr]);
  });

  it('are written in time when there are many', () => {
    for (let index = 0; index < 600; index += 1) write(index % 50, [index & 0xff]);
    expect(memory.kept.length).toBeLessThan(600);
    expect(rig.qp.inputEnded()).toBe(AccessRefusal.none);
    expect([...rig.memory.subarray(0, 50)]).toEqual(
      Array.from({ length: 50 }, (_, at) => (550 + at) & 0xff),
    );
  });
});

/** A pool that overwrites each chunk that it takes back. */
class PoisonPool extends ChunkPool {
  override release(chunk: Uint8Array): void {
    chunk.fill(0xdd);
    super.release(chunk);
  }
}

describe('a Write whose FPDU comes in two parts', () => {
  it.each([60, 10_000, 29_000])('is written as received, cut at %i [DDP-5.3-07]', (cut) => {
    const rig = new NicRig({ connected: false, memoryBytes: 65_536, backing: keeping });
    const stream = streamOf({ mpaRevision: 1 }, { pool: new PoisonPool() });
    rig.qp.attach(stream);
    stream.connect(new Uint8Array(0), rig.qp, 0);
    stream.handleBytes(mpaReply({ revision: 1 }), 0);
    rig.qp.established({ ird: 4, ord: 4 }, 0);
    const payload = pattern(30_000);
    const ulpdu = Buffer.alloc(14 + payload.length);
    ulpdu.set([0xc1, 0x40]);
    ulpdu.writeUInt32BE(rig.mr.rkey, 2);
    ulpdu.writeBigUInt64BE(BigInt(MEMORY_ADDRESS), 6);
    ulpdu.set(payload, 14);
    const fpdu = emitFpdu(ulpdu);
    stream.handleBytes(fpdu.slice(0, cut), 0);
    stream.handleBytes(fpdu.slice(cut), 0);
    expect(memory.flushes).toBe(1);
    expect(Buffer.compare(rig.memory.subarray(0, 30_000), payload)).toBe(0);
  });
});
