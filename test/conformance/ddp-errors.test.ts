/**
 * How a real host handles DDP segments that break a rule (RFC 5041 §6, §7): the Terminate that the
 * peer gets, that nothing was placed or delivered, and the error that the consumer gets.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { Access, AsyncEventType, CMEventType, QPState, WCStatus } from '#contract/verbs/enums';
import { Consumer, hex32, hex64 } from '../support/consumer.ts';
import { closeFacing, Facing, settled } from '../support/facing.ts';
import { type FacingMemory, withMemory } from '../support/facing-memory.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { copying } from '../support/raw-fpdu.ts';

afterEach(closeFacing);

const SEND = '4143 00000000 00000000 00000001 00000000';

/** Sends `ulpdu`; expects the Terminate, nothing placed or delivered, and an error at the consumer. */
async function expectTerminate(
  { facing, region }: FacingMemory,
  ulpdu: string,
  payload: string,
): Promise<void> {
  const { consumer, peer, node } = facing;
  const before = hexOf(region.bytes);
  facing.say(ulpdu);
  expect(await facing.terminate()).toBe(compactHex(payload));
  expect(peer.errorCode).toBeUndefined();
  peer.finish();
  expect((await facing.event()).type).toBe(CMEventType.disconnected);
  expect(consumer.qp.state).toBe(QPState.ERR);
  expect(node.asyncEvents.map(({ object }) => object)).toContain(consumer.qp);
  expect(hexOf(region.bytes)).toBe(before);
  expect(consumer.receivedNow().every(({ status }) => status !== WCStatus.success)).toBe(true);
}

/** Expects a Terminate that copies the DDP header; by default with a new responder. */
async function expectError(control: string, ulpdu: string, rig?: FacingMemory): Promise<void> {
  await expectTerminate(rig ?? (await withMemory()), ulpdu, copying(control, ulpdu));
}

describe('an untagged segment', () => {
  it('for a queue that does not exist is error 1/2/1 [DDP-7.1-01, DDP-7.1-16, DDP-7.1-18, DDP-7.2-01, DDP-8.3-03, RDMAPX-10-01, RDMAP-4.8-32]', async () => {
    for (const qn of ['00000004', '00000005', 'ffffffff']) {
      await expectError('1201c000', `4143 00000000 ${qn} 00000001 00000000 41424344`);
    }
  });

  it('for which no receive is posted is error 1/2/2 [DDP-7.1-02, DDP-7.1-15, RDMAP-5.3-02, DDP-7.1-08]', async () => {
    for (const ulpdu of [SEND, `${SEND} 41424344`]) {
      await expectError('1202c000', ulpdu, await withMemory({}, 0));
    }
  });

  it.each(['00000000', '00000002', 'ffffffff'])(
    'with MSN %s when 1 is due is error 1/2/3 [DDP-7.1-05, DDP-7.1-06]',
    async (msn) => {
      const ulpdu = `4143 00000000 00000000 ${msn} 00000000 41`;
      await expectError('1203c000', ulpdu, await withMemory({}, 4));
    },
  );

  it('with the MSN of a message that was delivered is error 1/2/3 [DDP-5.3-06, DDP-7.1-05]', async () => {
    const rig = await withMemory({}, 4);
    rig.facing.say(`${SEND} 41`);
    expect(await rig.facing.consumer.payloads(1)).toEqual(['41']);
    await expectError('1203c000', `${SEND} 41`, rig);
  });

  it('with the next MSN while a message lacks its last segment is error 1/2/3 [DDP-7.1-05, DDP-7.1-06]', async () => {
    const rig = await withMemory({}, 4);
    rig.facing.say('0143 00000000 00000000 00000001 00000000 41');
    await expectError('1203c000', '4143 00000000 00000000 00000002 00000000 42', rig);
  });

  it('with an MO beyond the receive is error 1/2/4 [DDP-7.1-03, DDP-7.1-07]', async () => {
    for (const mo of ['00000041', 'fffffff0', 'ffffffff']) {
      await expectError('1204c000', `4143 00000000 00000000 00000001 ${mo} 41424344`);
    }
  });

  it('that overruns the receive is error 1/2/5 [DDP-7.1-04, DDP-7.1-07, RDMAP-5.3-04]', async () => {
    await expectError('1205c000', `${SEND} ${'41'.repeat(65)}`);
    const rig = await withMemory();
    rig.facing.say(`0143 00000000 00000000 00000001 00000000 ${'55'.repeat(64)}`);
    await expectError('1205c000', '0143 00000000 00000000 00000001 00000040 55', rig);
    // Filling it exactly is allowed.
    const { facing } = await withMemory();
    facing.say(`${SEND} ${'66'.repeat(64)}`);
    expect(await facing.consumer.payloads(1)).toEqual(['66'.repeat(64)]);
  });
});

