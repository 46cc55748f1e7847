/**
 * Connections of a RoCE device at rdma_cm's ABI: the answers of the kernel's rxe, and what programs
 * of librdmacm rely on.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { KernelClient } from '#daemon/kernel/kernel-client';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { cmCommands as cm, cmWrite, connParam, le, RSP } from '#test/support/kernel-commands';
import { ownAddress } from '#test/support/own-address';
import { SELF } from '#test/support/own-process';
import { quiet } from '#test/support/patience';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';

const ADDRESS = ownAddress(27);
const HEX = Buffer.from(ADDRESS.split('.').map(Number)).toString('hex');
const GID = `00000000000000000000ffff${HEX}`;

const { ENOENT, ENODEV, EINVAL, EADDRINUSE, EADDRNOTAVAIL } = NEGATIVE_ERRNO;

const ADDR_ERROR = 1;
const CONNECT_REQUEST = 4;
const CONNECT_RESPONSE = 5;
const UNREACHABLE = 7;
const REJECTED = 8;
const ESTABLISHED = 9;
const DISCONNECTED = 10;
const MULTICAST_JOIN = 12;
const TIMEWAIT_EXIT = 15;

const [INIT, RTR, RTS] = [1, 2, 3];
const PS_TCP = 0x0106;
const PS_UDP = 0x0111;

let rig: RdmaCmRig;

beforeEach(() => {
  const device = { name: 'roce0', addresses: [ADDRESS], transport: 'roce' as const };
  rig = new RdmaCmRig(new UverbsRig({ devices: [device] }), ADDRESS);
});

afterEach(async () => {
  rig.file.assertDeepInvariants();
  rig.verbs.host.assertDeepInvariants();
  await rig.close();
});

/** Bytes of an answer, as hexadecimal text. */
function hexAt(answer: DataView, from: number, bytes: number): string {
  return Buffer.from(answer.buffer, answer.byteOffset + from, bytes).toString('hex');
}

/** The fields of INIT_QP_ATTR that are not zero everywhere. */
function attributes(id: number, state: number): Record<string, number | string> {
  const answer = rig.must(cm.initQpAttr(id, state));
  const word = (at: number) => answer.getUint32(at, true);
  return {
    mask: word(0),
    state: word(4),
    mtu: word(12),
    qkey: word(20),
    rqPsn: word(24),
    sqPsn: word(28),
    destQpn: word(32),
    access: word(36),
    dgid: hexAt(answer, 40, 16),
    flow: word(56),
    sgid: answer.getUint8(60),
    hop: answer.getUint8(61),
    tclass: answer.getUint8(62),
    global: answer.getUint8(69),
    ahPort: answer.getUint8(70),
    rda: answer.getUint8(130),
    ddr: answer.getUint8(131),
    rnrTimer: answer.getUint8(132),
    port: answer.getUint8(133),
    timeout: answer.getUint8(134),
    retry: answer.getUint8(135),
    rnr: answer.getUint8(136),
  };
}

/** Fields of a connection event beyond those of `RdmaCmRig.poll`. */
function facts({ record }: { readonly record: DataView }): object {
  return {
    qpn: record.getUint32(20, true),
    length: record.getUint8(284),
    flow: record.getUint8(288),
    retry: record.getUint8(289),
    rnr: record.getUint8(290),
  };
}

/** Fields of an event of a datagram id. */
function datagram({ record }: { readonly record: DataView }): object {
  return {
    qpn: record.getUint32(20, true),
    qkey: record.getUint32(24, true),
    dgid: hexAt(record, 28, 16),
    sgid: record.getUint8(48),
    hop: record.getUint8(49),
    global: record.getUint8(57),
    port: record.getUint8(58),
    length: record.getUint8(316),
  };
}

/** Connects ids of queue pairs 0x11 (active) and 0x12 (passive), until both are established. */
async function connected() {
  const { id: listener, port } = rig.listener(1n);
  const active = rig.routed(2n, port);
  rig.must(cm.connect(active, connParam({ qpn: 0x11, ird: 3, ord: 5, retry: 2, rnr: 4 })));
  const request = await rig.event();
  rig.must(cm.accept(request.id, 3n, connParam({ qpn: 0x12, ird: 4, ord: 2, retry: 7, rnr: 1 })));
  const response = await rig.event();
  rig.must(cm.accept(active, 0n, connParam({ qpn: 0, valid: false })));
  const established = await rig.event();
  return { listener, port, active, passive: request.id, request, response, established };
}

