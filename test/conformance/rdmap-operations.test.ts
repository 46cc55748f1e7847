/** RDMAP operations (RFC 5040 §4, §5) of a real host: a raw peer receives and sends them. */
import { afterEach, describe, expect, it } from 'vitest';
import { Access, SendFlag, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import { hex32, hex64 } from '../support/consumer.ts';
import { closeFacing, Facing, settled } from '../support/facing.ts';
import { compactHex, hexOf } from '../support/hex.ts';
import { until } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { skimFpdus } from '../support/raw-fpdu.ts';

afterEach(closeFacing);

const SMALL = { fpduSize: { kind: 'fixed', mulpduBytes: 128 } } as const;

/** A last segment of queue 0 with the given opcode and Invalidate STag. */
function send(msn: number, opcode = '43', stag = '00000000'): string {
  return `41${opcode} ${stag} 00000000 ${hex32(msn)} 00000000`;
}

/** A Read Request of `size` bytes at `source`, into STag 0x11223344 at TO 0x1000. */
function readRequest(msn: number, size: number, source: string): string {
  return `4141 00000000 00000001 ${hex32(msn)} 00000000 11223344 0000000000001000 ${hex32(size)} ${source}`;
}

describe('a Send', () => {
  it('of each kind is an untagged message of queue 0 with its opcode [RDMAP-4.1-01, RDMAP-4.1-02, RDMAP-4.1-03, RDMAP-4.1-04, RDMAP-4.1-06, RDMAP-4.1-08, RDMAP-4.1-09, RDMAP-4.2-01, RDMAP-5.3-01]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    const invalidate = { opcode: WROpcode.sendWithInv, invalidateRkey: 0xcafe0001 };
    const solicited = { flags: SendFlag.solicited };
    consumer.send('41');
    consumer.send('42', invalidate);
    consumer.send('43', solicited);
    consumer.send('44', { ...invalidate, ...solicited });
    expect(await facing.receive(4)).toEqual(
      [
        `${send(1, '43')} 41`,
        `${send(2, '44', 'cafe0001')} 42`,
        `${send(3, '45')} 43`,
        `${send(4, '46', 'cafe0001')} 44`,
      ].map(compactHex),
    );
  });

  it('carries the Invalidate STag in every segment [RDMAP-4.1-08]', async () => {
    const facing = await Facing.initiator({ wire: SMALL });
    const opcode = WROpcode.sendWithInv;
    facing.consumer.send('41'.repeat(300), { opcode, invalidateRkey: 0xcafe0001 });
    const headers = (await facing.receive(3)).map((ulpdu) => ulpdu.slice(2, 12));
    expect(headers).toEqual(Array(3).fill('44cafe0001'));
  });

  it('of each kind takes one receive, in order, also without payload [RDMAP-5.3-02, RDMAP-5.3-05, RDMAP-4.1-10, RDMAP-5.3-08]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const regions = [consumer.register(8), consumer.register(8)];
    consumer.postReceive(8, 6);
    facing.say(
      send(1),
      `${send(2, '43')} 41`,
      `${send(3, '44', regions[0]?.stag)} 42`,
      `${send(4, '45')} 43`,
      send(5, '46', regions[1]?.stag),
    );
    const success = WCStatus.success;
    expect(await consumer.received(5)).toEqual([
      { status: success, payload: '' },
      { status: success, payload: '41' },
      { status: success, payload: '42', invalidated: regions[0]?.stag },
      { status: success, payload: '43' },
      { status: success, payload: '', invalidated: regions[1]?.stag },
    ]);
    await settled();
    expect(consumer.receivedNow()).toEqual([]);
  });

  it('with Invalidate ends the use of the STag, after earlier Writes through it [RDMAP-5.3-09, RDMAP-5.3-11, RDMAP-7.2-04, RDMAP-8.1.1-01]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(8);
    consumer.postReceive(8);
    const write = (byte: string): string => `c140 ${region.stag} ${hex64(0x1000)} ${byte}`;
    facing.say(write('41'), send(1, '44', region.stag));
    expect(await consumer.received(1)).toMatchObject([{ invalidated: region.stag }]);
    expect(region.bytes[0]).toBe(0x41);
    facing.say(write('42'));
    expect((await facing.terminate()).slice(0, 4)).toBe('1100');
    expect(region.bytes[0]).toBe(0x41);
  });

  it('with Solicited Event raises an event for a waiter, and a plain one does not [RDMAP-5.3-06]', async () => {
    const facing = await Facing.responder();
    const { consumer, node } = facing;
    let events = 0;
    node.host.onCompletion = () => {
      events += 1;
    };
    consumer.postReceive(8, 2);
    consumer.arm(true);
    facing.say(`${send(1)} 41`);
    await consumer.received(1);
    expect(events).toBe(0);
    facing.say(`${send(2, '45')} 42`);
    await consumer.received(1);
    expect(events).toBe(1);
  });
});

