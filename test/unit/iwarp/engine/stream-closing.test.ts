/** How a stream begins and ends: startup, RTR, graceful close, Terminate, loss. */
import { beforeEach, describe, expect, it } from 'vitest';
import { NEVER } from '#base/time';
import { AccessRefusal } from '#daemon/rnic/wire-port';
import { bytesOf, hexOf } from '#test/support/hex';
import { ModelUser } from '#test/support/model-user';
import { pattern } from '#test/support/pattern';
import { compact, LiteralPeer, StreamPair, streamOf } from '#test/support/streams';

const ODD = { fpduSize: { kind: 'fixed', mulpduBytes: 128 } } as const;

let user: ModelUser;

beforeEach(() => {
  user = new ModelUser();
});

describe('the beginning', () => {
  it('a responder sends nothing before it has received an FPDU [MPA-7.1.2-11, MPA-7.1.2-07]', () => {
    user.postReceive(8);
    user.send(Uint8Array.of(0x41));
    const peer = LiteralPeer.ofResponder({}, user);
    expect(peer.take()).toEqual([]);
    expect(peer.stream.sendable).toBe(false);
    peer.feed('c140 00000000 0000000000000000');
    expect(peer.stream.sendable).toBe(true);
    expect(peer.take()).toEqual([compact('4143 00000000 00000000 00000001 00000000 41')]);
  });

  it('an error in the first FPDU closes without a Terminate [MPA-7.1.2-12, EMPA-9.3-03]', () => {
    user.send(Uint8Array.of(0x41));
    const peer = LiteralPeer.ofResponder({}, user);
    peer.feedBytes(bytesOf('000e c140 00000000 0000000000000000 00000000'));
    expect(peer.take()).toEqual([]);
    expect(peer.types.slice(2)).toEqual(['abort', 'closed']);
    expect(peer.failure).toMatchObject({ layer: 2, etype: 0, code: 2 });
  });

  it('names the peer that leaves at a Reply with M', () => {
    const leaving = LiteralPeer.ofResponder({ markersRequested: true }).finish();
    expect(leaving.types.slice(2)).toEqual(['finish', 'closed']);
    expect(leaving.failure).toMatchObject({ kind: 'lost', quirk: 'siw-refuses-markers' });
    expect(LiteralPeer.ofResponder().finish().types.slice(2)).toEqual(['peer-closed']);
  });

  it('a responder that sends first is received [MPA-7.1.1-23, MPA-7.1.2-10]', () => {
    user.postReceive(8);
    const stream = streamOf({ mpaRevision: 1, crcRequested: false });
    stream.connect(new Uint8Array(0), user, 0);
    const send = '0013 4143 00000000 00000000 00000001 00000000 41 000000 00000000';
    stream.handleBytes(bytesOf(`4d504120494420526570204672616d65 00 01 0000 ${send}`), 0);
    expect(user.delivered.map(({ payload }) => payload)).toEqual(['41']);
    expect(stream.pollEvent()?.type).toBe('established');
    expect(stream.pollEvent()).toBe(undefined);
  });

  it('the RTR precedes the consumer’s posts [EMPA-9.2-10, EMPA-9.2-11, EMPA-5-02]', () => {
    for (const [kind, word, golden] of [
      ['write', '80088008', '000ec140000000000000000000000000a30572ab'],
      ['send', 'c0080008', '0012414300000000000000000000000100000000587be8c4'],
      ['read', '80084008', `002e414100000000000000010000000100000000${'00'.repeat(28)}f2c6dd3d`],
    ] as const) {
      const rtrKinds = { send: false, write: false, read: false, [kind]: true };
      const user = new ModelUser();
      user.send(Uint8Array.of(0x41));
      const stream = streamOf({ peerToPeer: true, rtrKinds });
      stream.connect(new Uint8Array(0), user, 0);
      stream.handleFlushed(stream.pollTransmit()?.bytes.length ?? 0, 0);
      stream.handleBytes(bytesOf(`4d504120494420526570204672616d65 50 02 0004 ${word}`), 0);
      const sent = hexOf(stream.pollTransmit()?.bytes ?? new Uint8Array(0));
      expect(sent.slice(0, golden.length)).toBe(golden);
      expect(sent.slice(golden.length, golden.length + 8)).toBe('00134143');
      expect(user.log).toEqual(['sent']);
    }
  });

  it('an RTR waits for room in the output, and so does everything after it [EMPA-5-02]', () => {
    user.send(Uint8Array.of(0x41));
    const stream = streamOf({ peerToPeer: true }, { highWaterBytes: 1 });
    stream.connect(new Uint8Array(0), user, 0);
    const request = stream.pollTransmit()?.bytes;
    // The Reply arrives before the socket reports that it has sent the Request.
    stream.handleBytes(bytesOf('4d504120494420526570204672616d65 50 02 0004 80088008'), 0);
    expect(stream.pollTransmit()).toBe(undefined);
    stream.handleFlushed(request?.length ?? 0, 0);
    expect(hexOf(stream.pollTransmit()?.bytes ?? new Uint8Array(0)).slice(0, 8)).toBe('000ec140');
    stream.handleFlushed(20, 0);
    expect(hexOf(stream.pollTransmit()?.bytes ?? new Uint8Array(0)).slice(0, 8)).toBe('00134143');
  });

  it('an RTR of each kind opens the responder [EMPA-9.2-16, EMPA-9.2-12, EMPA-5-03]', () => {
    for (const kind of ['write', 'send', 'read'] as const) {
      const rtrKinds = { send: false, write: false, read: false, [kind]: true };
      const initiator = { peerToPeer: true, rtrKinds };
      const pair = new StreamPair({ initiator, responder: { rtrKinds } });
      pair.b.user.postReceive(8, 2);
      pair.b.user.send(Uint8Array.of(0x42));
      pair.a.user.postReceive(8);
      pair.establish();
      // The initiator's consumer has posted nothing, and is not notified of the RTR.
      expect(pair.a.user.delivered.map(({ payload }) => payload)).toEqual(['42']);
      expect(pair.a.user.log).toEqual(['received 1']);
      const lengths = pair.b.user.delivered.map(({ length }) => length);
      expect(lengths).toEqual(kind === 'send' ? [0] : []);
      pair.a.user.send(Uint8Array.of(0x43));
      pair.run();
      expect(pair.b.user.delivered.at(-1)?.payload).toBe('43');
    }
  });

  it('a Read as RTR is answered, whatever STag it names [EMPA-9.2-12, RDMAP-5.2.1-11]', () => {
    const peer = LiteralPeer.ofResponder();
    peer.feed(
      '4141 00000000 00000001 00000001 00000000 deadbeef ffffffffffffffff 00000000 cafecafe ffffffffffffffff',
    );
    expect(peer.take()).toEqual([compact('c142 deadbeef ffffffffffffffff')]);
    expect(peer.types).toEqual(['request', 'established']);
  });

  it('a Write as RTR names any STag [EMPA-9.2-12, DDP-5.2-11]', () => {
    const peer = LiteralPeer.ofResponder().feed('c140 deadbeef ffffffffffffffff');
    expect(peer.take()).toEqual([]);
    expect(peer.user.placements).toBe(0);
    expect(peer.stream.sendable).toBe(true);
  });

  it('too few IRD resources end in a Terminate, as the only FPDU [EMPA-9.1-10, EMPA-8-01]', () => {
    const stream = streamOf({ ird: 4, irdMax: 4 });
    stream.connect(new Uint8Array(0), new ModelUser(), 0);
    while (stream.pollTransmit() !== undefined);
    stream.handleFlushed(24, 0);
    // ORD 8 in the Reply requires an IRD that is not available.
    stream.handleBytes(bytesOf('4d504120494420526570204672616d65 50 02 0004 0008 0008'), 0);
    const bytes = stream.pollTransmit()?.bytes;
    expect(hexOf(bytes ?? new Uint8Array(0))).toBe(
      '0016414700000000000000020000000100000000200600006540fb1b',
    );
    stream.handleFlushed(28, 0);
    expect([stream.pollEvent()?.type, stream.pollEvent()?.type]).toEqual(['terminated', 'finish']);
  });

  it('reports a rejection, and leaves TCP to the connection manager', () => {
    const pair = new StreamPair();
    pair.b.stream.listen(0);
    pair.a.stream.connect(new Uint8Array(0), pair.a.user, 0);
    pair.run();
    pair.b.stream.reject(Uint8Array.of(7), 0);
    pair.run();
    expect(pair.a.types).toEqual(['rejected']);
    expect(pair.b.types).toEqual(['request']);
    pair.a.stream.disconnect(0);
    pair.run();
    expect(pair.b.types).toEqual(['request', 'peer-closed']);
    pair.b.stream.disconnect(0);
    pair.run();
    expect(pair.a.types).toEqual(['rejected', 'finish', 'peer-closed', 'closed']);
    expect([pair.a.failure, pair.b.failure]).toEqual([undefined, undefined]);
  });

  it('startup ends when its time is up [MPA-7.1.2-16, MPA-7.1.2-18]', () => {
    const stream = streamOf({ startupTimeoutMicros: 1000 });
    stream.listen(5);
    expect(stream.nextDeadline()).toBe(1005);
    stream.handleDeadline(1004);
    expect(stream.pollEvent()).toBe(undefined);
    stream.handleDeadline(1005);
    expect(stream.pollEvent()).toEqual({ type: 'abort' });
    expect(stream.pollEvent()).toMatchObject({ type: 'closed', failure: { kind: 'timeout' } });
    expect(stream.nextDeadline()).toBe(NEVER);
  });
});

