/**
 * How connections of real hosts end: posts around a disconnect, completions when a queue pair is
 * destroyed, and faults while output waits. Over real loopback sockets.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { WC } from '#contract/verbs/completion';
import {
  AsyncEventType,
  CMEventType,
  QPState,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { HostId } from '#daemon/host/host-id';
import type { RnicHostOptions } from '#daemon/host/rnic-host';
import { bytesOf } from '../support/hex.ts';
import { emitFpdu, mpaReply } from '../support/mpa-frames.ts';
import { quiet, until } from '../support/patience.ts';
import { RawListener, type RawPeer } from '../support/raw-peer.ts';
import { type Channel, connectPair, RnicNode } from '../support/rnic-node.ts';

const CLOSE_MICROS = 300_000;
const SEND_BYTES = 900_000;

const nodes: RnicNode[] = [];
const listeners: RawListener[] = [];
const peers: RawPeer[] = [];

function node(closeTimeoutMicros = 5_000_000, options: Partial<RnicHostOptions> = {}): RnicNode {
  const wire = { closeTimeoutMicros };
  const made = new RnicNode({ devices: [{ name: 'iwarp0', addresses: [], wire }], ...options });
  nodes.push(made);
  return made;
}

afterEach(async () => {
  for (const peer of peers.splice(0)) peer.destroy();
  for (const listener of listeners.splice(0)) listener.close();
  await Promise.all(nodes.splice(0).map(({ host }) => host.close()));
});

let from: RnicNode;

beforeEach(() => {
  from = node();
});

/** A host that connected to a raw responder, which the test controls. */
async function connectedPeer(bufferBytes = 1 << 20) {
  const listener = await RawListener.open();
  listeners.push(listener);
  const channel = from.channel(undefined, bufferBytes);
  const at = { address: '127.0.0.1', port: listener.port };
  const id = await from.connect(channel, at, { wire: { peerToPeer: false } });
  const peer = await listener.peer();
  peers.push(peer);
  await peer.receive(24);
  peer.say(mpaReply());
  expect((await from.event(id)).type).toBe(CMEventType.established);
  return { peer, channel, id };
}

/** A consumer that posts a Send for each completion, until it is stopped. */
class EagerSender {
  readonly outcomes: WC[] = [];
  readonly #channel: Channel;
  readonly #bytes: number;
  #stopped = false;

  constructor(channel: Channel, bytes: number, ahead: number) {
    this.#channel = channel;
    this.#bytes = bytes;
    for (let count = 0; count < ahead; count++) channel.send(0, bytes);
    this.#turn();
  }

  count(status: WCStatus): number {
    return this.outcomes.filter((wc) => wc.status === status).length;
  }

  stop(): void {
    this.#stopped = true;
  }

  #turn(): void {
    const done = this.#channel.poll();
    this.outcomes.push(...done);
    for (let count = 0; count < done.length; count++) this.#channel.send(0, this.#bytes);
    if (!this.#stopped) setImmediate(() => this.#turn());
  }
}

