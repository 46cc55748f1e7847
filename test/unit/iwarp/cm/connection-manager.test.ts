/** Commands on connection ids: rdma_cm's states, errno and limits. */
import { beforeEach, describe, expect, it } from 'vitest';
import { CMEventType } from '#contract/verbs/enums';
import type { CmEndpoint, CmId } from '#daemon/iwarp/cm/cm-id';
import {
  CLOSED,
  CmRig,
  device,
  ESTABLISHED,
  FakeQP,
  NO_WISHES,
  PEER,
  REQUEST,
} from '#test/support/cm-rig';

const LOCAL = { address: '10.0.0.1', port: 4791 };

function fails(code: string): unknown {
  return expect.objectContaining({ name: 'VerbsError', code });
}

/** An id with an address and port. */
function bound({ manager }: CmRig, address = LOCAL.address, port = 5, tag: unknown = 0): CmId {
  const id = manager.createId(tag);
  manager.bindAddr(id, { address, port });
  return id;
}

let rig: CmRig;

beforeEach(() => {
  rig = new CmRig();
});

describe('bind', () => {
  it('accepts an address and port, and picks a port for 0', () => {
    const id = bound(rig, '010.0.0.1', 0, 'tag');
    expect(id.localAddress).toEqual({ address: '10.0.0.1', port: 32_768 });
    expect([id.state, id.device, id.tag]).toEqual(['bound', 'iwarp0', 'tag']);
    expect(rig.network.ports.get(id)).toBe('10.0.0.1 32768');
  });

  it('does not select a device for a wildcard address', () => {
    expect(bound(new CmRig([device('a', ['10.0.0.1'])]), '::').device).toBeUndefined();
  });

  it.each(['127.0.0.1', '127.9.9.9', '::1'])(
    'leaves the device open for %s, which no device lists, as cma_any_addr of the kernel',
    (address) => {
      for (const devices of [[device()], [device('a', ['10.0.0.1', '127.0.0.2'])]]) {
        const rig = new CmRig(devices);
        const id = bound(rig, address);
        expect([id.device, id.localAddress]).toEqual([undefined, { address, port: 5 }]);
        expect(rig.network.ports.get(id)).toBe(`${address} 5`);
      }
    },
  );

  it('does not listen on loopback if no device would respond', () => {
    const rig = new CmRig([device('a', ['10.0.0.1'])]);
    const id = bound(rig, '127.0.0.1');
    expect(() => rig.manager.listen(id, 0)).toThrow(fails('ENODEV'));
    expect([id.state, rig.network.listening.size]).toEqual(['bound', 0]);
  });

  it('selects the device that lists the loopback address', () => {
    expect(bound(new CmRig([device(), device('a', ['127.0.0.2'])]), '127.0.0.2').device).toBe('a');
  });

  it.each([
    ['EINVAL', { address: 'nowhere', port: 1 }],
    ['EINVAL', { address: '10.0.0.1', port: -1 }],
    ['EINVAL', { address: '10.0.0.1', port: 1.5 }],
    ['ENODEV', { address: '10.0.0.77', port: 1 }],
  ])('%s for %j, and the id stays as it was', (code, address) => {
    const { manager, network } = new CmRig([device('a', ['10.0.0.1'])]);
    const id = manager.createId(undefined);
    expect(() => manager.bindAddr(id, address)).toThrow(fails(code));
    expect([id.state, id.localAddress]).toEqual(['idle', undefined]);
    expect(network.ports.size).toBe(0);
  });

  it('fails with EADDRNOTAVAIL for an address that is neither a device’s nor the host’s', () => {
    const { manager, network } = new CmRig([device('a', ['10.0.0.1'])]);
    network.refusal = 'EADDRNOTAVAIL';
    const bind = () => manager.bindAddr(manager.createId(0), { address: '10.0.0.77', port: 1 });
    expect(bind).toThrow(fails('EADDRNOTAVAIL'));
  });

  it.each(['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES'] as const)('propagates %s', (code) => {
    const { manager, network } = new CmRig();
    network.refusal = code;
    expect(() => manager.bindAddr(manager.createId(0), LOCAL)).toThrow(fails(code));
  });
});

