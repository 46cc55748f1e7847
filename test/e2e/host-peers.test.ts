/** How a host handles silent, faulty, hostile or vanished peers: raw bytes over loopback. */
import { afterEach, describe, expect, it } from 'vitest';
import { AsyncEventType, CMEventType, QPState, WCStatus } from '#contract/verbs/enums';
import type { RnicHostOptions } from '#daemon/host/rnic-host';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { bytesOf } from '../support/hex.ts';
import { emitFpdu, mpaReply, mpaRequest, sendUlpdu } from '../support/mpa-frames.ts';
import { patience, quiet, until } from '../support/patience.ts';
import { RawListener, RawPeer } from '../support/raw-peer.ts';
import { type Channel, connectPair, NO_WISHES, RnicNode } from '../support/rnic-node.ts';

/** For tests that wait for it. */
const STARTUP_MICROS = 150_000;
const CLOSE_MICROS = 150_000;
const CLIENT_SERVER = { peerToPeer: false };

const nodes: RnicNode[] = [];
const listeners: RawListener[] = [];
const peers: RawPeer[] = [];

/** On a busy machine, a startup may take long. */
function node(
  options: Partial<RnicHostOptions> = {},
  startupTimeoutMicros = patience() * 1000,
): RnicNode {
  const wire = { startupTimeoutMicros, closeTimeoutMicros: CLOSE_MICROS };
  const made = new RnicNode({ devices: [{ name: 'iwarp0', addresses: [], wire }], ...options });
  nodes.push(made);
  return made;
}

async function rawListener() {
  const listener = await RawListener.open();
  listeners.push(listener);
  return { listener, at: { address: '127.0.0.1', port: listener.port } };
}

async function dial(port: number): Promise<RawPeer> {
  const peer = await RawPeer.dial(port);
  peers.push(peer);
  return peer;
}

afterEach(async () => {
  for (const peer of peers.splice(0)) peer.destroy();
  for (const listener of listeners.splice(0)) listener.close();
  await Promise.all(nodes.splice(0).map(({ host }) => host.close()));
});

/** A listening host, and a raw initiator that has connected to it. */
async function dialedHost() {
  const to = node();
  const listener = to.listen();
  return { to, listener, peer: await dial(listener.at.port) };
}

/** A host that accepted a raw initiator, which may now send FPDUs. */
async function acceptedPeer() {
  const { to, listener, peer } = await dialedHost();
  peer.say(mpaRequest());
  const { id } = await to.event(listener.id);
  const channel = to.channel();
  to.host.cm.accept(id, channel.qp, NO_WISHES);
  await peer.receive(24);
  expect((await to.event(id)).type).toBe(CMEventType.established);
  return { to, peer, channel, id };
}

/** A host that connected to a raw responder. */
async function connectedPeer() {
  const from = node();
  const { listener, at } = await rawListener();
  const channel = from.channel();
  const id = await from.connect(channel, at, { wire: CLIENT_SERVER });
  const peer = await listener.peer();
  peers.push(peer);
  await peer.receive(24);
  peer.say(mpaReply());
  expect((await from.event(id)).type).toBe(CMEventType.established);
  return { from, peer, channel, id };
}

/** An FPDU that writes nothing into the buffer of `channel`. */
function emptyWriteTo(channel: Channel): Uint8Array {
  const header = bytesOf('c1 40 00*4 00*8 00');
  Buffer.from(header.buffer).writeUInt32BE(channel.mr.rkey, 2);
  Buffer.from(header.buffer).writeUInt32BE(channel.address(), 10);
  return emitFpdu(header);
}

