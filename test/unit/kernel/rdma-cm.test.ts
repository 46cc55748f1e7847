import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import type { HostNotice } from '#daemon/host/observer';
import type { CmFile } from '#daemon/kernel/cm/file';
import { KernelClient } from '#daemon/kernel/kernel-client';
import { ReplyFlag } from '#daemon/kernel/shim-protocol';
import { NEGATIVE_ERRNO as E } from '#test/support/errno';
import {
  cmCommands as cm,
  cmWrite,
  connParam,
  le,
  RSP,
  commands as uverbs,
} from '#test/support/kernel-commands';
import { SELF } from '#test/support/own-process';
import { quiet, until } from '#test/support/patience';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';

const ADDR_RESOLVED = 0;
const ADDR_ERROR = 1;
const ROUTE_RESOLVED = 2;
const CONNECT_REQUEST = 4;
const REJECTED = 8;
const ESTABLISHED = 9;
const DISCONNECTED = 10;

const SQD = 4;

let rig: RdmaCmRig;

beforeEach(() => {
  rig = new RdmaCmRig();
  rig.verbs.must(uverbs.getContext());
});

afterEach(() => rig.close());

/** A connection: ids and queue pairs of both sides, all events read. */
async function connected(on = rig) {
  const { id: listener, port } = on.listener(1n);
  const active = on.routed(2n, port);
  const activeQP = on.createQP();
  const passiveQP = on.createQP();
  on.must(cm.connect(active, connParam({ qpn: activeQP.qpn, data: [1, 2, 3] })));
  const request = await on.event();
  on.must(cm.accept(request.id, 3n, connParam({ qpn: passiveQP.qpn, data: [9] })));
  const both = [await on.event(), await on.event()];
  return { listener, active, passive: request.id, activeQP, passiveQP, request, both };
}

/** An id of `uid` that has asked the port for a connection. */
function dialed(uid: bigint, port: number, file?: CmFile): number {
  const id = rig.routed(uid, port, file);
  rig.must(cm.connect(id, connParam({ qpn: rig.createQP().qpn })), file);
  return id;
}

describe('the header of a command', () => {
  it.each<[string, Uint8Array, number]>([
    ['shorter than a header', Uint8Array.of(0, 0, 0, 0), E.EINVAL],
    ['longer than the written bytes', cmWrite(10, 0, le(0)).fill(5, 4, 5), E.EINVAL],
    ['a command that is not implemented', cmWrite(13, 0, le(0)), E.ENOSYS],
    ['a command that does not exist', cmWrite(25, 0, le(0)), E.EINVAL],
    ['a command with too few fields', cmWrite(7, 0, le(0)), E.EINVAL],
    [
      'no room for the response',
      cmWrite(0, 3, `${le(1, 8)} ${RSP} ${le(0x106, 2)} 00*6`),
      E.ENOSPC,
    ],
  ])('is refused when it is %s', (_, bytes, errno) => {
    expect(rig.write(bytes)).toBe(errno);
  });
});

it('refuses every command of a process that did not open the file', () => {
  const foreign = rig.reply(
    cmWrite(0, 4, `${le(1, 8)} ${RSP} ${le(0x106, 2)} 00*6`),
    rig.file,
    false,
  );
  expect(foreign.status).toBe(E.EACCES);
  expect(rig.reply(Uint8Array.of(0), rig.file, false).status).toBe(E.EACCES);
  expect(rig.create(1n)).toBe(0);
});

describe('ids', () => {
  it('use the lowest free number, from 0, in one namespace for all files', () => {
    const other = rig.openFile(101);
    expect([rig.create(1n), rig.create(1n, other), rig.create(1n)]).toEqual([0, 1, 2]);
    rig.must(cm.destroyId(0));
    expect(rig.create(1n, other)).toBe(0);
  });

  it('are unknown (ENOENT) or of another file (EINVAL)', () => {
    const other = rig.openFile(101);
    const id = rig.create(1n, other);
    expect(rig.write(cm.destroyId(77))).toBe(E.ENOENT);
    expect(rig.write(cm.destroyId(id))).toBe(E.EINVAL);
  });

  it.each([
    [0x0106, 0],
    [0x0111, 0],
    [0x0002, 0],
    [0x013f, 0],
    [0x0107, E.EINVAL],
  ])('of port space %i are created with status %i', (portSpace, status) => {
    expect(Math.min(0, rig.write(cm.createId(1n, portSpace)))).toBe(status);
  });

  it('without a device are refused by commands that need one', () => {
    const id = rig.create(1n);
    for (const write of [
      cm.connect(id, connParam({ qpn: 1 })),
      cm.accept(id, 1n, connParam({ qpn: 1 })),
      cm.reject(id, []),
      cm.disconnect(id),
      cm.initQpAttr(id, 1),
      cm.notify(id),
    ]) {
      expect(rig.write(write)).toBe(E.EINVAL);
    }
  });

  it('count against the quota of their program, also after a move', () => {
    const id = rig.create(1n);
    const { ledger } = rig.file.client;
    expect(ledger.count('id')).toBe(1);
    rig.must(cm.migrateId(id, 100), rig.openFile(101));
    expect(ledger.count('id')).toBe(1);
  });

  it('are destroyed with their file', () => {
    rig.listener(1n);
    rig.create(2n);
    rig.file.close();
    expect(rig.file.client.ledger.count('id')).toBe(0);
    const other = rig.openFile(101);
    expect(rig.create(1n, other)).toBe(0);
  });
});

