/** Several DDP streams in an association, and several sessions on a stream, on the real stack. */
import { afterEach, describe, expect, it } from 'vitest';
import { CMEventType, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { SocketAddress } from '#contract/verbs/provider';
import { DdpStreams } from '#daemon/host/sctp/ddp-streams';
import { SCTP } from '#daemon/host/sctp/sctp-carrier';
import type { SctpLink } from '#daemon/host/sctp/sctp-link';
import { bytesOf } from '../support/hex.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { NO_WISHES, RnicNode } from '../support/rnic-node.ts';
import { CONTROL, HandPeer, message, SEGMENT } from '../support/sctp-hand-peer.ts';
import { SctpRig, SEGMENT as SEGMENT_KIND, until } from '../support/sctp-pair.ts';

const { disconnected, established, rejected } = CMEventType;

/** Streams of a scripted peer. */
const STREAMS = 8;
/** Untagged, last, Send, queue 0, message 1. */
const SEND_1 = '4143 00000000 00000000 00000001 00000000';
const SEND_2 = '4143 00000000 00000000 00000002 00000000';
/** A Write to an STag that does not exist. */
const BAD_WRITE = 'c140 deadbe00 00000000 00000000 61';

describeWith(['sctp'], 'an association with several DDP streams', () => {
  const rig = new SctpRig();
  const nodes: RnicNode[] = [];

  afterEach(async () => {
    rig.close();
    await Promise.all(nodes.splice(0).map(({ host }) => host.close()));
  });

  function device(address: string): RnicNode {
    const devices = [{ name: 'd', addresses: [address], lowerLayer: 'sctp' as const }];
    const node = new RnicNode({ devices, carriers: [SCTP] });
    nodes.push(node);
    return node;
  }

  describe('of a peer by hand', () => {
    async function toListener(backlog = 16) {
      const node = device(rig.there);
      const listener = node.listen(rig.there, backlog);
      const port = rig.hold(rig.here, 0, 1, STREAMS);
      const peer = new HandPeer(await rig.open(port, rig.there, listener.at.port));
      /** A session that the host accepts. */
      const session = async (on: HandPeer) => {
        on.say(CONTROL, '0000 0001');
        const request = await node.event(listener.id);
        const channel = node.channel();
        node.host.cm.accept(request.id, channel.qp, NO_WISHES);
        expect(await on.receive()).toBe(message(CONTROL, '0000 0002'));
        expect((await node.event(request.id)).type).toBe(established);
        return { on, channel, id: request.id };
      };
      return { node, listener, peer, session };
    }

    type Session = Awaited<ReturnType<Awaited<ReturnType<typeof toListener>>['session']>>;

    /** Checks that the session carries a message of the peer, by default its first. */
    async function carries({ on, channel }: Session, ssn = '0001', send = SEND_1): Promise<void> {
      channel.receive(0, 64);
      on.say(SEGMENT, `${ssn} ${send} 616263`);
      expect(await channel.completions(1)).toMatchObject([
        { status: WCStatus.success, byteLen: 3 },
      ]);
    }

    it('runs a session on each pair of streams, with its own DDP-SSNs [SCTP-6-01, SCTP-6.1-01, SCTP-5.2.1-02, SCTP-8-01]', async () => {
      const { peer, session } = await toListener();
      expect(peer.end.association.streamCount).toBe(STREAMS);
      const sessions = [await session(peer), await session(peer.on(STREAMS - 1))];
      sessions.push(await session(peer.on(3)));
      for (const each of sessions) await carries(each);
      for (const { on, channel } of sessions) {
        channel.send(0, 3);
        expect(await on.receive()).toBe(message(SEGMENT, `0001 ${SEND_1} 616263`));
      }
    });

    it('runs sessions in sequence on a stream, each from DDP-SSN 0 [SCTP-6.1-01, SCTP-6-02, SCTP-6.6-03]', async () => {
      const { node, peer, session } = await toListener();
      for (let count = 0; count < 5; count += 1) {
        const each = await session(peer);
        await carries(each);
        peer.say(CONTROL, '0002 0004');
        expect(await peer.receive()).toBe(message(CONTROL, '0001 0004'));
        expect(await node.event(each.id)).toMatchObject({ type: disconnected, error: undefined });
      }
      // Once the last one has ended, so does the association.
      expect(await peer.ended()).toBe('shutdown');
    });

    it.each([
      ['a Terminate', CONTROL, '0001 0004', 'none'],
      ['a second Initiate', CONTROL, '0001 0001', 'ECONNRESET'],
      ['an Initiate with the first DDP-SSN', CONTROL, '0000 0001', 'ECONNRESET'],
      ['a DDP-SSN that came before', SEGMENT, `0000 ${SEND_1}`, 'ECONNRESET'],
      ['a payload protocol that is not DDP’s', 99, '0001 0000', 'ECONNRESET'],
      ['a message that is too short', SEGMENT, '00', 'ECONNRESET'],
      ['a breach of DDP', SEGMENT, `0001 ${BAD_WRITE}`, undefined],
    ])(
      'survives when one session ends by %s [SCTP-6.1-02, SCTP-11.3-02]',
      async (_, protocol, hex, error) => {
        const { node, peer, session } = await toListener();
        const one = await session(peer);
        const other = await session(peer.on(1));
        peer.say(protocol, hex);
        const first = await peer.receive();
        // RDMAP's Terminate may be before the session's, which the peer answers.
        const last = first.startsWith(`${SEGMENT}`) ? await peer.receive() : first;
        expect(last).toMatch(/^17 ....0004$/);
        if (last !== first) peer.say(CONTROL, '0002 0004');
        const event = await node.event(one.id);
        expect(event.type).toBe(disconnected);
        if (error !== undefined) expect(event.error ?? 'none').toBe(error);
        await carries(other);
        expect(node.eventsOf(other.id)).toEqual([]);
      },
    );

    it('survives when the host’s program destroys the queue pair of one session [SCTP-11.3-02]', async () => {
      const { node, peer, session } = await toListener();
      const one = await session(peer);
      const other = await session(peer.on(1));
      node.host.cm.destroy(one.id);
      expect(await peer.receive()).toBe(message(CONTROL, '0001 0004'));
      await carries(other);
      // The stream is free for another session once both ends have sent their last message.
      peer.say(CONTROL, '0001 0004');
      await carries(await session(peer));
    });

    it('reports possible loss to the peer of a session that is cut off beside others [SCTP-11.3-02]', async () => {
      const { node, peer, session } = await toListener();
      const one = await session(peer);
      const other = await session(peer.on(1));
      node.host.conduitOf(one.channel.qp)?.reset();
      // An RDMAP Terminate: a local catastrophic error.
      const cut = '4147 00000000 00000002 00000001 00000000 00000000';
      expect(await peer.receive()).toBe(message(SEGMENT, `0001 ${cut}`));
      expect(await peer.receive()).toBe(message(CONTROL, '0002 0004'));
      await carries(other);
      peer.say(CONTROL, '0001 0004');
      await carries(await session(peer));
    });

    it('rejects and refuses sessions beside others, and takes new ones on their streams [SCTP-6.3-01, SCTP-6.3-02, SCTP-5.2.3-06]', async () => {
      const { node, listener, peer, session } = await toListener(1);
      const one = await session(peer);
      const second = peer.on(1).say(CONTROL, '0000 0001');
      const request = await node.event(listener.id);
      const third = peer.on(2).say(CONTROL, '0000 0001');
      expect(await third.receive()).toBe(message(CONTROL, '0000 0004'));
      node.host.cm.reject(request.id, Uint8Array.of(7));
      expect(await second.receive()).toBe(message(CONTROL, '0000 0003 07'));
      await carries(await session(second));
      await carries(await session(third));
      await carries(one);
    });

    it('answers messages without a session with a Terminate, and does not answer a Terminate [SCTP-6.1-02]', async () => {
      const { node, listener, peer, session } = await toListener();
      const one = await session(peer);
      const stray = peer.on(2).say(SEGMENT, `0000 ${SEND_1}`);
      expect(await stray.receive()).toBe(message(CONTROL, '0000 0004'));
      const accept = peer.on(3).say(CONTROL, '0000 0002');
      expect(await accept.receive()).toBe(message(CONTROL, '0000 0004'));
      await peer.on(4).say(CONTROL, '0000 0004').silence();
      await stray.silence();
      expect(node.eventsOf(listener.id)).toEqual([]);
      await carries(one);
      await carries(await session(stray));
    });

    it('receives on one session while another does not read [SCTP-10-02]', async () => {
      const { peer, session } = await toListener();
      const one = await session(peer);
      const other = await session(peer.on(1));
      // No message can be delivered on the first: all wait for a missing one.
      for (let count = 0; count < 50; count += 1) {
        const ssn = (count + 2).toString(16).padStart(4, '0');
        one.on.say(SEGMENT, `${ssn} ${SEND_2} 00*1000`);
      }
      await carries(other);
      expect(one.channel.poll()).toEqual([]);
    });

    it('ends all sessions when it ends, and notifies each of them [SCTP-11.3-01]', async () => {
      const { node, peer, session } = await toListener();
      const sessions = [await session(peer), await session(peer.on(1)), await session(peer.on(2))];
      peer.end.association.abort();
      for (const { id } of sessions) {
        expect(await node.event(id)).toMatchObject({ type: disconnected, error: 'ECONNRESET' });
      }
    });

    it('may begin on any stream, and loses no session to one that never begins', async () => {
      const { peer, session } = await toListener();
      await carries(await session(peer.on(5)));
      await peer.silence();
    });
  });

  describe('between devices', () => {
    /** Dials as a program; its connection is accepted. */
    async function connected(
      near: RnicNode,
      far: RnicNode,
      listener: ReturnType<RnicNode['listen']>,
      program: object | undefined,
      from?: SocketAddress,
    ) {
      const channel = near.channel();
      const id = await near.resolved(listener.at, from);
      id.program = program;
      near.host.cm.connect(id, channel.qp, NO_WISHES);
      const request = await far.event(listener.id);
      const there = far.channel();
      far.host.cm.accept(request.id, there.qp, NO_WISHES);
      expect((await near.event(id)).type).toBe(established);
      expect((await far.event(request.id)).type).toBe(established);
      return { channel, id, there, far: request.id };
    }

    type Connection = Awaited<ReturnType<typeof connected>>;

    function devices() {
      const near = device(rig.here);
      const far = device(rig.there);
      const listener = far.listen(rig.there, 64);
      const dial = (program: object | undefined, from?: SocketAddress) =>
        connected(near, far, listener, program, from);
      return { near, far, listener, dial };
    }

    async function carries({ channel, there }: Connection, bytes = 3000): Promise<void> {
      there.receive(0, bytes);
      channel.send(0, bytes);
      expect(await there.completions(1)).toMatchObject([{ byteLen: bytes }]);
      expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success }]);
    }

    /** The port of an association, by which the far end distinguishes associations. */
    const portOf = (connection: Connection) => connection.far.peerAddress?.port;

    async function ended(near: RnicNode, far: RnicNode, connection: Connection): Promise<void> {
      near.host.cm.disconnect(connection.id);
      expect((await near.event(connection.id)).type).toBe(disconnected);
      expect((await far.event(connection.far)).type).toBe(disconnected);
    }

    it('carries one connection of a program per stream; further ones use a new association [SCTP-8-01, SCTP-6-01]', async () => {
      const { dial } = devices();
      const program = {};
      const all: Connection[] = [];
      for (let count = 0; count < 20; count += 1) all.push(await dial(program));
      const ports = all.map(portOf);
      expect(new Set(ports.slice(0, 16)).size).toBe(1);
      expect(new Set(ports.slice(16)).size).toBe(1);
      expect(new Set(ports).size).toBe(2);
      for (const each of all) await carries(each);
    });

    it('does not end gracefully at the peer where the session was cut off [SCTP-11.3-02]', async () => {
      const { near, far, dial } = devices();
      const program = {};
      const one = await dial(program);
      const other = await dial(program);
      near.host.conduitOf(one.channel.qp)?.reset();
      const event = await far.event(one.far);
      expect(event).toMatchObject({ type: disconnected, error: 'ECONNRESET' });
      await carries(other);
    });

    it('is shared by concurrent connects', async () => {
      const { near, far, listener } = devices();
      const program = {};
      const ids = await Promise.all([1, 2, 3, 4].map(() => near.resolved(listener.at)));
      for (const id of ids) {
        id.program = program;
        near.host.cm.connect(id, near.channel().qp, NO_WISHES);
      }
      const ports: unknown[] = [];
      for (const _ of ids) {
        const request = await far.event(listener.id);
        ports.push(request.id.peerAddress?.port);
        far.host.cm.accept(request.id, far.channel().qp, NO_WISHES);
      }
      for (const id of ids) expect((await near.event(id)).type).toBe(established);
      expect(new Set(ports).size).toBe(1);
    });

    it('is not shared with other programs, or with ids that ask for a port', async () => {
      const { dial } = devices();
      const program = {};
      const port = rig.hold(rig.here);
      port.release();
      const all = [
        await dial(program),
        await dial({}),
        await dial(undefined),
        await dial(undefined),
        await dial(program, { address: rig.here, port: port.port }),
      ];
      expect(new Set(all.map(portOf)).size).toBe(all.length);
      expect(portOf(all[4] as Connection)).toBe(port.port);
      for (const each of all) await carries(each);
    });

    it('survives the end of connections, and carries the next ones on their streams [SCTP-6.6-03, SCTP-6.1-01]', async () => {
      const { near, far, dial } = devices();
      const program = {};
      const first = await dial(program);
      for (let round = 0; round < 30; round += 1) {
        const next = await dial(program);
        expect(portOf(next)).toBe(portOf(first));
        await carries(next);
        if (round % 3 === 0) near.host.cm.destroy(next.id);
        else if (round % 3 === 1) far.host.cm.destroy(next.far);
        else await ended(near, far, next);
        await carries(first);
      }
      expect(near.eventsOf(first.id)).toEqual([]);
    });

    it('ends a while after its last connection, and not before', async () => {
      const { near, far, dial } = devices();
      const program = {};
      const one = await dial(program);
      await ended(near, far, one);
      const two = await dial(program);
      expect(portOf(two)).toBe(portOf(one));
      await ended(near, far, two);
      await quiet(1500);
      expect(portOf(await dial(program))).not.toBe(portOf(two));
    });

    it('carries a session to a listener that came later', async () => {
      const { near, far, listener, dial } = devices();
      const program = {};
      const one = await dial(program);
      far.host.cm.destroy(listener.id);
      const refused = await near.resolved(listener.at);
      refused.program = program;
      near.host.cm.connect(refused, near.channel().qp, NO_WISHES);
      expect(await near.event(refused)).toMatchObject({ type: rejected, error: 'ECONNREFUSED' });
      const id = far.host.cm.createId(undefined);
      far.host.cm.bindAddr(id, listener.at);
      far.host.cm.listen(id, 16);
      const two = await connected(near, far, { id, at: listener.at }, program);
      expect(portOf(two)).toBe(portOf(one));
      await carries(two);
      await carries(one);
    });

    it('opens and closes connections while another keeps it busy [SCTP-6.6-01]', async () => {
      const { near, far, dial } = devices();
      const program = {};
      const busy = await dial(program);
      let writing = true;
      let sent = 0;
      const stream = (async () => {
        const target = { remoteAddr: busy.there.address(), rkey: busy.there.mr.rkey };
        while (writing) {
          for (let count = 0; count < 8; count += 1) {
            const sgList = [
              { addr: busy.channel.address(), length: 500_000, lkey: busy.channel.mr.lkey },
            ];
            busy.channel.postSend({ opcode: WROpcode.rdmaWrite, sgList, ...target });
          }
          const done = await busy.channel.completions(8);
          for (const { status } of done) expect(status).toBe(WCStatus.success);
          sent += done.length;
        }
      })();
      for (let round = 0; round < 5; round += 1) {
        const next = await dial(program);
        expect(portOf(next)).toBe(portOf(busy));
        await carries(next, 100_000);
        await ended(near, far, next);
      }
      writing = false;
      await stream;
      expect(sent).toBeGreaterThan(0);
      await carries(busy);
    });
  });

  it('isolates streams: one that does not read stops others only beyond its bound', async () => {
    const [mine, theirs] = await rig.pair();
    const links: SctpLink[] = [];
    const host = {
      soon: (run: () => void) => rig.clock.soon(run),
      after: (micros: number, run: () => void) => rig.clock.after(micros, run),
      handleUp: () => {},
      handleGone: () => {},
    };
    const streams = new DdpStreams(theirs.association, host, {
      onSession: (link) => links.push(link),
      idleMicros: 1_000_000,
    });
    const got = [0, 0];
    const say = (streamId: number, protocol: number, bytes: Uint8Array) =>
      mine.association.send(streamId, { ...SEGMENT_KIND, payloadProtocol: protocol }, bytes);
    for (const streamId of [0, 1]) say(streamId, CONTROL, bytesOf('0000 0001'));
    await until('both sessions', () => links.length === 2);
    links.forEach((link, index) => {
      const user = link.user;
      link.user = {
        ...user,
        handleBytes: (bytes) => {
          got[index] = (got[index] ?? 0) + bytes.length;
        },
        handleFlushed: () => {},
        handlePeerClosed: () => {},
        handleClosed: () => {},
      };
    });
    const [slow] = links as [SctpLink, SctpLink];
    slow.pauseReading();
    const block = new Uint8Array(1000);
    let sent = 0;
    for (; sent < 200_000; sent += block.length) expect(say(0, SEGMENT, block)).toBe(true);
    expect(say(1, SEGMENT, block)).toBe(true);
    await until('the other stream is read', () => got[1] === block.length);
    expect(got[0]).toBe(0);
    // As much as windows and buffers hold, but no more.
    while (sent < 100_000_000 && say(0, SEGMENT, block)) sent += block.length;
    expect(say(1, SEGMENT, block)).toBe(false);
    expect(got).toEqual([0, block.length]);
    slow.resumeReading();
    await until('everything has come', () => got[0] === sent);
    expect(say(1, SEGMENT, block)).toBe(true);
    await until('the other stream continues', () => got[1] === 2 * block.length);
    streams.abort();
  });
});