describe('startup of a responder', () => {
  it('drops a peer that sends no Request within the timeout [MPA-7.1.2-16, MPA-7.1.2-18]', async () => {
    const to = node({}, STARTUP_MICROS);
    const listener = to.listen();
    const silent = await dial(listener.at.port);
    const halting = await dial(listener.at.port);
    halting.say(mpaRequest().subarray(0, 19));
    const start = performance.now();
    await silent.overs();
    await halting.overs();
    expect(performance.now() - start).toBeGreaterThan((STARTUP_MICROS / 1000) * 0.8);
    expect(to.eventsOf(listener.id)).toEqual([]);
    expect(to.host.connections()).toEqual([]);
  });

  it('closes at once on bytes that are not a Request [MPA-7.1.3-01]', async () => {
    // Not by its timeout, which is an hour.
    const wire = { startupTimeoutMicros: 3600e6 };
    const to = node({ devices: [{ name: 'iwarp0', addresses: [], wire }] });
    const listener = to.listen();
    for (const bytes of ['GET / HTTP/1.1\r\n\r\n', 'MPA ID Rep Frame']) {
      const peer = await dial(listener.at.port);
      peer.say(Buffer.from(bytes.padEnd(20, '\0'), 'latin1'));
      await peer.overs();
      expect(peer.received).toHaveLength(0);
    }
    expect(to.eventsOf(listener.id)).toEqual([]);
  });

  it('closes on a Request with more than 512 bytes of private data [MPA-7.1.1-20]', async () => {
    const { peer } = await dialedHost();
    peer.say(mpaRequest({ revision: 1, privateData: new Uint8Array(513) }));
    await peer.overs();
    expect(peer.received).toHaveLength(0);
  });

  it('closes when the peer finishes within the private data it announced [MPA-7.1.1-21]', async () => {
    const { to, listener, peer } = await dialedHost();
    peer.say(mpaRequest({ privateData: new Uint8Array(40) }).subarray(0, 50));
    peer.finish();
    await peer.overs();
    await until('the connection to go', () => to.host.connections().length === 0);
    expect(to.eventsOf(listener.id)).toEqual([]);
  });

  it('accepts revision 1 from a peer, byte by byte', async () => {
    const { to, listener, peer } = await dialedHost();
    const request = mpaRequest({ revision: 1, privateData: Uint8Array.of(1, 2, 3) });
    for (let at = 0; at < request.length; at++) {
      peer.say(request.subarray(at, at + 1));
      await new Promise((resolve) => setImmediate(resolve));
    }
    const asked = await to.event(listener.id);
    expect([...asked.privateData]).toEqual([1, 2, 3]);
    const channel = to.channel();
    to.host.cm.accept(asked.id, channel.qp, { ...NO_WISHES, privateData: Uint8Array.of(7) });
    const reply = await peer.receive(21);
    expect([reply[17], reply.readUInt16BE(18), reply[20]]).toEqual([1, 1, 7]);
    channel.receive(0, 16);
    peer.sayFpdu(sendUlpdu(1, Uint8Array.of(5, 6)));
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success, byteLen: 2 }]);
  });

  it('accepts no Read RTR if its consumer has no room for one [EMPA-9.1-13] [EMPA-9.3-01]', async () => {
    const to = node();
    const listener = to.listen();
    // Peer to peer; an ORD that is not negotiated; RTR by Write or Read, then by Read only.
    for (const ord of [0xffff, 0x7fff]) {
      const peer = await dial(listener.at.port);
      peer.say(mpaRequest({ ird: 0x8008, ord }));
      const asked = await to.event(listener.id);
      to.host.cm.accept(asked.id, to.channel().qp, { ...NO_WISHES, responderResources: 0 });
      const reply = await peer.receive(24);
      expect(reply.readUInt16BE(20) & 0x3fff).toBe(0x3fff);
      expect(reply.readUInt16BE(22) & 0xc000).toBe(0x8000);
    }
  });

  it('bounds the startups of a listener', async () => {
    const to = node({ limits: { startupsPerListenerMax: 2 } });
    const listener = to.listen();
    const crowd = [await dial(listener.at.port), await dial(listener.at.port)];
    await until('two startups', () => to.host.connections().length === 2);
    const third = await dial(listener.at.port);
    await third.overs();
    expect(to.notices).toMatchObject([
      { kind: 'refused', text: 'too many connections are starting at this listener' },
    ]);
    // The first two are not disturbed, and room that they free is used.
    crowd[0]?.say(mpaRequest());
    await to.event(listener.id);
    const fourth = await dial(listener.at.port);
    fourth.say(mpaRequest());
    await to.event(listener.id);
  });

  it('serves another address while one holds every startup of a listener', async () => {
    const devices = [{ name: 'iwarp0', addresses: [] }];
    const to = node({ devices, limits: { startupsPerListenerMax: 8 } });
    const listener = to.listen('0.0.0.0');
    const { port } = listener.at;
    const crowd: RawPeer[] = [];
    for (let count = 0; count < 8; count++) crowd.push(await dial(port));
    await until('the startups', () => to.host.connections().length === 8);
    const other = await RawPeer.dial(port, '127.0.0.1', '127.0.0.9');
    peers.push(other);
    other.say(mpaRequest());
    expect((await to.event(listener.id)).id.peerAddress?.address).toBe('127.0.0.9');
    const gone = (): boolean[] => crowd.map(({ ended, closed }) => ended || closed);
    await until('the oldest to go', () => gone()[0] === true);
    expect(gone().filter((each) => each)).toHaveLength(1);
  });

  it('rejects a reply once the peer has gone', async () => {
    const { to, listener, peer } = await dialedHost();
    peer.say(mpaRequest());
    const { id } = await to.event(listener.id);
    peer.reset();
    await quiet(20);
    const channel = to.channel();
    const gone = expect.objectContaining({ code: 'ECONNRESET' });
    expect(() => to.host.cm.accept(id, channel.qp, NO_WISHES)).toThrow(gone);
    expect(channel.qp.state).not.toBe(QPState.ERR);
    expect(to.eventsOf(id)).toEqual([]);
  });
});

