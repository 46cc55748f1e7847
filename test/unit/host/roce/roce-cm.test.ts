/** Connection ids on RoCE devices: addresses, ports, events, and moves of the queue pair. */
import { beforeEach, describe, expect, it } from 'vitest';
import { SQOpcode } from '#contract/protocol/queue-layout';
import { CMEventType, QPState, QPType } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import type { HostId } from '#daemon/host/host-id';
import { PortSpace } from '#daemon/host/host-id';
import { NO_BYTES } from '#test/support/hex';
import { AT, CmWorld, WISHES } from '#test/support/roce-cm-world';
import type { RoceEnd } from '#test/support/roce-host';

const { ERR, INIT, RTR, RTS } = QPState;
const SECOND = 1_000_000;
const PROGRAM = {
  qpn: 0,
  srq: false,
  privateData: Uint8Array.of(7),
  responderResources: 5,
  initiatorDepth: 3,
  flowControl: true,
  retryCount: 4,
  rnrRetry: 6,
  qkey: 0,
};
const NOTHING = {
  ibConnections: 0,
  ibHalfOpen: 0,
  ibEarly: 0,
  ibEffects: 0,
  ibListeners: 0,
  roceIds: 0,
  rocePorts: 0,
  roceMads: 0,
  roceQPs: 0,
};

let world: CmWorld;

beforeEach(() => {
  world = new CmWorld();
});

