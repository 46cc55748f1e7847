import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ACCESS_MASK, Access, MWType, QPState, WROpcode } from '#contract/verbs/enums';
import type { Context, CQ, PD, QPInit } from '#contract/verbs/provider';
import type { SendFields, SendWR } from '#contract/verbs/work-request';
import {
  DEVICE,
  lacks,
  memoryKinds,
  needs,
  type ProviderFixture,
  region,
  SMALL_DEVICE,
  SMALL_PROFILE,
  type StartedFixture,
  verbsError,
} from '../support/provider-fixture.ts';

/** Devices and objects: their attributes, when they may be closed, and the errors for misuse. */
export function objectSuite(fixture: ProviderFixture): void {
  let started: StartedFixture;
  let context: Context;
  let pd: PD;
  let cq: CQ;

  beforeAll(async () => {
    started = await fixture.start();
    context = await started.client.open(DEVICE.name);
    pd = await context.allocPD();
    cq = await context.createCQ({ cqe: 16 });
  });
  afterAll(() => started.stop());

  const qpInit = (): QPInit => ({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });

  describe('devices', () => {
    it('lists devices with a name, a GUID and their addresses', async () => {
      const devices = await started.client.devices();
      expect(devices.map((device) => device.name)).toEqual([DEVICE.name, SMALL_DEVICE.name]);
      for (const device of devices) {
        expect(device.backend).toBe(fixture.backend ?? 'emulated');
        expect(device.nodeGuid).toMatch(/^[0-9a-f]{16}$/);
      }
      expect(devices[0]?.addresses).toEqual(DEVICE.addresses);
      expect(new Set(devices.map((device) => device.nodeGuid)).size).toBe(2);
    });

    it('opens the first device by default, and ENODEV for an unknown name', async () => {
      await using first = await started.client.open();
      expect(first.device.name).toBe(DEVICE.name);
      await expect(started.client.open('nowhere0')).rejects.toEqual(verbsError('ENODEV'));
    });

    it.skipIf(lacks(fixture, 'nearLimits'))('reports limits', async () => {
      await using small = await started.client.open(SMALL_DEVICE.name);
      const attributes = await small.queryDevice();
      expect(attributes).toMatchObject({
        nodeGuid: small.device.nodeGuid,
        maxPd: SMALL_PROFILE.maxPd,
        maxMr: SMALL_PROFILE.maxMr,
        maxCq: SMALL_PROFILE.maxCq,
        maxCqe: SMALL_PROFILE.maxCqe,
        maxQp: SMALL_PROFILE.maxQp,
        maxQpWr: SMALL_PROFILE.maxQpWr,
        maxQpRdAtom: SMALL_PROFILE.irdMax,
        maxQpInitRdAtom: SMALL_PROFILE.ordMax,
        maxSgeRd: 1,
        atomics: !lacks(fixture, 'atomics'),
        immediateData: !lacks(fixture, 'immediateData'),
        physPortCnt: 1,
      });
    });

    it('has port 1, active, and EINVAL for any other', async () => {
      expect(await context.queryPort()).toMatchObject({ state: 'active', linkLayer: 'Ethernet' });
      await expect(context.queryPort(0)).rejects.toEqual(verbsError('EINVAL'));
      await expect(context.queryPort(2)).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('protection domains', () => {
    it('closes twice without harm, and by `await using`', async () => {
      await using other = await context.allocPD();
      await other.close();
      await other.close();
      await expect(other.allocMR(1, Access.localWrite)).rejects.toEqual(verbsError('EINVAL'));
    });

    it('EBUSY while it has a region, a window, an SRQ or a QP', async () => {
      const domain = await context.allocPD();
      const dependants = [
        () => domain.allocMR(8, Access.localWrite),
        ...(lacks(fixture, 'windows') ? [] : [() => domain.allocMW(MWType.type2)]),
        () => domain.createSRQ({ maxWr: 4 }),
        () => domain.createQP(qpInit()),
      ];
      for (const make of dependants) {
        const dependant = await make();
        await expect(domain.close()).rejects.toEqual(verbsError('EBUSY'));
        await dependant.close();
      }
      await domain.close();
    });

    it.skipIf(lacks(fixture, 'nearLimits'))(
      'ENOMEM beyond the limit, and room again after a close',
      async () => {
        await using small = await started.client.open(SMALL_DEVICE.name);
        const domains = [await small.allocPD(), await small.allocPD()];
        await expect(small.allocPD()).rejects.toEqual(verbsError('ENOMEM'));
        await domains[0]?.close();
        await small.allocPD();
      },
    );
  });

  describe.each(memoryKinds(fixture))('memory regions, %s memory', (memory) => {
    it('registers bytes and reports how the device reaches them', async () => {
      await using mr = await region(pd, memory, 100);
      expect(mr.tier).toBe(fixture.tiers[memory]);
      expect(mr.tierReason).not.toBe('');
      expect(mr.length).toBe(100);
      expect(mr.buffer).toHaveLength(100);
      expect(mr.lkey >>> 0).toBe(mr.lkey);
      expect(mr.address).toBeGreaterThan(0n);
      expect(mr.sge(10, 20)).toEqual({ addr: Number(mr.address) + 10, length: 20, lkey: mr.lkey });
    });

    it('accepts a chosen 8-bit key; EINVAL for a longer one', async () => {
      await expect(region(pd, memory, 8, 0, { key: 256 })).rejects.toEqual(verbsError('EINVAL'));
      const takesKey = needs(fixture, 'chosenKeys', async () => {
        await using mr = await region(pd, memory, 8, Access.remoteRead, { key: 0x5a });
        expect(mr.rkey & 0xff).toBe(0x5a);
      });
      await takesKey();
    });

    it.each([
      ['unknown access bits', ACCESS_MASK + 1],
      ['remote write without local write', Access.remoteWrite],
      ['remote atomic without local write', Access.remoteAtomic | Access.remoteRead],
    ])('EINVAL for %s', async (_name, access) => {
      await expect(region(pd, memory, 8, access)).rejects.toEqual(verbsError('EINVAL'));
    });

    it('EINVAL for no bytes', async () => {
      await expect(region(pd, memory, 0)).rejects.toEqual(verbsError('EINVAL'));
    });

    it('EINVAL for addresses beyond 64 bits', async () => {
      const options = { iova: 2n ** 64n - 4n };
      await expect(region(pd, memory, 8, 0, options)).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('memory', () => {
    it.skipIf(lacks(fixture, 'nearLimits'))(
      'ENOMEM for regions and windows beyond the limit',
      async () => {
        await using small = await started.client.open(SMALL_DEVICE.name);
        const domain = await small.allocPD();
        for (let count = 0; count < SMALL_PROFILE.maxMr; count += 1) await domain.allocMR(8, 1);
        await expect(domain.allocMR(8, 1)).rejects.toEqual(verbsError('ENOMEM'));
        const refusal = lacks(fixture, 'ownMemory') ? 'EOPNOTSUPP' : 'ENOMEM';
        await expect(domain.regMR(new Uint8Array(8), 1)).rejects.toEqual(verbsError(refusal));
        const countsWindows = needs(fixture, 'windows', async () => {
          for (let count = 0; count < SMALL_PROFILE.maxMw; count += 1) await domain.allocMW(2);
          await expect(domain.allocMW(2)).rejects.toEqual(verbsError('ENOMEM'));
        });
        await countsWindows();
      },
    );

    it('registers part of an allocated region again', async () => {
      await using whole = await pd.allocMR(64, Access.localWrite);
      await using part = await pd.regMR(whole.buffer.subarray(16, 32), Access.localWrite);
      expect(part.address).toBe(whole.address + 16n);
      expect(part.tier).toBe(fixture.tiers.allocated);
    });

    it('EINVAL for an unknown window type', async () => {
      await expect(pd.allocMW(3 as MWType)).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('completion queues and channels', () => {
    it('rounds entries up and rejects impossible sizes', async () => {
      await using queue = await context.createCQ({ cqe: 5 });
      expect(queue.cqe).toBeGreaterThanOrEqual(5);
      const { maxCqe } = await context.queryDevice();
      for (const cqe of [0, -1, 1.5, maxCqe + 1]) {
        await expect(context.createCQ({ cqe })).rejects.toEqual(verbsError('EINVAL'));
      }
    });

    it('EBUSY while a queue pair completes to it', async () => {
      const queue = await context.createCQ({ cqe: 4 });
      const sending = await pd.createQP({ ...qpInit(), sendCQ: queue });
      await expect(queue.close()).rejects.toEqual(verbsError('EBUSY'));
      await sending.close();
      const receiving = await pd.createQP({ ...qpInit(), recvCQ: queue });
      await expect(queue.close()).rejects.toEqual(verbsError('EBUSY'));
      await receiving.close();
      await queue.close();
      await queue.close();
      await expect(pd.createQP({ ...qpInit(), recvCQ: queue })).rejects.toEqual(
        verbsError('EINVAL'),
      );
    });

    it('EBUSY for a channel that a completion queue reports to', async () => {
      const channel = await context.createCompChannel();
      const queue = await context.createCQ({ cqe: 4, channel });
      await expect(channel.close()).rejects.toEqual(verbsError('EBUSY'));
      await queue.close();
      await channel.close();
      await expect(context.createCQ({ cqe: 4, channel })).rejects.toEqual(verbsError('EINVAL'));
    });

    it.skipIf(lacks(fixture, 'nearLimits'))('ENOMEM beyond the limit', async () => {
      await using small = await started.client.open(SMALL_DEVICE.name);
      for (let count = 0; count < SMALL_PROFILE.maxCq; count += 1) {
        await small.createCQ({ cqe: SMALL_PROFILE.maxCqe });
      }
      await expect(small.createCQ({ cqe: 1 })).rejects.toEqual(verbsError('ENOMEM'));
    });

    it('refuses queues and channels of another context', async () => {
      await using other = await started.client.open(DEVICE.name);
      const foreignCQ = await other.createCQ({ cqe: 4 });
      const channel = await other.createCompChannel();
      await expect(pd.createQP({ ...qpInit(), sendCQ: foreignCQ })).rejects.toEqual(
        verbsError('EINVAL'),
      );
      await expect(context.createCQ({ cqe: 4, channel })).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('shared receive queues', () => {
    it('reports and changes its limit, within its size', async () => {
      await using srq = await pd.createSRQ({ maxWr: 8, maxSge: 2, srqLimit: 3 });
      expect(await srq.query()).toMatchObject({ maxSge: 2, srqLimit: 3 });
      await srq.modify({ srqLimit: 5 });
      expect((await srq.query()).srqLimit).toBe(5);
      await expect(srq.modify({ srqLimit: 9 })).rejects.toEqual(verbsError('EINVAL'));
      await expect(srq.modify({ srqLimit: -1 })).rejects.toEqual(verbsError('EINVAL'));
    });

    it('rejects impossible sizes, and receives that do not fit', async () => {
      const { maxSrqWr, maxSrqSge } = await context.queryDevice();
      for (const init of [
        { maxWr: 0 },
        { maxWr: maxSrqWr + 1 },
        { maxWr: 4, maxSge: maxSrqSge + 1 },
        { maxWr: 4, srqLimit: 5 },
      ]) {
        await expect(pd.createSRQ(init)).rejects.toEqual(verbsError('EINVAL'));
      }
      await using srq = await pd.createSRQ({ maxWr: 2, maxSge: 1 });
      const sge = { addr: 0, length: 1, lkey: 1 };
      expect(() => srq.postRecv({ sgList: [sge, sge] })).toThrow(verbsError('EINVAL', 0));
      const one = { sgList: [sge] };
      expect(() => srq.postRecv([one, one, one])).toThrow(verbsError('ENOMEM', 2));
    });

    it('EBUSY while a queue pair uses it; its queue pairs accept no own receives', async () => {
      const srq = await pd.createSRQ({ maxWr: 4 });
      const qp = await pd.createQP({ ...qpInit(), srq });
      expect(() => qp.postRecv({ sgList: [] })).toThrow(verbsError('EINVAL', 0));
      await expect(srq.close()).rejects.toEqual(verbsError('EBUSY'));
      await qp.close();
      await srq.close();
    });
  });

  describe('queue pairs', () => {
    it('grants at least the requested sizes, and refuses more than the device has', async () => {
      await using qp = await pd.createQP({
        ...qpInit(),
        maxSendWr: 5,
        maxRecvWr: 3,
        maxSendSge: 2,
        maxInlineData: 40,
      });
      expect(qp.capabilities.maxSendWr).toBeGreaterThanOrEqual(5);
      expect(qp.capabilities.maxRecvWr).toBeGreaterThanOrEqual(3);
      expect(qp.capabilities.maxInlineData).toBeGreaterThanOrEqual(40);
      const device = await context.queryDevice();
      for (const excess of [
        { maxSendWr: device.maxQpWr + 1 },
        { maxRecvWr: device.maxQpWr + 1 },
        { maxSendSge: device.maxSge + 1 },
        { maxRecvSge: device.maxSge + 1 },
        { maxInlineData: device.maxInline + 1 },
      ]) {
        await expect(pd.createQP({ ...qpInit(), ...excess })).rejects.toEqual(verbsError('EINVAL'));
      }
    });

    it.skipIf(lacks(fixture, 'nearLimits'))('ENOMEM beyond the limit', async () => {
      await using small = await started.client.open(SMALL_DEVICE.name);
      const domain = await small.allocPD();
      const queue = await small.createCQ({ cqe: 4 });
      const init = { ...qpInit(), sendCQ: queue, recvCQ: queue };
      for (let count = 0; count < SMALL_PROFILE.maxQp; count += 1) await domain.createQP(init);
      await expect(domain.createQP(init)).rejects.toEqual(verbsError('ENOMEM'));
    });

    it('starts in RESET, follows legal requests and refuses the others', async () => {
      await using qp = await pd.createQP(qpInit());
      const state = async () => (await qp.query()).state;
      expect(await state()).toBe(QPState.RESET);
      for (const illegal of [QPState.RTR, QPState.RTS, QPState.SQD, QPState.SQE]) {
        await expect(qp.modify({ state: illegal })).rejects.toEqual(verbsError('EINVAL'));
      }
      await qp.modify({ state: QPState.INIT });
      // Only a connection moves a queue pair to RTS, never the consumer.
      await expect(qp.modify({ state: QPState.RTS })).rejects.toEqual(verbsError('EINVAL'));
      await qp.modify({ state: QPState.ERR });
      expect(await state()).toBe(QPState.ERR);
      await expect(qp.modify({ state: QPState.INIT })).rejects.toEqual(verbsError('EINVAL'));
      const resets = needs(fixture, 'reset', async () => {
        await qp.modify({ state: QPState.RESET });
        expect(await state()).toBe(QPState.RESET);
      });
      await resets();
    });

    it('names the bad request, its opcode and the field', async () => {
      await using qp = await pd.createQP({ ...qpInit(), maxSendWr: 16, maxInlineData: 64 });
      const sge = { addr: 0, length: 8, lkey: 1 };
      const sgList = [sge];
      const remote = { remoteAddr: 0, rkey: 1 };
      const { maxSendSge, maxInlineData } = qp.capabilities;
      const long = new Uint8Array(maxInlineData + 1);
      const cases: [Partial<SendFields>, string][] = [
        [{ opcode: WROpcode.rdmaWrite, sgList }, '(rdmaWrite): rkey and remoteAddr are required'],
        [{ opcode: WROpcode.rdmaRead, sgList }, '(rdmaRead): rkey and remoteAddr are required'],
        [{ opcode: WROpcode.sendWithInv, sgList }, '(sendWithInv): invalidateRkey is required'],
        [
          { opcode: WROpcode.send, sgList: new Array(maxSendSge + 1).fill(sge) },
          `(send): ${maxSendSge + 1} SGEs, but this QP allows ${maxSendSge}`,
        ],
        [
          { opcode: WROpcode.send, inlineData: long },
          `(send): ${long.length} inline bytes, but this QP allows ${maxInlineData}`,
        ],
        [
          { opcode: WROpcode.send, sgList: [{ ...sge, lkey: 2 ** 32 }] },
          '(send): SGE 0: lkey is 4294967296, not an unsigned 32-bit number',
        ],
        [
          { opcode: WROpcode.rdmaRead, ...remote, inlineData: new Uint8Array(1) },
          '(rdmaRead): this opcode takes no inline data',
        ],
      ];
      for (const [wr, text] of cases) {
        expect(() => qp.postSend([{ opcode: WROpcode.send }, wr as SendWR])).toThrow(
          expect.objectContaining({ code: 'EINVAL', badIndex: 1, message: `request 1 ${text}` }),
        );
      }
      expect(() => qp.postSend({ opcode: 99 as typeof WROpcode.send })).toThrow(
        'request 0: opcode is 99, not one of WROpcode',
      );
      expect(() => qp.postRecv({ sgList: [sge, sge] })).toThrow(
        'request 0: 2 SGEs, but this queue allows 1',
      );
    });

    it('refuses malformed requests with the index of the first, and full queues', async () => {
      await using qp = await pd.createQP(qpInit());
      const sge = { addr: 0, length: 1, lkey: 1 };
      const fine = { opcode: WROpcode.send, sgList: [sge] };
      expect(() => qp.postSend([fine, { opcode: 99 as typeof WROpcode.send }])).toThrow(
        verbsError('EINVAL', 1),
      );
      expect(() => qp.postSend({ ...fine, sgList: [sge, sge, sge] })).toThrow(
        verbsError('EINVAL', 0),
      );
      expect(() => qp.postRecv({ sgList: [sge, sge] })).toThrow(verbsError('EINVAL', 0));
      const receives = Array.from({ length: 5 }, () => ({ sgList: [sge] }));
      expect(() => qp.postRecv(receives)).toThrow(verbsError('ENOMEM', 4));
      await qp.close();
      expect(() => qp.postSend(fine)).toThrow(verbsError('EINVAL'));
      expect(() => qp.postRecv({ sgList: [] })).toThrow(verbsError('EINVAL'));
      await expect(qp.query()).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('contexts', () => {
    it('closes everything created from it, and only that', async () => {
      const other = await started.client.open(DEVICE.name);
      const domain = await other.allocPD();
      const queue = await other.createCQ({ cqe: 4 });
      const srq = await domain.createSRQ({ maxWr: 4 });
      const init = { sendCQ: queue, recvCQ: queue, maxSendWr: 1, maxRecvWr: 0 };
      const qp = await domain.createQP({ ...init, srq });
      if (!lacks(fixture, 'windows')) await domain.allocMW(MWType.type1);
      await domain.allocMR(64, Access.localWrite);
      const events = other.asyncEvents()[Symbol.asyncIterator]();
      const pending = events.next();
      await other.close();
      await other.close();
      expect(await pending).toEqual({ done: true, value: undefined });
      await qp.close();
      await expect(qp.query()).rejects.toEqual(verbsError('EINVAL'));
      await expect(other.allocPD()).rejects.toEqual(verbsError('EINVAL'));
      expect((await context.queryPort()).state).toBe('active');
    });
  });
}