describe('an RDMA Write', () => {
  it('is one tagged message with opcode 0 to one remote buffer [RDMAP-4.1-03, RDMAP-4.1-04, RDMAP-4.1-06, RDMAP-4.2-01, RDMAP-5.1-01, RDMAP-5.1-05, RDMAP-5.1-03, DDP-4.2-06]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    // A gather list is still one message.
    const sgList = ['4142', '4344'].flatMap((piece) => consumer.payload(piece) ?? []);
    consumer.post({ opcode: WROpcode.rdmaWrite, sgList, rkey: 0x11223344, remoteAddr: 0x1001 });
    expect(await facing.receive(1)).toEqual([
      compactHex('c140 11223344 0000000000001001 41424344'),
    ]);
  });

  it('is placed and nothing else: no receive, no completion [RDMAP-5.1-02]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(8);
    consumer.postReceive(8, 2);
    consumer.arm(false);
    let events = 0;
    facing.node.host.onCompletion = () => {
      events += 1;
    };
    facing.say(`c140 ${region.stag} ${hex64(0x1000)} 41`);
    await until('the Write', () => region.bytes[0] === 0x41);
    await settled();
    expect([consumer.receivedNow(), consumer.sent, events]).toEqual([[], [], 0]);
    expect(await facing.hearAll()).toEqual([]);
  });
});

describe('an RDMA Read, as requester', () => {
  it('is one Read Request of queue 1 [RDMAP-4.1-09, RDMAP-4.2-01, RDMAP-4.4-01, RDMAP-5.2-01, RDMAP-5.2.1-01, RDMAP-5.2.1-06]', async () => {
    const facing = await Facing.initiator();
    const { consumer } = facing;
    const sink = consumer.register(0x1000);
    consumer.read(sink, 0x1000, 0x55667788, 0x1_0000_2000);
    const [request = ''] = await facing.receive(1);
    expect(request.slice(0, 36)).toBe(compactHex('4141 00000000 00000001 00000001 00000000'));
    expect(request.slice(36, 44)).toBe(sink.stag);
    // After SinkTO: size, source STag, source TO.
    expect(request.slice(60)).toBe(compactHex('00001000 55667788 0000000100002000'));
    expect(request.length / 2).toBe(18 + 28);
    expect(await facing.hearAll()).toEqual([]);
  });

  /** A requester with Reads of the given sizes outstanding; each Response's head by its number. */
  async function reading(...sizes: readonly number[]): Promise<{
    facing: Facing;
    sinks: Uint8Array[];
    response: (i: number, control?: string, skip?: number) => string;
  }> {
    const facing = await Facing.initiator();
    const sinks = sizes.map((size) => facing.consumer.register(Math.max(size, 1)));
    for (const [i, sink] of sinks.entries()) facing.consumer.read(sink, sizes[i] ?? 0, 1, 0);
    const requests = await facing.receive(sizes.length);
    return {
      facing,
      sinks: sinks.map(({ bytes }) => bytes),
      response: (i, control = 'c1', skip = 0) => {
        const stag = requests[i]?.slice(36, 44) ?? '';
        const to = BigInt(`0x${requests[i]?.slice(44, 60)}`) + BigInt(skip);
        return `${control}42 ${stag} ${hex64(to)}`;
      },
    };
  }

  it('completes with the last segment of its Response, and not before [RDMAP-5.2.2-04, RDMAP-5.5-05, RDMAP-5.5-13, RDMAP-5.5-14]', async () => {
    const { facing, sinks, response } = await reading(4);
    facing.say(`${response(0, '81')} 4142`);
    facing.say(`${response(0, '81', 2)} 4344`);
    await settled();
    facing.consumer.poll();
    expect(facing.consumer.sent).toEqual([]);
    facing.say('c142 00000000 0000000000000000');
    expect(await facing.consumer.sends(1)).toMatchObject([
      { status: WCStatus.success, opcode: WCOpcode.rdmaRead, byteLen: 4 },
    ]);
    expect(hexOf(sinks[0] ?? new Uint8Array(0))).toBe('41424344');
  });

  it('completes in order, each by one Response, and delays later work requests [RDMAP-5.2.1-04, RDMAP-5.5-11, RDMAP-5.5-14, ARCH-ORD-05]', async () => {
    const { facing, response } = await reading(1, 2);
    facing.consumer.send('41', { wrId: 7 });
    facing.consumer.write('42', 1, 0);
    await facing.receive(2);
    await settled();
    facing.consumer.poll();
    expect(facing.consumer.sent).toEqual([]);
    facing.say(`${response(0)} 51`);
    expect(await facing.consumer.sends(1)).toMatchObject([
      { opcode: WCOpcode.rdmaRead, byteLen: 1 },
    ]);
    facing.say(`${response(1)} 5253`);
    expect((await facing.consumer.sends(3)).map(({ opcode }) => opcode)).toEqual([
      WCOpcode.rdmaRead,
      WCOpcode.send,
      WCOpcode.rdmaWrite,
    ]);
  });

  it('waits when ORD is reached, and so does everything posted after it [RDMAP-6.1-02, RDMAP-6.1-03, RDMAP-5.2.1-04, RDMAP-5.5-08]', async () => {
    const facing = await Facing.initiator({ wishes: { initiatorDepth: 2, responderResources: 2 } });
    const { consumer } = facing;
    const sink = consumer.register(8);
    for (let i = 0; i < 3; i++) consumer.read(sink, 1, i, i);
    consumer.send('41');
    const [first = '', ...others] = await facing.hearAll();
    expect(others).toHaveLength(1);
    expect(consumer.sent).toEqual([]);
    const response = `c142 ${first.slice(36, 60)} 51`;
    facing.say(response);
    // The third Read, and the Send after it.
    const [third, last] = await facing.receive(2);
    expect(third?.slice(0, 28)).toBe(compactHex('4141 00000000 00000001 00000003'));
    expect(third?.slice(68, 76)).toBe('00000002');
    expect(last).toBe(compactHex(`${send(1)} 41`));
    facing.say(response, response);
    expect(await consumer.statuses(4)).toEqual(Array(4).fill(WCStatus.success));
  });
});

