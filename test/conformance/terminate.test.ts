/** RDMAP errors and Terminates (RFC 5040 §4.8, §5.4, §6, §7) of a real host against a raw peer. */
import { afterEach, describe, expect, it } from 'vitest';
import { Access, CMEventType, QPState, WCStatus, WROpcode } from '#contract/verbs/enums';
import { Consumer, hex32, hex64 } from '../support/consumer.ts';
import { closeFacing, Facing, settled } from '../support/facing.ts';
import { type FacingMemory, withMemory } from '../support/facing-memory.ts';
import { compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { copying } from '../support/raw-fpdu.ts';

afterEach(closeFacing);

const SEND = '4143 00000000 00000000 00000001 00000000';
const READ = '4141 00000000 00000001 00000001 00000000';
/** Into STag 0x11223344 at TO 0x1000. */
const SINK = '11223344 0000000000001000';

/** Sends `ulpdu`; expects the Terminate, and that nothing was placed or delivered. */
async function expectTerminate(
  { facing, region }: FacingMemory,
  ulpdu: string,
  payload: string,
): Promise<void> {
  const before = hexOf(region.bytes);
  facing.say(ulpdu);
  expect(await facing.terminate()).toBe(payload);
  facing.peer.finish();
  expect((await facing.event()).type).toBe(CMEventType.disconnected);
  expect(facing.consumer.qp.state).toBe(QPState.ERR);
  expect(hexOf(region.bytes)).toBe(before);
  const { success } = WCStatus;
  expect(facing.consumer.receivedNow().map(({ status }) => status)).not.toContain(success);
}

/** Expects a Terminate that copies the DDP header; by default with a new responder. */
async function expectError(control: string, ulpdu: string, rig?: FacingMemory): Promise<void> {
  await expectTerminate(rig ?? (await withMemory()), ulpdu, copying(control, ulpdu));
}

describe('a message', () => {
  it('of another RDMAP version is error 0/2/5 [RDMAP-4.1-01, RDMAP-4.1-05, RDMAP-7.2-01, RDMAP-7.1-03, RDMAP-4.8-31]', async () => {
    for (const control of ['03', '83', 'c3']) {
      await expectError('0205c000', `41${control} 00000000 00000000 00000001 00000000 41`);
    }
    const rig = await withMemory();
    await expectError('0205c000', `c180 ${rig.region.stag} ${hex64(0x1000)} 41`, rig);
  });

  it('with an unassigned opcode is error 0/2/6 [RDMAP-4.1-02, RDMAP-7.2-01, IANA-3.4-01]', async () => {
    for (const opcode of ['c', 'd', 'e', 'f']) {
      await expectError('0206c000', `414${opcode} 00000000 00000000 00000001 00000000 41`);
      const rig = await withMemory();
      await expectError('0206c000', `c14${opcode} ${rig.region.stag} ${hex64(0x1000)} 41`, rig);
    }
  });

  it('whose opcode does not match its T bit or queue is error 0/2/6 [RDMAP-4.1-02, RDMAP-4.1-03, RDMAP-7.2-02]', async () => {
    const queues = [-1, 1, -1, 0, 0, 0, 0, 2, 0, 0, 1, 3];
    for (const [opcode, right] of queues.entries()) {
      const digit = opcode.toString(16);
      if (right !== -1) {
        const rig = await withMemory();
        await expectError('0206c000', `c14${digit} ${rig.region.stag} ${hex64(0x1000)} 41`, rig);
      }
      const wrong = right === 0 ? 1 : 0;
      await expectError('0206c000', `414${digit} 00000000 0000000${wrong} 00000001 00000000 00*28`);
    }
  });

  it('of an unrequested Read Response is error 0/2/6 [RDMAP-5.2.2-08, RDMAP-7.1-03]', async () => {
    const rig = await withMemory();
    await expectError('0206c000', `c142 ${rig.region.stag} ${hex64(0x1000)} 4142`, rig);
  });
});

describe('a Send with Invalidate', () => {
  /** The answer to an invalidation of `stag`, which its owner may still use afterwards. */
  async function refused(rig: FacingMemory, stag: string, control: string): Promise<void> {
    await expectError(control, `4144 ${stag} 00000000 00000001 00000000 4142`, rig);
  }

  it('of an STag that names nothing is error 0/1/0 [RDMAP-7.2-04]', async () => {
    await refused(await withMemory(), 'deadbeef', '0100c000');
  });

  it('of an STag of another protection domain is error 0/1/9, and the STag stays [RDMAP-5.3-09, RDMAP-5.3-10, RDMAP-7.2-04, RDMAP-4.8-20]', async () => {
    const rig = await withMemory();
    const owner = await Facing.accept(rig.facing.node, new Consumer(rig.facing.node));
    const region = owner.consumer.register(8);
    await refused(rig, region.stag, '0109c000');
    owner.say(`c140 ${region.stag} ${hex64(0x1000)} 41`);
    await until('the Write of its own stream', () => region.bytes[0] === 0x41);
  });

  it('of an STag that several streams share is error 0/1/9, and the STag stays [RDMAP-8.1.1-01, SEC-6.4.5-01, RDMAP-5.3-10]', async () => {
    const rig = await withMemory();
    const { node, consumer } = rig.facing;
    const other = await Facing.accept(node, new Consumer(node, { pd: consumer.pd }));
    await refused(rig, rig.region.stag, '0109c000');
    other.say(`c140 ${rig.region.stag} ${hex64(0x1000)} 41`);
    await until('the Write of the other stream', () => rig.region.bytes[0] === 0x41);
  });
});

describe('a Read Request', () => {
  /** Requests `size` bytes at `source`; the Terminate must have R and a copy of the header. */
  async function refused(
    rig: FacingMemory,
    control: string,
    size: string,
    source: string,
  ): Promise<void> {
    const header = `${SINK} ${size} ${source}`;
    await expectTerminate(rig, `${READ} ${header}`, copying(control, `${READ} ${header}`, header));
  }

  it('of an STag that names nothing is error 0/1/0, with its header [RDMAP-4.8-01, RDMAP-4.8-02, RDMAP-4.8-05, RDMAP-4.8-07, RDMAP-4.8-09, RDMAP-7.1-04, RDMAP-7.2-05, RDMAP-4.8-30]', async () => {
    await refused(await withMemory(), '0100e000', '00001000', '55667788 0000000000002000');
  });

  it('beyond the range is error 0/1/1 [RDMAP-5.2.1-09, RDMAP-7.2-05, SEC-6.2.1-01, ARCH-3.2-02]', async () => {
    for (const [size, to] of [
      ['00001000', 0x1001],
      ['00000002', 0x1fff],
      ['00000001', 0xfff],
      ['ffffffff', 0x1000],
    ] as const) {
      const rig = await withMemory();
      await refused(rig, '0101e000', size, `${rig.region.stag} ${hex64(to)}`);
    }
    const { facing, region } = await withMemory();
    facing.say(`${READ} ${SINK} 00001000 ${region.stag} ${hex64(0x1000)}`);
    expect(await facing.receive(1)).toHaveLength(1);
  });

  it('of memory that may not be read is error 0/1/2 [SEC-6.3.5-01, RDMAP-7.2-05, ARCH-3-04]', async () => {
    const rig = await withMemory();
    const access = Access.localWrite | Access.remoteWrite;
    const { stag } = rig.facing.consumer.register(64, { access });
    await refused(rig, '0102e000', '00000001', `${stag} ${hex64(0x1000)}`);
  });

  it('of another protection domain or stream is error 0/1/3 [RDMAP-7.2-05, SEC-6.1.1-02, SEC-6.1.1-03]', async () => {
    const rig = await withMemory();
    const stranger = new Consumer(rig.facing.node).register(64);
    await refused(rig, '0103e000', '00000001', `${stranger.stag} ${hex64(0x1000)}`);
    const second = await withMemory();
    const { node, consumer } = second.facing;
    const owner = await Facing.accept(node, new Consumer(node, { pd: consumer.pd }));
    const bound = await owner.consumer.bindWindow(owner.consumer.register(64), Access.remoteRead);
    await refused(second, '0103e000', '00000001', `${bound.stag} ${hex64(0x4000_0000)}`);
  });

  it('whose source wraps is error 0/1/4 [RDMAP-7.2-05]', async () => {
    for (const size of ['00000001', '00000002']) {
      const rig = await withMemory();
      await refused(rig, '0104e000', size, `${rig.region.stag} ffffffffffffffff`);
    }
  });

  it('is not begun when its source is wrong: no byte is returned [RDMAP-5.2.1-09]', async () => {
    const { facing, region } = await withMemory();
    facing.say(`${READ} ${SINK} 00001001 ${region.stag} ${hex64(0x1000)}`);
    // `terminate` fails if anything precedes it.
    expect((await facing.terminate()).slice(0, 4)).toBe('0101');
  });

  it('beyond IRD finds no buffer: error 1/2/2 [RDMAP-6.1-04, SEC-6.4.3.3-02]', async () => {
    const wishes = { initiatorDepth: 2, responderResources: 2 };
    const { facing, region } = await withMemory({ wishes });
    const request = (msn: number): string =>
      `4141 00000000 00000001 ${hex32(msn)} 00000000 ${SINK} 00000001 ${region.stag} ${hex64(0x1000)}`;
    // All in one segment, so none can be answered before the last arrives.
    facing.say(request(1), request(2), request(3));
    await facing.peer.overs();
    const ulpdus = facing.receivedNow();
    expect(ulpdus.at(-1)?.slice(36)).toBe(copying('1202c000', request(3)));
    expect(ulpdus.length).toBeLessThanOrEqual(3);
  });

  it('that is not 28 bytes long is an error [RDMAP-4.4-06]', async () => {
    for (const [length, control] of [
      [0, '02ffc000'],
      [27, '02ffc000'],
      [29, '02ffc000'],
      [53, '1205c000'],
    ] as const) {
      await expectError(control, `${READ} 11*${length}`);
    }
  });

  it('that fails midway is answered with a Terminate that names the rest [RDMAP-4.8-11, SEC-6.2.2-01]', async () => {
    const fpduSize = { kind: 'fixed', mulpduBytes: 1038 } as const;
    const rig = await withMemory({ wire: { fpduSize } });
    const { facing } = rig;
    const big = facing.consumer.register(16 << 20);
    const size = hex32(16 << 20);
    facing.peer.stopReading();
    facing.say(`${READ} ${SINK} ${size} ${big.stag} ${hex64(0x1000)}`);
    await settled();
    big.mr.close();
    facing.peer.resumeReading();
    await facing.peer.overs();
    const ulpdus = facing.receivedNow();
    const sent = (ulpdus.length - 1) * 1024;
    expect(sent).toBeGreaterThan(0);
    expect(sent).toBeLessThan(16 << 20);
    const left = `11223344 ${hex64(0x1000 + sent)} ${hex32((16 << 20) - sent)} ${big.stag} ${hex64(0x1000 + sent)}`;
    const request = `${READ} ${SINK} ${size} ${big.stag} ${hex64(0x1000)}`;
    expect(ulpdus.at(-1)?.slice(36)).toBe(copying('0100e000', request, left));
  });
});

describe('a sent Terminate', () => {
  it('is the one untagged message of queue 2, with zeros where the RFC requires them [RDMAP-4.1-09, RDMAP-4.2-01, RDMAP-4.8-01, RDMAP-4.8-02, RDMAP-4.8-03, RDMAP-5.4-01]', async () => {
    const { facing } = await withMemory({}, 0);
    facing.say(SEND);
    await facing.peer.overs();
    expect(facing.receivedNow()).toEqual([
      compactHex(`4147 00000000 00000002 00000001 00000000 1202c000 0012 ${SEND}`),
    ]);
  });

  it('copies the header of a tagged segment, 14 bytes as they came [RDMAP-4.8-05, RDMAP-4.8-07]', async () => {
    await expectError('1100c000', 'fd70 deadbeef 0000000000000000 41');
  });

  it('reports only the first error [RDMAP-7.1-05]', async () => {
    const { facing } = await withMemory({}, 0);
    const later = 'c140 deadbeef 0000000000000000 41';
    facing.say('4143 00000000 00000005 00000001 00000000', SEND, later);
    expect((await facing.terminate()).slice(0, 4)).toBe('1201');
  });

  it('is the last message: no pending Response follows, nor a Send [RDMAP-5.4-06]', async () => {
    const { facing, region } = await withMemory();
    facing.say(
      'c140 deadbeef 0000000000000000 41',
      `${READ} ${SINK} 00000001 ${region.stag} ${hex64(0x1000)}`,
    );
    facing.consumer.send('41');
    facing.consumer.send('42');
    await facing.peer.overs();
    await settled();
    const ulpdus = facing.receivedNow();
    expect(ulpdus.findIndex((ulpdu) => ulpdu.startsWith('4147'))).toBe(ulpdus.length - 1);
  });

  it('replaces a message that could not be built, without header copies [RDMAP-7.1-02, RDMAP-4.8-29, RDMAP-7.1-01]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    consumer.send('41');
    const sgList = [{ addr: consumer.bufferMR.address, length: 4, lkey: 0xbad }];
    consumer.post({ wrId: 7, opcode: WROpcode.send, sgList });
    consumer.send('42');
    await facing.peer.overs();
    const [first, terminate, ...rest] = facing.receivedNow();
    expect(first).toBe(compactHex(`${SEND} 41`));
    const head = compactHex('4147 00000000 00000002 00000001 00000000');
    expect(terminate?.slice(0, 36)).toBe(head);
    // M, D and R are zero, and nothing follows the control word.
    expect(terminate?.slice(40)).toBe('0000');
    expect(rest).toEqual([]);
    const completions = await consumer.sends(3);
    expect(completions[0]?.status).toBe(WCStatus.success);
    expect(completions[1]).toMatchObject({ wrId: 7n, status: WCStatus.locProtErr });
    expect(completions[2]?.status).toBe(WCStatus.wrFlushErr);
  });
});