describe('disconnect under load', () => {
  it('sends earlier posts, flushes later ones, and closes [DDP-6.2.1-01] [DDP-6.2.1-02]', async () => {
    const to = node();
    const { active, activeId, passive, passiveId } = await connectPair(from, to);
    for (let count = 0; count < 64; count++) passive.receive(0, SEND_BYTES);
    const sender = new EagerSender(active, SEND_BYTES, 4);
    await until('the first completions', () => sender.count(WCStatus.success) > 0);
    from.host.cm.disconnect(activeId);
    const posted = active.qp.sendsTaken + 4;
    expect(active.qp.state).toBe(QPState.SQD);
    const received: WC[] = [];
    await until('both sides to be notified', () => {
      received.push(...passive.poll());
      return to.eventsOf(passiveId).length > 0 && from.eventsOf(activeId).length > 0;
    });
    sender.stop();
    expect((await from.event(activeId)).type).toBe(CMEventType.disconnected);
    expect(active.qp.state).toBe(QPState.ERR);
    received.push(...passive.poll());
    const arrived = received.filter(({ status }) => status === WCStatus.success).length;
    expect(sender.count(WCStatus.success)).toBe(arrived);
    expect(arrived).toBeLessThanOrEqual(posted);
    expect(sender.count(WCStatus.wrFlushErr)).toBeGreaterThan(0);
  });

  it('flushes a Send posted after a disconnect that the peer does not answer [DDP-6.2.1-02]', async () => {
    const { peer, channel, id } = await connectedPeer();
    channel.send(0, 100);
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success }]);
    from.host.cm.disconnect(id);
    await until('our FIN', () => peer.ended);
    const received = peer.received.length;
    channel.send(0, 100);
    channel.send(0, 100);
    expect(await channel.completions(2)).toMatchObject([
      { status: WCStatus.wrFlushErr },
      { status: WCStatus.wrFlushErr },
    ]);
    expect(peer.received).toHaveLength(received);
    // The other half continues (DDP-6.2.1-06): receives are not flushed yet.
    expect(channel.qp.state).toBe(QPState.SQD);
  });

  it('closes after the FIN of a peer, though the consumer keeps posting [DDP-6.2.1-02] [DDP-6.2.1-05]', async () => {
    const { peer, channel, id } = await connectedPeer();
    const sender = new EagerSender(channel, SEND_BYTES, 8);
    await until('the first completions', () => sender.count(WCStatus.success) > 0);
    peer.finish();
    expect((await from.event(id)).type).toBe(CMEventType.disconnected);
    await until('late Sends to be flushed', () => sender.count(WCStatus.wrFlushErr) > 0);
    sender.stop();
    await until('our FIN', () => peer.ended);
    expect(peer.errorCode).toBeUndefined();
    const fpduBytes = peer.received.length - 24;
    expect(Math.floor(fpduBytes / SEND_BYTES)).toBe(sender.count(WCStatus.success));
    expect(channel.qp.state).toBe(QPState.ERR);
  });

  it('closes when the id is destroyed under a consumer that keeps posting [DDP-6.2.1-02]', async () => {
    const { peer, channel, id } = await connectedPeer();
    const sender = new EagerSender(channel, SEND_BYTES, 8);
    await until('the first completions', () => sender.count(WCStatus.success) > 0);
    from.host.cm.destroy(id);
    await until('our FIN', () => peer.ended);
    peer.finish();
    await until('the queue pair to end', () => channel.qp.state === QPState.ERR);
    sender.stop();
  });
});

/** Posts `count` Sends of the same length at once and rings the doorbell for all of them. */
function burst(channel: Channel, count: number, length: number): void {
  const sgList = [{ addr: channel.address(), length, lkey: channel.mr.lkey }];
  for (let at = 0; at < count; at++) channel.enqueueSend({ opcode: WROpcode.send, sgList });
  from.host.doorbell(channel.qp);
}

/** Sends of `length` bytes each that arrived whole at a raw peer after the startup frame. */
function wholeSends(received: Uint8Array, length: number): number {
  const bytes = Buffer.from(received.buffer, received.byteOffset, received.length).subarray(24);
  let sends = 0;
  let gathered = 0;
  for (let at = 0; at + 2 <= bytes.length; ) {
    const ulpduLength = bytes.readUInt16BE(at);
    at += ((ulpduLength + 5) & ~3) + 4;
    if (at > bytes.length) break;
    gathered += ulpduLength - 18;
    if (gathered === length * (sends + 1)) sends += 1;
  }
  return sends;
}

/** Checks that a raw peer got every completed Send, then an orderly end. */
async function expectArrived(peer: RawPeer, length: number, sends: number): Promise<void> {
  await peer.overs();
  expect(peer.errorCode).toBeUndefined();
  expect(wholeSends(peer.received, length)).toBe(sends);
}

const successes = (found: readonly WC[]): number =>
  found.filter(({ status }) => status === WCStatus.success).length;