describe('librdmacm’s probe for InfiniBand addresses', () => {
  it('succeeds, with a port in the service id', () => {
    const id = rig.must(cm.createId(0n, 0x013f)).getUint32(0, true);
    const sid = '0000000001060000';
    const address = `1b00 ffff 00*4 00*16 ${sid} ffffffffffff0000 00*8 00*80`;
    expect(rig.write(cmWrite(20, 0, `${le(id)} ${le(48, 2)} 00*2 ${address}`))).toBe(0);
    const answer = rig.must(cm.query(id, 0));
    expect(answer.getUint16(12, true)).toBe(48);
    expect(answer.getUint16(16, true)).toBe(27);
    expect(Number(answer.getBigUint64(16 + 24) & 0xffffn)).toBeGreaterThan(1023);
    expect(rig.must(cm.query(id, 2)).getUint16(16, true)).toBe(27);
    expect(rig.write(cm.listen(id))).toBe(E.ENODEV);
    expect(rig.must(cm.destroyId(id)).getUint32(0, true)).toBe(0);
  });

  it('covers only that port space', () => {
    const id = rig.create(1n);
    const address = `1b00 ffff 00*4 00*16 00*8 00*8 00*8 00*80`;
    expect(rig.write(cmWrite(20, 0, `${le(id)} ${le(48, 2)} 00*2 ${address}`))).toBe(E.EINVAL);
  });
});

