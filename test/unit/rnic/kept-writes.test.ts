import { describe, expect, it } from 'vitest';
import { Fault } from '../../../daemon/engine/placement.ts';
import { Access } from '../../../verbs-api/contract/enums.ts';
import { KeepingBacking, MEMORY_ADDRESS, NicRig } from '../../support/nic-rig.ts';

/** A rig over memory that takes several segments in one transfer. */
function keepingRig(): { rig: NicRig; memory: KeepingBacking } {
  let memory: KeepingBacking | undefined;
  const rig = new NicRig({
    access: Access.localWrite | Access.remoteWrite | Access.remoteRead,
    backing: (octets) => {
      memory = new KeepingBacking(octets);
      return memory;
    },
  });
  if (memory === undefined) throw new Error('the rig made no backing');
  return { rig, memory };
}

function write(rig: NicRig, offset: number, octets: readonly number[]): Fault {
  return rig.write(rig.mr.rkey, BigInt(MEMORY_ADDRESS + offset), octets);
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

  it('DDP-5.3-07: are in place before a completion behind them is told', () => {
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

  it('RDMAP-7.1-02: fail the stream when the memory is gone', () => {
    const { rig, memory } = keepingRig();
    write(rig, 0, [1]);
    memory.gone = true;
    expect(rig.qp.inputEnded()).toBe(Fault.memoryLost);
    expect(rig.qp.inputEnded()).toBe(Fault.none);
  });

  it('fail the stream also when a completion had them written', () => {
    const { rig, memory } = keepingRig();
    rig.receives.post(1, []);
    write(rig, 0, [1]);
    memory.gone = true;
    rig.receive([]);
    expect(rig.qp.inputEnded()).toBe(Fault.memoryLost);
  });
});