describe('the end of a queue pair', () => {
  const ways: [string, (channel: Channel, id: HostId) => void][] = [
    ['destroy', (channel) => channel.qp.close(from.host.now())],
    ['modify to ERR', (channel) => channel.qp.modify(QPState.ERR, from.host.now())],
    [
      'disconnect, then destroy',
      (channel, id) => {
        from.host.cm.disconnect(id);
        channel.qp.close(from.host.now());
      },
    ],
  ];

  it.each(ways)(
    '%s: every Send that completed with success reaches the peer before the FIN [RDMAP-5.5-10]',
    async (_way, end) => {
      const { peer, channel, id } = await connectedPeer();
      burst(channel, 60, 70_000);
      end(channel, id);
      from.host.drain();
      const sent = successes(channel.poll());
      expect(sent).toBeGreaterThan(10);
      await expectArrived(peer, 70_000, sent);
    },
  );

  it.each(ways)('%s: a peer that reads late still gets it [RDMAP-5.5-10]', async (_way, end) => {
    const { peer, channel, id } = await connectedPeer();
    peer.stopReading();
    burst(channel, 60, 1 << 19);
    await quiet(50);
    end(channel, id);
    from.host.drain();
    const sent = successes(channel.poll());
    expect(sent).toBeGreaterThan(0);
    peer.resumeReading();
    await expectArrived(peer, 1 << 19, sent);
  });

  it.each(['delay', 'bandwidth'] as const)(
    'sends completed messages through a fault of %s, too [RDMAP-5.5-10]',
    async (kind) => {
      const { peer, channel } = await connectedPeer();
      const spec = kind === 'delay' ? { kind, ms: 40 } : { kind, bytesPerSecond: 20_000_000 };
      from.host.faults.add(spec, undefined);
      burst(channel, 60, 70_000);
      channel.qp.close(from.host.now());
      from.host.drain();
      const sent = successes(channel.poll());
      expect(sent).toBeGreaterThan(0);
      await expectArrived(peer, 70_000, sent);
    },
  );

  it('waits briefly for the peers when its host closes [RDMAP-5.5-10]', async () => {
    const { peer, channel } = await connectedPeer();
    burst(channel, 60, 70_000);
    const gone = from.host.close();
    const sent = successes(channel.poll());
    expect(sent).toBeGreaterThan(0);
    await gone;
    await expectArrived(peer, 70_000, sent);
  });

  it('leaves no socket behind when the peer neither reads nor closes', async () => {
    from = node(CLOSE_MICROS);
    const { peer, channel } = await connectedPeer();
    peer.stopReading();
    burst(channel, 60, 1 << 20);
    channel.qp.close(from.host.now());
    from.host.drain();
    expect(from.host.connections()).toEqual([]);
    await until('the socket to go', () => [...from.host.conduits()].length === 0);
    peer.resumeReading();
    await peer.overs();
  });

  it('reaches a peer that keeps sending, after everything that completed [RDMAP-5.5-10]', async () => {
    const to = node();
    const { active, passive, passiveId } = await connectPair(from, to);
    for (let count = 0; count < 64; count++) passive.receive(0, 70_000);
    const chatter = new EagerSender(passive, SEND_BYTES, 8);
    burst(active, 60, 70_000);
    active.qp.close(from.host.now());
    from.host.drain();
    const sent = successes(active.poll());
    expect((await to.event(passiveId)).type).toBe(CMEventType.disconnected);
    chatter.stop();
    const received = [...chatter.outcomes, ...passive.poll()].filter(
      ({ opcode, status }) => opcode === WCOpcode.recv && status === WCStatus.success,
    );
    expect(received).toHaveLength(sent);
  });
});