describe('a connection that the host moves', () => {
  it('passes parameters to both ends, and carries data [IBCM-REQ-01, IBCM-IP-02]', () => {
    const listener = world.listener();
    const active = world.initialised(0);
    const passive = world.initialised(1);
    const dialer = world.resolved();
    expect(dialer.device).toBe('roce0');
    world.cm.connect(dialer, active.qp, WISHES);
    const request = world.take(CMEventType.connectRequest);
    expect(request).toMatchObject({
      listener,
      error: undefined,
      initiatorDepth: 6,
      responderResources: 4,
      ib: { qpn: active.qp.qpn, flowControl: true, retryCount: 7, rnrRetry: 7, srq: false },
    });
    expect(request.privateData).toHaveLength(56);
    expect([...request.privateData.subarray(0, 4)]).toEqual([1, 2, 3, 0]);
    expect(request.id).toMatchObject({ tag: 'listener', device: 'roce1', passive: true });
    expect(request.id.localAddress).toEqual(AT);
    expect(request.id.peerAddress).toEqual(dialer.localAddress);
    world.cm.accept(request.id, passive.qp, { ...WISHES, privateData: Uint8Array.of(9) });
    const established = world.take(CMEventType.established);
    expect(established.id).toBe(dialer);
    expect(established.privateData).toHaveLength(196);
    expect(established).toMatchObject({ initiatorDepth: 4, responderResources: 4 });
    expect(world.take(CMEventType.established).id).toBe(request.id);
    expect([active.qp.state, passive.qp.state]).toEqual([RTS, RTS]);
    passive.receives.post(1, [passive.piece(0, 100)]);
    active.memory.fill(5, 0, 100);
    active.sends.post({ wrId: 2, opcode: SQOpcode.send, sges: [active.piece(0, 100)] });
    active.ring();
    world.run(SECOND);
    expect(passive.memory.subarray(0, 100).every((byte) => byte === 5)).toBe(true);
  });

  it('ends at both ends when one disconnects, and leaves nothing [IBCM-DREQ-05]', () => {
    const { active, passive, dialer, acceptor } = world.connected();
    world.cm.disconnect(dialer);
    world.run(SECOND);
    expect(world.types).toEqual([CMEventType.disconnected, CMEventType.disconnected]);
    expect([active.qp.state, passive.qp.state]).toEqual([ERR, ERR]);
    world.cm.disconnect(dialer);
    world.cm.disconnect(acceptor);
    for (const id of [dialer, acceptor]) world.cm.destroy(id);
    world.run(5 * SECOND);
    expect(world.events).toHaveLength(2);
    expect(world.host.heldByRoce()).toMatchObject({
      ...NOTHING,
      ibListeners: 1,
      roceIds: 1,
      rocePorts: 1,
    });
  });

  it('ends when an id or a queue pair is destroyed [IBCM-SM-03]', () => {
    for (const end of ['id', 'qp'] as const) {
      const world = new CmWorld();
      const { active, dialer, acceptor, passive } = world.connected();
      if (end === 'id') world.cm.destroy(dialer);
      else {
        active.qp.close(world.host.now());
        world.host.drain();
      }
      world.run(SECOND);
      const received = world.events.filter(({ type }) => type === CMEventType.disconnected);
      expect(received.map(({ id }) => id)).toEqual(end === 'id' ? [acceptor] : [dialer, acceptor]);
      expect(passive.qp.state).toBe(ERR);
    }
  });

  it.each([
    ['the peer fails a message', 10, 'the peer failed to execute the request'],
    ['no answer comes', 100, 'no response from the peer after all retries (retry_cnt)'],
  ])('ends at both ends when %s', (_what, receiveBytes, text) => {
    const { active, passive, dialer } = world.connected();
    const drop = { kind: 'drop', device: 'roce1', opcode: 'acknowledge' } as const;
    if (receiveBytes === 100) world.host.faults.add(drop, undefined);
    passive.receives.post(1, [passive.piece(0, receiveBytes)]);
    active.sends.post({ wrId: 2, opcode: SQOpcode.send, sges: [active.piece(0, 100)] });
    active.ring();
    world.run(60 * SECOND);
    expect(world.types).toEqual([CMEventType.disconnected, CMEventType.disconnected]);
    const end = world.events.find(({ id }) => id === dialer);
    expect(end).toMatchObject({ error: 'ECONNRESET', text: expect.stringContaining(text) });
    expect([active.qp.state, passive.qp.state]).toEqual([QPState.ERR, QPState.ERR]);
  });

  it('is rejected when the peer withdraws its answer at once', () => {
    world.listener();
    const [active, passive] = [world.initialised(0), world.initialised(1)];
    const dialer = world.resolved();
    world.cm.connect(dialer, active.qp, WISHES);
    const { id: acceptor } = world.take(CMEventType.connectRequest);
    // Both messages arrive before either is handled.
    world.host.faults.add({ kind: 'delay', device: 'roce1', direction: 'out', ms: 100 }, undefined);
    world.cm.accept(acceptor, passive.qp, WISHES);
    world.cm.destroy(acceptor);
    world.host.faults.clear();
    expect(world.take(CMEventType.rejected).id).toBe(dialer);
    world.run(SECOND);
    expect(world.events).toEqual([]);
    expect(active.qp.state).toBe(QPState.INIT);
  });

  it('ends, and is not rejected, when its peer withdraws while its queue pair fails', () => {
    world.listener();
    const [active, passive] = [world.initialised(0), world.initialised(1)];
    const dialer = world.resolved();
    world.cm.connect(dialer, active.qp, WISHES);
    const { id: acceptor } = world.take(CMEventType.connectRequest);
    world.host.faults.add({ kind: 'drop', device: 'roce0', direction: 'out' }, undefined);
    world.cm.accept(acceptor, passive.qp, WISHES);
    expect(world.take(CMEventType.established).id).toBe(dialer);
    world.host.faults.clear();
    world.host.faults.add({ kind: 'delay', device: 'roce1', direction: 'out', ms: 100 }, undefined);
    world.cm.destroy(acceptor);
    active.qp.modifyPath({ mask: QPAttribute.state, state: QPState.ERR }, world.host.now());
    world.host.faults.clear();
    world.run(SECOND);
    expect(world.types).toEqual([CMEventType.disconnected]);
  });

  it('may be destroyed by its owner at the event of its end', () => {
    for (const end of ['dialer', 'acceptor'] as const) {
      const world = new CmWorld();
      const ids = world.connected();
      const ended: HostId[] = [];
      world.host.onCmEvent = (id) => {
        ended.push(id);
        world.cm.destroy(id);
      };
      world.cm.disconnect(ids[end]);
      world.run(SECOND);
      expect(new Set(ended)).toEqual(new Set([ids.dialer, ids.acceptor]));
      expect(ended.map(({ state }) => state)).toEqual(['destroyed', 'destroyed']);
    }
  });

  it('is rejected with data, and the queue pair may connect again [IBCM-REJ-05, IBCM-REJ-07, IBCM-SM-01]', () => {
    world.listener();
    const active = world.initialised(0);
    const dialer = world.resolved();
    const other = world.resolved();
    world.cm.connect(dialer, active.qp, WISHES);
    expect(() => world.cm.connect(dialer, active.qp, WISHES)).toThrow(
      'the id must be resolved or routed',
    );
    expect(() => world.cm.connect(other, active.qp, WISHES)).toThrow('has a connection');
    const { id } = world.take(CMEventType.connectRequest);
    world.cm.reject(id, Uint8Array.of(4));
    const rejected = world.take(CMEventType.rejected);
    expect(rejected).toMatchObject({ id: dialer, error: 'ECONNRESET', ib: { status: 28 } });
    expect([rejected.privateData.length, rejected.privateData[0]]).toEqual([148, 4]);
    expect(active.qp.state).toBe(INIT);
    world.cm.connect(other, active.qp, WISHES);
    world.take(CMEventType.connectRequest);
  });

  it('survives the id by which its queue pair was rejected before', () => {
    world.listener();
    const active = world.initialised(0);
    const rejected = world.resolved();
    world.cm.connect(rejected, active.qp, WISHES);
    world.cm.reject(world.take(CMEventType.connectRequest).id, NO_BYTES);
    world.take(CMEventType.rejected);
    world.cm.connect(world.resolved(), active.qp, WISHES);
    world.cm.accept(world.take(CMEventType.connectRequest).id, world.initialised(1).qp, WISHES);
    world.run();
    world.cm.destroy(rejected);
    world.run(SECOND);
    expect(world.types).toEqual([CMEventType.established, CMEventType.established]);
    expect(active.qp.state).toBe(RTS);
  });

  it('is refused without a listener [IBCM-REJ-01]', () => {
    const dialer = world.resolved();
    world.cm.connect(dialer, world.initialised(0).qp, WISHES);
    expect(world.take(CMEventType.rejected)).toMatchObject({
      error: 'ECONNREFUSED',
      ib: { status: 8 },
    });
    expect(dialer.state).toBe('closed');
  });

  it('is not made with a queue pair of datagrams, of another device, or beyond INIT', () => {
    const dialer = world.resolved();
    const datagrams = world.end(0, QPType.ud);
    expect(() => world.cm.connect(dialer, datagrams.qp, WISHES)).toThrow('do not connect');
    const [busy] = world.pair();
    expect(() => world.cm.connect(dialer, busy.qp, WISHES)).toThrow('INIT');
    expect(() => world.cm.connect(dialer, world.end(1).qp, WISHES)).toThrow('another device');
    const much = { ...WISHES, privateData: new Uint8Array(57) };
    expect(() => world.cm.connect(dialer, world.initialised(0).qp, much)).toThrow('limit is 56');
    expect(dialer.state).toBe('routed');
  });
});

