/**
 * iwarpd's RNIC in this process against programs of the guest on siw: every kind of message, the
 * Terminates, rejections and refusals of either side, in both roles and both MPA revisions.
 *
 * CRCs are off here: QEMU's proxy is in between, which would trigger siw's bug with split trailers.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  AsyncEventType,
  CMEventType,
  QPState,
  SendFlag,
  WCFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import type { WireDefaults } from '#daemon/iwarp/cm/cm-types';
import { programSeconds, until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type Channel, NO_WISHES, RnicNode } from '../support/rnic-node.ts';
import { prepareKernelPeer } from './kernel-peer/kernel-image.ts';
import {
  GUEST_ADDRESS,
  GUEST_START_TIMEOUT_MS,
  type Guest,
  type GuestProcess,
  HOST_ADDRESS,
  startGuest,
} from './kernel-peer/kernel-peer.ts';

const PORT = 7174;
const REVISIONS = [1, 2] as const;
/** Longer than any FPDU, so messages are split. */
const LONG_BYTES = 60_000;

let guest: Guest;
let node: RnicNode;

/** Where the peer's memory is, from the Private Data of verbs-probe. */
interface Place {
  readonly rkey: number;
  readonly remoteAddr: bigint;
}

function placeOf(privateData: Uint8Array): Place {
  const view = new DataView(privateData.slice().buffer);
  return { rkey: view.getUint32(0), remoteAddr: view.getBigUint64(4) };
}

/** The place of our memory as Private Data. */
function tellPlace(channel: Channel): Uint8Array {
  const view = new DataView(new ArrayBuffer(16));
  view.setUint32(0, channel.mr.rkey);
  view.setBigUint64(4, BigInt(channel.address()));
  view.setUint32(12, channel.buffer.length);
  return new Uint8Array(view.buffer);
}

/** The contents of verbs-probe's memory from byte `start` on. */
function probePattern(length: number, start = 0): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (start + index) % 251);
}

function newNode(wire: Partial<WireDefaults> = {}): RnicNode {
  const device = { name: 'iwarp0', addresses: [], wire: { crcRequested: false, ...wire } };
  return new RnicNode({ devices: [device] });
}

/** The next event of an id; the guest runs meanwhile. */
async function nextEvent(id: HostId): Promise<HostCmEvent> {
  await until('an event', () => node.eventsOf(id).length > 0);
  return await node.event(id);
}

/** verbs-probe as listener in the guest. */
async function probeListens(words = ''): Promise<GuestProcess> {
  const probe = `timeout ${programSeconds()} verbs-probe listen ${GUEST_ADDRESS} ${PORT} ${words}`;
  const listener = guest.run(`serve ${PORT} ${probe}`);
  await listener.waitFor(/READY/);
  return listener;
}

/** Our initiator, connecting to verbs-probe. */
async function connectToProbe(
  wire: { mpaRevision?: 1 | 2; markers?: boolean } = {},
  privateData = new Uint8Array(0),
): Promise<{ channel: Channel; id: HostId }> {
  const channel = node.channel();
  const depths = { initiatorDepth: 4, responderResources: 4 };
  const at = { address: '127.0.0.1', port: guest.forwarded(PORT) };
  const id = await node.connect(channel, at, { ...depths, privateData, wire });
  return { channel, id };
}

/** A connection of our initiator with verbs-probe, its listener. */
async function establishedWithProbe(
  words = '',
  wire: { mpaRevision?: 1 | 2 } = {},
): Promise<{ channel: Channel; id: HostId; peer: Place; probe: GuestProcess }> {
  const probe = await probeListens(words);
  const { channel, id } = await connectToProbe(wire);
  const event = await nextEvent(id);
  expect(event.text).toMatch(/^established/);
  // siw hits a BUG if a fault or a FIN overtakes its own event for this.
  await probe.waitFor(/cm RDMA_CM_EVENT_ESTABLISHED/);
  return { channel, id, peer: placeOf(event.privateData), probe };
}