describe('startup of an initiator', () => {
  it('a peer that never replies is unreachable, with ETIMEDOUT [MPA-7.1.2-18]', async () => {
    const from = node({}, STARTUP_MICROS);
    const { listener, at } = await rawListener();
    const channel = from.channel();
    const id = await from.connect(channel, at);
    const event = await from.event(id);
    expect(event).toMatchObject({ type: CMEventType.unreachable, error: 'ETIMEDOUT' });
    expect(channel.qp.wire).toBeUndefined();
    const peer = await listener.peer();
    await peer.overs();
    expect(peer.received.subarray(0, 16).toString('latin1')).toBe('MPA ID Req Frame');
  });

  it('a wrong key ends it with a connect error [MPA-7.1.1-05, MPA-7.1.2-15]', async () => {
    const from = node();
    const { listener, at } = await rawListener();
    const id = await from.connect(from.channel(), at);
    const peer = await listener.peer();
    await peer.receive(24);
    peer.say(mpaRequest());
    const event = await from.event(id);
    expect(event).toMatchObject({ type: CMEventType.connectError, error: 'EINVAL' });
    await peer.overs();
  });

  it('a peer that closes or resets before its Reply counts as a rejection', async () => {
    const from = node();
    const { listener, at } = await rawListener();
    for (const leave of ['finish', 'reset'] as const) {
      const id = await from.connect(from.channel(), at);
      const peer = await listener.peer();
      await peer.receive(24);
      peer[leave]();
      const event = await from.event(id);
      expect(event).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
    }
  });

  it('the depths and private data of a rejecting Reply reach the consumer [EMPA-9.1-11]', async () => {
    const from = node();
    const { listener, at } = await rawListener();
    const id = await from.connect(from.channel(), at);
    const peer = await listener.peer();
    await peer.receive(24);
    peer.say(mpaReply({ reject: true, ird: 3, ord: 5, privateData: Uint8Array.of(1) }));
    const event = await from.event(id);
    expect(event).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
    expect([event.initiatorDepth, event.responderResources]).toEqual([3, 5]);
    expect([...event.privateData]).toEqual([1]);
    // The manager closes although this peer does not.
    await until('our FIN', () => peer.ended);
    await until('the close timeout', () => from.host.connections().length === 0);
  });

  it('accepts a Reply and the first message in one segment', async () => {
    const from = node();
    const { listener, at } = await rawListener();
    const channel = from.channel();
    channel.receive(0, 64);
    const id = await from.connect(channel, at, { wire: CLIENT_SERVER });
    const peer = await listener.peer();
    await peer.receive(24);
    peer.say(Buffer.concat([mpaReply(), emitFpdu(sendUlpdu(1, Uint8Array.of(3, 2, 1)))]));
    expect((await from.event(id)).type).toBe(CMEventType.established);
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success, byteLen: 3 }]);
  });

  it('gives up on TCP at its deadline', async () => {
    const from = node({ limits: { dialTimeoutMicros: 0 } }, STARTUP_MICROS);
    const channel = from.channel();
    const id = await from.connect(channel, (await rawListener()).at);
    const event = await from.event(id);
    // Loopback may connect before a deadline of 0; then the missing Reply ends the attempt.
    expect(event).toMatchObject({ type: CMEventType.unreachable, error: 'ETIMEDOUT' });
    expect(channel.qp.wire).toBeUndefined();
  });
});

