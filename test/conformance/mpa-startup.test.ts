/** MPA startup (RFC 5044 §7.1): frames of a real host as a raw peer receives them, and answers. */
import { afterEach, describe, expect, it } from 'vitest';
import { CMEventType, QPState, WCStatus } from '#contract/verbs/enums';
import { Consumer } from '../support/consumer.ts';
import {
  closeFacing,
  dialIn,
  dialOut,
  Facing,
  facingNode,
  settled,
  startupOf,
} from '../support/facing.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { mpaReply, mpaRequest } from '../support/mpa-frames.ts';
import { until } from '../support/patience.ts';
import { REPLY_KEY, REQUEST_KEY, startupFrame } from '../support/raw-fpdu.ts';
import type { RawPeer } from '../support/raw-peer.ts';
import { NO_WISHES, type RnicNode } from '../support/rnic-node.ts';

afterEach(closeFacing);

/** A Send of queue 0 with MSN 1. */
const SEND = '4143 00000000 00000000 00000001 00000000';

/** A Request of RFC 5044 only, revision 1: CRC requested, no private data. */
const REQUEST_1 = startupFrame(REQUEST_KEY, '4001');
const REPLY_1 = startupFrame(REPLY_KEY, '4001');

/** A host's answer to a Request when its consumer accepts. */
async function replyTo(request: Uint8Array, wire = {}, privateData = ''): Promise<Buffer> {
  const wishes = { privateData: bytesOf(privateData) };
  const facing = await Facing.responder({ frame: request, wire, wishes, released: false });
  return facing.startup;
}

/** The Request of a host that connects. */
async function requestOf(wire = {}, privateData = ''): Promise<Buffer> {
  const node = facingNode({ wire });
  const { peer } = await dialOut(node, new Consumer(node), { privateData: bytesOf(privateData) });
  return await startupOf(peer);
}

/** Sends `bytes` to a listener that must close without an answer or a request to its consumer. */
async function expectRefused(bytes: Uint8Array, finish = false, wire = {}): Promise<RnicNode> {
  const node = facingNode({ wire });
  const { peer, listener } = await dialIn(node);
  peer.say(bytes);
  if (finish) peer.finish();
  await peer.overs();
  expect(peer.received).toHaveLength(0);
  expect(node.eventsOf(listener)).toEqual([]);
  await until('the connection to go', () => node.host.connections().length === 0);
  return node;
}

/** Answers the Request of a host that must close, send nothing and report a connect error. */
async function expectConnectError(reply: Uint8Array, wire = {}, finish = false): Promise<void> {
  const node = facingNode({ wire });
  const consumer = new Consumer(node);
  const { peer, id } = await dialOut(node, consumer);
  consumer.send('41');
  const { length } = await startupOf(peer);
  peer.say(reply);
  if (finish) peer.finish();
  expect(await node.event(id)).toMatchObject({ type: CMEventType.connectError, error: 'EINVAL' });
  await peer.overs();
  expect(peer.received).toHaveLength(length);
}

describe('a Request', () => {
  it('is the first thing an initiator sends, with the key of a Request [MPA-7.1.1-02, MPA-7.1.2-01]', async () => {
    expect(hexOf(await requestOf({ mpaRevision: 1 }))).toBe(`${REQUEST_KEY}40010000`);
    expect(hexOf(await requestOf({ mpaRevision: 2 })).slice(0, 40)).toBe(`${REQUEST_KEY}50020004`);
  });

  it('requests CRCs unless the administrator turns them off [MPA-1.2-01, MPA-4.4-02]', async () => {
    expect((await requestOf())[16]).toBe(0x50);
    expect((await requestOf({ crcRequested: false }))[16]).toBe(0x10);
    expect((await replyTo(REQUEST_1))[16]).toBe(0x40);
    expect((await replyTo(REQUEST_1, { crcRequested: false }))[16]).toBe(0);
  });

  it('has revision 1 and no reserved bit when only RFC 5044 is spoken [MPA-7.1.1-13, MPA-7.1.1-15]', async () => {
    for (const markersRequested of [false, true]) {
      const flags = markersRequested ? 'c0' : '40';
      const wire = { enhancedSupported: false, markersRequested };
      expect(hexOf(await requestOf(wire)).slice(32)).toBe(`${flags}010000`);
      expect(hexOf(await replyTo(REQUEST_1, wire)).slice(32)).toBe(`${flags}010000`);
    }
  });

  it('announces exactly the private data that follows, up to 512 bytes [MPA-7.1.1-18, MPA-7.1.1-19]', async () => {
    const wire = { mpaRevision: 1 };
    for (const length of [0, 1, 255, 512]) {
      const data = 'a5'.repeat(length);
      const tail = `${length.toString(16).padStart(4, '0')}${data}`;
      expect(hexOf(await requestOf(wire, data)).slice(36)).toBe(tail);
      expect(hexOf(await replyTo(REQUEST_1, {}, data)).slice(36)).toBe(tail);
    }
    const node = facingNode({ wire: { mpaRevision: 1 } });
    const id = await node.resolved({ address: '127.0.0.1', port: 1 });
    const tooLong = { ...NO_WISHES, privateData: new Uint8Array(513) };
    const refused = expect.objectContaining({ code: 'EINVAL' });
    expect(() => node.host.cm.connect(id, new Consumer(node).qp, tooLong)).toThrow(refused);
  });

  it('of 512 bytes of private data reaches the consumer whole [MPA-7.1.1-19, MPA-7.1.2-17]', async () => {
    const node = facingNode();
    const { peer, listener } = await dialIn(node);
    const data = Uint8Array.from({ length: 512 }, (_, at) => at & 0xff);
    peer.say(startupFrame(REQUEST_KEY, '4001', hexOf(data)));
    expect((await node.event(listener)).privateData).toEqual(data);
  });
});

