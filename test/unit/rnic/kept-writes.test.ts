import { describe, expect, it } from 'vitest';
import { ChunkPool } from '../../../daemon/iwarp/engine/chunk-pool.ts';
import { Fault } from '../../../daemon/rnic/wire-port.ts';
import { CQEStatus } from '../../../verbs-api/contract/protocol/queue-layout.ts';
import { Access, QPState } from '../../../verbs-api/contract/verbs/enums.ts';
import { patterned } from '../../support/fpdu-stream.ts';
import { emitFpdu, mpaReply } from '../../support/mpa-frames.ts';
import { KeepingBacking, MEMORY_ADDRESS, NicRig } from '../../support/nic-rig.ts';
import { streamOf } from '../../support/streams.ts';

/** A rig over memory that takes several segments in one transfer. */
function keepingRig(): { rig: NicRig; memory: KeepingBacking } {
  let memory: KeepingBacking | undefined;
  const rig = new NicRig({
    access: Access.localWrite | Access.remoteWrite | Access.remoteRead,
    backing: (bytes) => {
      memory = new KeepingBacking(bytes);
      return memory;
    },
  });
  if (memory === undefined) throw new Error('the rig made no backing');
  return { rig, memory };
}

function write(rig: NicRig, offset: number, bytes: readonly number[]): Fault {
  return rig.write(rig.mr.rkey, BigInt(MEMORY_ADDRESS + offset), bytes);
}

describe('segments kept for one transfer', () => {
  it('are written when the input of the stream ends', () => {
    const { rig, memory } = keepingRig();
    expect(write(rig, 0, [1, 2])).toBe(Fault.none);
    expect(write(rig, 2, [3])).toBe(Fault.none);
    expect([...rig.memory.subarray(0, 3)]).toEqual([0, 0, 0]);
    expect(rig.qp.inputEnded()).toBe(Fault.none);
    expect([...rig.memory.subarray(0, 3)]).toEqual([1, 2, 3]);
    expect(memory.flushes).toBe(1);
    expect(rig.qp.inputEnded()).toBe(Fault.none);
    expect(memory.flushes).toBe(1);
  });

  it('are in place before a later completion is reported [DDP-5.3-07]', () => {
    const { rig, memory } = keepingRig();
    rig.receives.post(1, []);
    write(rig, 5, [7]);
    rig.receive([]);
    expect(rig.recvCompletions.outcome()).toEqual([[1, 0]]);
    expect(memory.kept).toEqual([]);
    expect(rig.memory[5]).toBe(7);
  });

  it('are in place before an access that is not kept', () => {
    const { rig } = keepingRig();
    const answer = new Uint8Array(1);
    write(rig, 5, [7]);
    expect(rig.qp.gatherReadSource(rig.mr.rkey, 0, MEMORY_ADDRESS + 5, 1, answer, 0)).toBe(0);
    expect([...answer]).toEqual([7]);
  });

  it('are written before those of other memory', () => {
    const { rig, memory } = keepingRig();
    const other = new KeepingBacking(new Uint8Array(64));
    const region = rig.register(rig.pd, {
      backing: other,
      access: Access.localWrite | Access.remoteWrite,
    });
    write(rig, 0, [1]);
    expect(rig.write(region.rkey, BigInt(region.iova), [2])).toBe(Fault.none);
    expect([memory.flushes, other.flushes]).toEqual([1, 0]);
    expect(rig.qp.inputEnded()).toBe(Fault.none);
    expect(other.flushes).toBe(1);
  });

  it('fail the stream when the memory disappears [RDMAP-7.1-02]', () => {
    const { rig, memory } = keepingRig();
    write(rig, 0, [1]);
    memory.gone = true;
    expect(rig.qp.inputEnded()).toBe(Fault.memoryLost);
    expect(rig.qp.inputEnded()).toBe(Fault.none);
  });

  it('fail the stream, without a successful completion, when a later one triggers the transfer [RDMAP-5.5-04]', () => {
    const { rig, memory } = keepingRig();
    rig.receives.post(1, []);
    write(rig, 0, [1]);
    memory.gone = true;
    expect(rig.receive([])).toBe(Fault.memoryLost);
    expect(rig.recvCompletions.outcome()).toEqual([[1, CQEStatus.wrFlushErr]]);
    expect(rig.qp.state).toBe(QPState.ERR);
    rig.effects();
    expect(rig.stream.calls).toEqual(['fail: registered memory went away while data came for it']);
  });

  it('fail the stream when later memory is written first', () => {
    const { rig, memory } = keepingRig();
    const other = rig.register(rig.pd, {
      backing: new KeepingBacking(new Uint8Array(64)),
      access: Access.localWrite | Access.remoteWrite,
    });
    write(rig, 0, [1]);
    memory.gone = true;
    expect(rig.write(other.rkey, BigInt(other.iova), [2])).toBe(Fault.memoryLost);
    // What follows is not the peer's fault either.
    expect(rig.write(other.rkey, BigInt(other.iova), [2])).toBe(Fault.memoryLost);
  });
});

/** A pool that spoils each chunk that it takes back. */
class PoisonPool extends ChunkPool {
  override release(chunk: Uint8Array): void {
    chunk.fill(0xdd);
    super.release(chunk);
  }
}

describe('a Write whose FPDU comes in two parts', () => {
  it.each([60, 10_000, 29_000])('is written as it came, cut at %i [DDP-5.3-07]', (cut) => {
    let memory: KeepingBacking | undefined;
    const rig = new NicRig({
      connected: false,
      memoryBytes: 65_536,
      backing: (bytes) => {
        memory = new KeepingBacking(bytes);
        return memory;
      },
    });
    const stream = streamOf({ mpaRevision: 1 }, { pool: new PoisonPool() });
    rig.qp.attach(stream);
    stream.connect(new Uint8Array(0), rig.qp, 0);
    stream.handleBytes(mpaReply({ revision: 1 }), 0);
    rig.qp.established({ ird: 4, ord: 4 }, 0);
    const payload = patterned(30_000);
    const ulpdu = Buffer.alloc(14 + payload.length);
    ulpdu.set([0xc1, 0x40]);
    ulpdu.writeUInt32BE(rig.mr.rkey, 2);
    ulpdu.writeBigUInt64BE(BigInt(MEMORY_ADDRESS), 6);
    ulpdu.set(payload, 14);
    const fpdu = emitFpdu(ulpdu);
    stream.handleBytes(fpdu.slice(0, cut), 0);
    stream.handleBytes(fpdu.slice(cut), 0);
    expect(memory?.flushes).toBe(1);
    expect(Buffer.compare(rig.memory.subarray(0, 30_000), payload)).toBe(0);
  });
});