describe('a connection that its programs move', () => {
  function requested(world: CmWorld) {
    world.listener();
    const active = world.end(0);
    const passive = world.end(1);
    const dialer = world.resolved();
    world.cm.request(dialer, { ...PROGRAM, qpn: active.qp.qpn });
    const { id: acceptor } = world.take(CMEventType.connectRequest);
    return { active, passive, dialer, acceptor };
  }

  const move = (world: CmWorld, end: RoceEnd, id: HostId) => {
    for (const state of [INIT, RTR, RTS]) {
      end.qp.modifyPath(world.cm.qpAttributes(id, state), world.host.now());
    }
    world.host.drain();
  };

  it('gets its attributes, and a separate event for the reply [IBCM-REP-04, IBCM-SM-02]', () => {
    const { active, passive, dialer, acceptor } = requested(world);
    move(world, passive, acceptor);
    world.cm.answer(acceptor, { ...PROGRAM, qpn: passive.qp.qpn, rnrRetry: 1 });
    const response = world.take(CMEventType.connectResponse);
    expect(response).toMatchObject({
      id: dialer,
      responderResources: 3,
      initiatorDepth: 5,
      ib: { qpn: passive.qp.qpn, rnrRetry: 1, retryCount: 0 },
    });
    expect(response.privateData).toHaveLength(196);
    expect(world.cm.qpAttributes(dialer, RTS)).toMatchObject({ rnrRetry: 1, retryCnt: 4 });
    expect(world.cm.qpAttributes(acceptor, RTS)).toMatchObject({ rnrRetry: 6, retryCnt: 4 });
    move(world, active, dialer);
    world.cm.establish(dialer);
    const established = world.take(CMEventType.established);
    expect(established).toMatchObject({ id: acceptor, initiatorDepth: undefined });
    expect(established.privateData).toHaveLength(0);
    expect(world.events).toEqual([]);
    expect([active.qp.state, passive.qp.state]).toEqual([RTS, RTS]);
  });

  it('ends for its dialer once both have disconnected, and for both once packets are gone [IBCM-TW-01]', () => {
    const { active, passive, dialer, acceptor } = requested(world);
    move(world, passive, acceptor);
    world.cm.answer(acceptor, { ...PROGRAM, qpn: passive.qp.qpn });
    world.take(CMEventType.connectResponse);
    move(world, active, dialer);
    world.cm.establish(dialer);
    world.take(CMEventType.established);
    world.cm.disconnect(dialer);
    expect(world.take(CMEventType.disconnected)).toMatchObject({ id: acceptor, error: undefined });
    world.run(2 * SECOND);
    expect(world.events).toEqual([]);
    world.cm.disconnect(acceptor);
    expect(world.take(CMEventType.disconnected)).toMatchObject({ id: dialer, error: undefined });
    world.run(2_100_000);
    expect(world.events).toEqual([]);
    world.run(100_000);
    expect(world.types).toEqual([CMEventType.timewaitExit, CMEventType.timewaitExit]);
    expect([active.qp.state, passive.qp.state]).toEqual([RTS, RTS]);
  });

  it('gets attributes without rights before it connects, for any state', () => {
    const dialer = world.resolved();
    for (const state of [INIT, RTS]) {
      expect(world.cm.qpAttributes(dialer, state)).toEqual({
        mask: 0x39,
        state,
        accessFlags: 0,
        pkeyIndex: 0,
        portNum: 1,
      });
    }
  });

  it('uses its timeout and type of service', () => {
    world.listener();
    const id = world.cm.createId('dialer');
    id.ackTimeout = 14;
    id.typeOfService = 0x20;
    world.cm.resolveAddr(id, AT, { address: '127.0.0.2', port: 0 });
    world.take(CMEventType.addrResolved);
    world.cm.request(id, { ...PROGRAM, qpn: 5 });
    const { id: acceptor } = world.take(CMEventType.connectRequest);
    expect(world.cm.qpAttributes(acceptor, RTS).timeout).toBe(16);
    world.cm.answer(acceptor, { ...PROGRAM, qpn: 6 });
    world.take(CMEventType.connectResponse);
    expect(world.cm.qpAttributes(id, RTS).timeout).toBe(14);
    expect(world.cm.qpAttributes(acceptor, RTR).ahAttr?.trafficClass).toBe(0x20);
  });
});