describe('a responder', () => {
  it('sends nothing before the Request is complete and accepted [MPA-7.1.2-02]', async () => {
    const node = facingNode();
    const { peer, listener } = await dialIn(node);
    for (const part of [REQUEST_1.subarray(0, 19), REQUEST_1.subarray(19)]) {
      await settled();
      expect(peer.received).toHaveLength(0);
      expect(node.eventsOf(listener)).toEqual([]);
      peer.say(part);
    }
    const { id } = await node.event(listener);
    await settled();
    expect(peer.received).toHaveLength(0);
    node.host.cm.accept(id, new Consumer(node).qp, NO_WISHES);
    // MPA-7.1.1-04: and then the Reply, with its key.
    expect(hexOf(await startupOf(peer))).toBe(`${REPLY_KEY}40010000`);
  });

  it('answers with the key of a Reply [MPA-7.1.1-04]', async () => {
    expect(hexOf(await replyTo(REQUEST_1))).toBe(`${REPLY_KEY}40010000`);
    expect(hexOf(await replyTo(mpaRequest())).slice(0, 32)).toBe(REPLY_KEY);
  });

  const REFUSED: readonly (readonly [string, Uint8Array, boolean])[] = [
    ['of a Reply [MPA-7.1.1-03, MPA-7.1.2-03, MPA-7.1.2-15]', mpaReply(), false],
    [
      'that differs in its last byte [MPA-7.1.1-03]',
      startupFrame(`${REQUEST_KEY.slice(0, -2)}64`, '4001'),
      false,
    ],
    [
      'of another protocol [MPA-7.1.1-03, MPA-8-06]',
      Buffer.from('SSH-2.0-OpenSSH_9.6 \r\n'.padEnd(40), 'latin1'),
      false,
    ],
    ['and revision 0 [MPA-7.1.1-16]', startupFrame(REQUEST_KEY, '4000'), false],
    ['and revision 3 [MPA-7.1.1-16]', startupFrame(REQUEST_KEY, '4003'), false],
    ['and revision 255 [MPA-7.1.1-16]', startupFrame(REQUEST_KEY, '40ff'), false],
    [
      'and 513 bytes of private data [MPA-7.1.1-20, MPA-7.1.2-17]',
      startupFrame(REQUEST_KEY, '4001', '00'.repeat(513)),
      false,
    ],
    [
      'and a length of 65535 [MPA-7.1.1-20, MPA-7.1.2-17]',
      bytesOf(`${REQUEST_KEY} 4001 ffff`),
      false,
    ],
    [
      'and less private data than announced [MPA-7.1.1-21]',
      startupFrame(REQUEST_KEY, '4001', '00'.repeat(8)).subarray(0, 24),
      true,
    ],
    [
      'and more bytes than announced [MPA-7.1.1-21, MPA-7.1.2-17]',
      bytesOf(`${REQUEST_KEY} 4001 0002 01020304`),
      false,
    ],
    ['and no room for the enhanced data', startupFrame(REQUEST_KEY, '5002', '0000'), false],
  ];

  it.each(REFUSED)('closes without an answer on a key %s', async (_name, bytes, finish) => {
    await expectRefused(bytes, finish);
  });

  it('reports the cause of a refusal [MPA-7.1.1-03, MPA-7.1.1-16, MPA-7.1.1-20, MPA-7.1.1-21, MPA-8-06]', async () => {
    for (const [, bytes, finish] of REFUSED) {
      const node = await expectRefused(bytes, finish);
      expect(node.notices).toContainEqual(
        expect.objectContaining({ kind: 'refused', text: expect.stringContaining('invalid') }),
      );
    }
  });

  it('ignores reserved bits and the Rejected bit [MPA-7.1.1-14]', async () => {
    for (const flags of ['48', '44', '42', '41', '4f', '5f', '60']) {
      const reply = await replyTo(startupFrame(REQUEST_KEY, `${flags}01`));
      expect(hexOf(reply)).toBe(`${REPLY_KEY}40010000`);
    }
  });

  it('sends no FPDU, not even a marker, before it has a valid one [MPA-7.1.2-11]', async () => {
    const facing = await Facing.responder({
      frame: startupFrame(REQUEST_KEY, 'c001'),
      released: false,
    });
    facing.consumer.send('4142');
    await settled();
    const whole = facing.frame('c140 00000000 0000000000000000');
    facing.peer.say(whole.subarray(0, 19));
    await settled();
    expect(facing.peer.received).toHaveLength(facing.startup.length);
    facing.peer.say(whole.subarray(19));
    expect(await facing.receive(1)).toEqual([compactHex(`${SEND} 4142`)]);
    // The first bytes are the marker, and it belongs to the FPDU after it.
    expect(hexOf(facing.peer.received.subarray(20, 26))).toBe('000000000014');
  });
});

