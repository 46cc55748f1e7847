/** Enhanced connection establishment (RFC 6581) of a real host against a raw peer. */
import { afterEach, describe, expect, it } from 'vitest';
import { CMEventType, WROpcode } from '#contract/verbs/enums';
import type { WireDefaults } from '#daemon/iwarp/cm/cm-types';
import { Consumer, hex32 } from '../support/consumer.ts';
import {
  closeFacing,
  dialIn,
  dialOut,
  Facing,
  type FacingOptions,
  facingNode,
  settled,
  startupOf,
} from '../support/facing.ts';
import { compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { REPLY_KEY, REQUEST_KEY, readFpdus, startupFrame } from '../support/raw-fpdu.ts';
import { NO_WISHES } from '../support/rnic-node.ts';

afterEach(closeFacing);

/** The enhanced word of RFC 6581 §9. */
interface Word {
  readonly a?: boolean;
  /** Zero-length Send, Write, Read as RTR. */
  readonly b?: boolean;
  readonly c?: boolean;
  readonly d?: boolean;
  readonly ird?: number;
  readonly ord?: number;
}

const UNNEGOTIATED = 0x3fff;

function word({ a, b, c, d, ird = 8, ord = 8 }: Word): string {
  const bits = (high: boolean | undefined, low: boolean | undefined, value: number): string =>
    ((high ? 0x8000 : 0) | (low ? 0x4000 : 0) | value).toString(16).padStart(4, '0');
  return bits(a, b, ird) + bits(c, d, ord);
}

function request(parts: Word, privateData = ''): Uint8Array {
  return startupFrame(REQUEST_KEY, '5002', word(parts) + privateData);
}

function reply(parts: Word, privateData = ''): Uint8Array {
  return startupFrame(REPLY_KEY, '5002', word(parts) + privateData);
}

/** The enhanced word of a frame that a host sent; the frame must be an enhanced one. */
function wordOf(frame: Buffer): Word {
  expect(hexOf(frame.subarray(16, 18))).toBe('5002');
  expect(frame.readUInt16BE(18)).toBeGreaterThanOrEqual(4);
  const [high, low] = [frame.readUInt16BE(20), frame.readUInt16BE(22)];
  return {
    a: (high & 0x8000) !== 0,
    b: (high & 0x4000) !== 0,
    c: (low & 0x8000) !== 0,
    d: (low & 0x4000) !== 0,
    ird: high & 0x3fff,
    ord: low & 0x3fff,
  };
}

const depths = (ird: number, ord: number) => ({ responderResources: ird, initiatorDepth: ord });

/** An initiator that requests the given depths and gets `parts` as its Reply. */
async function initiator(
  parts: Word,
  [ird, ord]: readonly [number, number] = [8, 8],
  options: FacingOptions = {},
): Promise<Facing> {
  return await Facing.initiator({ frame: reply(parts), wishes: depths(ird, ord), ...options });
}

async function responder(
  parts: Word,
  [ird, ord]: readonly [number, number] = [8, 8],
  options: FacingOptions = {},
): Promise<Facing> {
  const wishes = depths(ird, ord);
  return await Facing.responder({ frame: request(parts), wishes, released: false, ...options });
}

/** The Request of a host with this wire and these depths. */
async function requestOf(wire: Partial<WireDefaults>, ird = 8, ord = 8): Promise<Buffer> {
  const node = facingNode({ wire });
  const { peer } = await dialOut(node, new Consumer(node), depths(ird, ord));
  return await startupOf(peer);
}

/** The depths reported to the consumer. */
function toldDepths({ established }: Facing): readonly [ird: unknown, ord: unknown] {
  return [established.responderResources, established.initiatorDepth];
}

/** How many of `count` Reads posted at once are on the wire before any is answered. */
async function readsOut(facing: Facing, count: number): Promise<number> {
  const { consumer } = facing;
  const sink = consumer.register(64);
  for (let i = 0; i < count; i++) consumer.read(sink, 1, 1, 0);
  const ulpdus = await facing.hearAll();
  return ulpdus.filter((ulpdu) => ulpdu.startsWith('4141')).length;
}

/** An initiator's answer to an unacceptable Reply; its consumer gets no connection. */
async function refusal(parts: Word, options: FacingOptions): Promise<string[]> {
  const node = facingNode(options);
  const { peer, id } = await dialOut(node, new Consumer(node), options.wishes);
  const { length } = await startupOf(peer);
  peer.say(reply(parts));
  await until('a FIN', () => peer.ended);
  expect(peer.errorCode).toBeUndefined();
  peer.finish();
  expect(await node.event(id)).toMatchObject({ type: CMEventType.connectError });
  await until('the connection to go', () => node.host.connections().length === 0);
  return readFpdus(peer.received.subarray(length)).map(({ ulpdu }) => ulpdu);
}

/** A Terminate of MPA, with the code as two digits. */
function terminate(code: string): string {
  return compactHex(`4147 00000000 00000002 00000001 00000000 20${code}0000`);
}

function readRequest(msn: number, stag: string): string {
  return `4141 00000000 00000001 ${hex32(msn)} 00000000 00000001 0000000000000000 00000001 ${stag} 0000000000001000`;
}

/** True when the host serves `count` Reads requested at once. */
async function serves(facing: Facing, count: number): Promise<boolean> {
  const { stag } = facing.consumer.register(64);
  facing.say(...Array.from({ length: count }, (_, i) => readRequest(i + 1, stag)));
  const ulpdus = await facing.hearAll();
  return ulpdus.filter((ulpdu) => ulpdu.startsWith('c142')).length === count;
}

describe('the frames', () => {
  it('have S and revision 2 with the enhanced word, and neither without [EMPA-6-02, EMPA-6-05, EMPA-9-01, EMPA-10-03, EMPA-6-06]', async () => {
    const wire = { peerToPeer: true, rtrKinds: { send: true, write: false, read: true } };
    expect(hexOf(await requestOf(wire, 5, 3))).toBe(
      compactHex(`${REQUEST_KEY} 5002 0004 c0054003`),
    );
    const client = { peerToPeer: false };
    expect(hexOf(await requestOf(client, 1, 2))).toBe(
      compactHex(`${REQUEST_KEY} 5002 0004 00010002`),
    );
    const plain = { mpaRevision: 1 } as const;
    expect(hexOf(await requestOf(plain))).toBe(compactHex(`${REQUEST_KEY} 4001 0000`));
  });

  it('have no reserved bit set, and ignore those of a peer [EMPA-6-04]', async () => {
    expect((await requestOf({}))[16]).toBe(0x50);
    for (const flags of ['58', '54', '52', '51', '5f']) {
      const answered = await responder({}, [8, 8], {
        frame: startupFrame(REQUEST_KEY, `${flags}02`, word({})),
      });
      expect(answered.startup[16]).toBe(0x50);
      const answering = await initiator({}, [8, 8], {
        frame: startupFrame(REPLY_KEY, `${flags}02`, word({})),
      });
      expect(answering.established.error).toBeUndefined();
    }
  });

  it('keep the enhanced word out of the private data [EMPA-6-07, EMPA-9-02]', async () => {
    const node = facingNode();
    const { peer, listener } = await dialIn(node);
    const data = 'a5'.repeat(508);
    peer.say(request({}, data));
    expect(hexOf((await node.event(listener)).privateData)).toBe(data);
    const answering = await initiator({}, [8, 8], { frame: reply({}, data) });
    expect(hexOf(answering.established.privateData)).toBe(data);
  });

  it('have the kind and revision of the Request that they answer [EMPA-10-01, EMPA-10-02, EMPA-10-04]', async () => {
    for (const [flags, data, answer] of [
      ['5002', word({}), '5002'],
      ['4002', '', '4002'],
      ['4002', 'c0ffee00c0ffee00', '4002'],
      ['4001', '', '4001'],
    ] as const) {
      const facing = await responder({}, [8, 8], { frame: startupFrame(REQUEST_KEY, flags, data) });
      expect(hexOf(facing.startup.subarray(16, 18))).toBe(answer);
    }
  });

  it('that are enhanced make an RFC 5044 host close [EMPA-10-05]', async () => {
    const node = facingNode({ wire: { enhancedSupported: false } });
    const { peer, listener } = await dialIn(node);
    peer.say(request({}));
    await peer.overs();
    expect(peer.received).toHaveLength(0);
    expect(node.eventsOf(listener)).toEqual([]);
    expect(node.notices.some(({ kind }) => kind === 'refused')).toBe(true);
    // The other end: our own initiator reports to its consumer that the connection ended.
    const own = facingNode();
    const { peer: refusing, id } = await dialOut(own, new Consumer(own));
    refusing.reset();
    const event = await own.event(id);
    expect(event).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
  });
});

describe('depths at a responder', () => {
  it('are reported to both consumers as the peer sent them [EMPA-9.1-03, EMPA-9.1-11]', async () => {
    const node = facingNode();
    const { peer, listener } = await dialIn(node);
    peer.say(request({ ird: 5, ord: 3 }));
    const asked = await node.event(listener);
    expect([asked.initiatorDepth, asked.responderResources]).toEqual([5, 3]);
  });

  it('allow no more outstanding Reads than the initiator can take [EMPA-9.1-04]', async () => {
    const facing = await responder({ ird: 2, ord: 8 }, [8, 8]);
    expect(wordOf(facing.startup)).toMatchObject({ ird: 8, ord: 2 });
    expect(toldDepths(facing)).toEqual([8, 2]);
    facing.say('c140 00000000 0000000000000000');
    await settled();
    expect(await readsOut(facing, 5)).toBe(2);
  });

  it('stay unchanged if the initiator leaves its ORD to the programs [EMPA-9.1-13]', async () => {
    const facing = await responder({ ird: 8, ord: UNNEGOTIATED }, [3, 8]);
    expect(wordOf(facing.startup)).toMatchObject({ ird: UNNEGOTIATED, ord: 8 });
    expect(toldDepths(facing)[0]).toBe(3);
    facing.say('c140 00000000 0000000000000000');
    expect(await serves(facing, 3)).toBe(true);
  });

  it('stay unchanged if the initiator leaves its IRD to the programs [EMPA-9.1-15]', async () => {
    const facing = await responder({ ird: UNNEGOTIATED, ord: 8 }, [8, 5]);
    expect(wordOf(facing.startup)).toMatchObject({ ird: 8, ord: UNNEGOTIATED });
    expect(toldDepths(facing)[1]).toBe(5);
    facing.say('c140 00000000 0000000000000000');
    await settled();
    expect(await readsOut(facing, 9)).toBe(5);
  });
});

describe('depths at an initiator', () => {
  it('cover every Read that the responder may send [EMPA-9.1-08]', async () => {
    const facing = await initiator({ ird: 8, ord: 6 }, [2, 8]);
    expect(toldDepths(facing)).toEqual([6, 8]);
    expect(await serves(facing, 6)).toBe(true);
  });

  it('allow no more outstanding Reads than the responder can take [EMPA-9.1-09]', async () => {
    const facing = await initiator({ ird: 3, ord: 8 }, [8, 8]);
    expect(toldDepths(facing)).toEqual([8, 3]);
    expect(await readsOut(facing, 6)).toBe(3);
  });

  it('stay unchanged if the responder leaves them to the programs [EMPA-9.1-14, EMPA-9.1-16]', async () => {
    const facing = await initiator({ ird: UNNEGOTIATED, ord: UNNEGOTIATED }, [4, 5]);
    expect(toldDepths(facing)).toEqual([4, 5]);
    expect(await readsOut(facing, 8)).toBe(5);
  });

  it('beyond those of the device end with Terminate 2/0/6 [EMPA-9.1-07, EMPA-9.1-10]', async () => {
    const profile = { irdMax: 4, ordMax: 4 };
    const said = await refusal({ ird: 8, ord: 5 }, { profile, wishes: depths(2, 2) });
    expect(said).toEqual([terminate('06')]);
  });
});

describe('the RTR flags of a Request', () => {
  it.each([
    [
      { send: true, write: true, read: true },
      { b: true, c: true, d: true },
    ],
    [
      { send: true, write: false, read: false },
      { b: true, c: false, d: false },
    ],
    [
      { send: false, write: false, read: true },
      { b: false, c: false, d: true },
    ],
  ])('are A and the supported kinds: %j [EMPA-9.2-02]', async (rtrKinds, flags) => {
    const frame = await requestOf({ peerToPeer: true, rtrKinds });
    expect(wordOf(frame)).toMatchObject({ a: true, ...flags });
  });

  it('are all zero in the client-server model [EMPA-9.2-03, EMPA-9.2-14]', async () => {
    const rtrKinds = { send: true, write: true, read: true };
    const frame = await requestOf({ peerToPeer: false, rtrKinds });
    expect(wordOf(frame)).toMatchObject({ a: false, b: false, c: false, d: false });
  });
});

describe('the RTR flags of a Reply', () => {
  const ALL = { send: true, write: true, read: true };

  async function answer(offer: Word, rtrKinds: WireDefaults['rtrKinds']): Promise<Word> {
    const facing = await responder(offer, [8, 8], { wire: { rtrKinds } });
    const { a, b, c, d } = wordOf(facing.startup);
    return { a: a === true, b: b === true, c: c === true, d: d === true };
  }

  it('repeat A, and are zero without it [EMPA-9.2-05, EMPA-9.2-14, EMPA-9.2-15]', async () => {
    expect(await answer({ a: true, c: true }, ALL)).toMatchObject({ a: true });
    // B, C and D have no meaning without A.
    for (const offer of [{}, { b: true, c: true, d: true }]) {
      expect(await answer(offer, ALL)).toEqual({ a: false, b: false, c: false, d: false });
    }
  });

  it('are the offered kinds that are supported [EMPA-9.2-06, EMPA-9.2-08]', async () => {
    const offer = { a: true, b: true, d: true };
    expect(await answer(offer, ALL)).toEqual({ a: true, b: true, c: false, d: true });
    const some = { send: false, write: true, read: true };
    expect(await answer(offer, some)).toEqual({ a: true, b: false, c: false, d: true });
  });

  it('name the supported kinds when no offered one is supported [EMPA-9.2-09, EMPA-9.2-07]', async () => {
    const writes = { send: false, write: true, read: false };
    const named = { a: true, b: false, c: true, d: false };
    expect(await answer({ a: true, b: true }, writes)).toEqual(named);
    expect(await answer({ a: true }, writes)).toEqual(named);
  });

  it('name at least one kind, whatever the device’s configuration [EMPA-9.2-04]', async () => {
    const none = { send: false, write: false, read: false };
    for (const offer of [
      { a: true, b: true },
      { a: true, c: true },
      { a: true, d: true },
    ]) {
      const { b, c, d } = await answer(offer, none);
      expect([b, c, d]).toContain(true);
    }
  });
});

describe('the RTR', () => {
  const PEER_TO_PEER = {
    peerToPeer: true,
    rtrKinds: { send: true, write: true, read: true },
  } as const;

  it.each([
    ['a Write', { c: true }, 'c140 00000000 0000000000000000'],
    ['a Read', { d: true }, '4141 00000000 00000001 00000001 00000000 00*28'],
    ['a Send', { b: true }, '4143 00000000 00000000 00000001 00000000'],
  ])(
    'is %s without payload if that is agreed, and the first FPDU [EMPA-9.2-10, EMPA-5-02]',
    async (_name, flags, golden) => {
      const node = facingNode({ wire: PEER_TO_PEER });
      const consumer = new Consumer(node);
      const { peer, id } = await dialOut(node, consumer);
      // Posted before the connection: it must wait for the RTR.
      consumer.enqueue({ opcode: WROpcode.send, sgList: consumer.payload('4142') ?? [] });
      const { length } = await startupOf(peer);
      peer.say(reply({ a: true, ...flags }));
      expect((await node.event(id)).type).toBe(CMEventType.established);
      node.host.doorbell(consumer.qp);
      const rtr = compactHex(golden);
      await peer.receive(length + 2 + rtr.length / 2 + 4 + 2 + 20 + 4);
      expect(hexOf(peer.received.subarray(length + 2)).startsWith(rtr)).toBe(true);
      const second = length + 2 + rtr.length / 2 + ((4 - ((2 + rtr.length / 2) % 4)) % 4) + 4;
      const msn = 'b' in flags ? 2 : 1;
      expect(
        hexOf(peer.received.subarray(second + 2)).startsWith(
          compactHex(`4143 00000000 00000000 ${hex32(msn)} 00000000 4142`),
        ),
      ).toBe(true);
    },
  );

  it('is a kind that both sides support [EMPA-9.2-10]', async () => {
    const wire = { peerToPeer: true, rtrKinds: { send: true, write: false, read: false } } as const;
    const facing = await initiator({ a: true, b: true, c: true, d: true }, [8, 8], { wire });
    expect(await facing.receive(1)).toEqual([
      compactHex('4143 00000000 00000000 00000001 00000000'),
    ]);
  });

  it('that neither side can send ends with Terminate 2/0/7 [EMPA-9.2-13]', async () => {
    const wire = { peerToPeer: true, rtrKinds: { send: false, write: true, read: false } } as const;
    expect(await refusal({ a: true, b: true, d: true }, { wire })).toEqual([terminate('07')]);
  });

  it('is not needed, nor sent, in the client-server model [EMPA-9.2-15]', async () => {
    const facing = await initiator({ b: true, c: true, d: true });
    expect(await facing.hearAll()).toEqual([]);
    facing.consumer.send('41');
    expect(await facing.receive(1)).toEqual([
      compactHex('4143 00000000 00000000 00000001 00000000 41'),
    ]);
  });

  it('precedes everything that a responder sends [MPA-7.1.2-11, EMPA-9.2-16]', async () => {
    const facing = await responder({ a: true, c: true });
    facing.consumer.send('41');
    expect(await facing.hearAll()).toEqual([]);
    facing.say('c140 00000000 0000000000000000');
    expect(await facing.receive(1)).toHaveLength(1);
  });
});

describe('a rejecting Reply', () => {
  it('carries the depths that the responder would have needed, and reaches the initiator [EMPA-9.1-06, EMPA-9.1-11]', async () => {
    const node = facingNode();
    const { peer, listener } = await dialIn(node);
    peer.say(request({ ird: 1, ord: 8 }));
    const { id } = await node.event(listener);
    node.host.cm.reject(id, new Uint8Array(0));
    const frame = await startupOf(peer);
    expect(hexOf(frame.subarray(16, 18))).toBe('7002');
    const own = facingNode();
    const { peer: rejecting, id: ownId } = await dialOut(own, new Consumer(own), NO_WISHES);
    rejecting.say(startupFrame(REPLY_KEY, '7002', word({ ird: 3, ord: 5 })));
    const event = await own.event(ownId);
    expect(event.type).toBe(CMEventType.rejected);
    expect([event.initiatorDepth, event.responderResources]).toEqual([3, 5]);
  });
});