describe('resolve', () => {
  it('finds device and source, reserves the port and reports success', () => {
    const id = rig.manager.createId(undefined);
    rig.manager.resolveAddr(id, PEER, undefined);
    expect(rig.drain()).toEqual([CMEventType.addrResolved]);
    expect(id).toMatchObject({
      device: 'iwarp0',
      localAddress: { address: '10.0.0.1', port: 32_768 },
      peerAddress: PEER,
    });
    rig.manager.resolveRoute(id);
    expect(rig.drain()).toEqual([CMEventType.routeResolved]);
  });

  it('prefers the device of the route, then the first that reaches the peer', () => {
    const rig = new CmRig([device('a', ['10.0.0.5', '127.0.0.2']), device('b', ['10.0.0.1'])]);
    const id = rig.resolved();
    expect([id.device, id.localAddress?.address]).toEqual(['b', '10.0.0.1']);
    const loopback = rig.manager.createId(undefined);
    rig.manager.resolveAddr(loopback, { address: '127.0.0.1', port: 1 }, undefined);
    expect([loopback.device, loopback.localAddress?.address]).toEqual(['a', '127.0.0.2']);
  });

  it('uses only a given source, or the bound address', () => {
    const rig = new CmRig([device('a', ['10.0.0.5']), device('b', ['10.0.0.1'])]);
    const id = rig.manager.createId(undefined);
    rig.manager.resolveAddr(id, PEER, { address: '10.0.0.5', port: 77 });
    expect([id.device, id.localAddress]).toEqual(['a', { address: '10.0.0.5', port: 77 }]);
    const other = bound(rig, '10.0.0.5', 78);
    rig.manager.resolveAddr(other, PEER, undefined);
    expect(other.localAddress).toEqual({ address: '10.0.0.5', port: 78 });
  });

  it('treats the wildcard as this host', () => {
    const id = rig.manager.createId(undefined);
    rig.manager.resolveAddr(id, { address: '0.0.0.0', port: 9 }, undefined);
    expect(id.peerAddress).toEqual({ address: '127.0.0.1', port: 9 });
  });

  it('reports an address error with its errno, and allows a retry', () => {
    const rig = new CmRig([device('a', ['10.0.0.1'])]);
    const id = rig.manager.createId(undefined);
    const resolve = (address: string) =>
      rig.manager.resolveAddr(id, { address, port: 1 }, undefined);
    resolve('192.0.2.1');
    resolve('127.0.0.1');
    rig.network.refusal = 'EADDRINUSE';
    resolve('10.0.0.9');
    rig.network.refusal = undefined;
    resolve('10.0.0.9');
    rig.drain();
    expect(rig.events.map(({ type, error }) => [type, error])).toEqual([
      [CMEventType.addrError, 'ENETUNREACH'],
      [CMEventType.addrError, 'ENODEV'],
      [CMEventType.addrError, 'EADDRINUSE'],
      [CMEventType.addrResolved, undefined],
    ]);
  });

  it('needs no port, but connecting does', () => {
    const id = rig.manager.createId(0);
    rig.manager.resolveAddr(id, { ...PEER, port: 0 }, undefined);
    rig.manager.resolveRoute(id);
    expect(rig.drain()).toEqual([CMEventType.addrResolved, CMEventType.routeResolved]);
    expect(id.device).toBe('iwarp0');
    const connect = () => rig.manager.connect(id, new FakeQP(), NO_WISHES, 0);
    expect(connect).toThrow(fails('EINVAL'));
    expect(id.state).toBe('routed');
  });
});