/** Connects from queue pair 0x11 to a listener, which has the request. */
async function asking(given: Partial<Parameters<typeof connParam>[0]> = {}) {
  const { port } = rig.listener(1n);
  const id = rig.routed(2n, port);
  rig.must(cm.connect(id, connParam({ qpn: 0x11, ...given })));
  return { id, request: await rig.event() };
}

describe('addresses', () => {
  it('are queried as addresses, as GIDs and as a path', () => {
    const id = rig.routed(1n, 7471);
    const addresses = rig.must(cm.query(id, 0));
    expect(addresses.getUint8(8)).toBe(1);
    expect(hexAt(addresses, 16, 2)).toBe('0200');
    const port = addresses.getUint16(18);
    expect(hexAt(addresses, 144, 8)).toBe(`02001d2f${HEX}`);
    const gids = rig.must(cm.query(id, 2));
    expect([hexAt(gids, 16 + 8, 16), hexAt(gids, 144 + 8, 16)]).toEqual([GID, GID]);
    const service = (value: number) =>
      `00000000${((0x0106 << 16) | value).toString(16).padStart(8, '0')}`;
    expect([hexAt(gids, 16 + 24, 8), hexAt(gids, 144 + 24, 8)]).toEqual([
      service(port),
      service(7471),
    ]);
    const path = rig.must(cm.query(id, 1, 440));
    expect(path.byteLength).toBe(80);
    expect([path.getUint32(0, true), path.getUint32(8, true)]).toEqual([1, 0x2b]);
    expect(hexAt(path, 16, 40)).toBe(`0000000000000000${GID}${GID}`);
    expect(path.getUint8(63)).toBe(64);
    // Reversible, the default P_Key, MTU 4096.
    expect(hexAt(path, 64, 9)).toBe('0080ffff0000858092');
  });

  it('have no path until the route is resolved', () => {
    const id = rig.create(1n);
    rig.must(cm.resolveAddr(id, ADDRESS, 7471));
    expect(rig.must(cm.query(id, 1, 440)).getUint32(0, true)).toBe(0);
    expect(rig.must(cm.query(id, 1, 8)).byteLength).toBe(8);
  });

  it('fail to bind when they are foreign, in use, or in use by a wildcard', () => {
    const bind = (address: string, port: number, portSpace?: number) =>
      rig.write(cm.bind(rig.create(1n, rig.file, portSpace), address, port));
    expect(bind('192.0.2.1', 0)).toBe(EADDRNOTAVAIL);
    expect(bind(ADDRESS, 7000)).toBe(0);
    expect(bind(ADDRESS, 7000)).toBe(EADDRINUSE);
    expect(bind(ADDRESS, 7000, PS_UDP)).toBe(0);
    expect(bind('0.0.0.0', 7001)).toBe(0);
    expect(bind(ADDRESS, 7001)).toBe(EADDRNOTAVAIL);
  });

  it('fail to bind beside a loopback address of another user, which leads to every device', () => {
    const other = new KernelClient(3, { ...SELF, uid: 12_345 }, DEFAULT_QUOTAS);
    const files = { own: rig.file, others: rig.openFile(101, other) };
    const bind = (address: string, port: number, whose: keyof typeof files = 'others') =>
      rig.write(cm.bind(rig.create(1n, files[whose]), address, port), files[whose]);
    expect(bind('127.0.0.1', 7005, 'own')).toBe(0);
    // Else it would get requests to 127.0.0.1.
    expect(bind(ADDRESS, 7005)).toBe(EADDRNOTAVAIL);
    expect(bind('127.0.0.2', 7005)).toBe(EADDRNOTAVAIL);
    expect(bind(ADDRESS, 7006, 'own')).toBe(0);
    expect(bind('127.0.0.1', 7006)).toBe(EADDRNOTAVAIL);
  });

  it('bind beside a loopback address of the same user, as on Linux', () => {
    const bind = (address: string, port: number) =>
      rig.write(cm.bind(rig.create(1n), address, port));
    expect(['127.0.0.1', ADDRESS, '127.0.0.2'].map((address) => bind(address, 7005))).toEqual([
      0, 0, 0,
    ]);
    expect(bind('127.0.0.1', 7005)).toBe(EADDRINUSE);
    expect(bind('0.0.0.0', 7005)).toBe(EADDRNOTAVAIL);
  });
});