describe('an RDMA Read, as responder', () => {
  it('gets one tagged message to the named sink [RDMAP-4.1-03, RDMAP-4.4-02, RDMAP-5.2-01, RDMAP-5.2.1-03, RDMAP-5.2.1-07, RDMAP-5.2.2-01, DDP-4.2-02]', async () => {
    const facing = await Facing.responder({ wire: SMALL });
    const { consumer } = facing;
    const region = consumer.register(0x1000);
    region.bytes.set(pattern(0x1000));
    consumer.postReceive(64);
    facing.say(readRequest(1, 300, `${region.stag} ${hex64(0x1005)}`));
    const at = (from: number, to: number): string => hexOf(region.bytes.subarray(from, to));
    expect(await facing.receive(3)).toEqual(
      [
        `8142 11223344 0000000000001000 ${at(5, 119)}`,
        `8142 11223344 0000000000001072 ${at(119, 233)}`,
        `c142 11223344 00000000000010e4 ${at(233, 305)}`,
      ].map(compactHex),
    );
    // The consumer is not notified.
    consumer.poll();
    expect([consumer.receivedNow(), consumer.sent]).toEqual([[], []]);
  });

  it('copies the sink into the Response without checking it [RDMAP-4.4-02, RDMAP-4.4-03]', async () => {
    const facing = await Facing.responder();
    const region = facing.consumer.register(8);
    region.bytes[0] = 0x51;
    const sink = 'ffffffff fffffffffffffffe';
    facing.say(
      `4141 00000000 00000001 00000001 00000000 ${sink} 00000001 ${region.stag} ${hex64(0x1000)}`,
    );
    expect(await facing.receive(1)).toEqual([compactHex(`c142 ${sink} 51`)]);
  });

  it('of no bytes names any source and gets an empty Response [RDMAP-5.2.1-08, RDMAP-5.2.1-10, RDMAP-5.2.1-11]', async () => {
    const facing = await Facing.responder();
    facing.say(readRequest(1, 0, 'deadbeef ffffffffffffffff'));
    expect(await facing.receive(1)).toEqual([compactHex('c142 11223344 0000000000001000')]);
  });

  it('consumes no receive, and as many as IRD are served [RDMAP-5.2.1-02, RDMAP-5.2.2-02, RDMAP-6.1-02]', async () => {
    const facing = await Facing.responder({ wishes: { initiatorDepth: 4, responderResources: 4 } });
    const region = facing.consumer.register(8);
    const source = `${region.stag} ${hex64(0x1000)}`;
    for (let round = 0; round < 25; round++) {
      facing.say(...[1, 2, 3, 4].map((i) => readRequest(4 * round + i, 1, source)));
      expect(await facing.receive(4)).toHaveLength(4);
    }
  });

  it('is answered in the order of the Requests [RDMAP-5.2.1-05, RDMAP-5.2.2-05, ARCH-ORD-05]', async () => {
    const facing = await Facing.responder();
    const region = facing.consumer.register(8);
    region.bytes.set([1, 2, 3, 4, 5, 6, 7, 8]);
    facing.say(
      ...[1, 2, 3, 4, 5, 6, 7, 8].map((i) =>
        readRequest(i, 1, `${region.stag} ${hex64(0xfff + i)}`),
      ),
    );
    expect((await facing.receive(8)).map((ulpdu) => ulpdu.slice(28))).toEqual(
      '01 02 03 04 05 06 07 08'.split(' '),
    );
  });

  it('sees the Sends and Writes before it [RDMAP-5.5-06, DDP-5.4-02, ARCH-ORD-03, RDMAP-5.5-07]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(8);
    consumer.postReceive(8);
    const source = `${region.stag} ${hex64(0x1000)}`;
    facing.say(`c140 ${source} 41`, readRequest(1, 1, source), `c140 ${source} 42`);
    const [first = ''] = await facing.receive(1);
    // RDMAP-5.5-07: later writes may be seen, earlier ones must be.
    expect(['41', '42']).toContain(first.slice(28));
    // A Read after a Send that lacks its last segment waits for it, even a Read of no bytes.
    facing.say('0143 00000000 00000000 00000001 00000000 51', readRequest(2, 0, source));
    expect(await facing.hearAll()).toEqual([]);
    facing.say('4143 00000000 00000000 00000001 00000001 52');
    expect(await consumer.payloads(1)).toEqual(['5152']);
    expect(await facing.receive(1)).toHaveLength(1);
  });
});