describe('a graceful end', () => {
  it('FIN follows everything queued [RDMAP-6.2-01, DDP-6.2.1-01, DDP-6.2.1-05]', () => {
    const pair = new StreamPair({ initiator: ODD }).establish();
    pair.b.user.postReceive(100_000, 100);
    const payload = pattern(20_000);
    for (let i = 0; i < 100; i++) pair.a.user.send(payload);
    pair.a.stream.disconnect(0);
    pair.run();
    expect(pair.b.user.delivered.length).toBe(100);
    expect(pair.b.types).toEqual(['request', 'established', 'peer-closed']);
    pair.b.stream.disconnect(0);
    pair.run();
    expect(pair.a.types).toEqual(['established', 'finish', 'peer-closed', 'closed']);
    expect(pair.b.types.slice(2)).toEqual(['peer-closed', 'finish', 'closed']);
    expect([pair.a.failure, pair.b.failure]).toEqual([undefined, undefined]);
  });

  it('the other half continues [DDP-6.2.1-04, DDP-6.2.1-06, MPA-7.2-01, MPA-7.2-02]', () => {
    const pair = new StreamPair({ initiator: { peerToPeer: true } }).establish();
    pair.a.user.postReceive(100_000, 3);
    pair.a.stream.disconnect(0);
    pair.run();
    expect(pair.b.types).toEqual(['request', 'established', 'peer-closed']);
    const payload = pattern(100_000);
    for (let i = 0; i < 3; i++) pair.b.user.send(payload);
    pair.run();
    expect(pair.a.user.delivered.map(({ length }) => length)).toEqual([100_000, 100_000, 100_000]);
    pair.b.stream.disconnect(0);
    pair.run();
    expect(pair.a.types).toEqual(['established', 'finish', 'peer-closed', 'closed']);
  });

  it('waits for outstanding Reads', () => {
    const pair = new StreamPair().establish();
    pair.b.user.register(0x77, 64);
    pair.a.user.register(0x99, 64);
    pair.b.user.postReceive(8);
    pair.b.user.stallSource = 6;
    pair.a.user.read(8, [0x77, 0], [0x99, 0]);
    pair.a.user.post({ message: { kind: 1 }, payload: Uint8Array.of(1), fenced: true });
    pair.a.stream.pump(0);
    pair.a.stream.disconnect(0);
    pair.run();
    expect(pair.a.types).toEqual(['established']);
    for (let i = 0; i < 6; i++) pair.run();
    expect(pair.a.user.log).toEqual(['sent', 'read', 'sent']);
    expect(pair.b.user.log).toEqual(['received 1']);
    expect(pair.a.types).toEqual(['established', 'finish']);
  });

  it('limits the wait for the answer to a Read, whatever arrives', () => {
    user.register(0x99, 8);
    user.read(5, [0x77, 0], [0x99, 0]);
    const peer = LiteralPeer.ofInitiator({}, user);
    peer.stream.disconnect(0);
    for (let i = 0; i < 4; i++) {
      peer.now += 200_000;
      peer.stream.handleDeadline(peer.now);
      expect(peer.run().types).toEqual(['established']);
      peer.feed(`8142 00000099 000000000000000${i} 4${i}`);
    }
    peer.now = 1_000_000;
    peer.stream.handleDeadline(peer.now);
    expect(peer.run().types).toEqual(['established', 'abort', 'closed']);
    expect(peer.failure).toMatchObject({ kind: 'timeout' });
  });

  it('does not wait for a reply once the peer has ended, nor for a later request', () => {
    user.register(0x99, 8);
    for (let i = 0; i < 3; i++) user.read(5, [0x77, 0], [0x99, 0]);
    user.send(Uint8Array.of(0x41));
    const peer = LiteralPeer.ofInitiator({ ord: 1 }, user);
    peer.stream.disconnect(0);
    expect(peer.run().types).toEqual(['established']);
    peer.finish();
    expect(peer.types).toEqual(['established', 'peer-closed', 'finish', 'closed']);
    expect(peer.failure).toBe(undefined);
    // Of the Reads, only the first was sent.
    expect(user.log).toEqual(['sent']);
  });

  it('sends pending replies to a peer that has ended, though its own requests wait', () => {
    user.register(0x77, 64);
    user.register(0x99, 64);
    user.stallSource = 9;
    for (let i = 0; i < 2; i++) user.read(5, [0x88, 0], [0x99, 0]);
    const peer = LiteralPeer.ofInitiator({ ord: 1 }, user);
    const readRequest = `4141 00000000 00000001 00000001 00000000 00000055 0000000000000000
      00000004 00000077 0000000000000000`;
    peer.feed(compact(readRequest));
    peer.stream.disconnect(0);
    expect(peer.finish().types).toEqual(['established', 'peer-closed']);
    peer.take();
    for (let i = 0; i < 9; i++) peer.run();
    expect(peer.take()).toEqual([compact('c142 00000055 0000000000000000 00000000')]);
    expect(peer.types).toEqual(['established', 'peer-closed', 'finish', 'closed']);
  });

  it('waits for a peer that keeps accepting queued output', () => {
    for (let i = 0; i < 5; i++) user.send(pattern(20_000, i));
    const fpduSize = { kind: 'large' } as const;
    const stream = streamOf({ mpaRevision: 1, fpduSize }, { highWaterBytes: 1 });
    stream.connect(new Uint8Array(0), user, 0);
    stream.handleFlushed(stream.pollTransmit()?.bytes.length ?? 0, 0);
    stream.handleBytes(bytesOf('4d504120494420526570204672616d65 40 01 0000'), 0);
    stream.disconnect(0);
    expect(stream.pollEvent()?.type).toBe('established');
    for (let now = 900_000; now <= 4_500_000; now += 900_000) {
      stream.handleDeadline(now);
      expect(stream.pollEvent()).toBe(undefined);
      stream.handleFlushed(stream.pollTransmit()?.bytes.length ?? 0, now);
    }
    expect(user.log.length).toBe(5);
    expect(stream.pollEvent()).toEqual({ type: 'finish' });
  });

  it('waits no longer than the timeout for a peer that accepts almost nothing', () => {
    for (let i = 0; i < 50; i++) user.send(pattern(1000, i));
    const stream = streamOf({ mpaRevision: 1 }, { highWaterBytes: 1 });
    stream.connect(new Uint8Array(0), user, 0);
    stream.handleFlushed(stream.pollTransmit()?.bytes.length ?? 0, 0);
    stream.handleBytes(bytesOf('4d504120494420526570204672616d65 40 01 0000'), 0);
    stream.disconnect(0);
    expect(stream.pollEvent()?.type).toBe('established');
    for (let now = 100_000; now < 1_000_000; now += 100_000) {
      stream.handleDeadline(now);
      expect(stream.pollEvent()).toBe(undefined);
      stream.handleFlushed(stream.pollTransmit()?.bytes.length ?? 0, now);
    }
    stream.handleDeadline(1_000_000);
    expect(stream.pollEvent()).toEqual({ type: 'abort' });
  });

  it('times out a close that the peer does not answer', () => {
    const pair = new StreamPair().establish();
    pair.a.stream.disconnect(0);
    pair.run();
    expect(pair.a.stream.nextDeadline()).toBe(1_000_000);
    pair.pass(999_999);
    expect(pair.a.types).toEqual(['established', 'finish']);
    pair.pass(1);
    expect(pair.a.types).toEqual(['established', 'finish', 'abort', 'closed']);
    expect(pair.a.failure).toMatchObject({ kind: 'timeout' });
    expect(pair.b.failure).toMatchObject({ kind: 'lost', layer: 2, etype: 0, code: 1 });
  });
});