describe('addresses', () => {
  it('are bound, with a port that QUERY returns', () => {
    const id = rig.create(1n);
    rig.must(cm.bind(id, '127.0.0.1', 0));
    const answer = rig.must(cm.query(id, 0));
    expect(answer.getBigUint64(0)).not.toBe(0n);
    expect([answer.getUint8(8), answer.getUint16(12, true), answer.getUint16(14, true)]).toEqual([
      1, 16, 16,
    ]);
    expect(answer.getUint16(18)).toBeGreaterThan(1023);
    expect(answer.getUint32(20)).toBe(0x7f00_0001);
    expect([answer.getUint16(144, true), answer.getUint32(148)]).toEqual([2, 0]);
  });

  it('show the GUID in the order of its bytes, and the index of the device', () => {
    const id = rig.create(1n);
    rig.must(cm.bindIp(id, '127.0.0.1', 0));
    const { nodeGuid } = rig.verbs.host.devices[0]?.info ?? { nodeGuid: '' };
    const answer = rig.must(cm.query(id, 0));
    expect(answer.getBigUint64(0).toString(16)).toBe(BigInt(`0x${nodeGuid}`).toString(16));
    expect(answer.getUint32(272, true)).toBe(0);
  });

  it('of the wildcard do not select a device', () => {
    const id = rig.create(1n);
    rig.must(cm.bind(id, '0.0.0.0', 0));
    const answer = rig.must(cm.query(id, 0));
    expect([answer.getBigUint64(0), answer.getUint8(8)]).toEqual([0n, 0]);
    expect(answer.getUint16(12, true)).toBe(16);
  });

  it('are refused when in use, not of this host, or bound twice', () => {
    const { port } = rig.listener(1n);
    const id = rig.create(2n);
    expect(rig.write(cm.bind(id, '127.0.0.1', port))).toBe(E.EADDRINUSE);
    expect(rig.write(cm.bind(id, '192.0.2.1', 0))).toBe(E.EADDRNOTAVAIL);
    rig.must(cm.bind(id, '127.0.0.1', 0));
    expect(rig.write(cm.bind(id, '127.0.0.1', 0))).toBe(E.EINVAL);
  });

  it.each([
    ['a wildcard after a specific one', '127.0.0.1', '0.0.0.0'],
    ['a specific one after a wildcard', '0.0.0.0', '127.0.0.1'],
    ['a wildcard after a wildcard', '0.0.0.0', '0.0.0.0'],
  ])('are refused on a port that another id holds: %s', (_, first, second) => {
    const port = rig.freePort();
    const holder = rig.create(1n);
    rig.must(cm.bind(holder, first, port));
    expect(rig.write(cm.bind(rig.create(2n), second, port))).toBe(E.EADDRNOTAVAIL);
    rig.must(cm.listen(holder));
    expect(rig.write(cm.bind(rig.create(2n), second, port))).toBe(E.EADDRNOTAVAIL);
    rig.must(cm.destroyId(holder));
    rig.must(cm.bind(rig.create(2n), second, port));
  });

  it('are shared by ids with REUSEADDR until one listens, and the last one left may listen', () => {
    const port = rig.freePort();
    const [first, second] = [rig.create(1n), rig.create(1n)];
    for (const id of [first, second]) rig.must(cm.setOption(id, 0, 1, '01000000'));
    rig.must(cm.bind(first, '127.0.0.1', port));
    rig.must(cm.bind(second, '127.0.0.1', port));
    expect(rig.write(cm.bind(rig.create(2n), '127.0.0.1', port))).toBe(E.EADDRINUSE);
    expect(rig.write(cm.listen(first))).toBe(E.EADDRINUSE);
    rig.must(cm.destroyId(second));
    rig.must(cm.listen(first));
  });

  it('are held in each port space separately, but have one listener', () => {
    const spaces = [0x0106, 0x0111, 0x013f];
    const port = rig.freePort();
    const ids = spaces.map((space) => rig.create(1n, rig.file, space));
    for (const id of ids) rig.must(cm.bind(id, '127.0.0.1', port));
    expect(rig.write(cm.bind(rig.create(1n), '127.0.0.1', port))).toBe(E.EADDRINUSE);
    expect(ids.map((id) => rig.write(cm.listen(id)))).toEqual([0, E.EADDRINUSE, E.EADDRINUSE]);
  });

  it('leave the others free once an id at a wildcard has resolved its destination', () => {
    const port = rig.freePort();
    const id = rig.create(1n);
    rig.must(cm.bind(id, '0.0.0.0', port));
    rig.must(cm.resolveAddr(id, '127.0.0.1', port));
    expect(rig.write(cm.bind(rig.create(2n), '127.0.0.1', port))).toBe(E.EADDRINUSE);
    rig.must(cm.bind(rig.create(2n), '127.0.0.2', port));
  });

  it('belong to an id that has connected until it is destroyed', async () => {
    const { active } = await connected();
    const port = rig.must(cm.query(active, 0)).getUint16(18);
    expect(rig.write(cm.bind(rig.create(1n), '127.0.0.1', port))).toBe(E.EADDRINUSE);
    rig.must(cm.destroyId(active));
    rig.must(cm.bind(rig.create(1n), '127.0.0.1', port));
  });

  it('must have the length of their family', () => {
    const id = rig.create(1n);
    const address = '0200 0000 7f000001 00*120';
    for (const size of [0, 8, 28]) {
      const write = cmWrite(20, 0, `${le(id)} ${le(size, 2)} 00*2 ${address}`);
      expect(rig.write(write)).toBe(E.EINVAL);
    }
    expect(rig.write(cmWrite(20, 0, `${le(id)} ${le(16, 2)} 00*2 ff00 00*126`))).toBe(E.EINVAL);
  });

  it('are resolved to a source and a device, then the route', async () => {
    const id = rig.create(5n);
    rig.must(cm.resolveAddr(id, '127.0.0.1', 7471));
    expect(await rig.event()).toMatchObject({ uid: 5n, id, type: ADDR_RESOLVED, status: 0 });
    const answer = rig.must(cm.query(id, 0));
    expect(answer.getUint16(18)).not.toBe(0);
    expect([answer.getUint16(146), answer.getUint32(148)]).toEqual([7471, 0x7f00_0001]);
    expect(rig.write(cm.resolveRoute(id, 0))).toBe(E.EINVAL);
    rig.must(cm.resolveRoute(id));
    expect((await rig.event()).type).toBe(ROUTE_RESOLVED);
    expect(rig.must(cm.destroyId(id)).getUint32(0, true)).toBe(2);
  });

  it('without a device on the route fail with an event, not a refusal', async () => {
    await rig.close();
    rig = new RdmaCmRig(new UverbsRig({ devices: [{ name: 'far', addresses: ['127.0.0.9'] }] }));
    const id = rig.create(5n);
    expect(rig.write(cm.resolveIp(id, '255.255.255.255', 1))).toBe(0);
    expect(await rig.event()).toMatchObject({ type: ADDR_ERROR });
    rig.must(cm.resolveIp(id, '127.0.0.1', 1));
    expect(await rig.event()).toMatchObject({ type: ADDR_RESOLVED });
  });

  it('are returned as a route on request', () => {
    const id = rig.create(5n);
    rig.must(cm.resolveIp(id, '127.0.0.1', 7471));
    const answer = rig.must(cm.queryRoute(id));
    expect([answer.getUint16(136, true), answer.getUint16(166)]).toEqual([2, 7471]);
    expect(answer.getUint32(192, true)).toBe(0);
    expect(answer.getUint8(196)).toBe(1);
  });

  it('show an IPv4 peer of an IPv6 program as a mapped address', () => {
    const id = rig.create(5n);
    const any = '0a00 0000 00*4 00*16 00*4';
    const mapped = '0a00 1d2f 00*4 00*10 ffff 7f000001 00*4';
    rig.must(cmWrite(3, 0, `${any} ${mapped} ${le(id)} ${le(2000)}`));
    const answer = rig.must(cm.query(id, 0));
    expect([answer.getUint16(12, true), answer.getUint16(144, true)]).toEqual([28, 10]);
    expect(answer.getUint32(144 + 16)).toBe(0xffff);
    expect(answer.getUint32(144 + 20)).toBe(0x7f00_0001);
  });

  it('support neither path records nor any other query', () => {
    const id = rig.create(1n);
    expect(rig.must(cm.query(id, 1, 440)).byteLength).toBe(8);
    expect(rig.write(cm.query(id, 4))).toBe(E.ENOSYS);
    expect(rig.write(cm.query(id, 0, 271))).toBe(E.ENOSPC);
    expect(rig.must(cm.query(id, 0, 272)).byteLength).toBe(272);
  });
});