it('an id that was bound to a wildcard leaves other addresses free once it has resolved', () => {
  const id = rig.create(1n);
  rig.must(cm.bind(id, '0.0.0.0', 7010));
  expect(rig.write(cm.bind(rig.create(1n), '127.0.0.1', 7010))).toBe(EADDRNOTAVAIL);
  rig.must(cm.resolveAddr(id, ADDRESS, 7471));
  expect(rig.write(cm.bind(rig.create(1n), ADDRESS, 7010))).toBe(EADDRINUSE);
  expect(rig.write(cm.bind(rig.create(1n), '127.0.0.1', 7010))).toBe(0);
});

it('an id of RDMA_PS_IPOIB gets no device, since none is an InfiniBand device', async () => {
  const id = rig.create(1n, rig.file, 0x0002);
  expect(rig.write(cm.bind(id, ADDRESS, 7011))).toBe(EINVAL);
  rig.must(cm.bind(id, '0.0.0.0', 7011));
  rig.must(cm.resolveAddr(id, ADDRESS, 7471));
  expect(await rig.event()).toMatchObject({ uid: 1n, type: ADDR_ERROR, status: EINVAL });
});

describe('REUSEADDR', () => {
  it('shares a port among ids that all have it, and the last one left may listen', () => {
    const [plain, first, second] = [rig.create(1n), rig.create(1n), rig.create(1n)];
    for (const id of [first, second]) rig.must(cm.setOption(id, 0, 1, '01000000'));
    for (const id of [first, second]) expect(rig.write(cm.bind(id, ADDRESS, 7002))).toBe(0);
    expect(rig.write(cm.bind(plain, ADDRESS, 7002))).toBe(EADDRINUSE);
    expect(rig.write(cm.listen(first))).toBe(EADDRINUSE);
    rig.must(cm.destroyId(second));
    expect(rig.write(cm.listen(first))).toBe(0);
  });

  it.each([
    ['TCP, the wildcard first', PS_TCP, ['0.0.0.0', ADDRESS]],
    ['TCP, the wildcard second', PS_TCP, [ADDRESS, '0.0.0.0']],
    ['TCP, twice the wildcard', PS_TCP, ['0.0.0.0', '0.0.0.0']],
    ['UDP, the wildcard first', PS_UDP, ['0.0.0.0', ADDRESS]],
    ['UDP, the wildcard second', PS_UDP, [ADDRESS, '0.0.0.0']],
  ] as const)('gives no port to a second listener: %s', (_, portSpace, addresses) => {
    const ids = addresses.map(() => rig.create(1n, rig.file, portSpace));
    for (const [at, id] of ids.entries()) {
      rig.must(cm.setOption(id, 0, 1, '01000000'));
      rig.must(cm.bind(id, addresses[at] ?? '', 7003));
    }
    const [first, second] = ids as [number, number];
    // Both share the port, so neither may have it exclusively.
    expect(rig.write(cm.listen(first))).toBe(EADDRNOTAVAIL);
    rig.must(cm.destroyId(second));
    expect(rig.write(cm.listen(first))).toBe(0);
    const late = rig.create(1n, rig.file, portSpace);
    rig.must(cm.setOption(late, 0, 1, '01000000'));
    expect(rig.write(cm.bind(late, addresses[1], 7003))).toBe(EADDRNOTAVAIL);
  });

  it('can be set until an id listens, and cleared while it is unbound', () => {
    const id = rig.create(1n);
    const set = (value: string) => rig.write(cm.setOption(id, 0, 1, value));
    expect([set('01000000'), set('00000000')]).toEqual([0, 0]);
    rig.must(cm.bind(id, ADDRESS, 7004));
    expect([set('01000000'), set('00000000')]).toEqual([0, EINVAL]);
    rig.must(cm.listen(id));
    expect(set('01000000')).toBe(EINVAL);
  });
});