describe('a Terminate', () => {
  it('is reported at both ends, and FIN follows [RDMAP-5.4-01, RDMAP-6.2.1-03, RDMAP-3.2-03, RDMAP-7.1-01]', () => {
    const pair = new StreamPair().establish();
    pair.a.user.write(Uint8Array.of(1), 0xdead, 0);
    pair.run();
    expect(pair.b.types.slice(2)).toEqual(['terminated', 'finish', 'closed']);
    expect(pair.a.types.slice(1)).toEqual(['terminated', 'finish', 'closed']);
    const triple = { layer: 1, etype: 1, code: 0 };
    expect(pair.a.events[1]).toMatchObject({ by: 'peer', failure: triple });
    expect(pair.b.events[2]).toMatchObject({ by: 'us', failure: triple });
    expect(pair.a.failure).toMatchObject(triple);
    expect(pair.b.failure).toMatchObject(triple);
  });

  it('arrives even if the peer keeps sending, which is read and dropped [RDMAP-6.2.1-04, DDP-6.2.2-03]', () => {
    const pair = new StreamPair({ environment: { highWaterBytes: 10_000 } }).establish();
    pair.b.user.register(0x77, 1 << 20);
    pair.a.user.write(Uint8Array.of(1), 0xdead, 0);
    const payload = pattern(100_000);
    for (let i = 0; i < 20; i++) pair.a.user.write(payload, 0x77, 0);
    // Nothing from b arrives until a has sent a good part of it.
    pair.b.blocked = true;
    pair.run();
    expect(pair.b.types.slice(2)).toEqual(['terminated']);
    expect(pair.b.user.placements).toBe(1);
    pair.b.blocked = false;
    pair.run();
    expect(pair.a.types).toContain('terminated');
    expect(pair.b.types.slice(2)).toEqual(['terminated', 'finish', 'closed']);
  });

  it('is sent after the current message, ahead of all others [RDMAP-7.1-03, DDP-5.3-02]', () => {
    const fpduSize = { kind: 'fixed', mulpduBytes: 1014 } as const;
    const stream = streamOf({ mpaRevision: 1, fpduSize }, { highWaterBytes: 2000 });
    stream.connect(new Uint8Array(0), user, 0);
    const taken: string[] = [];
    const take = (): void => {
      for (let bytes = stream.pollTransmit()?.bytes; bytes; bytes = stream.pollTransmit()?.bytes) {
        taken.push(hexOf(bytes));
        stream.handleFlushed(bytes.length, 0);
      }
    };
    take();
    taken.length = 0;
    user.write(pattern(5000), 0x77, 0);
    user.send(Uint8Array.of(1));
    stream.handleBytes(bytesOf('4d504120494420526570204672616d65 00 01 0000'), 0);
    // Two segments of five are framed; now the peer breaks a rule.
    stream.handleBytes(bytesOf('0012 4143 00000000 00000005 00000001 00000000 35c90eb1'), 0);
    take();
    const kinds: string[] = [];
    for (let rest = taken.join(''); rest !== ''; ) {
      const length = Number.parseInt(rest.slice(0, 4), 16);
      kinds.push(rest.slice(4, 8));
      rest = rest.slice(2 * ((length + 5) & ~3) + 8);
    }
    expect(kinds.slice(-1)).toEqual(['4147']);
    expect(kinds.slice(0, -1)).toEqual(['8140', '8140', '8140', '8140', 'c140']);
    expect(user.log).toEqual(['sent']);
  });

  it('failing local memory replaces the message [RDMAP-7.1-02, RDMAP-4.8-14, RDMAPX-8.1-01]', () => {
    user.refusals = { gather: AccessRefusal.memoryLost };
    user.write(pattern(10), 0x77, 0);
    const peer = LiteralPeer.ofInitiator({}, user);
    expect(peer.take()).toEqual([compact('4147 00000000 00000002 00000001 00000000 00000000')]);
    expect(user.log).toEqual([]);
    expect(peer.failure).toMatchObject({ kind: 'local', layer: 0, etype: 0, code: 0 });
  });

  it('a failure of the layer above is a local catastrophic error [RDMAP-4.8-14, RDMAP-4.8-25]', () => {
    const peer = LiteralPeer.ofInitiator();
    peer.stream.fail({ kind: 'local', text: 'completion queue overrun' }, 0);
    peer.run();
    expect(peer.take()).toEqual([compact('4147 00000000 00000002 00000001 00000000 00000000')]);
    peer.stream.fail({ kind: 'local', text: 'again' }, 0);
    peer.finish();
    expect(peer.take()).toEqual([]);
    expect(peer.types.slice(1)).toEqual(['terminated', 'finish', 'closed']);
    expect(peer.failure?.text).toBe('completion queue overrun');
  });

  it('a failure found above while bytes are handled stops the bytes after them [RDMAP-7.1-05]', () => {
    user.postReceive(8, 2);
    const peer = LiteralPeer.ofInitiator({}, user);
    const complete = user.completeReceive.bind(user);
    user.completeReceive = (message) => {
      peer.stream.fail({ kind: 'local', text: 'completion queue overrun' }, 0);
      return complete(message);
    };
    peer.feed(
      '4143 00000000 00000000 00000001 00000000 41',
      '4143 00000000 00000000 00000002 00000000 42',
      '4143 00000000 00000005 00000001 00000000',
    );
    expect(user.delivered.map(({ payload }) => payload)).toEqual(['41']);
    expect(peer.take()).toEqual([compact('4147 00000000 00000002 00000001 00000000 00000000')]);
  });

  it('no Response follows it, and no message [RDMAP-5.4-06]', () => {
    user.register(0x77, 64);
    user.stallSource = 1;
    const peer = LiteralPeer.ofInitiator({}, user);
    for (let i = 0; i < 3; i++) user.send(Uint8Array.of(i));
    peer.feed(
      '4141 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000001 00000077 0000000000000000',
      '4143 00000000 00000005 00000001 00000000',
    );
    expect(peer.take().at(-1)?.slice(0, 4)).toBe('4147');
    peer.run().run();
    expect(peer.take()).toEqual([]);
  });

  it('is sent for an error found after all is framed, before our FIN [RDMAP-6.2.1-01]', () => {
    const pair = new StreamPair().establish();
    pair.b.user.postReceive(8, 2);
    pair.a.user.send(Uint8Array.of(1));
    pair.run();
    pair.a.blocked = true;
    pair.a.user.send(Uint8Array.of(1));
    pair.a.stream.disconnect(0);
    pair.b.user.write(Uint8Array.of(1), 0xdead, 0);
    pair.run();
    expect(pair.a.types).toEqual(['established', 'terminated']);
    pair.a.blocked = false;
    pair.run();
    expect(pair.b.user.delivered).toHaveLength(2);
    expect(pair.b.events).toContainEqual(
      expect.objectContaining({ type: 'terminated', by: 'peer' }),
    );
    expect(pair.a.types).toEqual(['established', 'terminated', 'finish', 'closed']);
    expect(pair.b.failure).toMatchObject({ layer: 1, etype: 1, code: 0 });
  });

  it('is announced while it waits for output, and is sent when its user leaves [RDMAP-7.1-01]', () => {
    const pair = new StreamPair({ environment: { highWaterBytes: 100 } }).establish();
    pair.b.user.postReceive(60, 5);
    pair.a.user.send(Uint8Array.of(1));
    pair.run();
    pair.a.blocked = true;
    for (let i = 0; i < 4; i++) pair.a.user.send(pattern(60));
    pair.b.user.write(Uint8Array.of(1), 0xdead, 0);
    pair.run();
    expect(pair.a.types).toEqual(['established', 'terminated']);
    const framed = pair.a.user.log.length;
    pair.a.stream.abort();
    pair.a.blocked = false;
    pair.run();
    expect(pair.a.types).toEqual(['established', 'terminated', 'closed']);
    expect(pair.b.failure).toMatchObject({ kind: 'terminated', layer: 1, etype: 1, code: 0 });
    expect(framed).toBeLessThan(5);
  });

  it('is dropped when the peer takes nothing within the close timeout', () => {
    const pair = new StreamPair({ environment: { highWaterBytes: 100 } }).establish();
    pair.a.user.send(Uint8Array.of(1));
    pair.run();
    pair.b.blocked = true;
    expect(pair.b.types.slice(2)).toEqual(['terminated', 'finish', 'closed']);
    const other = new StreamPair({ environment: { highWaterBytes: 100 } }).establish();
    other.b.user.postReceive(8);
    other.a.user.send(Uint8Array.of(1));
    other.run();
    other.b.blocked = true;
    other.b.user.send(pattern(100_000));
    other.run();
    other.a.user.send(Uint8Array.of(1));
    other.run();
    expect(other.b.types.slice(2)).toEqual(['terminated']);
    other.pass(1_000_000);
    expect(other.b.types.slice(2)).toEqual(['terminated', 'abort', 'closed']);
    expect(other.b.failure).toMatchObject({ layer: 1, etype: 2, code: 2 });
  });
});