describe('a datagram service', () => {
  it('is found with its queue pair and key [IBCM-SIDR-01, IBCM-SIDR-02]', () => {
    world.listener(AT.address, PortSpace.udp);
    const dialer = world.resolved(AT, PortSpace.udp);
    world.cm.request(dialer, { ...PROGRAM, qpn: 5 });
    const request = world.take(CMEventType.connectRequest);
    expect(request.privateData).toHaveLength(180);
    expect(request).toMatchObject({ ib: { qpn: 0 }, initiatorDepth: undefined });
    world.cm.answer(request.id, { ...PROGRAM, qpn: 0x77 });
    const answer = world.take(CMEventType.established);
    expect(answer).toMatchObject({ id: dialer, ib: { qpn: 0x77, qkey: 0x0123_4567 } });
    expect(answer.privateData).toHaveLength(136);
    expect(dialer.roce?.path?.dgid.at(-1)).toBe(3);
    expect(world.cm.qpAttributes(dialer, INIT)).toMatchObject({ mask: 0x71, qkey: 0x0123_4567 });
    world.cm.disconnect(dialer);
    world.run(SECOND);
    expect(world.events).toEqual([]);
  });

  it('that is missing, or rejects, is reported by a status [IBCM-SIDR-04]', () => {
    world.cm.request(world.resolved(AT, PortSpace.udp), PROGRAM);
    expect(world.take(CMEventType.unreachable).ib?.status).toBe(1);
    world.listener(AT.address, PortSpace.udp);
    world.cm.request(world.resolved(AT, PortSpace.udp), PROGRAM);
    world.cm.reject(world.take(CMEventType.connectRequest).id, NO_BYTES);
    const event = world.take(CMEventType.unreachable);
    expect(event).toMatchObject({ ib: { status: 2 }, privateData: { length: 136 } });
  });
});