describe('Writes and Sends of a peer', () => {
  it('are in place when a Send after them is delivered [RDMAP-5.5-04, ARCH-ORD-01]', async () => {
    const facing = await Facing.responder();
    const { consumer } = facing;
    const region = consumer.register(0x1000);
    consumer.postReceive(64, 20);
    for (let i = 1; i <= 20; i++) {
      const byte = hex32(i).slice(-2);
      facing.say(
        `8140 ${region.stag} ${hex64(0x1000)} ${byte.repeat(1000)}`,
        `c140 ${region.stag} ${hex64(0x13e8)} ${byte.repeat(1000)}`,
        `${send(i)} ${byte}`,
      );
      expect(await consumer.payloads(1)).toEqual([byte]);
      expect(region.bytes.subarray(0, 2000).every((byte) => byte === i)).toBe(true);
    }
  });
});

describe('Sends and Writes of a consumer', () => {
  it('complete in the order posted, and not before DDP has them [RDMAP-5.5-10, RDMAP-5.5-11]', async () => {
    const facing = await Facing.initiator();
    const { consumer, peer } = facing;
    peer.stopReading();
    const { lkey, address } = consumer.bufferMR;
    const sgList = [{ addr: address, length: 500_000, lkey }];
    const count = 40;
    for (let i = 0; i < count; i++) {
      const opcode = i % 2 === 0 ? WROpcode.send : WROpcode.rdmaWrite;
      consumer.enqueue({ wrId: i, opcode, sgList, rkey: 1, remoteAddr: 0 });
    }
    facing.node.host.doorbell(consumer.qp);
    await settled();
    // The peer reads nothing: messages that do not fit the sockets on both sides do not complete.
    consumer.poll();
    expect(consumer.sent.length).toBeLessThan(count);
    peer.resumeReading();
    const completions = await consumer.sends(count);
    expect(completions.map(({ wrId }) => Number(wrId))).toEqual(
      Array.from({ length: count }, (_, i) => i),
    );
    expect(completions.every(({ status }) => status === WCStatus.success)).toBe(true);
    facing.node.host.cm.disconnect(facing.id);
    await until('all that was sent', () => peer.ended);
    // The peer has exactly the completed messages.
    const skimmed = skimFpdus(peer.received.subarray(facing.startup.length));
    expect(skimmed.filter(({ last }) => last)).toHaveLength(count);
    const bytes = skimmed.reduce((sum, { ulpduBytes }) => sum + ulpduBytes, 0);
    expect(bytes).toBeGreaterThan(count * 500_000);
  });
});

describe('a stream in RDMA mode', () => {
  it('carries only RDMA messages until it is torn down [RDMAP-6.1-01]', async () => {
    const facing = await Facing.responder();
    const { consumer, peer } = facing;
    const region = consumer.register(64, { access: Access.localWrite | Access.remoteRead });
    consumer.send('41');
    consumer.write('42', 1, 0);
    facing.say(readRequest(1, 4, `${region.stag} ${hex64(0x1000)}`));
    await facing.receive(3);
    facing.node.host.cm.disconnect(facing.id);
    await until('a FIN', () => peer.ended);
    const end = facing.fpdus().at(-1)?.end ?? 0;
    // Every byte after the Reply belongs to an FPDU, every FPDU of RDMAP version 1.
    expect(peer.receivedBytes).toBe(facing.startup.length + end);
    expect(facing.fpdus().map(({ ulpdu }) => ulpdu.slice(2, 3))).toEqual(['4', '4', '4']);
  });
});