describe('half-close and reset', () => {
  it('our half closes after the FIN of a peer [DDP-6.2.1-04, DDP-6.2.1-05, MPA-7.2-02]', async () => {
    const { to, peer, channel, id } = await acceptedPeer();
    channel.receive(0, 64);
    peer.sayFpdu(sendUlpdu(1, Uint8Array.of(1)));
    await channel.completions(1);
    channel.send(0, 1000);
    peer.finish();
    await until('our FIN', () => peer.ended);
    // Queued output precedes it: Reply, then one FPDU of 18 + 1000 bytes.
    expect(peer.received).toHaveLength(24 + 2 + 1018 + 4);
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
    await until('the socket to close', () => to.host.connections().length === 0);
  });

  it('after our own close the peer can still send [DDP-6.2.1-06, MPA-7.2-01]', async () => {
    const { from, peer, channel, id } = await connectedPeer();
    channel.receive(0, 64);
    from.host.cm.disconnect(id);
    await until('our FIN', () => peer.ended);
    peer.sayFpdu(sendUlpdu(1, Uint8Array.of(1, 2)));
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success, byteLen: 2 }]);
    peer.finish();
    expect((await from.event(id)).type).toBe(CMEventType.disconnected);
  });

  it('a peer that never closes its half is reset when the close timeout is over', async () => {
    const { from, peer, id } = await connectedPeer();
    from.host.cm.disconnect(id);
    await until('our FIN', () => peer.ended);
    expect((await from.event(id)).type).toBe(CMEventType.disconnected);
    await until('the socket to close', () => from.host.connections().length === 0);
  });

  it('a reset within a message ends the connection with an error [MPA-8-02]', async () => {
    const { to, peer, channel, id } = await acceptedPeer();
    channel.receive(0, 64);
    channel.receive(64, 64);
    const fpdu = emitFpdu(sendUlpdu(1, new Uint8Array(32)));
    peer.say(fpdu, fpdu.subarray(0, 20));
    await channel.completions(1);
    peer.reset();
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.wrFlushErr }]);
    expect(channel.qp.state).toBe(QPState.ERR);
    expect(to.asyncEvents).toMatchObject([{ event: AsyncEventType.qpFatal }]);
  });

  it('a FIN within an FPDU is a loss too [MPA-8-02]', async () => {
    const { to, peer, channel, id } = await acceptedPeer();
    peer.say(emitFpdu(sendUlpdu(1, new Uint8Array(32))).subarray(0, 20));
    peer.finish();
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
    expect(channel.qp.state).toBe(QPState.ERR);
  });
});

describe('violations', () => {
  /** Releases a responder, which sends nothing before (RFC 5044 §7.1.2 rule 4). */
  const emptyWrite = emitFpdu(bytesOf('c1 40 00*12'));
  const wrongCrc = emitFpdu(sendUlpdu(1, new Uint8Array(16)));
  wrongCrc[wrongCrc.length - 1] = (wrongCrc.at(-1) ?? 0) ^ 1;
  /** Each violation as bytes, with the first two bytes of the Terminate that answers it. */
  const cases: readonly (readonly [string, Uint8Array, string])[] = [
    ['a wrong CRC [RDMAP-6.2.1-01]', wrongCrc, '2002'],
    ['a ULPDU shorter than its header', emitFpdu(bytesOf('41 43 00')), '1000'],
    ['an unknown queue', emitFpdu(bytesOf('41 43 00*4 00000007 00000001 00000000')), '1201'],
    ['a message number out of order', emitFpdu(sendUlpdu(7, new Uint8Array(4))), '1203'],
    ['a Write to an unknown STag', emitFpdu(bytesOf('c1 40 00000bad 00*8 00')), '1100'],
    ['a Send without a receive', emitFpdu(sendUlpdu(1, new Uint8Array(4))), '1202'],
    ['an RDMAP opcode that is none', emitFpdu(bytesOf('41 4f 00*4 00*4 00000001 00*4')), '0206'],
  ];

  it.each(cases)('%s closes only that connection', async (_name, bytes, terminate) => {
    const { to, peer, channel, id } = await acceptedPeer();
    const other = await connectPair(to, to);
    peer.say(emptyWrite, bytes);
    // RDMAP-6.2.1-03: a Terminate, then a graceful close.
    await until('our FIN', () => peer.ended);
    const fpdu = peer.received.subarray(24);
    expect(fpdu.length).toBeGreaterThan(22);
    expect(fpdu.subarray(20, 22).toString('hex')).toBe(terminate);
    peer.finish();
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
    expect(channel.qp.state).toBe(QPState.ERR);
    other.passive.receive(0, 16);
    other.active.send(0, 16);
    expect(await other.passive.completions(1)).toMatchObject([{ status: WCStatus.success }]);
  });

  it('closes silently on an invalid first FPDU [MPA-7.1.2-12]', async () => {
    const { to, peer, channel, id } = await acceptedPeer();
    peer.say(wrongCrc);
    await until('the reset', () => peer.closed);
    expect(peer.received).toHaveLength(24);
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
    expect(channel.qp.state).toBe(QPState.ERR);
  });

  it('keeps reading after its Terminate, so no reset destroys it [RDMAP-6.2.1-04]', async () => {
    const { to, peer, id } = await acceptedPeer();
    peer.say(emptyWrite, wrongCrc);
    // More than the socket buffers of both sides hold: unread, it would turn the close into a reset.
    for (let count = 0; count < 64; count++) peer.say(new Uint8Array(65_536));
    await until('our FIN', () => peer.ended);
    expect(peer.errorCode).toBeUndefined();
    expect(peer.received.subarray(24 + 20, 24 + 22).toString('hex')).toBe('2002');
    peer.finish();
    expect((await to.event(id)).type).toBe(CMEventType.disconnected);
  });
});

