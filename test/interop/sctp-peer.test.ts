/** A host with an SCTP device, and a peer whose DDP messages are all written out by hand. */
import { afterEach, expect, it } from 'vitest';
import { CMEventType, WCStatus } from '#contract/verbs/enums';
import { SCTP } from '#daemon/host/sctp/sctp-carrier';
import { sctpStack } from '#daemon/host/sctp/sctp-stack';
import { hexOf } from '../support/hex.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type Channel, NO_WISHES, RnicNode } from '../support/rnic-node.ts';
import { CONTROL, HandPeer, message, SEGMENT } from '../support/sctp-hand-peer.ts';
import { type RecordedEnd, SctpRig, until } from '../support/sctp-pair.ts';

const OTHER_ADAPTATION = 7;
/** Untagged, last, Send, queue 0, message 1. */
const SEND_1 = '4143 00000000 00000000 00000001 00000000';
const SEND_2 = '4143 00000000 00000000 00000002 00000000';

describeWith(['sctp'], 'a device of SCTP and a peer by hand', () => {
  const rig = new SctpRig();
  const nodes: RnicNode[] = [];

  afterEach(async () => {
    rig.close();
    await Promise.all(nodes.splice(0).map(({ host }) => host.close()));
  });

  function device(): RnicNode {
    const devices = [{ name: 'd', addresses: [rig.there], lowerLayer: 'sctp' as const }];
    const node = new RnicNode({ devices, carriers: [SCTP] });
    nodes.push(node);
    return node;
  }

  /** A peer whose association with a listener of the host is up. */
  async function toListener(node: RnicNode, backlog = 16) {
    const listener = node.listen(rig.there, backlog);
    const dial = async () =>
      new HandPeer(await rig.open(rig.hold(rig.here), rig.there, listener.at.port));
    return { listener, dial, peer: await dial() };
  }

  /** The peer's session is accepted. */
  async function accepted(initiate: string, wishes = NO_WISHES) {
    const node = device();
    const { listener, peer } = await toListener(node);
    peer.say(CONTROL, initiate);
    const request = await node.event(listener.id);
    const channel = node.channel();
    node.host.cm.accept(request.id, channel.qp, wishes);
    const answer = await peer.receive();
    expect((await node.event(request.id)).type).toBe(CMEventType.established);
    return { node, peer, channel, answer, request };
  }

  /** A session that the host initiates; the association of the peer is up. */
  async function fromHost(wishes = NO_WISHES) {
    const node = device();
    const port = rig.hold(rig.here);
    const before = rig.accepted.length;
    rig.acceptAt(port);
    const channel: Channel = node.channel();
    const id = await node.connect(channel, { address: rig.here, port: port.port }, wishes);
    await until('the association', () => rig.accepted.length > before);
    const peer = new HandPeer(rig.accepted.at(-1) as RecordedEnd);
    return { node, channel, id, peer };
  }

  it('runs a plain session: Initiate, Accept, segments, a Terminate from each, and nothing else [SCTP-6.2-01, SCTP-6.5-01, SCTP-5.2.3-03, SCTP-5.2.1-02, SCTP-6-02, SCTPE-10-01, SCTP-10-01]', async () => {
    const { node, peer, channel, answer, request } = await accepted('0000 0001');
    expect(request.privateData).toHaveLength(0);
    expect(answer).toBe(message(CONTROL, '0000 0002'));
    channel.receive(0, 64);
    peer.say(SEGMENT, `0001 ${SEND_1} 616263`);
    expect(await channel.completions(1)).toMatchObject([{ status: WCStatus.success, byteLen: 3 }]);
    channel.send(0, 3);
    expect(await peer.receive()).toBe(message(SEGMENT, `0001 ${SEND_1} 616263`));
    peer.say(CONTROL, '0002 0004');
    expect(await peer.receive()).toBe(message(CONTROL, '0002 0004'));
    expect(await node.event(request.id)).toMatchObject({
      type: CMEventType.disconnected,
      error: undefined,
    });
    expect(await peer.ended()).toBe('shutdown');
    await peer.silence();
  });

  it('answers an enhanced Initiate with an enhanced Accept within the depths of the peer, and ends with a plain Terminate [SCTPE-9-01, SCTPE-9.1-01, SCTPE-9.2-01, SCTPE-10-01, SCTPE-7-05, SCTP-5.2.3-04]', async () => {
    // Peer to peer, RTR by Read or Write, IRD 4, ORD 8, and one byte.
    const { node, peer, answer, request } = await accepted('0000 0005 8004c008 41');
    expect(request).toMatchObject({ initiatorDepth: 4, responderResources: 8 });
    expect([...request.privateData]).toEqual([0x41]);
    const [, code = '', word = ''] = /^17 0000(.{4})(.{8})$/.exec(answer) ?? [];
    expect(code).toBe('0006');
    const fields = Number.parseInt(word, 16);
    // A is copied, and at least one RTR is left; the responder's ORD is within the initiator's IRD.
    expect(fields >>> 31).toBe(1);
    expect(fields & 0xc000).not.toBe(0);
    expect(fields & 0x3fff).toBeLessThanOrEqual(4);
    expect((fields >>> 16) & 0x3fff).toBeGreaterThanOrEqual(8);
    node.host.cm.disconnect(request.id);
    expect(await peer.receive()).toBe(message(CONTROL, '0001 0004'));
  });

  it.each([
    [
      'without the peer-to-peer flag there is no RTR either',
      '0000 0005 00044008',
      /^17 00000006[03]/,
    ],
    ['0x3fff is answered with 0x3fff', '0000 0005 3fff3fff', /^17 000000063fff3fff$/],
  ])(
    'negotiates as RFC 6581 says: %s [SCTPE-9.1-02, SCTPE-9.2-01]',
    async (_, initiate, answer) => {
      const { answer: received } = await accepted(initiate);
      expect(received).toMatch(answer);
      expect(Number.parseInt(received.slice(-8), 16) & 0x4000_c000).toBe(0);
    },
  );

  it('rejects only if the program does, enhanced if the request was [SCTP-6.3-02, SCTPE-7-04, SCTP-5.2.3-03]', async () => {
    const node = device();
    const { listener, peer, dial } = await toListener(node);
    peer.say(CONTROL, '0000 0001');
    node.host.cm.reject((await node.event(listener.id)).id, Uint8Array.of(7, 8));
    expect(await peer.receive()).toBe(message(CONTROL, '0000 0003 0708'));
    expect(await peer.ended()).toBe('shutdown');
    const second = await dial();
    second.say(CONTROL, '0000 0005 00044008');
    node.host.cm.reject((await node.event(listener.id)).id, Uint8Array.of(7));
    expect(await second.receive()).toMatch(/^17 00000007.{8}07$/);
  });

  it('refuses requests beyond the backlog and of a destroyed id with a Terminate [SCTP-5.2.3-06, SCTP-6.3-02]', async () => {
    const node = device();
    const { listener, peer, dial } = await toListener(node, 1);
    peer.say(CONTROL, '0000 0001');
    const request = await node.event(listener.id);
    const second = await dial();
    second.say(CONTROL, '0000 0001');
    expect(await second.receive()).toBe(message(CONTROL, '0000 0004'));
    node.host.cm.destroy(request.id);
    expect(await peer.receive()).toBe(message(CONTROL, '0000 0004'));
  });

  it('judges messages in the order of their DDP-SSNs, not of their TSNs [SCTP-6.1-02, SCTP-10-02]', async () => {
    const { peer, channel } = await accepted('0000 0001');
    channel.receive(0, 64);
    channel.receive(64, 64);
    peer.say(SEGMENT, `0002 ${SEND_2} 6262`);
    peer.say(SEGMENT, `0001 ${SEND_1} 61`);
    expect(await channel.completions(2)).toMatchObject([{ byteLen: 1 }, { byteLen: 2 }]);
    expect([...channel.buffer.subarray(0, 1), ...channel.buffer.subarray(64, 66)]).toEqual([
      0x61, 0x62, 0x62,
    ]);
  });

  it.each([
    ['a segment before the Initiate', SEGMENT, `0000 ${SEND_1}`],
    ['an Accept in its place', CONTROL, '0000 0002'],
    ['a function that no RFC has', CONTROL, '0000 0099'],
    ['513 bytes of private data', CONTROL, '0000 0001 00*513'],
    ['509 bytes after the enhanced word', CONTROL, '0000 0005 00040004 00*509'],
  ])(
    'ends a session that begins with %s [SCTP-6.1-02, SCTP-5.2.3-04, SCTPE-7-03]',
    async (_, protocol, hex) => {
      const node = device();
      const { listener, peer } = await toListener(node);
      peer.say(protocol, hex);
      expect(await peer.receive()).toBe(message(CONTROL, '0000 0004'));
      await peer.ended();
      expect(node.eventsOf(listener.id)).toEqual([]);
    },
  );

  it.each([
    ['a DDP-SSN that came before', SEGMENT, `0000 ${SEND_1}`],
    ['a second Initiate', CONTROL, '0001 0001'],
    ['a payload protocol that is not DDP’s', 99, '0001 0000'],
  ])('ends an open session for %s [SCTP-6.1-02]', async (_, protocol, hex) => {
    const { node, peer, request } = await accepted('0000 0001');
    peer.say(protocol, hex);
    expect(await node.event(request.id)).toMatchObject({
      type: CMEventType.disconnected,
      error: 'ECONNRESET',
    });
    await peer.ended();
  });

  it('initiates with up to 508 bytes of private data, and sends no segment before it is accepted; then its RTR is the first [SCTP-6.6-02, SCTPE-7-03, SCTP-5.2.3-04, SCTPE-9.2-01]', async () => {
    const privateData = new Uint8Array(508).fill(0x5a);
    const { node, channel, id, peer } = await fromHost({ ...NO_WISHES, privateData });
    const initiate = await peer.receive();
    expect(initiate).toMatch(/^17 00000005.{8}(5a){508}$/);
    await peer.silence();
    // Peer to peer, RTR by Write, depths of 4 and 4.
    peer.say(CONTROL, '0000 0006 80048004');
    expect((await node.event(id)).type).toBe(CMEventType.established);
    expect(await peer.receive()).toMatch(/^16 0001c140/);
    channel.send(0, 2);
    expect(await peer.receive()).toBe(message(SEGMENT, `0002 ${SEND_1} 0000`));
    const other = await node.resolved({ address: rig.here, port: 1 });
    const tooMuch = { ...NO_WISHES, privateData: new Uint8Array(509) };
    expect(() => node.host.cm.connect(other, node.channel().qp, tooMuch)).toThrow(
      expect.objectContaining({ code: 'EINVAL' }),
    );
  });

  it('reports a refusal, and a rejection with private data, to its program [SCTP-5.2.3-06, SCTPE-7-04]', async () => {
    const refused = await fromHost();
    await refused.peer.receive();
    refused.peer.say(CONTROL, '0000 0004');
    expect(await refused.node.event(refused.id)).toMatchObject({
      type: CMEventType.rejected,
      error: 'ECONNREFUSED',
    });
    await refused.node.host.close();
    const rejected = await fromHost();
    await rejected.peer.receive();
    rejected.peer.say(CONTROL, '0000 0007 00000000 4142');
    const event = await rejected.node.event(rejected.id);
    expect(event).toMatchObject({ type: CMEventType.rejected, error: 'ECONNRESET' });
    expect([...event.privateData]).toEqual([0x41, 0x42]);
  });

  it('sends RDMAP’s Terminate, then the session’s, when the peer breaks a rule of DDP [SCTP-11.3-02, SCTPE-7-05]', async () => {
    const { node, peer, request } = await accepted('0000 0005 00040004');
    // A Write to an STag that does not exist.
    peer.say(SEGMENT, '0001 c140 deadbe00 00000000 00000000 61');
    // Untagged, last, Terminate, queue 2: DDP, tagged buffer error, invalid STag.
    expect(await peer.receive()).toMatch(/^16 00014147000000000000000200000001000000001100/);
    expect(await peer.receive()).toBe(message(CONTROL, '0002 0004'));
    peer.say(CONTROL, '0002 0004');
    expect((await node.event(request.id)).type).toBe(CMEventType.disconnected);
  });

  it('rejects associations with another indication, from either side [SCTP-11.1-01, SCTP-7.1-01]', async () => {
    const node = device();
    const listener = node.listen(rig.there);
    const other = rig.hold(rig.here, 0, OTHER_ADAPTATION);
    await expect(rig.open(other, rig.there, listener.at.port)).rejects.toThrow('ECONNREFUSED');
    const port = rig.hold(rig.here, 0, OTHER_ADAPTATION);
    rig.acceptAt(port);
    const id = await node.connect(node.channel(), { address: rig.here, port: port.port });
    const { type } = await node.event(id);
    expect([CMEventType.rejected, CMEventType.connectError]).toContain(type);
    expect(rig.accepted.flatMap(({ user }) => user.messages)).toEqual([]);
  });

  it('sends no Terminate before its Accept is acknowledged [SCTP-6.6-01]', async () => {
    const node = device();
    const { listener, peer } = await toListener(node);
    const log: string[] = [];
    const stop = sctpStack(rig.clock).carrier.observe({
      watched: true,
      packet: (way, { address }, _peer, _port, sctp) => {
        // Seen from the host: its packets, and received SACKs.
        if (address !== rig.there) return;
        const type = sctp[12];
        if (way === 'in' && type === 3) log.push('SACK');
        if (way === 'out' && type === 0) log.push(hexOf(sctp.subarray(28, 32)));
      },
    });
    try {
      peer.say(CONTROL, '0000 0001');
      const request = await node.event(listener.id);
      node.host.cm.accept(request.id, node.channel().qp, NO_WISHES);
      node.host.cm.disconnect(request.id);
      expect(await peer.receive()).toBe(message(CONTROL, '0000 0002'));
      expect(await peer.receive()).toBe(message(CONTROL, '0001 0004'));
    } finally {
      stop();
    }
    expect(log.slice(log.indexOf('00000002') + 1, log.indexOf('00010004'))).toContain('SACK');
  });

  it('keeps associations that arrive between two listeners of one program', async () => {
    const node = device();
    const { cm } = node.host;
    const keeper = {};
    const { listener, dial, peer } = await toListener(node);
    listener.id.portKeeper = keeper;
    cm.destroy(listener.id);
    expect(await peer.ended()).toBeDefined();
    const second = await dial();
    second.say(CONTROL, '0000 0001');
    await second.silence();
    const next = cm.createId(undefined);
    next.portKeeper = keeper;
    cm.bindAddr(next, listener.at);
    cm.listen(next, 16);
    expect((await node.event(next)).type).toBe(CMEventType.connectRequest);
    cm.destroy(next);
    // Once the port is no longer held, a connection to it is refused.
    node.host.releasePorts(keeper);
    await expect(dial()).rejects.toThrow('ECONNREFUSED');
  });

  it('connects from the port that an id holds on every address', async () => {
    const node = device();
    const { cm } = node.host;
    const port = rig.hold(rig.here);
    rig.acceptAt(port);
    const id = cm.createId(undefined);
    cm.bindAddr(id, { address: '0.0.0.0', port: 0 });
    const bound = id.localAddress?.port;
    cm.resolveAddr(id, { address: rig.here, port: port.port }, undefined);
    cm.connect(id, node.channel().qp, NO_WISHES);
    await until('the association', () => rig.accepted.length > 0);
    expect(rig.accepted[0]?.association.remote).toEqual({ address: rig.there, port: bound });
  });
});