describe('a loss', () => {
  it('a FIN within an FPDU or a message [MPA-8-02, DDP-6.2.2-01, RDMAP-6.2-01, RDMAP-3.1-04]', () => {
    for (const bytes of [
      '0013 4143 00000000',
      // A Send, a Write and a Read Request whose last segments are missing.
      '0013 0143 00000000 00000000 00000001 00000000 41 000000 1a82fd1e',
      '000f 8140 00000077 0000000000000000 41 000000 9f39cbe4',
      '0013 0141 00000000 00000001 00000001 00000000 41 000000 4ffdd0b2',
    ]) {
      const user = new ModelUser();
      user.postReceive(8);
      user.register(0x77, 8);
      const stream = streamOf({ mpaRevision: 1, crcRequested: false });
      stream.connect(new Uint8Array(0), user, 0);
      while (stream.pollTransmit() !== undefined);
      stream.handleFlushed(20, 0);
      stream.handleBytes(bytesOf('4d504120494420526570204672616d65 00 01 0000'), 0);
      stream.handleBytes(bytesOf(bytes), 0);
      stream.handlePeerClosed(0);
      expect(stream.pollTransmit()).toBe(undefined);
      expect(stream.pollEvent()?.type).toBe('established');
      expect(stream.pollEvent()).toEqual({ type: 'abort' });
      expect(stream.pollEvent()).toMatchObject({
        type: 'closed',
        failure: { kind: 'lost', layer: 2, etype: 0, code: 1 },
      });
      expect(user.delivered).toEqual([]);
    }
  });

  it('a reset is reported once, and nothing is sent [DDP-6.2.2-01, DDP-6.2.2-02, RDMAP-6.2.1-01]', () => {
    const pair = new StreamPair().establish();
    pair.a.user.send(pattern(10));
    pair.a.stream.handleClosed('ECONNRESET', 0);
    pair.a.stream.handleClosed('ECONNRESET', 0);
    pair.a.stream.handlePeerClosed(0);
    pair.a.stream.disconnect(0);
    pair.a.stream.abort();
    pair.a.stream.pump(0);
    expect(pair.a.stream.pollTransmit()).toBe(undefined);
    pair.a.collect();
    expect(pair.a.types).toEqual(['established', 'closed']);
    expect(pair.a.failure?.text).toContain('ECONNRESET');
    expect(pair.a.failure).toMatchObject({ kind: 'lost', layer: 2, etype: 0, code: 1 });
  });

  it('bytes after a FIN abort the stream [DDP-6.2.1-03]', () => {
    const peer = LiteralPeer.ofInitiator().finish();
    peer.user.postReceive(8);
    peer.feed('4143 00000000 00000000 00000001 00000000 41');
    expect(peer.types).toEqual(['established', 'peer-closed', 'abort', 'closed']);
    expect(peer.user.delivered).toEqual([]);
  });

  it('still sends the FPDUs framed before its user aborted it [RDMAP-5.5-10]', () => {
    user.postReceive(8);
    const peer = LiteralPeer.ofInitiator({}, user);
    user.send(Uint8Array.of(1));
    user.send(Uint8Array.of(2));
    peer.stream.pump(0);
    expect(user.log).toEqual(['sent', 'sent']);
    user.send(Uint8Array.of(3));
    peer.stream.abort();
    peer.run();
    expect(peer.take().map((ulpdu) => ulpdu.slice(-2))).toEqual(['01', '02']);
    expect(peer.types).toEqual(['established', 'closed']);
    // No further input arrives.
    peer.feed('4143 00000000 00000000 00000001 00000000 41');
    expect(user.delivered).toEqual([]);
  });

  it('reports an abort by its own user', () => {
    const peer = LiteralPeer.ofInitiator();
    peer.stream.abort();
    peer.run();
    expect(peer.types).toEqual(['established', 'closed']);
    expect(peer.failure).toMatchObject({ kind: 'local' });
  });

  it('reports nothing after its end, however late', () => {
    const stream = streamOf();
    stream.connect(new Uint8Array(0), new ModelUser(), 0);
    stream.disconnect(0);
    const notified: string[] = [];
    for (let event = stream.pollEvent(); event; event = stream.pollEvent())
      notified.push(event.type);
    expect(notified).toEqual(['abort', 'closed']);
    stream.handleDeadline(10_000_000);
    expect(stream.pollEvent()).toBeUndefined();
  });
});