describe('a received Terminate', () => {
  const TERMINATE = '4147 00000000 00000002 00000001 00000000';

  it('consumes no receive, ends outstanding work and is reported to the consumer with its content [RDMAP-5.4-02, RDMAP-5.4-03, RDMAP-4.8-04, RDMAP-6.2.1-02]', async () => {
    for (const [payload, layer] of [
      // A Read Request's, with both copies: 52 bytes.
      [`0100e000 002e ${READ} 11*28`, /STag/i],
      // The same without them, and with every reserved bit set.
      ['01001fff', /STag/i],
      ['1202c000 0012 41430000000000000000000000010000 0000', /buffer/i],
      ['20020000', /CRC/i],
    ] as const) {
      const facing = await Facing.initiator();
      const { consumer, node } = facing;
      consumer.read(consumer.register(8), 1, 1, 0);
      await facing.receive(1);
      facing.say(`${TERMINATE} ${payload}`);
      facing.peer.finish();
      expect(await facing.event()).toMatchObject({
        type: CMEventType.disconnected,
        text: expect.stringMatching(layer),
      });
      expect(consumer.qp.state).toBe(QPState.ERR);
      const [failed] = await consumer.sends(1);
      expect(failed?.status).not.toBe(WCStatus.success);
      expect(node.asyncEvents.map(({ text }) => text).join()).toMatch(layer);
      // RDMAP-5.4-04: none is sent in reply.
      expect(facing.receivedNow()).toEqual([]);
    }
  });

  it('is accepted also when no receive is posted and Reads are outstanding [RDMAP-5.4-02]', async () => {
    const facing = await Facing.responder();
    const region = facing.consumer.register(8);
    const request = (msn: number): string =>
      `4141 00000000 00000001 ${hex32(msn)} 00000000 ${SINK} 00000001 ${region.stag} ${hex64(0x1000)}`;
    facing.say(...[1, 2, 3, 4].map(request), `${TERMINATE} 20020000`);
    facing.peer.finish();
    expect((await facing.event()).text).toMatch(/CRC/);
    expect(facing.receivedNow().some((ulpdu) => ulpdu.startsWith('4147'))).toBe(false);
  });
});