describe('a connection', () => {
  it('names both ends to each other', async () => {
    const { active, passive, request, response, established } = await connected();
    expect(request).toMatchObject({ uid: 1n, type: CONNECT_REQUEST, status: 0 });
    expect(request).toMatchObject({ responderResources: 5, initiatorDepth: 3 });
    expect(facts(request)).toEqual({ qpn: 0x11, length: 56, flow: 0, retry: 2, rnr: 4 });
    expect(response).toMatchObject({ id: active, type: CONNECT_RESPONSE, status: 0 });
    expect(response).toMatchObject({ responderResources: 2, initiatorDepth: 4 });
    expect(facts(response)).toEqual({ qpn: 0x12, length: 196, flow: 0, retry: 0, rnr: 1 });
    expect(established).toMatchObject({ uid: 3n, id: passive, type: ESTABLISHED, status: 0 });
    expect(facts(established)).toEqual({ qpn: 0, length: 0, flow: 0, retry: 0, rnr: 0 });
    expect(rig.poll()).toBeUndefined();
  });

  it('is listed with its ends and phase, until it is gone', async () => {
    const { host } = rig.verbs;
    const { active, passive, port } = await connected();
    const [dialer, accepter] = host.connections();
    const server = { address: ADDRESS, port };
    const shown = { device: 'roce0', phase: 'established' };
    expect(dialer).toMatchObject({ ...shown, role: 'initiator', remote: server, qpNum: 0x11 });
    expect(accepter).toMatchObject({ ...shown, role: 'responder', local: server, qpNum: 0x12 });
    rig.must(cm.disconnect(active));
    expect(host.connections().map(({ phase }) => phase)).toEqual(['closing', 'closing']);
    for (const id of [active, passive]) rig.must(cm.destroyId(id));
    expect(host.connections()).toEqual([]);
  });

  it('returns matching attributes for both queue pairs [IBCM-SM-02]', async () => {
    const { active, passive } = await connected();
    for (const id of [active, passive]) {
      expect(attributes(id, INIT)).toMatchObject({ mask: 0x39, state: 1, access: 0xe, port: 1 });
    }
    const [activeRtr, passiveRtr] = [attributes(active, RTR), attributes(passive, RTR)];
    const [activeRts, passiveRts] = [attributes(active, RTS), attributes(passive, RTS)];
    const way = { dgid: GID, sgid: 1, hop: 64, tclass: 0, global: 1, ahPort: 1 };
    expect(activeRtr).toMatchObject({ mask: 0x129181, mtu: 5, destQpn: 0x12, rnrTimer: 0, ...way });
    expect(passiveRtr).toMatchObject({
      mask: 0x129181,
      mtu: 5,
      destQpn: 0x11,
      rnrTimer: 0,
      ...way,
    });
    expect(activeRtr['flow']).toBe(passiveRtr['flow']);
    expect(activeRtr['rqPsn']).toBe(passiveRts['sqPsn']);
    expect(passiveRtr['rqPsn']).toBe(activeRts['sqPsn']);
    // Each end serves the other's request, up to its own offer.
    expect([activeRtr['ddr'], activeRts['rda']]).toEqual([2, 4]);
    expect([passiveRtr['ddr'], passiveRts['rda']]).toEqual([4, 2]);
    expect(activeRts).toMatchObject({ mask: 0x12e01, timeout: 19, retry: 2, rnr: 1 });
    expect(passiveRts).toMatchObject({ mask: 0x12e01, timeout: 19, retry: 2, rnr: 4 });
  });

  it('has attributes of INIT for every state before it connects, and no access', () => {
    const id = rig.routed(1n, 7471);
    for (const state of [0, 1, 2, 3, 4, 5, 6]) {
      expect(attributes(id, state)).toMatchObject({ mask: 0x39, state, access: 0, port: 1 });
    }
    expect(rig.write(cm.initQpAttr(id, 7))).toBe(EINVAL);
  });

  it('gives no right to read without resources for it', async () => {
    const { id: active, request } = await asking({ ird: 0, ord: 0 });
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: 0x12, ird: 0, ord: 0 })));
    await rig.event();
    expect(attributes(active, INIT)).toMatchObject({ access: 2 });
    expect(attributes(request.id, INIT)).toMatchObject({ access: 2 });
  });

  it('has a path with the service id at the end that accepts', async () => {
    const { port, active, passive } = await connected();
    const [activePath, passivePath] = [active, passive].map((id) => rig.must(cm.query(id, 1, 440)));
    expect(activePath && hexAt(activePath, 16, 8)).toBe('0000000000000000');
    expect(passivePath?.getUint32(20)).toBe(((0x0106 << 16) | port) >>> 0);
    expect(passivePath && activePath && hexAt(passivePath, 60, 4)).toBe(
      activePath && hexAt(activePath, 60, 4),
    );
  });

  it('ends for one end when the other has disconnected, too', async () => {
    const { active, passive } = await connected();
    rig.must(cm.disconnect(active));
    expect(await rig.event()).toMatchObject({ id: passive, type: DISCONNECTED, status: 0 });
    await quiet(50);
    expect(rig.poll()).toBeUndefined();
    rig.must(cm.disconnect(passive));
    expect(await rig.event()).toMatchObject({ id: active, type: DISCONNECTED, status: 0 });
    const exits = [await rig.event(), await rig.event()];
    expect(exits.map(({ type }) => type)).toEqual([TIMEWAIT_EXIT, TIMEWAIT_EXIT]);
    expect(exits.map(({ id }) => id).sort()).toEqual([active, passive].sort());
    expect(rig.write(cm.disconnect(active))).toBe(0);
  });

  it('ends when the peer’s id is destroyed', async () => {
    const { active, passive } = await connected();
    rig.must(cm.destroyId(passive));
    expect(await rig.event()).toMatchObject({ id: active, type: DISCONNECTED, status: 0 });
  });

  it('is rejected with the reason of the specification without a listener', async () => {
    const id = rig.routed(2n, 7999);
    rig.must(cm.connect(id, connParam({ qpn: 0x11 })));
    const event = await rig.event();
    expect(event).toMatchObject({ id, type: REJECTED, status: 8 });
    expect(facts(event)).toMatchObject({ length: 148 });
  });

  it.each([
    ['a connection', 0x0106],
    ['a datagram', PS_UDP],
  ])('of %s waits for a server that is about to listen', async (_, portSpace) => {
    const { id: early, port } = rig.listener(1n, 0, rig.file, portSpace);
    rig.must(cm.destroyId(early));
    const id = rig.routed(2n, port, rig.file, portSpace);
    rig.must(cm.connect(id, connParam({ qpn: 0x11, data: [5] })));
    await quiet(50);
    expect(rig.poll()).toBeUndefined();
    const late = rig.create(3n, rig.file, portSpace);
    rig.must(cm.bind(late, ADDRESS, port));
    rig.must(cm.listen(late));
    expect(await rig.event()).toMatchObject({ uid: 3n, type: CONNECT_REQUEST });
    await quiet(100);
    expect(rig.poll()).toBeUndefined();
  });

  it('that waits for its server is cancelled with its id', async () => {
    const { id: early, port } = rig.listener(1n);
    rig.must(cm.destroyId(early));
    const id = rig.routed(2n, port);
    rig.must(cm.connect(id, connParam({ qpn: 0x11 })));
    rig.must(cm.destroyId(id));
    expect(rig.listenAt(3n, port)).toBeGreaterThanOrEqual(0);
    await quiet(200);
    expect(rig.poll()).toBeUndefined();
  });

  it('is rejected with data, which is padded', async () => {
    const { id, request } = await asking();
    expect(rig.write(cm.reject(request.id, [1], 5))).toBe(EINVAL);
    expect(rig.write(cm.reject(request.id, new Array<number>(149).fill(1)))).toBe(EINVAL);
    rig.must(cm.reject(request.id, [7, 8]));
    const event = await rig.event();
    expect(event).toMatchObject({ id, type: REJECTED, status: 28 });
    expect(event.data).toEqual([7, 8, ...new Array<number>(146).fill(0)]);
  });

  it.each(['the id', 'the listener'])('is rejected when %s is destroyed', async (which) => {
    const { id: listener, port } = rig.listener(1n);
    const other = rig.openFile(101);
    const id = rig.routed(2n, port, other);
    rig.must(cm.connect(id, connParam({ qpn: 0x11 })), other);
    if (which === 'the id') rig.must(cm.destroyId((await rig.event()).id));
    else rig.must(cm.destroyId(listener));
    expect(await rig.event(other)).toMatchObject({ id, type: REJECTED, status: 28 });
  });

  it('carries 56 bytes of private data, and 196 in the reply [IBCM-REQ-04]', async () => {
    const { port } = rig.listener(1n);
    const id = rig.routed(2n, port);
    const bytes = (count: number) => Array.from({ length: count }, (_, index) => index + 1);
    expect(rig.write(cm.connect(id, connParam({ qpn: 0x11, data: bytes(57) })))).toBe(EINVAL);
    rig.must(cm.connect(id, connParam({ qpn: 0x11, data: bytes(56) })));
    const request = await rig.event();
    expect(request.data).toEqual(bytes(56));
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: 0x12, data: bytes(196) })));
    expect((await rig.event()).data).toEqual(bytes(196));
  });

  it('is rejected when the reply has too much private data [IBCM-REQ-04]', async () => {
    const { id, request } = await asking();
    const data = new Array<number>(197).fill(1);
    expect(rig.write(cm.accept(request.id, 3n, connParam({ qpn: 0x12, data })))).toBe(EINVAL);
    expect(await rig.event()).toMatchObject({ id, type: REJECTED, status: 28 });
    expect(rig.write(cm.accept(request.id, 3n, connParam({ qpn: 0x12 })))).toBe(EINVAL);
  });

  it('cuts retry counts to three bits [IBV-ATTR-13]', async () => {
    const { request } = await asking({ retry: 8, rnr: 9, flow: true });
    expect(facts(request)).toMatchObject({ retry: 7, rnr: 7, flow: 1 });
  });

  it('uses type of service and timeout of the options', async () => {
    const set = (id: number) => {
      rig.must(cm.setOption(id, 0, 0, '14'));
      rig.must(cm.setOption(id, 0, 3, '0e'));
    };
    const { id: listener, port } = rig.listener(1n);
    expect(listener).toBeGreaterThanOrEqual(0);
    const active = rig.create(2n);
    set(active);
    rig.must(cm.resolveAddr(active, ADDRESS, port));
    rig.must(cm.resolveRoute(active));
    rig.poll();
    rig.poll();
    rig.must(cm.connect(active, connParam({ qpn: 0x11 })));
    const request = await rig.event();
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: 0x12 })));
    await rig.event();
    expect(attributes(active, RTR)).toMatchObject({ tclass: 0x14 });
    expect(attributes(active, RTS)).toMatchObject({ timeout: 14 });
    expect(attributes(request.id, RTR)).toMatchObject({ tclass: 0x14 });
    expect(attributes(request.id, RTS)).toMatchObject({ timeout: 16 });
  });

  it('is established once by NOTIFY before the RTU of the peer [IBCM-RTU-02, IBCM-RTU-04]', async () => {
    const { id: active, request } = await asking();
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: 0x12 })));
    await rig.event();
    expect(rig.write(cm.notify(request.id, 5))).toBe(EINVAL);
    expect(rig.write(cm.notify(request.id))).toBe(0);
    expect(await rig.event()).toMatchObject({ id: request.id, type: ESTABLISHED });
    rig.must(cm.accept(active, 0n, connParam({ qpn: 0, valid: false })));
    expect(rig.poll()).toBeUndefined();
  });

  it('refuses commands that do not fit its state [IBCM-SM-01]', async () => {
    const id = rig.create(1n);
    rig.must(cm.resolveAddr(id, ADDRESS, 7471));
    expect(rig.write(cm.connect(id, connParam({ qpn: 0x11 })))).toBe(EINVAL);
    rig.must(cm.resolveRoute(id));
    expect(rig.write(cm.connect(id, connParam({ qpn: 0x11, valid: false })))).toBe(EINVAL);
    expect(rig.write(cm.accept(id, 1n, connParam({ qpn: 0x11 })))).toBe(EINVAL);
    expect(rig.write(cm.accept(id, 1n, connParam({ qpn: 0x11, valid: false })))).toBe(EINVAL);
    expect(rig.write(cm.reject(id, []))).toBe(EINVAL);
    expect(rig.write(cm.disconnect(id))).toBe(EINVAL);
    expect(rig.write(cm.notify(id))).toBe(EINVAL);
  });
});