describe('a fault of the peer while output waits', () => {
  /** More than the socket buffers of loopback hold. */
  const LONG_BYTES = 24 << 20;
  const SENDS = 3;
  const badWrite = emitFpdu(bytesOf('c1 40 00000bad 00*8 00'));

  /** A peer that reads nothing while the host sends a long message, and then breaks the protocol. */
  async function stuck() {
    const { peer, channel, id } = await connectedPeer(LONG_BYTES);
    peer.stopReading();
    channel.receive(0, 64);
    const found: WC[] = [];
    burst(channel, SENDS, LONG_BYTES);
    await quiet(50);
    found.push(...channel.poll());
    expect(successes(found)).toBeLessThan(SENDS);
    peer.say(badWrite);
    await until('the consumer to be notified', () => from.asyncEvents.length > 0);
    expect(channel.qp.state).toBe(QPState.SQE);
    expect(from.asyncEvents).toMatchObject([{ event: AsyncEventType.qpAccessErr }]);
    expect(from.notices.filter(({ level }) => level === 'warn')).toMatchObject([
      { qpn: channel.qp.qpn, remote: { address: '127.0.0.1', port: expect.any(Number) } },
    ]);
    found.push(...channel.poll());
    expect(found.at(-1)).toMatchObject({ opcode: WCOpcode.recv, status: WCStatus.wrFlushErr });
    return { peer, channel, id, found };
  }

  it('is reported at once; the Terminate follows the message in progress [RDMAP-7.1-01] [DDP-8.3-03] [RDMAP-7.1-03]', async () => {
    const { peer, channel, id, found } = await stuck();
    // The message in progress is read from its buffer to the end, and not flushed before.
    const early = found.filter(({ opcode }) => opcode === WCOpcode.send).length;
    peer.resumeReading();
    await until('our FIN', () => peer.ended);
    const { received } = peer;
    expect(wholeSends(received, LONG_BYTES)).toBe(successes(found) + 1);
    // The Terminate is the last FPDU: 38 bytes of ULPDU, its length and CRC.
    const terminate = received.subarray(received.length - 44);
    expect(terminate.subarray(2, 4).toString('hex')).toBe('4147');
    expect(terminate.subarray(20, 22).toString('hex')).toBe('1100');
    found.push(...(await channel.completions(SENDS - early)));
    const flushed = found.filter(({ status }) => status === WCStatus.wrFlushErr);
    expect(flushed).toHaveLength(SENDS + 1 - successes(found));
    peer.finish();
    expect((await from.event(id)).type).toBe(CMEventType.disconnected);
    expect(channel.qp.state).toBe(QPState.ERR);
  });

  it('ends the connection in time though the peer reads nothing, whatever it sends [RDMAP-6.2.1-04]', async () => {
    from = node(CLOSE_MICROS);
    const { peer, channel, id, found } = await stuck();
    const chatter = setInterval(() => peer.say(new Uint8Array(1)), CLOSE_MICROS / 4000);
    expect((await from.event(id)).type).toBe(CMEventType.disconnected);
    clearInterval(chatter);
    expect(channel.qp.state).toBe(QPState.ERR);
    found.push(...channel.poll());
    expect(found).toHaveLength(SENDS + 1);
  });

  it('sends its Terminate though the consumer destroys the queue pair at once [RDMAP-6.2.1-01]', async () => {
    const { peer, channel } = await connectedPeer();
    channel.receive(0, 64);
    from.host.onAsync = () => channel.qp.close(from.host.now());
    peer.say(badWrite);
    await until('our FIN', () => peer.ended);
    expect(peer.received.subarray(24 + 2, 24 + 4).toString('hex')).toBe('4147');
  });
});

describe('the close timeout', () => {
  it('is not extended by input from the peer [DDP-6.2.1-06]', async () => {
    from = node(CLOSE_MICROS);
    const { peer, channel, id } = await connectedPeer();
    // A Read that the peer never answers keeps the close waiting.
    const sgList = [{ addr: channel.address(), length: 64, lkey: channel.mr.lkey }];
    const remote = { remoteAddr: 0x1000, rkey: 0x77 };
    channel.postSend({ opcode: WROpcode.rdmaRead, sgList, ...remote });
    from.host.cm.disconnect(id);
    const emptyWrite = emitFpdu(bytesOf('c1 40 00*12'));
    const chatter = setInterval(() => peer.say(emptyWrite), CLOSE_MICROS / 4000);
    expect((await from.event(id)).type).toBe(CMEventType.disconnected);
    clearInterval(chatter);
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.wrFlushErr }]);
  });
});