describe('an initiator', () => {
  it('sends no FPDU before it has the whole Reply [MPA-7.1.2-07]', async () => {
    const node = facingNode({ wire: { mpaRevision: 1 } });
    const consumer = new Consumer(node);
    const { peer, id } = await dialOut(node, consumer);
    consumer.enqueue({ opcode: 2, sgList: consumer.payload('41') ?? [] });
    node.host.doorbell(consumer.qp);
    for (const part of [REPLY_1.subarray(0, 19), REPLY_1.subarray(19)]) {
      await settled();
      expect(peer.received).toHaveLength(20);
      expect(node.eventsOf(id)).toEqual([]);
      expect(consumer.qp.state).not.toBe(QPState.RTS);
      peer.say(part);
    }
    expect((await node.event(id)).type).toBe(CMEventType.established);
    await peer.receive(21);
  });

  it.each([
    ['the key of a Request [MPA-7.1.1-05, MPA-7.1.2-08, MPA-7.1.2-15]', REQUEST_1, false],
    ['a key of nothing [MPA-7.1.1-05, MPA-8-06]', new Uint8Array(20), false],
    ['revision 0 [MPA-7.1.1-16]', startupFrame(REPLY_KEY, '4000'), false],
    ['revision 3 [MPA-7.1.1-16]', startupFrame(REPLY_KEY, '4003'), false],
    [
      '513 bytes of private data [MPA-7.1.1-20, MPA-7.1.2-17]',
      startupFrame(REPLY_KEY, '4001', '00'.repeat(513)),
      false,
    ],
    [
      'less private data than announced [MPA-7.1.1-21, MPA-7.1.2-08]',
      startupFrame(REPLY_KEY, '4001', '00'.repeat(8)).subarray(0, 24),
      true,
    ],
  ])('closes and reports an error on a Reply with %s', async (_name, reply, finish) => {
    await expectConnectError(reply, { mpaRevision: 1 }, finish);
  });

  it('ignores reserved bits of a Reply [MPA-7.1.1-14]', async () => {
    for (const flags of ['48', '44', '42', '41', '4f', '5f']) {
      const facing = await Facing.initiator({
        wire: { mpaRevision: 1 },
        frame: startupFrame(REPLY_KEY, `${flags}01`),
      });
      expect(facing.established.error).toBeUndefined();
      facing.consumer.send('41');
      expect(await facing.receive(1)).toEqual([compactHex(`${SEND} 41`)]);
    }
  });

  it('hands 512 bytes of private data to its consumer [MPA-7.1.1-19]', async () => {
    const data = Uint8Array.from({ length: 512 }, (_, at) => (at * 3) & 0xff);
    const facing = await Facing.initiator({
      wire: { mpaRevision: 1 },
      frame: startupFrame(REPLY_KEY, '4001', hexOf(data)),
    });
    expect(facing.established.privateData).toEqual(data);
  });
});