describe('InfiniBand addresses', () => {
  const PS_IB = 0x013f;
  const sockaddr = `1b00 ffff 00*4 ${GID} 00000000013f1d2f ffffffffffffffff 00*8 00*80`;

  it('lead to no device: ENODEV to bind a GID, and to resolve one', () => {
    const id = rig.create(1n, rig.file, PS_IB);
    expect(rig.write(cmWrite(20, 0, `${le(id)} ${le(48, 2)} 00*2 ${sockaddr}`))).toBe(ENODEV);
    const resolve = `${le(id)} ${le(2000)} 00*2 ${le(48, 2)} 00*4 00*128 ${sockaddr}`;
    expect(rig.write(cmWrite(21, 0, resolve))).toBe(ENODEV);
    expect(rig.poll()).toBeUndefined();
  });
});

describe('a host of both wires', () => {
  const IWARP_ADDRESS = ownAddress(28);
  const AFONLY = '01000000';

  /** Replaces the rig by one with a device of each wire. */
  async function both(): Promise<void> {
    await rig.close();
    const devices = [
      { name: 'roce0', addresses: [ADDRESS], transport: 'roce' as const },
      { name: 'iwarp0', addresses: [IWARP_ADDRESS] },
    ];
    rig = new RdmaCmRig(new UverbsRig({ devices }), ADDRESS);
  }

  it.each([
    ['after', 'TCP', PS_TCP],
    ['after', 'UDP', PS_UDP],
    ['before', 'TCP', PS_TCP],
    ['before', 'UDP', PS_UDP],
  ])('leaves IPv4 to others with AFONLY %s the bind, in %s space', async (when, _name, space) => {
    await both();
    const port = rig.freePort();
    const six = rig.create(1n, rig.file, space);
    const option = cm.setOption(six, 0, 2, AFONLY);
    if (when === 'before') rig.must(option);
    rig.must(cm.bindAnyV6(six, port));
    if (when === 'after') rig.must(option);
    rig.must(cm.listen(six));
    // There is no listener for IPv4 yet: an IPv6 wildcard would, without the option.
    const early = rig.routed(2n, port, rig.file, space);
    rig.must(cm.connect(early, connParam({ qpn: 0x11 })));
    const [type, status] = space === PS_TCP ? [REJECTED, 8] : [UNREACHABLE, 1];
    expect(await rig.event()).toMatchObject({ id: early, type, status });
    const four = rig.create(3n, rig.file, space);
    rig.must(cm.bind(four, '0.0.0.0', port));
    rig.must(cm.listen(four));
    rig.must(cm.connect(rig.routed(4n, port, rig.file, space), connParam({ qpn: 0x11 })));
    expect(await rig.event()).toMatchObject({ uid: 3n, type: CONNECT_REQUEST });
  });

  it('accepts AFONLY while an id is idle or bound, and no later', async () => {
    await both();
    for (const space of [PS_TCP, PS_UDP]) {
      const id = rig.routed(1n, 7471, rig.file, space);
      expect(rig.write(cm.setOption(id, 0, 2, AFONLY))).toBe(EINVAL);
      const { id: listener } = rig.listener(2n, 0, rig.file, space);
      expect(rig.write(cm.setOption(listener, 0, 2, AFONLY))).toBe(EINVAL);
    }
  });
});