describe('addresses and ports', () => {
  it('have one name space for each port space [IBCM-IP-04]', () => {
    const { cm } = world;
    world.listener();
    world.listener(AT.address, PortSpace.udp);
    const bind = (address: string, port: number) => cm.bindAddr(cm.createId(0), { address, port });
    expect(() => bind(AT.address, AT.port)).toThrow('in use');
    expect(() => bind('0.0.0.0', AT.port)).toThrow('in use');
    expect(() => bind('10.9.9.9', 0)).toThrow('no RoCE device');
    bind('127.0.0.2', AT.port);
    bind('127.0.0.2', AT.port + 1);
  });

  it('of a wildcard are those of all devices, and of its family [IBCM-IP-05]', () => {
    const listener = world.listener('0.0.0.0');
    const dialer = world.resolved({ address: '127.0.0.2', port: AT.port });
    world.cm.request(dialer, { ...PROGRAM, qpn: 5 });
    const request = world.take(CMEventType.connectRequest);
    expect([request.id.device, request.listener]).toEqual(['roce0', listener]);
    const six = new CmWorld();
    const narrow = six.cm.createId('six');
    six.cm.setAfOnly(narrow, true);
    six.cm.bindAddr(narrow, { address: '::', port: AT.port });
    six.cm.listen(narrow, 1);
    six.cm.request(six.resolved(), { ...PROGRAM, qpn: 5 });
    expect(six.take(CMEventType.rejected).ib?.status).toBe(8);
  });

  it('of loopback lead to a device, as in the kernel they lead to the machine', () => {
    world.listener('0.0.0.0');
    const id = world.cm.createId('dialer');
    world.cm.resolveAddr(id, { address: '127.0.0.1', port: AT.port }, undefined);
    world.take(CMEventType.addrResolved);
    expect([id.device, id.localAddress?.address, id.peerAddress?.address]).toEqual([
      'roce0',
      '127.0.0.2',
      '127.0.0.2',
    ]);
  });

  it('that no device reaches end in an event, and the id may try again', () => {
    const id = world.cm.createId('dialer');
    world.cm.resolveAddr(id, { address: '10.1.1.1', port: 1 }, undefined);
    expect(world.take(CMEventType.addrError).error).toBe('ENODEV');
    expect(id.state).toBe('idle');
    world.cm.resolveAddr(id, AT, undefined);
    world.take(CMEventType.addrResolved);
  });
});
