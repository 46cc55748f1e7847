import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  INLINE_MAX,
  QueueFlag,
  RQE,
  RQE_BYTES,
  SGE_MAX,
  SQE,
  SQE_BYTES,
} from '#contract/protocol/queue-layout';
import { CMEventType, SendFlag, WROpcode } from '#contract/verbs/enums';
import { NativeRig } from '../support/native-rig.ts';
import { queueSizes } from '../support/queue-sizes.ts';

const CAPABILITIES = queueSizes(8, 8, 2, 32);

/** Bytes of a ring as a hostile client may leave them: elements of noise, some of them VALID. */
function ringBytes(count: number, elementBytes: number, flagsAt: number) {
  return fc
    .array(
      fc.record({
        bytes: fc.uint8Array({ minLength: elementBytes, maxLength: elementBytes }),
        // Mostly true, since a queue ends at the first element that is not VALID.
        valid: fc.integer({ min: 0, max: 7 }).map((number) => number > 0),
        // Half of the elements are nearly right; otherwise few would pass the checks.
        opcode: fc.integer({ min: 0, max: 20 }),
        numSge: fc.integer({ min: 0, max: 8 }),
      }),
      { minLength: count, maxLength: count },
    )
    .map((elements) => {
      const ring = new Uint8Array(count * elementBytes);
      for (const [index, { bytes, valid, opcode, numSge }] of elements.entries()) {
        const at = index * elementBytes;
        ring.set(bytes, at);
        const flags = (bytes[flagsAt] ?? 0) & ~QueueFlag.valid;
        ring[at + flagsAt] = valid ? flags | QueueFlag.valid : flags;
        ring[at + flagsAt + 2] = numSge;
        if (elementBytes === SQE_BYTES && index % 2 === 0) ring[at + SQE.opcode] = opcode;
      }
      return ring;
    });
}

describe('rings of a native queue pair', () => {
  it('reach the device only as requests that fit it, whatever the client writes', async () => {
    let posted = 0;
    await fc.assert(
      fc.asyncProperty(
        ringBytes(8, SQE_BYTES, SQE.flags),
        ringBytes(8, RQE_BYTES, RQE.flags),
        async (sends, receives) => {
          const rig = new NativeRig();
          const { client, memory } = rig.commandChannel;
          const { context } = await client.execute('openDevice', { name: 'nat0' });
          const { pd } = await client.execute('allocPD', { context });
          const { cq } = await client.execute('createCQ', { context, cqe: 32, channel: undefined });
          const reply = await client.execute('createQP', {
            pd,
            sendCQ: cq,
            recvCQ: cq,
            srq: undefined,
            capabilities: CAPABILITIES,
            sqSigAll: false,
            initialised: true,
          });
          const { id } = await client.execute('cmCreateId', {});
          const address = { address: '127.0.0.2', port: 0 };
          await client.execute('cmBindAddr', { id, address });
          const [native] = rig.channel.ids;
          if (native === undefined) throw new Error('no native id');
          const resolving = client.execute('cmResolveAddr', {
            id,
            destination: { ...address, port: 9 },
            source: undefined,
            timeoutMs: 1000,
          });
          await rig.cmEvent(native, CMEventType.addrResolved);
          await resolving;
          await client.execute('cmConnect', {
            id,
            qp: reply.qp,
            privateData: new Uint8Array(0),
            initiatorDepth: undefined,
            responderResources: undefined,
            wire: undefined,
          });
          await rig.cmEvent(native, CMEventType.routeResolved);
          await rig.cmEvent(native, CMEventType.established);
          const ring = memory.view(reply.ring);
          ring.set(receives, reply.rqOffset);
          ring.set(sends, 0);
          client.doorbell(reply.qp);
          await rig.turn();
          const [lower] = rig.device.qps;
          for (const wr of lower?.sends ?? []) {
            expect(Object.values(WROpcode)).toContain(wr.opcode);
            expect(wr.sgList?.length).toBeLessThanOrEqual(CAPABILITIES.maxSendSge);
            expect(wr.inlineData?.length).toBeLessThanOrEqual(CAPABILITIES.maxInlineData);
            const inline = ((wr.flags ?? 0) & SendFlag.inline) !== 0;
            expect(inline || (wr.inlineData?.length ?? 0) === 0).toBe(true);
          }
          posted += (lower?.sends.length ?? 0) + (lower?.receives.length ?? 0);
          for (const wr of lower?.receives ?? []) {
            expect(wr.sgList.length).toBeLessThanOrEqual(CAPABILITIES.maxRecvSge);
          }
          expect(CAPABILITIES.maxSendSge).toBeLessThan(SGE_MAX);
          expect(CAPABILITIES.maxInlineData).toBeLessThan(INLINE_MAX);
          // The client can always be closed and leaks nothing.
          client.close();
          expect(rig.device.qps.every(({ disposed }) => disposed === 1)).toBe(true);
          expect(rig.device.cqs.every(({ disposed }) => disposed === 1)).toBe(true);
          await rig.native.close();
          await rig.host.close();
        },
      ),
      { numRuns: 200 },
    );
    // Enough elements were valid.
    expect(posted).toBeGreaterThan(50);
  });
});