describe('output of many connections', () => {
  it('shares one buffer in sequence when all of them are due at once', async () => {
    let buffers = 0;
    const allocate = (bytes: number) => {
      buffers += 1;
      return new Uint8Array(bytes);
    };
    const from = node({
      devices: [{ name: 'iwarp0', addresses: [], wire: { nudgeDelayMicros: 50_000 } }],
      pool: new ChunkPool({ allocate }),
    });
    const to = node();
    for (let pair = 0; pair < 8; pair++) await connectPair(from, to);
    const before = buffers;
    // A turn that lasts longer than the delay: every empty Write to a silent peer is due.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 80);
    const nudges = () => from.notices.filter(({ text }) => text.includes('an empty Write'));
    await until('empty Writes', () => nudges().length >= 6);
    expect(buffers).toBe(before);
  });
});

describe('back-pressure', () => {
  it('yields to others while a peer streams tiny segments', async () => {
    const { to, peer, channel } = await acceptedPeer();
    const { counters } = to.device().nic;
    const writes = 400_000;
    const one = emptyWriteTo(channel);
    const all = Buffer.alloc(one.length * writes, Buffer.from(one));
    peer.say(all);
    let most = 0;
    let before = 0;
    await until('all Writes', () => {
      most = Math.max(most, counters.inWrites - before);
      before = counters.inWrites;
      return before === writes;
    });
    // 32 reads of 256 KiB would be some 349,000.
    expect(most).toBeLessThan(40_000);
  });

  it('yields to other addresses while one has many such peers, and serves all of them', async () => {
    const connections = 12;
    const writes = 20_000;
    const to = node();
    const listener = to.listen();
    const greedy: RawPeer[] = [];
    for (let count = 0; count < connections; count++) {
      const peer = await dial(listener.at.port);
      greedy.push(peer);
      peer.say(mpaRequest());
      const { id } = await to.event(listener.id);
      to.host.cm.accept(id, to.channel().qp, NO_WISHES);
      await peer.receive(24);
    }
    const one = emitFpdu(bytesOf('c1 40 00*12'));
    const all = Buffer.alloc(one.length * writes, Buffer.from(one));
    const received = (): number[] => {
      return [...to.host.conduits()].map(({ stream }) => stream.receivedFpdus);
    };
    for (const peer of greedy) peer.say(all);
    let most = 0;
    let before = 0;
    let least: number | undefined;
    await until('all Writes', () => {
      const counts = received();
      const sum = counts.reduce((left, right) => left + right, 0);
      most = Math.max(most, sum - before);
      before = sum;
      if (Math.max(...counts) === writes) least ??= Math.min(...counts);
      return sum === connections * writes;
    });
    // The limit of one connection in a turn, plus the segments of the last read.
    expect(most).toBeLessThan(40_000);
    // When the first has been served, none is far behind.
    expect(least).toBeGreaterThan(writes / 8);
  });

  it('holds Sends back while the peer does not read, and resumes when it does', async () => {
    const { from, peer, channel } = await connectedPeer();
    peer.stopReading();
    const { length } = channel.buffer;
    const sends = 32;
    for (let count = 0; count < sends; count++) channel.send(0, length);
    await quiet(50);
    const early = channel.poll().length;
    expect(early).toBeLessThan(sends);
    peer.resumeReading();
    const late = await channel.completions(sends - early);
    expect(late.every(({ status }) => status === WCStatus.success)).toBe(true);
    await until('all bytes', () => peer.received.length > sends * length);
    expect(from.host.connections()).toHaveLength(1);
  });
});