describe('a connection', () => {
  it('carries private data and depths both ways', async () => {
    const { listener, active, passive, request, both } = await connected();
    expect(request).toMatchObject({ uid: 1n, type: CONNECT_REQUEST, data: [1, 2, 3] });
    expect(request).toMatchObject({ responderResources: 1, initiatorDepth: 1 });
    expect(passive).not.toBe(listener);
    expect(both.map(({ type }) => type)).toEqual([ESTABLISHED, ESTABLISHED]);
    const atActive = both.find(({ id }) => id === active);
    const atPassive = both.find(({ id }) => id === passive);
    expect(atActive).toMatchObject({ uid: 2n, data: [9], status: 0 });
    expect(atPassive).toMatchObject({ uid: 3n, data: [], status: 0 });
  });

  it('moves its queue pairs to RTS itself', async () => {
    const { activeQP } = await connected();
    expect(rig.verbs.must(uverbs.queryQP(activeQP.handle)).getUint8(108)).toBe(3);
  });

  it('ends for both when one moves its queue pair to SQD and disconnects', async () => {
    const { active, passive, activeQP } = await connected();
    rig.verbs.must(uverbs.modifyQP(activeQP.handle, 1, { state: SQD }));
    rig.must(cm.disconnect(active));
    const ends = [await rig.event(), await rig.event()];
    expect(ends.map(({ id }) => id).sort()).toEqual([active, passive].sort());
    expect(ends.every(({ type, status }) => type === DISCONNECTED && status === 0)).toBe(true);
    rig.must(cm.disconnect(active));
    rig.must(cm.disconnect(passive));
    expect(rig.poll()).toBeUndefined();
  });

  it('ends without a warning in the log', async () => {
    const notices: HostNotice[] = [];
    const observer = { notice: (notice: HostNotice) => notices.push(notice) };
    const watched = new RdmaCmRig(new UverbsRig({ observer }));
    watched.verbs.must(uverbs.getContext());
    const ends = await connected(watched);
    watched.verbs.must(uverbs.modifyQP(ends.activeQP.handle, 1, { state: SQD }));
    watched.must(cm.disconnect(ends.active));
    expect([await watched.event(), await watched.event()]).toHaveLength(2);
    await watched.close();
    const drained = expect.objectContaining({
      level: 'debug',
      text: expect.stringMatching(/sent/),
    });
    expect(notices).toContainEqual(drained);
    expect(notices.filter(({ level }) => level === 'warn')).toEqual([]);
  });

  it('counts the delivered events of each id, the request for the listener', async () => {
    const { listener, active, passive } = await connected();
    const reported = (id: number) => rig.must(cm.destroyId(id)).getUint32(0, true);
    expect([reported(active), reported(passive), reported(listener)]).toEqual([3, 1, 1]);
  });

  it('is refused by an event if there is no listener', async () => {
    const id = rig.routed(2n, rig.freePort());
    expect(rig.write(cm.connect(id, connParam({ qpn: rig.createQP().qpn })))).toBe(0);
    expect(await rig.event()).toMatchObject({ id, type: REJECTED, status: E.ECONNREFUSED });
  });

  it('waits for a server that is about to listen', async () => {
    const port = rig.freePort();
    dialed(2n, port);
    await quiet(50);
    expect(rig.listenAt(3n, port)).toBeGreaterThanOrEqual(0);
    expect(await rig.event()).toMatchObject({ uid: 3n, type: CONNECT_REQUEST });
  });

  it('that waits for its server is cancelled with its id', async () => {
    const port = rig.freePort();
    const id = dialed(2n, port);
    await quiet(20);
    rig.must(cm.destroyId(id));
    expect(rig.listenAt(3n, port)).toBeGreaterThanOrEqual(0);
    await quiet(200);
    expect(rig.poll()).toBeUndefined();
  });

  it('is rejected with private data, and the queue pair can connect again', async () => {
    const { port } = rig.listener(1n);
    const { qpn } = rig.createQP();
    const first = rig.routed(2n, port);
    rig.must(cm.connect(first, connParam({ qpn })));
    const request = await rig.event();
    expect(rig.write(cm.reject(request.id, [7, 8], 5))).toBe(E.EINVAL);
    rig.must(cm.reject(request.id, [7, 8]));
    expect(await rig.event()).toMatchObject({ id: first, type: REJECTED, status: E.ECONNRESET });
    rig.must(cm.connect(rig.routed(2n, port), connParam({ qpn })));
    expect((await rig.event()).type).toBe(CONNECT_REQUEST);
  });

  it('needs a route, parameters, and a queue pair of the same device', () => {
    const { port } = rig.listener(1n);
    const { qpn } = rig.createQP();
    const id = rig.create(2n);
    rig.must(cm.resolveAddr(id, '127.0.0.1', port));
    expect(rig.write(cm.connect(id, connParam({ qpn })))).toBe(E.EINVAL);
    rig.must(cm.resolveRoute(id));
    expect(rig.write(cm.connect(id, connParam({ qpn, valid: false })))).toBe(E.EINVAL);
    expect(rig.write(cm.connect(id, connParam({ qpn: qpn + 100 })))).toBe(E.EINVAL);
    expect(rig.write(cm.connect(id, connParam({ qpn, ird: 255 })))).toBe(E.EINVAL);
    expect(rig.write(cm.connect(id, connParam({ qpn })))).toBe(0);
  });

  it('destroyed before an answer is rejected', async () => {
    const { port } = rig.listener(1n);
    const id = dialed(2n, port);
    const request = await rig.event();
    rig.must(cm.destroyId(request.id));
    expect(await rig.event()).toMatchObject({ id, type: REJECTED, data: [] });
  });

  it('whose request is still unread ends with its listener', async () => {
    const { id: listener, port } = rig.listener(1n);
    const other = rig.openFile(101);
    const id = dialed(2n, port, other);
    await until('a request', () => rig.file.ownQueue.length === 1);
    const unread = rig.create(9n, other) - 1;
    expect(rig.write(cm.disconnect(unread))).toBe(E.ENOENT);
    expect(rig.must(cm.destroyId(listener)).getUint32(0, true)).toBe(0);
    expect(rig.file.ownQueue.length).toBe(0);
    expect(await rig.event(other)).toMatchObject({ id, type: REJECTED });
  });

  it('whose request is still unread, among many, ends with its listener within several turns', async () => {
    const many = 150;
    const { id: listener, port } = rig.listener(1n, many);
    const other = rig.openFile(101);
    for (let index = 0; index < many; index += 1) dialed(2n, port, other);
    await until('all requests', () => rig.file.ownQueue.length === many);
    const { cm: host } = rig.verbs.host;
    const destroy = vi.spyOn(host, 'destroy');
    rig.must(cm.destroyId(listener));
    expect([rig.file.size, rig.file.ownQueue.length]).toEqual([0, 0]);
    let [most, before] = [0, 0];
    while (before < many + 1) {
      most = Math.max(most, destroy.mock.calls.length - before);
      before = destroy.mock.calls.length;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(most).toBeLessThan(many / 2);
    for (let index = 0; index < many; index += 1) {
      expect((await rig.event(other)).type).toBe(REJECTED);
    }
  });
});

describe('the port of a listening id that was destroyed', () => {
  let port: number;

  beforeEach(() => {
    const early = rig.listener(1n);
    ({ port } = early);
    rig.must(cm.destroyId(early.id));
  });

  /** An id that connects once, and does not try again when it is refused. */
  function impatient(uid: bigint, data: readonly number[] = []): number {
    const id = rig.routed(uid, port);
    rig.file.expect(id).id.refusalPatienceMs = 0;
    rig.must(cm.connect(id, connParam({ qpn: rig.createQP().qpn, data })));
    return id;
  }

  it('holds connections for the next listener of the program', async () => {
    impatient(2n, [1, 2]);
    await quiet(50);
    expect(rig.poll()).toBeUndefined();
    const late = rig.listenAt(3n, port);
    const request = await rig.event();
    expect(request).toMatchObject({ uid: 3n, type: CONNECT_REQUEST, data: [1, 2] });
    rig.must(cm.destroyId(late));
    rig.must(cm.accept(request.id, 4n, connParam({ qpn: rig.createQP().qpn })));
    expect([await rig.event(), await rig.event()]).toMatchObject([
      { type: ESTABLISHED },
      { type: ESTABLISHED },
    ]);
  });

  it('rejects them when no listener comes', async () => {
    const id = impatient(2n);
    expect(await rig.event()).toMatchObject({ id, type: REJECTED, status: E.ECONNRESET });
    const next = impatient(3n);
    expect(await rig.event()).toMatchObject({ id: next, type: REJECTED, status: E.ECONNREFUSED });
  });

  it('is free for another address', () => {
    const id = rig.create(2n);
    expect(rig.write(cm.bind(id, '0.0.0.0', port))).toBe(0);
    expect(rig.write(cm.listen(id))).toBe(0);
  });

  it('is free for another program', () => {
    const id = rig.create(2n);
    rig.file.expect(id).id.portKeeper = {};
    expect(rig.write(cm.bind(id, '127.0.0.1', port))).toBe(0);
    expect(rig.write(cm.listen(id))).toBe(0);
  });

  it('is free for a connection', async () => {
    const { port: target } = rig.listener(2n);
    const id = rig.create(3n);
    rig.must(cm.bind(id, '127.0.0.1', port));
    rig.must(cm.resolveAddr(id, '127.0.0.1', target));
    rig.must(cm.resolveRoute(id));
    await rig.event();
    await rig.event();
    rig.must(cm.connect(id, connParam({ qpn: rig.createQP().qpn })));
    expect(await rig.event()).toMatchObject({ uid: 2n, type: CONNECT_REQUEST });
  });

  it('is released with the program', async () => {
    rig.verbs.host.releasePorts(rig.file.client);
    const id = impatient(2n);
    expect(await rig.event()).toMatchObject({ id, type: REJECTED, status: E.ECONNREFUSED });
  });
});

describe('the event queue', () => {
  it('returns EAGAIN when empty', () => {
    expect(rig.write(cm.getEvent())).toBe(E.EAGAIN);
    expect(rig.write(cm.getEvent(323))).toBe(E.ENOSPC);
  });

  it('has bytes on its descriptor exactly while events wait, one for each', () => {
    const bytes: number[] = [];
    rig.file.ownQueue.attach({ write: (more) => bytes.push(...more), close: () => undefined });
    const id = rig.create(1n);
    rig.must(cm.resolveAddr(id, '127.0.0.1', 1));
    rig.must(cm.resolveRoute(id));
    expect(bytes).toHaveLength(2);
    expect(rig.reply(cm.getEvent()).flags).toBe(ReplyFlag.takeByte);
    expect(rig.reply(cm.getEvent(324)).flags).toBe(ReplyFlag.takeByte);
    const second = rig.create(1n);
    rig.must(cm.resolveAddr(second, '127.0.0.1', 1));
    expect(bytes).toHaveLength(3);
    expect(rig.reply(cm.destroyId(second)).purged).toEqual([100]);
    expect(rig.reply(cm.destroyId(id)).purged).toBeUndefined();
  });

  it('moves with an id to another file', async () => {
    const other = rig.openFile(101);
    const id = rig.create(1n);
    rig.must(cm.resolveAddr(id, '127.0.0.1', 1));
    await rig.event();
    rig.must(cm.resolveRoute(id));
    expect(rig.write(cm.migrateId(id, 999), other)).toBe(E.EINVAL);
    expect(rig.write(cm.migrateId(55, 100), other)).toBe(E.ENOENT);
    expect(rig.must(cm.migrateId(id, 100), other).getUint32(0, true)).toBe(1);
    expect(rig.poll()).toBeUndefined();
    expect(await rig.event(other)).toMatchObject({ id, type: ROUTE_RESOLVED });
    expect(rig.write(cm.disconnect(id))).toBe(E.EINVAL);
  });

  it('moves the requests of a listener, and their ids', async () => {
    const { id: listener, port } = rig.listener(1n);
    const clients: CmFile = rig.openFile(101);
    dialed(2n, port, clients);
    await until('an event', () => rig.file.ownQueue.length === 1);
    const moved = rig.openFile(102);
    rig.must(cm.migrateId(listener, 100), moved);
    const request = await rig.event(moved);
    expect(request.type).toBe(CONNECT_REQUEST);
    rig.must(cm.accept(request.id, 3n, connParam({ qpn: rig.createQP().qpn })), moved);
    expect((await rig.event(moved)).type).toBe(ESTABLISHED);
  });
});

describe('an event that the program writes', () => {
  const USER = 18;
  const INTERNAL = 19;

  it('waits after the others, with its status and argument, and counts as delivered', () => {
    const id = rig.create(7n);
    rig.must(cm.resolveAddr(id, '127.0.0.1', 1));
    for (const [event, argument] of [
      [USER, 0x0123_4567_89ab_cdefn],
      [INTERNAL, 16n],
    ] as const) {
      expect(rig.write(cm.writeEvent(id, event, argument, -5))).toBe(0);
    }
    expect(rig.poll()).toMatchObject({ id, type: ADDR_RESOLVED });
    const [first, second] = [rig.poll(), rig.poll()];
    expect(first).toMatchObject({ uid: 7n, id, type: USER, status: -5 });
    expect(first?.record.getBigUint64(20, true)).toBe(0x0123_4567_89ab_cdefn);
    expect(second).toMatchObject({ uid: 7n, id, type: INTERNAL, status: -5 });
    expect(second?.record.getBigUint64(20, true)).toBe(16n);
    expect(rig.must(cm.destroyId(id)).getUint32(0, true)).toBe(3);
  });

  it('wakes the program, and is removed with its id', () => {
    const bytes: number[] = [];
    rig.file.ownQueue.attach({ write: (more) => bytes.push(...more), close: () => undefined });
    const id = rig.create(7n);
    rig.must(cm.writeEvent(id, USER, 1n));
    expect(bytes).toHaveLength(1);
    const other = rig.openFile(101);
    rig.must(cm.migrateId(id, 100), other);
    expect(rig.poll()).toBeUndefined();
    expect(rig.poll(other)).toMatchObject({ id, type: USER });
  });

  it('has a type for programs and an id of the same file', () => {
    const id = rig.create(7n);
    for (const event of [ESTABLISHED, 16, 17, 20]) {
      expect(rig.write(cm.writeEvent(id, event))).toBe(E.EINVAL);
    }
    expect(rig.write(cm.writeEvent(id + 1, USER))).toBe(E.ENOENT);
    expect(rig.write(cm.writeEvent(id, USER), rig.openFile(101))).toBe(E.EINVAL);
    expect(rig.write(cm.writeEvent(id, USER).subarray(0, 320))).toBe(E.EINVAL);
  });

  it('is refused while 65,536 of the program wait, until it reads or ends the id', () => {
    const { client } = rig.file;
    const id = rig.create(7n);
    const write = cm.writeEvent(id, USER);
    for (let count = 0; count < 65_536; count += 1) rig.must(write);
    expect(rig.write(write)).toBe(E.ENOMEM);
    expect(rig.poll()).toMatchObject({ type: USER });
    rig.must(write);
    expect(rig.write(write)).toBe(E.ENOMEM);
    rig.must(cm.destroyId(id));
    expect(client.unreadEvents).toBe(0);
    rig.must(cm.writeEvent(rig.create(8n), USER));
    rig.file.close();
    expect(client.unreadEvents).toBe(0);
  });

  it('counts against the program that takes over its id', () => {
    const { client } = rig.file;
    const id = rig.create(7n);
    rig.must(cm.writeEvent(id, USER));
    rig.must(cm.writeEvent(id, USER));
    const program = new KernelClient(3, SELF, DEFAULT_QUOTAS);
    const other = rig.openFile(101, program);
    rig.must(cm.migrateId(id, 100), other);
    expect([client.unreadEvents, program.unreadEvents]).toEqual([0, 2]);
    expect(rig.poll(other)).toMatchObject({ id, type: USER });
    expect(program.unreadEvents).toBe(1);
    other.close();
    expect([client.unreadEvents, program.unreadEvents]).toEqual([0, 0]);
  });
});

describe('a service of InfiniBand', () => {
  it('is not supported: EOPNOTSUPP for a bound id, else EINVAL', () => {
    const id = rig.create(1n);
    expect(rig.write(cm.resolveIbService(id))).toBe(E.EINVAL);
    rig.must(cm.bind(id, '127.0.0.1', 0));
    expect(rig.write(cm.resolveIbService(id))).toBe(E.EOPNOTSUPP);
    rig.must(cm.resolveAddr(id, '127.0.0.1', 1));
    expect(rig.write(cm.resolveIbService(id))).toBe(E.EINVAL);
    expect(rig.write(cm.resolveIbService(77))).toBe(E.ENOENT);
    expect(rig.write(cm.query(id, 3))).toBe(E.ENODATA);
    expect(rig.write(cm.query(id, 3, 7))).toBe(E.ENOSPC);
  });
});

describe('other commands', () => {
  it('return how to move a queue pair, depending on the connection', async () => {
    const fields = (id: number, state: number) => {
      const answer = rig.must(cm.initQpAttr(id, state));
      const at = (offset: number) => answer.getUint32(offset, true);
      return [at(0), at(4), at(36), answer.getUint8(133)];
    };
    const unconnected = rig.routed(5n, 1);
    expect(fields(unconnected, 1)).toEqual([0x29, 1, 0, 1]);
    expect(fields(unconnected, 3)).toEqual([0x29, 3, 0, 1]);
    const { passive } = await connected();
    expect(fields(passive, 2)).toEqual([0x29, 2, 6, 1]);
    expect(fields(passive, 3)).toEqual([0x20, 3, 0, 1]);
    expect(rig.write(cm.initQpAttr(passive, 4))).toBe(E.EINVAL);
    expect(rig.write(cm.initQpAttr(passive, 7))).toBe(E.EINVAL);
    expect(rig.write(cm.notify(passive))).toBe(0);
    expect(rig.write(cm.notify(unconnected))).toBe(E.EINVAL);
  });

  it.each<[string, number, number, string, number]>([
    ['TOS', 0, 0, '10', 0],
    ['REUSEADDR', 0, 1, '01000000', 0],
    ['AFONLY', 0, 2, '01000000', 0],
    ['ACK_TIMEOUT', 0, 3, '0e', 0],
    ['a value of another size', 0, 1, '01', E.EINVAL],
    ['an unknown option', 0, 4, '01', E.ENOSYS],
    ['an option of InfiniBand', 1, 1, '01', E.ENOSYS],
  ])('accept option %s', (_, level, name, value, status) => {
    expect(rig.write(cm.setOption(rig.create(1n), level, name, value))).toBe(status);
  });

  it.each([
    ['before', true],
    ['after', false],
  ])('leave the IPv4 addresses of a port to others with AFONLY %s the bind', (_, before) => {
    const port = rig.freePort();
    const v6 = rig.create(1n);
    const steps = [cm.setOption(v6, 0, 2, '01000000'), cm.bindAnyV6(v6, port), cm.listen(v6)];
    if (!before)
      [steps[0], steps[1]] = [cm.bindAnyV6(v6, port), cm.setOption(v6, 0, 2, '01000000')];
    for (const step of steps) rig.must(step);
    const v4 = rig.create(2n);
    for (const step of [cm.bind(v4, '0.0.0.0', port), cm.listen(v4)]) {
      expect(rig.write(step)).toBe(0);
    }
  });

  it('keep their port when AFONLY changes later, and then one of them listens', () => {
    const port = rig.freePort();
    const [v6, v4] = [rig.create(1n), rig.create(2n)];
    rig.must(cm.setOption(v6, 0, 2, '01000000'));
    rig.must(cm.bindAnyV6(v6, port));
    rig.must(cm.bind(v4, '0.0.0.0', port));
    rig.must(cm.setOption(v6, 0, 2, '00000000'));
    rig.must(cm.listen(v4));
    expect(rig.write(cm.listen(v6))).toBe(E.EADDRINUSE);
  });

  it('bind both families of a port without AFONLY, and then the port is in use', () => {
    const port = rig.freePort();
    const v6 = rig.create(1n);
    rig.must(cm.setOption(v6, 0, 2, '00000000'));
    rig.must(cm.bindAnyV6(v6, port));
    rig.must(cm.listen(v6));
    expect(rig.write(cm.bind(rig.create(2n), '0.0.0.0', port))).toBe(E.EADDRNOTAVAIL);
  });

  it('accept AFONLY while the id is idle or bound, and no later', () => {
    expect(rig.write(cm.setOption(rig.listener(1n).id, 0, 2, '01000000'))).toBe(E.EINVAL);
  });

  it('refuse multicast: EINVAL for connections, ENOSYS for datagrams, ENOENT to leave', () => {
    const join = (id: number) =>
      rig.write(cmWrite(16, 4, `${RSP} ${le(1, 8)} 0200 0000 e0000001 00*20 ${le(id)}`));
    const stream = rig.create(1n);
    const datagram = rig.must(cm.createId(1n, 0x0111)).getUint32(0, true);
    rig.must(cm.bind(stream, '127.0.0.1', 0));
    rig.must(cm.bind(datagram, '127.0.0.1', 0));
    expect([join(stream), join(datagram)]).toEqual([E.EINVAL, E.ENOSYS]);
    expect(rig.write(cmWrite(17, 4, `${RSP} ${le(datagram)} 00*4`))).toBe(E.ENOENT);
  });
});
