/**
 * A client that writes arbitrary bytes into its rings, and a peer that calls in any order: nothing
 * throws, nothing outside the registered bytes changes, and every taken element completes.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CQEStatus,
  RQE,
  RQE_BYTES,
  SQE,
  SQE_BYTES,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import { QPState } from '#contract/verbs/enums';
import { atomicAccess, NicRig, NO_MESSAGE } from '../support/nic-rig.ts';
import { MEMORY_ADDRESS } from '../support/test-memory.ts';

const element = fc.uint8Array({ minLength: SQE_BYTES, maxLength: SQE_BYTES });

describe('hostile rings', () => {
  it('take any bytes as send-queue elements', () => {
    fc.assert(
      fc.property(
        fc.array(element, { minLength: 1, maxLength: 16 }),
        fc.nat(),
        (elements, seed) => {
          const rig = new NicRig({ cqe: 256 });
          elements.forEach((bytes, index) => {
            rig.qp.ring.set(bytes, index * SQE_BYTES);
            const view = new DataView(rig.qp.ring.buffer, index * SQE_BYTES);
            // Half of them name the real region, so that some pass the checks.
            if (((seed >>> index) & 1) === 1) {
              view.setUint8(SQE.opcode, (bytes[SQE.opcode] ?? 0) % 20);
              view.setUint8(SQE.numSge, 1);
              view.setBigUint64(SQE.sge, BigInt(MEMORY_ADDRESS), true);
              view.setUint32(SQE.sge + 8, (bytes[SQE.sge] ?? 0) * 17, true);
              view.setUint32(SQE.sge + 12, rig.mr.lkey, true);
            }
          });
          rig.qp.doorbell(0);
          rig.effects();
          rig.qp.modify(QPState.ERR, 0);
          for (const { status, opcode } of rig.sendCompletions.poll()) {
            expect(Object.values(CQEStatus)).toContain(status);
            expect(Object.values(SQOpcode)).toContain(opcode);
          }
        },
      ),
      { numRuns: 500 },
    );
  });

  it('take any bytes as receives, and leave the bytes around the region alone', () => {
    const receive = fc.uint8Array({ minLength: RQE_BYTES, maxLength: RQE_BYTES });
    fc.assert(
      fc.property(receive, fc.nat({ max: 64 }), fc.nat({ max: 600 }), (bytes, start, length) => {
        const rig = new NicRig({ memoryBytes: 512 });
        const mr = rig.register(rig.pd, { offset: 100, length: 50 });
        rig.qp.ring.set(bytes, rig.qp.rqOffset);
        const view = new DataView(rig.qp.ring.buffer, rig.qp.rqOffset);
        view.setUint8(RQE.flags, 1);
        view.setUint8(RQE.numSge, 1);
        view.setBigUint64(RQE.sge, BigInt(MEMORY_ADDRESS + 90 + start), true);
        view.setUint32(RQE.sge + 8, length, true);
        view.setUint32(RQE.sge + 12, mr.lkey, true);
        const begun = rig.qp.beginReceive();
        const data = new Uint8Array(length).fill(0xee);
        const placed = begun === 0 && length > 0 ? rig.qp.placeReceive(0, data, 0, length) : begun;
        if (placed === 0) rig.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: length });
        const outside = rig.memory.filter((_, index) => index < 100 || index >= 150);
        expect(outside.every((byte) => byte === 0)).toBe(true);
        expect(rig.recvCompletions.poll()).toHaveLength(1);
      }),
      { numRuns: 500 },
    );
  });

  it('tolerate calls of the stream in any order, in any state', () => {
    const call = fc.tuple(fc.nat({ max: 12 }), fc.nat({ max: 0xffff }), fc.nat({ max: 64 }));
    fc.assert(
      fc.property(fc.array(call, { maxLength: 60 }), (calls) => {
        const rig = new NicRig();
        const { qp } = rig;
        const bytes = new Uint8Array(64);
        const stag = rig.mr.rkey;
        let wrId = 0;
        for (const [which, to, length] of calls) {
          const size = Math.max(1, length);
          if (which === 0) qp.placeWrite(stag, 0, to * 4, bytes, 0, size);
          else if (which === 1) qp.placeReadResponse(stag, 0, to * 4, bytes, 0, size);
          else if (which === 2) qp.readCompleted();
          else if (which === 3) qp.atomicCompleted(to, length);
          else if (which === 4) qp.beginReceive();
          else if (which === 5) qp.placeReceive(length, bytes, 0, size);
          else if (which === 6) {
            qp.completeReceive({ ...NO_MESSAGE, invalidates: to % 2 === 1, invalidateStag: stag });
          } else if (which === 7) qp.executeAtomic(atomicAccess({ stag, toLo: to * 8 }));
          else if (which === 8) qp.messageDone();
          else if (which === 9) qp.gather(to % 3, length, size, new Uint8Array(128), 0);
          else if (which === 10) rig.receives.post(to, [rig.piece(0, size)]);
          else if (which === 11 && !rig.sends.full) {
            wrId += 1;
            rig.send({ opcode: to % 20, wrId, sges: [rig.piece(0, size)] });
          } else if (which === 12 && to % 5 === 0) {
            qp.terminated(to % 2 === 0 ? 'us' : 'peer', { kind: 'x', text: 'x' }, 0);
          }
          rig.effects();
        }
        qp.close(0);
        expect(rig.qp.state).toBe(QPState.ERR);
      }),
      { numRuns: 500 },
    );
  });
});