describe('a tagged segment', () => {
  it('with an STag that names nothing is error 1/1/0 [DDP-7.1-09, DDP-4.2-05]', async () => {
    await expectError('1100c000', 'c140 deadbeef 0000000000000000 41424344');
  });

  it('with the STag of a region that was deregistered is error 1/1/0 [DDP-7.1-09, DDP-8.3-02, SEC-6.2.2-01, ARCH-3-05, SEC-6.3.3-01]', async () => {
    const rig = await withMemory();
    const { consumer } = rig.facing;
    const gone = consumer.register(64);
    rig.facing.say(`c140 ${gone.stag} ${hex64(0x1000)} 41`);
    await until('the Write', () => gone.bytes[0] === 0x41);
    gone.mr.close();
    await expectError('1100c000', `c140 ${gone.stag} ${hex64(0x1001)} 42`, rig);
    expect(gone.bytes[1]).toBe(0);
  });

  it('with an STag of another protection domain is error 1/1/2 [DDP-4.2-05, DDP-7.1-10, DDP-8.2-01, DDP-8.2-02, SEC-6.1.1-02, SEC-6.1.1-04]', async () => {
    const rig = await withMemory();
    const { node } = rig.facing;
    const stranger = new Consumer(node);
    const other = stranger.register(64);
    await expectError('1102c000', `c140 ${other.stag} ${hex64(0x1000)} 41`, rig);
    expect(other.bytes[0]).toBe(0);
  });

  it('with an STag that is tied to another stream of the domain is error 1/1/2 [DDP-8.2-01, DDP-8.2-03, SEC-6.1.1-03, SEC-6.1.1-04]', async () => {
    const rig = await withMemory();
    const { node, consumer } = rig.facing;
    const owner = await Facing.accept(node, new Consumer(node, { pd: consumer.pd }));
    const bound = await owner.consumer.bindWindow(
      owner.consumer.register(64),
      Access.remoteWrite | Access.remoteRead,
    );
    await expectError('1102c000', `c140 ${bound.stag} ${hex64(0x4000_0000)} 41`, rig);
    // SEC-6.1.1-04: the stream that owns it continues.
    owner.consumer.postReceive(8);
    owner.say(`${SEND} 42`);
    expect(await owner.consumer.payloads(1)).toEqual(['42']);
  });

  it('with an STag that may not be written is error 1/1/0 [DDP-7.1-11, ARCH-3-04]', async () => {
    const rig = await withMemory();
    const readable = rig.facing.consumer.register(64, { access: Access.remoteRead });
    await expectError('1100c000', `c140 ${readable.stag} ${hex64(0x1000)} 41`, rig);
    expect(readable.bytes[0]).toBe(0);
  });

  it('that begins or ends outside the range is error 1/1/1 [DDP-7.1-12, DDP-7.1-13, DDP-8.3-01, SEC-6.2.1-01, ARCH-3-02, ARCH-3-03, SEC-6.3.4-01]', async () => {
    for (const to of [0xfff, 0x1ffd, 0x2000, 0x1_0000_1000]) {
      const rig = await withMemory();
      await expectError('1101c000', `c140 ${rig.region.stag} ${hex64(to)} 41424344`, rig);
    }
    // Ending exactly at the end of the range is allowed.
    const { facing, region } = await withMemory();
    facing.say(`c140 ${region.stag} ${hex64(0x1ffc)} 41424344`);
    await until('the Write', () => region.bytes[0xfff] === 0x44);
  });

  it('whose TO wraps is error 1/1/3 [DDP-7.1-14, DDP-7.1-17]', async () => {
    for (const [to, control] of [
      ['ffffffffffffffff', '1103c000'],
      ['fffffffffffffffc', '1103c000'],
      // One byte less does not wrap; it is out of bounds.
      ['fffffffffffffffb', '1101c000'],
    ] as const) {
      const rig = await withMemory();
      await expectError(control, `c140 ${rig.region.stag} ${to} 41424344`, rig);
    }
  });
});