describe('listen', () => {
  it('binds to any address and a free port if the id is not bound', () => {
    const { manager, network } = new CmRig();
    const id = manager.createId(undefined);
    manager.listen(id, 3);
    expect(id.localAddress).toEqual({ address: '0.0.0.0', port: 32_768 });
    expect(network.listening.has(id)).toBe(true);
  });

  it.each([
    [0, 1024],
    [-1, 1024],
    [1024, 1024],
    [1025, 1024],
    [1, 1],
  ])('backlog %i means %i', (asked, meant) => {
    const { manager } = new CmRig();
    const id = manager.createId(undefined);
    manager.listen(id, asked);
    expect(id.listening?.backlog).toBe(meant);
  });

  it('passes on EADDRINUSE and stays bound', () => {
    const id = bound(rig);
    rig.network.refusal = 'EADDRINUSE';
    expect(() => rig.manager.listen(id, 1)).toThrow(fails('EADDRINUSE'));
    expect(id.state).toBe('bound');
  });
});

describe('wrong states', () => {
  const qp = new FakeQP();
  const commands: Record<string, (rig: CmRig, id: CmId) => void> = {
    bind: ({ manager }, id) => manager.bindAddr(id, LOCAL),
    resolveAddr: ({ manager }, id) => manager.resolveAddr(id, PEER, undefined),
    resolveRoute: ({ manager }, id) => manager.resolveRoute(id),
    listen: ({ manager }, id) => manager.listen(id, 1),
    connect: ({ manager, now }, id) => manager.connect(id, qp, NO_WISHES, now),
    accept: ({ manager, now }, id) => manager.accept(id, qp, NO_WISHES, now),
    reject: ({ manager, now }, id) => manager.reject(id, new Uint8Array(0), now),
    disconnect: ({ manager, now }, id) => manager.disconnect(id, now),
  };
  const makers: Record<string, readonly [(rig: CmRig) => CmId, readonly string[]]> = {
    idle: [({ manager }) => manager.createId(0), ['bind', 'resolveAddr', 'listen']],
    bound: [(rig) => bound(rig), ['resolveAddr', 'listen']],
    routed: [(rig) => rig.resolved(), ['connect']],
    listening: [(rig) => rig.listening(), []],
    dialing: [(rig) => rig.dialing().id, []],
    requested: [(rig) => rig.requested().id, ['accept', 'reject']],
    destroyed: [
      (rig) => {
        const id = rig.manager.createId(0);
        rig.manager.destroy(id, rig.now);
        return id;
      },
      [],
    ],
    'destroyed, once connected': [
      (rig) => {
        const { id, endpoint } = rig.initiating();
        rig.emit(endpoint, ESTABLISHED);
        rig.emit(endpoint, CLOSED);
        rig.manager.destroy(id, rig.now);
        return id;
      },
      [],
    ],
  };
  const table = Object.entries(makers).flatMap(([state, [make, legal]]) =>
    Object.entries(commands)
      .filter(([name]) => !legal.includes(name))
      .map(([name, command]) => ({ state, make, name, command })),
  );

  it.each(table)('$name on a $state id changes nothing', ({ state, make, command }) => {
    const id = make(rig);
    const before = id.state;
    const code = state.startsWith('destroyed') ? 'ENOENT' : 'EINVAL';
    expect(() => command(rig, id)).toThrow(fails(code));
    expect(id.state).toBe(before);
    expect(rig.drain()).toEqual([]);
  });
});