describe('datagrams', () => {
  /** A service, its client, and the request. */
  async function asked(data: readonly number[] = []) {
    const { id: listener, port } = rig.listener(1n, 0, rig.file, PS_UDP);
    const active = rig.routed(2n, port, rig.file, PS_UDP);
    rig.must(cm.connect(active, connParam({ qpn: 0x11, data })));
    return { listener, port, active, request: await rig.event() };
  }

  it('learn queue pair, key and path of a service', async () => {
    const { active, request } = await asked([1, 2, 3]);
    expect(request).toMatchObject({ uid: 1n, type: CONNECT_REQUEST, status: 0 });
    const blank = { qpn: 0, qkey: 0, dgid: '0'.repeat(32), sgid: 0, hop: 0, global: 0, port: 0 };
    expect(datagram(request)).toEqual({ ...blank, length: 180 });
    expect(hexAt(request.record, 60, 4)).toBe('01020300');
    expect(rig.must(cm.query(request.id, 1, 440)).getUint32(0, true)).toBe(0);
    expect(attributes(request.id, INIT)).toMatchObject({ mask: 0x71, qkey: 0x01234567, port: 1 });
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: 0x12, data: [9] })));
    const established = await rig.event();
    expect(established).toMatchObject({ id: active, type: ESTABLISHED, status: 0 });
    const way = { dgid: GID, sgid: 1, hop: 64, global: 1, port: 1 };
    expect(datagram(established)).toEqual({ qpn: 0x12, qkey: 0x01234567, ...way, length: 136 });
    expect(established.record.getUint8(60)).toBe(9);
    expect(rig.poll()).toBeUndefined();
    expect(rig.write(cm.disconnect(active))).toBe(0);
    expect(rig.poll()).toBeUndefined();
  });

  it('cannot be acknowledged', () => {
    expect(rig.write(cm.setOption(rig.create(1n, rig.file, PS_UDP), 0, 3, '0e'))).toBe(EINVAL);
  });

  it('find no service, or one that rejects', async () => {
    const lonely = rig.routed(2n, 7999, rig.file, PS_UDP);
    rig.must(cm.connect(lonely, connParam({ qpn: 0x11 })));
    const unreachable = await rig.event();
    expect(unreachable).toMatchObject({ id: lonely, type: UNREACHABLE, status: 1 });
    expect(datagram(unreachable)).toMatchObject({ length: 136 });
    const { active, request } = await asked();
    rig.must(cm.reject(request.id, []));
    expect(await rig.event()).toMatchObject({ id: active, type: UNREACHABLE, status: 2 });
  });

  it('carry 180 bytes of private data, and 136 in the reply', async () => {
    const bytes = (count: number) => new Array<number>(count).fill(7);
    const { port, request } = await asked(bytes(180));
    const long = rig.routed(4n, port, rig.file, PS_UDP);
    expect(rig.write(cm.connect(long, connParam({ qpn: 1, data: bytes(181) })))).toBe(EINVAL);
    const answer = (count: number) => connParam({ qpn: 0x12, data: bytes(count) });
    expect(rig.write(cm.accept(request.id, 3n, answer(137)))).toBe(EINVAL);
    expect(await rig.event()).toMatchObject({ type: UNREACHABLE, status: 2 });
  });
});