describe('a segment', () => {
  it('of another DDP version is error 1/2/6, or 1/1/4 if tagged [DDP-4.1-12, DDP-7.2-05, RDMAP-7.2-01]', async () => {
    for (const version of [0, 2, 3]) {
      await expectError('1206c000', `4${version}43 00000000 00000000 00000001 00000000 41`);
      const rig = await withMemory();
      await expectError('1104c000', `c${version}40 ${rig.region.stag} ${hex64(0x1000)} 41`, rig);
    }
    // The version is checked first.
    await expectError('1206c000', '4243 00000000 00000005 00000001 00000000');
  });

  it('shorter than its header is a local error, without copies [DDP-4.4-01, DDP-4.4-02, DDP-6.2.2-01]', async () => {
    for (const [control, lengths] of [
      ['c140', [0, 1, 2, 13]],
      ['4143', [1, 2, 17]],
    ] as const) {
      for (const length of lengths) {
        const ulpdu = hexOf(bytesOf(`${control} ff*32`).subarray(0, length));
        await expectTerminate(await withMemory(), ulpdu, '10000000');
      }
    }
  });

  it('that is invalid ends the stream: later segments are dropped silently [DDP-3-04, DDP-7.1-19, MPA-8-07]', async () => {
    const { facing, region } = await withMemory({ wire: { closeTimeoutMicros: 400_000 } }, 200);
    const later = Array.from({ length: 100 }, (_, i) => [
      `4143 00000000 00000000 ${hex32(i + 1)} 00000000 41`,
      `c140 ${region.stag} ${hex64(0x1000)} 42`,
      'c140 deadbeef 0000000000000000 42',
    ]).flat();
    facing.say('4143 00000000 00000005 00000001 00000000', ...later);
    facing.say(...later);
    expect(await facing.terminate()).toBe(
      compactHex('1201c000 0012 414300000000000000050000000100000000'),
    );
    await settled();
    facing.consumer.send('43');
    const received = await facing.consumer.received(200);
    expect(received.every(({ status }) => status === WCStatus.wrFlushErr)).toBe(true);
    expect(await facing.consumer.statuses(1)).toEqual([WCStatus.wrFlushErr]);
    expect(region.bytes[0]).toBe(0);
    // DDP-3-04: TCP is closed too, if the peer never closes.
    await until('the socket to close', () => facing.node.host.connections().length === 0);
    expect(facing.receivedNow()).toEqual([]);
  });
});

describe('a fatal error', () => {
  /** The events of a responder's consumer for `end`. */
  async function seen(end: (facing: Facing) => void): Promise<unknown> {
    const { facing } = await withMemory();
    const { consumer, node } = facing;
    end(facing);
    const event = await facing.event();
    const { state } = consumer.qp;
    await until('an asynchronous event', () => node.asyncEvents.length > 0);
    const flushed = await consumer.received(1);
    return { event: event.type, state, events: node.asyncEvents.map((e) => e.event), flushed };
  }

  it('is reported to the consumer, whatever caused it [DDP-6.2.2-01, DDP-6.2.2-02, RDMAP-7.1-01, ARCH-3.2-02]', async () => {
    const expected = {
      event: CMEventType.disconnected,
      state: QPState.ERR,
      events: [AsyncEventType.qpFatal],
      flushed: [{ status: WCStatus.wrFlushErr, payload: '' }],
    };
    const badHeader = (facing: Facing): void => {
      facing.say('4143 00000000 00000005 00000001 00000000');
      facing.peer.finish();
    };
    const badCrc = (facing: Facing): void => {
      const bytes = facing.frame(SEND);
      bytes[5] = 0xff;
      facing.peer.say(bytes);
      facing.peer.finish();
    };
    const lost = (facing: Facing): void => facing.peer.reset();
    const cut = (facing: Facing): void => {
      facing.peer.say(facing.frame(SEND).subarray(0, 9));
      facing.peer.finish();
    };
    for (const end of [badHeader, badCrc, lost, cut]) expect(await seen(end)).toEqual(expected);
  });

  it('does not cut the stream: the error report still goes out [DDP-6.2.2-03, DDP-6.2.2-04]', async () => {
    const { facing } = await withMemory();
    facing.say('4143 00000000 00000005 00000001 00000000');
    expect((await facing.terminate()).slice(0, 8)).toBe('1201c000');
    // A FIN, and no reset while the peer may still close.
    expect([facing.peer.ended, facing.peer.errorCode]).toEqual([true, undefined]);
  });
});