describe('connect and accept', () => {
  it('pass the wishes of consumer and device to the stream', () => {
    const wire = { mpaRevision: 1, crc: false, markers: true, fpduSize: 1000 } as const;
    rig.initiating(new FakeQP(), { wire, initiatorDepth: 3, privateData: new Uint8Array(512) });
    expect(rig.stream.options).toMatchObject({
      mpaRevision: 1,
      crcRequested: false,
      markersRequested: true,
      peerToPeer: true,
      fpduSize: { kind: 'fixed', mulpduBytes: 1000 },
      ird: 16,
      ord: 3,
      irdMax: 16,
      ordMax: 8,
      emssBytes: 1448,
    });
    expect(rig.stream.commands).toEqual(['connect 512']);
  });

  it.each([
    [{ privateData: new Uint8Array(509) }],
    [{ privateData: new Uint8Array(513), wire: { mpaRevision: 1 as const } }],
    [{ initiatorDepth: 9 }],
    [{ initiatorDepth: 0.5 }],
    [{ responderResources: 17 }],
    [{ responderResources: -1 }],
  ])('connect refuses %j with EINVAL', (change) => {
    const rig = new CmRig();
    const id = rig.resolved();
    const connect = () =>
      rig.manager.connect(id, new FakeQP(), { ...NO_WISHES, ...change }, rig.now);
    expect(connect).toThrow(fails('EINVAL'));
    expect(id.state).toBe('routed');
  });

  it('refuse a QP that has a stream or is about to get one', () => {
    const { qp } = rig.dialing();
    const second = rig.resolved();
    const connect = () => rig.manager.connect(second, qp, NO_WISHES, rig.now);
    expect(connect).toThrow(fails('EISCONN'));
    const { id } = rig.requested();
    expect(() => rig.manager.accept(id, qp, NO_WISHES, rig.now)).toThrow(fails('EISCONN'));
  });

  it('accept limits private data by the kind of Request, and keeps the request open', () => {
    const { id, endpoint } = rig.requested();
    const accept = (bytes: number): void =>
      rig.manager.accept(
        id,
        new FakeQP(),
        { ...NO_WISHES, privateData: new Uint8Array(bytes) },
        rig.now,
      );
    expect(() => accept(509)).toThrow(fails('EINVAL'));
    expect(endpoint.phase).toBe('requested');
    accept(508);
    rig.emit(rig.incoming(rig.listening()), { ...REQUEST, enhanced: false, revision: 1 });
    const second = rig.lastEvent.id;
    const reply = { ...NO_WISHES, privateData: new Uint8Array(512) };
    rig.manager.accept(second, new FakeQP(), reply, rig.now);
    expect(rig.stream.commands).toEqual(['listen', 'accept 512 ird 16 ord 8']);
  });

  it('accept passes on the QP’s error, and the request stays open', () => {
    const { id, endpoint } = rig.requested();
    const qp = new FakeQP();
    qp.refusal = 'EINVAL';
    expect(() => rig.manager.accept(id, qp, NO_WISHES, rig.now)).toThrow(fails('EINVAL'));
    expect(endpoint.phase).toBe('requested');
    qp.refusal = undefined;
    rig.manager.accept(id, qp, NO_WISHES, rig.now);
    expect(endpoint.phase).toBe('accepting');
  });
});