/** verbs-probe as initiator of the guest, and its Request. `works` may need our region's STag. */
async function probeConnects(
  words: string | ((channel: Channel) => string),
): Promise<{ channel: Channel; id: HostId; probe: GuestProcess; request: Uint8Array }> {
  const channel = node.channel();
  const listener = node.listen('127.0.0.1');
  const all = typeof words === 'string' ? words : words(channel);
  const place = `${HOST_ADDRESS} ${listener.at.port}`;
  const probe = guest.run(`timeout ${programSeconds()} verbs-probe connect ${place} ${all}`);
  const request = await nextEvent(listener.id);
  return { channel, id: request.id, probe, request: request.privateData };
}

/** Accepts verbs-probe's Request; the probe learns where our region is. */
async function acceptProbe(
  words: string | ((channel: Channel) => string),
  receiveBytes = 4096,
): Promise<{ channel: Channel; id: HostId; probe: GuestProcess }> {
  const { channel, id, probe } = await probeConnects(words);
  // Receives do not overlap the peer's writes.
  for (let i = 0; i < 8; i++) channel.receive(500_000 + i * 4096, receiveBytes);
  node.host.cm.accept(id, channel.qp, {
    ...NO_WISHES,
    privateData: tellPlace(channel),
    initiatorDepth: 4,
    responderResources: 4,
  });
  expect((await nextEvent(id)).text).toMatch(/^established/);
  return { channel, id, probe };
}

/** Waits for the end of a connection and returns the text of its event. */
async function endOf(id: HostId): Promise<string> {
  const event = await nextEvent(id);
  expect(event.type).toBe(CMEventType.disconnected);
  return event.text;
}