describe('STags', () => {
  it('are spread over 32 bits, hence hard to guess [RDMAP-8.1.1-02]', async () => {
    const consumer = new Consumer((await Facing.responder()).node);
    const bytes = new Uint8Array(8);
    const stags = Array.from({ length: 2000 }, () => consumer.register(8, { bytes }).mr.rkey);
    expect(new Set(stags).size).toBe(2000);
    // Each of the 32 bits is set in about half of them, and steps between neighbours do not repeat.
    for (let bit = 0; bit < 32; bit++) {
      const set = stags.filter((stag) => (stag >>> bit) & 1).length;
      expect(set).toBeGreaterThan(800);
      expect(set).toBeLessThan(1200);
    }
    expect(new Set(stags.slice(1).map((stag, i) => stag - (stags[i] ?? 0))).size).toBeGreaterThan(
      1990,
    );
  });

  it('are not reused soon after they are released [SEC-6.1.1-05]', async () => {
    const consumer = new Consumer((await Facing.responder()).node);
    const bytes = new Uint8Array(8);
    // Peers know an STag by its upper 24 bits: the key in the rest is the consumer's to choose.
    const indices = Array.from({ length: 2000 }, () => {
      const { mr } = consumer.register(8, { bytes });
      mr.close();
      return mr.rkey >>> 8;
    });
    expect(new Set(indices).size).toBe(2000);
  });
});