describe('limits', () => {
  it('ids: ENOMEM at the limit, and room again after destroy', () => {
    const rig = new CmRig([device()], { idsMax: 2 });
    const first = rig.manager.createId(0);
    rig.manager.createId(0);
    expect(() => rig.manager.createId(0)).toThrow(fails('ENOMEM'));
    rig.manager.destroy(first, rig.now);
    rig.manager.createId(0);
  });

  it('ids: a request is rejected when none is left', () => {
    const rig = new CmRig([device()], { idsMax: 1 });
    expect(rig.emit(rig.incoming(rig.listening()), REQUEST)).toEqual([]);
    expect(rig.stream.commands).toEqual(['listen', 'refuse', 'disconnect']);
  });

  it('backlog: the request beyond it is rejected, an answer makes room', () => {
    const listener = rig.listening(2);
    const first = rig.requested(listener);
    rig.requested(listener);
    expect(rig.emit(rig.incoming(listener), REQUEST)).toEqual([]);
    expect(rig.stream.commands).toEqual(['listen', 'refuse', 'disconnect']);
    rig.manager.reject(first.id, new Uint8Array(0), rig.now);
    expect(rig.emit(rig.incoming(listener), REQUEST)).toEqual([CMEventType.connectRequest]);
  });

  it('startups per listener and host: the one beyond is refused, an ended one makes room', () => {
    const rig = new CmRig([device()], { startupsPerListenerMax: 1, startupsMax: 2 });
    const [one, two, three] = [rig.listening(), rig.listening(), rig.listening()];
    const come = (listener: CmId): unknown =>
      rig.manager.handleIncoming(listener, rig.facts(), rig.now);
    const first = rig.incoming(one);
    expect(come(one)).toBe('too many connections are starting at this listener');
    rig.incoming(two);
    expect(come(three)).toBe('too many connections are starting at this host');
    rig.emit(first, { type: 'closed', failure: { kind: 'timeout', text: 'silent' } });
    rig.incoming(three);
    expect(rig.drain()).toEqual([]);
  });

  it('replaces the oldest startup of the address with the most', () => {
    const rig = new CmRig([device()], { startupsPerListenerMax: 3, startupsMax: 4 });
    const [one, two] = [rig.listening(), rig.listening()];
    const come = (listener: CmId, address: string): CmEndpoint | string =>
      rig.manager.handleIncoming(
        listener,
        { ...rig.facts(), remote: { address, port: 9 } },
        rig.now,
      );
    const phases = (all: (CmEndpoint | string)[]): string[] =>
      all.map((each) => (typeof each === 'string' ? each : each.phase));
    const crowd = [come(one, '10.0.0.7'), come(one, '10.0.0.7'), come(one, '10.0.0.7')];
    expect(come(one, '10.0.0.7')).toBe('too many connections are starting at this listener');
    const newcomer = come(one, '10.0.0.8');
    expect(phases([...crowd, newcomer])).toEqual([
      'over',
      'awaiting-request',
      'awaiting-request',
      'awaiting-request',
    ]);
    // With two against one, one more would only reverse the order.
    expect(come(one, '10.0.0.8')).toBe('too many connections are starting at this listener');
    // The host's bound, over another listener.
    const others = [come(two, '10.0.0.9'), come(two, '10.0.0.10')];
    expect(phases([...crowd, newcomer, ...others])).toEqual([
      'over',
      'over',
      'awaiting-request',
      'awaiting-request',
      'awaiting-request',
      'awaiting-request',
    ]);
    expect(come(two, '10.0.0.11')).toBe('too many connections are starting at this host');
    rig.manager.destroy(one, rig.now);
    expect(phases([come(two, '10.0.0.11')])).toEqual(['awaiting-request']);
  });

  it('counts the addresses of an IPv6 network as one', () => {
    const rig = new CmRig([device()], { startupsPerListenerMax: 2 });
    const listener = rig.listening();
    const come = (address: string): CmEndpoint | string =>
      rig.manager.handleIncoming(
        listener,
        { ...rig.facts(), remote: { address, port: 9 } },
        rig.now,
      );
    const first = come('2001:db8::1');
    come('2001:db8::2');
    expect(come('2001:db8::3')).toBe('too many connections are starting at this listener');
    expect(typeof come('2001:db8:0:1::3')).toBe('object');
    expect(typeof first !== 'string' && first.phase).toBe('over');
  });

  it('refuses connections to a closed listener and to addresses of no device', () => {
    const rig = new CmRig([device('a', ['10.0.0.1'])]);
    const listener = rig.listening();
    const facts = { ...rig.facts(), local: { address: '10.0.0.2', port: 4791 } };
    expect(rig.manager.handleIncoming(listener, facts, rig.now)).toMatch('no device');
    rig.manager.destroy(listener, rig.now);
    expect(rig.manager.handleIncoming(listener, rig.facts(), rig.now)).toMatch('gone');
  });
});