describe('markers', () => {
  /** M of the Request, M of the Reply. */
  const CASES = [
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ] as const;

  it.each(CASES)(
    'follow the receiver: Request %s, Reply %s [MPA-7.1.1-06, MPA-7.1.1-07, MPA-7.1.2-06, MPA-7.1.2-10]',
    async (inRequest, inReply) => {
      const initiator = await Facing.initiator({
        wire: { mpaRevision: 1, markersRequested: inRequest },
        frame: startupFrame(REPLY_KEY, inReply ? 'c001' : '4001'),
      });
      const responder = await Facing.responder({
        wire: { markersRequested: inReply },
        frame: startupFrame(REQUEST_KEY, inRequest ? 'c001' : '4001'),
      });
      for (const [facing, markers] of [
        [initiator, inReply],
        [responder, inRequest],
      ] as const) {
        facing.consumer.send('41'.repeat(600));
        expect(await facing.receive(1)).toEqual([compactHex(`${SEND} ${'41'.repeat(600)}`)]);
        expect(facing.fpdus()[0]?.markers.map(({ at }) => at)).toEqual(markers ? [0, 512] : []);
        // The host finds the markers that it requested.
        facing.consumer.postReceive(600);
        facing.say(`${SEND} ${'42'.repeat(600)}`);
        expect(await facing.consumer.payloads(1)).toEqual(['42'.repeat(600)]);
      }
    },
  );
});

describe('CRCs', () => {
  async function pairs(inRequest: boolean, inReply: boolean): Promise<Facing[]> {
    return await Promise.all([
      Facing.initiator({
        wire: { mpaRevision: 1, crcRequested: inRequest },
        frame: startupFrame(REPLY_KEY, inReply ? '4001' : '0001'),
      }),
      Facing.responder({
        wire: { crcRequested: inReply },
        frame: startupFrame(REQUEST_KEY, inRequest ? '4001' : '0001'),
      }),
    ]);
  }

  /** A Send whose CRC is wrong by one bit. */
  function corrupted(facing: Facing): Uint8Array {
    const bytes = facing.frame(`${SEND} 41`);
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
    return bytes;
  }

  it.each([
    [true, false],
    [false, true],
    [true, true],
  ])(
    'are generated and checked when either side asks: Request %s, Reply %s [MPA-4.4-05, MPA-7.1.1-10, MPA-4.4-01]',
    async (inRequest, inReply) => {
      for (const facing of await pairs(inRequest, inReply)) {
        facing.consumer.send('41');
        await facing.receive(1);
        expect(facing.fpdus()[0]?.crcGood).toBe(true);
        facing.consumer.postReceive(8);
        facing.peer.say(corrupted(facing));
        expect(await facing.terminate()).toBe('20020000');
        expect(await facing.consumer.received(1)).toMatchObject([{ status: WCStatus.wrFlushErr }]);
      }
    },
  );

  it('are not checked when neither side asks [MPA-4.4-06, MPA-7.1.1-09, MPA-4.1-06]', async () => {
    for (const facing of await pairs(false, false)) {
      facing.consumer.postReceive(8, 2);
      facing.peer.say(corrupted(facing));
      facing.say('4143 00000000 00000000 00000002 00000000 42');
      expect(await facing.consumer.payloads(2)).toEqual(['41', '42']);
      facing.consumer.send('43');
      // MPA-4.4-08: the field is present, whatever its value.
      expect(await facing.receive(1)).toEqual([compactHex(`${SEND} 43`)]);
    }
  });

  it('are invisible to a consumer [MPA-4.4-04]', async () => {
    const seen = [];
    for (const crc of [false, true]) {
      for (const facing of await pairs(crc, crc)) {
        facing.consumer.postReceive(8);
        facing.consumer.send('41');
        facing.say(`${SEND} 42`);
        const received = await facing.consumer.received(1);
        const sent = (await facing.consumer.sends(1)).map(({ status, byteLen, wcFlags }) => {
          return { status, byteLen, wcFlags };
        });
        seen.push({ received, sent });
      }
    }
    expect(seen).toHaveLength(4);
    for (const each of seen) expect(each).toEqual(seen[0]);
  });
});

describe('a rejection', () => {
  it('leaves TCP to the consumer, who closes it [MPA-7.1.2-05, MPA-7.1.2-09]', async () => {
    const node = facingNode();
    const { peer, listener } = await dialIn(node);
    peer.say(REQUEST_1);
    const { id } = await node.event(listener);
    node.host.cm.reject(id, Uint8Array.of(1, 2));
    expect(hexOf(await startupOf(peer))).toBe(`${REPLY_KEY}600100020102`);
    await ends(peer);
  });

  async function ends(peer: RawPeer): Promise<void> {
    await until('a FIN', () => peer.ended);
    expect(peer.errorCode).toBeUndefined();
  }
});