describeWith(['kernel-peer'], 'verbs between iwarpd and siw', () => {
  beforeAll(async () => {
    await prepareKernelPeer();
    guest = await startGuest({ forwards: [PORT] });
  }, GUEST_START_TIMEOUT_MS);

  afterAll(async () => {
    expect(await guest?.console()).not.toContain('kernel BUG');
    await guest?.stop();
  });

  beforeEach(() => {
    node = newNode();
  });

  afterEach(() => node.host.close());

  describe.each(REVISIONS)('MPA revision %i', (revision) => {
    beforeEach(() => guest.setSiw({ mpaVersion: revision }));

    it('our Sends, Writes and Reads arrive at siw, and its memory here', async () => {
      const { channel, id, peer, probe } = await establishedWithProbe('', {
        mpaRevision: revision,
      });
      const { lkey } = channel.mr;
      channel.buffer.fill(0xa5, 0, 200);
      const sge = (offset: number, length: number) => ({
        sgList: [{ addr: channel.address(offset), length, lkey }],
      });
      channel.send(0, 100);
      channel.postSend({ opcode: WROpcode.send, flags: SendFlag.solicited, ...sge(0, 0) });
      channel.postSend({ opcode: WROpcode.rdmaWrite, ...sge(0, 200), ...peer });
      channel.postSend({ opcode: WROpcode.rdmaRead, ...sge(1000, LONG_BYTES), ...peer });
      const tail = { ...peer, remoteAddr: peer.remoteAddr + 1000n };
      // The Write sends the Read's data, so it waits for them.
      const flags = SendFlag.fence;
      channel.postSend({ opcode: WROpcode.rdmaWrite, flags, ...sge(1000, LONG_BYTES), ...tail });
      // siw answers an empty Read queued after another with the other's length.
      channel.postSend({ opcode: WROpcode.rdmaRead, flags, ...sge(200_000, 0), ...peer });
      channel.postSend({ opcode: WROpcode.rdmaRead, flags, ...sge(200_000, LONG_BYTES), ...tail });
      const invalidateRkey = peer.rkey;
      channel.postSend({ opcode: WROpcode.sendWithInv, flags, invalidateRkey, ...sge(0, 9) });
      const done = await channel.completions(8);
      expect(done.map(({ status }) => status)).toEqual(Array(8).fill(WCStatus.success));
      expect(channel.buffer.subarray(1000, 1200)).toEqual(new Uint8Array(200).fill(0xa5));
      const whole = probePattern(LONG_BYTES).fill(0xa5, 0, 200);
      expect(Buffer.compare(channel.buffer.subarray(1000, 1000 + LONG_BYTES), whole)).toBe(0);
      const copy = channel.buffer.subarray(200_000, 200_000 + LONG_BYTES);
      expect(Buffer.compare(copy, whole)).toBe(0);
      await probe.waitFor(/received 2 success length=9/);
      // siw reports no invalidation to a program, but the STag is invalid.
      channel.postSend({ opcode: WROpcode.rdmaWrite, ...sge(0, 200), ...peer });
      expect(await endOf(id)).toMatch(/invalid STag/);
      expect(await probe.exit, probe.output).toBe(0);
      expect(probe.output).toContain('received 0 success length=100');
      expect(probe.output).toContain('received 1 success length=0');
    });

    it("siw's Sends, Writes and Reads arrive here, and our memory at siw", async () => {
      const works = ['send:100', 'solicited:7', 'write:200', `write:${LONG_BYTES}`, 'read:300'];
      works.push(`read:${LONG_BYTES}`, 'write:0', 'read:0', 'send:0', 'invalidate:9');
      const { channel, id, probe } = await acceptProbe(`private=c0ffee ${works.join(' ')}`);
      expect(await probe.exit, probe.output).toBe(0);
      for (const index of works.keys()) expect(probe.output).toContain(`done ${index} success`);
      const received = channel.poll().filter(({ opcode }) => opcode === WCOpcode.recv);
      const good = received.filter(({ status }) => status === WCStatus.success);
      expect(good.map(({ byteLen }) => byteLen)).toEqual([100, 7, 0, 9]);
      expect(good[3]).toMatchObject({ wcFlags: WCFlag.withInv, invalidatedRkey: channel.mr.rkey });
      const written = channel.buffer.subarray(0, LONG_BYTES);
      expect(Buffer.compare(written, probePattern(LONG_BYTES))).toBe(0);
      expect(await endOf(id)).toBe('disconnected');
    });

    it('a rejection carries Private Data, in both directions', async () => {
      const listener = await probeListens('reject=1 private=0a0b0c');
      const { id } = await connectToProbe({ mpaRevision: revision });
      const event = await nextEvent(id);
      expect(event.type).toBe(CMEventType.rejected);
      expect(event.privateData).toEqual(new Uint8Array([10, 11, 12]));
      expect(event.text).toBe('the peer rejected the connection');
      expect(await listener.exit).toBe(0);

      const asked = await probeConnects('private=c0ffee');
      expect(asked.request).toEqual(new Uint8Array([0xc0, 0xff, 0xee]));
      node.host.cm.reject(asked.id, new Uint8Array([1, 2, 3, 4, 5]));
      expect(await asked.probe.exit).toBe(1);
      expect(asked.probe.output).toContain(
        'cm RDMA_CM_EVENT_REJECTED status=-104 private=0102030405',
      );
    });
  });

  describe("siw's Terminate, decoded with its bit order", () => {
    const quirk = 'known quirk: siw-terminate-bit-order';

    beforeEach(() => guest.setSiw({ mpaVersion: 2 }));

    it('of a Write to an STag that it never advertised [RDMAP-4.8-02]', async () => {
      const { channel, id, peer, probe } = await establishedWithProbe();
      const sgList = [{ addr: channel.address(), length: 100, lkey: channel.mr.lkey }];
      const rkey = (peer.rkey ^ 0x5a5a00) >>> 0;
      channel.postSend({ opcode: WROpcode.rdmaWrite, sgList, ...peer, rkey });
      expect(await endOf(id)).toMatch(new RegExp(`sent a Terminate: .*${quirk}`));
      const [event] = node.asyncEvents;
      expect(event?.event).toBe(AsyncEventType.qpFatal);
      expect(event?.text).toMatch(/\(layer 1, type 1, code 0\)/);
      expect(event?.text).toContain(quirk);
      expect(await probe.exit).toBe(0);
    });

    it('of a Read from one, which fails that Read and flushes the rest [RDMAP-4.8-02]', async () => {
      const { channel, id, peer, probe } = await establishedWithProbe();
      const sgList = [{ addr: channel.address(), length: 100, lkey: channel.mr.lkey }];
      const rkey = (peer.rkey ^ 0x5a5a00) >>> 0;
      channel.receive(1000, 64);
      channel.postSend({ opcode: WROpcode.rdmaRead, sgList, ...peer, rkey });
      channel.postSend({ opcode: WROpcode.rdmaRead, sgList, ...peer });
      expect(await endOf(id)).toContain(quirk);
      expect(node.asyncEvents[0]?.text).toMatch(/\(layer 0, type 1, code 0\)/);
      const done = await channel.completions(3);
      expect(done.map(({ status }) => status).sort()).toEqual(
        [WCStatus.remAccessErr, WCStatus.wrFlushErr, WCStatus.wrFlushErr].sort(),
      );
      expect(await probe.exit).toBe(0);
    });

    it('of a Send longer than its receive, which it reports as no buffer [RDMAP-4.8-02]', async () => {
      const { channel, id, probe } = await establishedWithProbe('room=64');
      channel.send(0, 65);
      expect(await endOf(id)).toContain(quirk);
      expect(node.asyncEvents[0]?.text).toMatch(/\(layer 1, type 2, code 2\)/);
      expect(await probe.exit).toBe(0);
    });
  });

  describe('our Terminate, as the program on siw sees it', () => {
    beforeEach(() => guest.setSiw({ mpaVersion: 2 }));

    const cases: readonly [string, (channel: Channel) => string, AsyncEventType, string][] = [
      ['a Write elsewhere', () => 'write:100@bad', AsyncEventType.qpAccessErr, '1, type 1, code 0'],
      ['a Write too far', pastTheEnd, AsyncEventType.qpAccessErr, '1, type 1, code 1'],
      ['too long a Send', () => 'send:4000', AsyncEventType.qpFatal, '1, type 2, code 5'],
      ['a Read elsewhere', () => 'read:100@bad', AsyncEventType.qpReqErr, '0, type 1, code 0'],
    ];
    it.each(cases)('%s', async (_what, work, asyncEvent, triple) => {
      const { channel, id, probe } = await acceptProbe(work, 64);
      expect(await endOf(id)).not.toBe('disconnected');
      expect(node.asyncEvents[0]?.event).toBe(asyncEvent);
      expect(node.asyncEvents[0]?.text).toContain(`(layer ${triple})`);
      expect(channel.qp.state).toBe(QPState.ERR);
      expect(await probe.exit, probe.output).toBe(0);
      expect(probe.output).toContain('cm RDMA_CM_EVENT_DISCONNECTED');
    });
  });

  describe('markers, which siw refuses', () => {
    beforeEach(() => guest.setSiw({ mpaVersion: 2 }));

    it('rejects our Request, and the event names the reason', async () => {
      const probe = await probeListens();
      const { id } = await connectToProbe({ markers: true });
      const event = await nextEvent(id);
      expect(event.type).toBe(CMEventType.rejected);
      expect(event.text).toContain('known quirk: siw-refuses-markers');
      probe.kill();
    });

    it('drops the connection at our Reply, and the event names the reason', async () => {
      await node.host.close();
      node = newNode({ markersRequested: true });
      const { channel, id, probe } = await probeConnects('');
      node.host.cm.accept(id, channel.qp, NO_WISHES);
      expect((await nextEvent(id)).type).toBe(CMEventType.established);
      expect(await endOf(id)).toContain('known quirk: siw-refuses-markers');
      expect(await probe.exit).toBe(1);
    });
  });
});

/** A Write whose last bytes lie past the region. */
function pastTheEnd(channel: Channel): string {
  const end = channel.address(channel.buffer.length);
  return `write:100@0x${channel.mr.rkey.toString(16)}+${end - 99}`;
}