describe('multicast', () => {
  /** An id for datagrams that is bound to the device. */
  function member(): number {
    const id = rig.create(1n, rig.file, PS_UDP);
    rig.must(cm.bind(id, ADDRESS, 0));
    return id;
  }

  it('joins a group by an event with its address, again by a second one', async () => {
    const id = member();
    const memberships = [5n, 6n].map((uid) => {
      return rig.must(cm.joinMulticast(id, uid, '239.1.1.1')).getUint32(0, true);
    });
    expect(memberships).toEqual([0, 1]);
    const events = [await rig.event(), await rig.event()];
    expect(events.map(({ uid }) => uid)).toEqual([5n, 6n]);
    for (const event of events) {
      expect(event).toMatchObject({ id, type: MULTICAST_JOIN, status: 0 });
      expect(datagram(event)).toEqual({
        qpn: 0xffffff,
        qkey: 0x01234567,
        dgid: '00000000000000000000ffffef010101',
        sgid: 1,
        hop: 64,
        global: 1,
        port: 1,
        length: 0,
      });
    }
    expect(rig.must(cm.leaveMulticast(0)).getUint32(0, true)).toBe(1);
    expect(rig.write(cm.leaveMulticast(0))).toBe(ENOENT);
    expect(rig.must(cm.destroyId(id)).getUint32(0, true)).toBe(2);
    expect(rig.write(cm.leaveMulticast(1))).toBe(ENOENT);
  });

  it('withdraws an unread event when it is left', () => {
    rig.must(cm.joinMulticast(member(), 5n, '239.1.1.1'));
    expect(rig.must(cm.leaveMulticast(0)).getUint32(0, true)).toBe(0);
    expect(rig.poll()).toBeUndefined();
  });

  it('belongs to the file of its id, and moves with it', () => {
    const id = member();
    rig.must(cm.joinMulticast(id, 5n, '239.1.1.1'));
    const other = rig.openFile(101);
    expect(rig.write(cm.leaveMulticast(0), other)).toBe(EINVAL);
    rig.must(cm.migrateId(id, 100), other);
    expect(rig.poll(other)).toMatchObject({ type: MULTICAST_JOIN });
    expect(rig.write(cm.leaveMulticast(0))).toBe(EINVAL);
    expect(rig.must(cm.leaveMulticast(0), other).getUint32(0, true)).toBe(1);
  });

  it('counts against the quota of ids', () => {
    const { ledger } = rig.file.client;
    const id = member();
    rig.must(cm.joinMulticast(id, 5n, '239.1.1.1'));
    expect(ledger.count('id')).toBe(2);
    rig.must(cm.destroyId(id));
    expect(ledger.count('id')).toBe(0);
  });

  it('is refused for connections, without a device or a group, and with unknown flags', () => {
    const id = member();
    const stream = rig.create(1n);
    rig.must(cm.bind(stream, ADDRESS, 0));
    const deviceless = rig.create(1n, rig.file, PS_UDP);
    expect(rig.write(cm.joinMulticast(stream, 5n, '239.1.1.1'))).toBe(EINVAL);
    expect(rig.write(cm.joinMulticast(deviceless, 5n, '239.1.1.1'))).toBe(EINVAL);
    expect(rig.write(cm.joinMulticast(id, 5n, '0.0.0.0'))).toBe(EINVAL);
    expect(rig.write(cm.joinMulticast(id, 5n, '239.1.1.1', 2))).toBe(EINVAL);
    const short = cmWrite(22, 4, `${RSP} ${le(1, 8)} ${le(id)} ${le(12, 2)} 0000 00*128`);
    expect(rig.write(short)).toBe(EINVAL);
  });
});
