/** The objects of devices in netlink: the replies to `rdma resource`, byte for byte. */
import { constants } from 'node:os';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { kernelDevices } from '#daemon/kernel/nldev/devices';
import { parseNetlink } from '#daemon/kernel/nldev/message';
import { answerNetlink } from '#daemon/kernel/nldev/nldev';
import { dumpPart } from '#daemon/kernel/nldev/resource-dump';
import type { ResourceView } from '#daemon/kernel/nldev/resources';
import { QP } from '#daemon/rnic/queue-pair';
import { bytesOf, hexOf } from '#test/support/hex';
import {
  cmCommands as cm,
  commands,
  connParam,
  le,
  plain,
  RSP,
} from '#test/support/kernel-commands';
import { RdmaCmRig } from '#test/support/rdma-cm-rig';
import { UverbsRig } from '#test/support/uverbs-rig';

const { EINVAL, ENOENT, EOPNOTSUPP } = constants.errno;
const DUMP = 0x301;
const GET = 1;
const Command = { summary: 9, qp: 10, cmId: 11, cq: 12, mr: 13, pd: 14, context: 22, srq: 23 };
const KEYS = [42, 43, 48];

let rig: UverbsRig;
let showsKeys: boolean;
/** Opens of rdma_cm. */
let ids: RdmaCmRig | undefined;

beforeEach(() => {
  rig = new UverbsRig({
    devices: [{ name: 'roce0', addresses: ['127.0.0.1'], transport: 'roce' }],
  });
  rig.must(commands.getContext());
  showsKeys = true;
  ids = undefined;
});

afterEach(() => rig.close());

function viewOf(device: ResourceView['device']): ResourceView {
  const { ids: listed } = rig.server;
  return { device, resources: rig.server.resources(device.index), ids: listed, showsKeys };
}

/** A request as iproute2 sends it, by default to the first device. */
function ask(command: number, flags: number, attributes = '', index = 0): Uint8Array {
  const body = bytesOf(`0800 0100 ${le(index)} ${attributes}`);
  const head = le(16 + body.length) + le(0x1400 + command, 2) + le(flags, 2) + le(7) + le(9);
  return Uint8Array.from([...bytesOf(head), ...body]);
}

function answer(request: Uint8Array) {
  return answerNetlink(request, kernelDevices(rig.host), viewOf);
}

type Fields = ReadonlyMap<number, number>;

/** Attributes of up to eight bytes, by their types. */
function fieldsOf(bytes: Uint8Array): Fields {
  const fields = new Map<number, number>();
  for (const [type, data] of attributesOf(bytes)) {
    const view = new DataView(data.buffer, data.byteOffset, data.length);
    if (data.length === 1) fields.set(type, view.getUint8(0));
    if (data.length === 4) fields.set(type, view.getUint32(0, true));
    if (data.length === 8) fields.set(type, Number(view.getBigUint64(0, true)));
  }
  return fields;
}

function attributesOf(bytes: Uint8Array): [number, Uint8Array][] {
  const attributes: [number, Uint8Array][] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; at += (view.getUint16(at, true) + 3) & ~3) {
    const length = view.getUint16(at, true);
    attributes.push([view.getUint16(at + 2, true), bytes.subarray(at + 4, at + length)]);
  }
  return attributes;
}

/** The objects in the datagrams of a dump, each as its attributes' bytes. */
function objectsIn(datagrams: readonly Uint8Array[]): Uint8Array[] {
  return datagrams.flatMap((datagram) => {
    const tables = attributesOf(datagram.subarray(16)).filter(([type]) => type > 2);
    return tables.flatMap(([, table]) => attributesOf(table).map(([, entry]) => entry));
  });
}

/** All objects of a dump that fits one reply. */
function dumped(command: number, attributes = ''): Fields[] {
  const { datagrams, rest } = answer(ask(command, DUMP, attributes));
  expect(rest).toBeUndefined();
  expect(parseNetlink(datagrams.at(-1) ?? new Uint8Array(0))?.header.type).toBe(3);
  return objectsIn(datagrams.slice(0, -1)).map(fieldsOf);
}

/** PD 0, CQ 1, SRQ 2, a queue pair of its own receives, one with the SRQ. */
function withObjects(): { own: number; shared: number } {
  rig.create(commands.allocPD());
  rig.create(commands.createCQ(0x11n, 20));
  const srq = rig.create(plain(32, 40, `${RSP} ${le(1, 8)} ${le(0)} ${le(4)} ${le(1)} ${le(0)}`));
  const pair = { pd: 0, sendCQ: 1, recvCQ: 1 };
  const qpn = (rest: object) =>
    rig.must(commands.createQP({ ...pair, ...rest })).getUint32(4, true);
  return { own: qpn({ type: 4 }), shared: qpn({ srq }) };
}

describe('the summary', () => {
  it('counts the objects of a device, byte for byte as rxe’s', () => {
    withObjects();
    rig.register(new Uint8Array(64), 0);
    const counts = [1, 1, 2, 0, 1, 1, 1];
    const { datagrams } = answer(ask(Command.summary, GET));
    const [record = new Uint8Array(0)] = datagrams;
    const entries = ['pd', 'cq', 'qp', 'cm_id', 'mr', 'ctx', 'srq'].map((name, index) => {
      const padded = Buffer.from(name.padEnd((name.length + 4) & ~3, '\0'));
      const fields = `${le(5 + name.length, 2)} 1100 ${padded.toString('hex')} 0c00 1200`;
      return `${le(20 + padded.length, 2)} 1000 ${fields} ${le(counts[index] ?? 0, 8)}`;
    });
    const inside = bytesOf(entries.join(''));
    const table = `${le(4 + inside.length, 2)} 0f00 ${hexOf(inside)}`;
    const body = `0800 0100 ${le(0)} 0a00 0200 726f636530000000 ${table}`;
    expect(hexOf(record.subarray(16))).toBe(hexOf(bytesOf(body)));
  });
});

describe('objects', () => {
  it('of each kind have their owner, and name one another', () => {
    const { own, shared } = withObjects();
    const { key } = rig.register(new Uint8Array(64), 0);
    const pid = process.pid;
    const [context, pd, cq, mr, srq] = [
      Command.context,
      Command.pd,
      Command.cq,
      Command.mr,
      Command.srq,
    ].map((command) => Object.fromEntries(dumped(command)[0] ?? []));
    expect(context).toEqual({ 64: 0, 28: pid });
    expect(pd).toEqual({ 48: 0, 38: 4, 60: 0, 64: 0, 28: pid });
    expect(cq).toEqual({ 37: 31, 38: 4, 84: 0, 61: 0, 64: 0, 28: pid });
    expect(mr).toEqual({ 42: key, 43: key, 45: 64, 62: 0, 60: 0, 28: pid });
    expect(srq).toEqual({ 90: 0, 26: 0, 60: 0, 28: pid });
    const pairs = dumped(Command.qp).map((fields) => Object.fromEntries(fields));
    // Neither is on its port yet.
    const datagrams = { 21: own, 60: 0, 28: pid, 24: 0, 26: 4, 27: 0 };
    const connected = { 21: shared, 60: 0, 28: pid, 22: 0, 23: 0, 24: 0, 25: 0, 26: 2, 27: 0 };
    expect(pairs).toHaveLength(2);
    expect(pairs).toEqual(expect.arrayContaining([datagrams, connected]));
  });

  it('list only the queue pairs of a shared receive queue, in order', () => {
    const { shared } = withObjects();
    const create = plain(32, 40, `${RSP} ${le(1, 8)} ${le(0)} ${le(4)} ${le(1)} ${le(0)}`);
    for (let count = 0; count < 9; count += 1) rig.create(create);
    const { datagrams } = answer(ask(Command.srq, DUMP));
    const entries = objectsIn(datagrams.slice(0, -1));
    const pairs = entries.map(
      (entry) => attributesOf(entry).find(([type]) => type === (0x8000 | 19))?.[1],
    );
    expect(pairs).toHaveLength(10);
    const [first, ...others] = pairs.map((bytes = new Uint8Array(0)) => hexOf(bytes));
    expect(first).toBe(hexOf(bytesOf(`0c00 1480 0800 1500 ${le(shared)}`)));
    expect(new Set(others)).toEqual(new Set(['']));
  });

  it('show keys of memory only to permitted users', () => {
    withObjects();
    const { key } = rig.register(new Uint8Array(64), 0, 1);
    // No peer may use this one.
    expect(dumped(Command.mr)[0]).toEqual(
      new Map([
        [42, 0],
        [43, key],
        [45, 64],
        [60, 0],
        [62, 0],
        [28, process.pid],
      ]),
    );
    showsKeys = false;
    for (const command of [Command.mr, Command.pd]) {
      const [fields] = dumped(command);
      expect(fields?.size).toBeGreaterThan(2);
      expect(KEYS.filter((type) => fields?.has(type))).toEqual([]);
    }
  });

  it('of a port are listed by port, and found by port and number', () => {
    const { own, shared } = withObjects();
    const port = `0800 0300 ${le(1)}`;
    expect(dumped(Command.qp, port)).toEqual([]);
    const handle = rig.file.table.ofKind('qp').find(({ qp }) => qp.qpn === shared)?.handle ?? 0;
    rig.must(commands.modifyQP(handle, 0x39, { state: 1, port: 1 }));
    expect(dumped(Command.qp, port).map((fields) => fields.get(21))).toEqual([shared]);
    const [record = new Uint8Array(0)] = answer(
      ask(Command.qp, GET, `${port} 0800 1500 ${le(shared)}`),
    ).datagrams;
    expect(fieldsOf(record.subarray(16)).get(27)).toBe(1);
    const errors = [
      ['without its port', `0800 1500 ${le(shared)}`, EINVAL],
      ['without a number', port, EINVAL],
      ['that is not there', `${port} 0800 1500 ${le(0x00ff_ffff)}`, ENOENT],
      ['on no port', `${port} 0800 1500 ${le(own)}`, 11],
    ] as const;
    for (const [what, attributes, errno] of errors) {
      expect(errnoOf(ask(Command.qp, GET, attributes)), what).toBe(errno);
    }
    expect(errnoOf(ask(Command.pd, GET, `${port} 0800 3c00 ${le(0)}`))).toBe(EINVAL);
    expect(errnoOf(ask(Command.qp, DUMP, `0800 0300 ${le(2)}`))).toBe(EINVAL);
    expect(errnoOf(ask(Command.qp, DUMP, '', 5))).toBe(EINVAL);
    expect(errnoOf(ask(Command.srq + 1, DUMP))).toBe(EOPNOTSUPP);
    // As rxe, the device has no objects in the form of its hardware.
    for (const raw of [19, 20, 21, 25]) expect(errnoOf(ask(raw, DUMP))).toBe(EINVAL);
  });

  it('keep their numbers, which are never reused', () => {
    rig.create(commands.allocPD());
    rig.create(commands.allocPD());
    const shown = () => dumped(Command.pd).map((fields) => fields.get(60));
    expect(shown()).toEqual([0, 1]);
    rig.must(commands.deallocPD(0));
    expect(shown()).toEqual([1]);
    rig.create(commands.allocPD());
    expect(shown()).toEqual([1, 2]);
  });

  it('are sent in parts if there are many, in datagrams of a page, each part after the last', () => {
    const count = 3000;
    for (let made = 0; made < count; made += 1) rig.must(commands.allocPD());
    const seen: (number | undefined)[] = [];
    let part = answer(ask(Command.pd, DUMP));
    for (let parts = 1; ; parts += 1) {
      expect(part.datagrams.reduce((sum, { length }) => sum + length + 4, 0)).toBeLessThan(
        60 * 1024,
      );
      for (const { length } of part.datagrams) expect(length).toBeLessThanOrEqual(4096);
      const objects = part.rest === undefined ? part.datagrams.slice(0, -1) : part.datagrams;
      seen.push(...objectsIn(objects).map((entry) => fieldsOf(entry).get(60)));
      if (part.rest === undefined) {
        expect(parts).toBeGreaterThan(2);
        break;
      }
      // One that was sent, and one that was not, go in between.
      if (parts === 1) for (const pd of [0, count - 1]) rig.must(commands.deallocPD(pd));
      part = dumpPart(part.rest, viewOf(part.rest.device));
    }
    expect(seen).toEqual(Array.from({ length: count - 1 }, (_, index) => index));
  });

  it('cost a part only its own rows, however many there are', () => {
    rig.create(commands.allocPD());
    rig.create(commands.createCQ(0x11n, 20));
    const count = 60;
    for (let made = 0; made < count; made += 1) {
      rig.must(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }));
      for (let others = 0; others < 20; others += 1) rig.must(commands.allocPD());
    }
    const looks = vi.spyOn(QP.prototype, 'queryPath');
    const { datagrams, rest } = answer(ask(Command.pd, DUMP));
    expect(rest).toBeDefined();
    expect(objectsIn(datagrams).length).toBeGreaterThan(500);
    expect(looks).not.toHaveBeenCalled();
    const pairs = answer(ask(Command.qp, DUMP));
    expect(pairs.rest).toBeUndefined();
    expect(objectsIn(pairs.datagrams.slice(0, -1))).toHaveLength(count);
    expect(looks).toHaveBeenCalledTimes(count);
    looks.mockRestore();
  });

  it('of rdma_cm show their addresses and queue pair', async () => {
    ids = new RdmaCmRig(rig);
    const { id: listener, port } = ids.listener(1n);
    ids.must(cm.connect(ids.routed(2n, port), connParam({ qpn: 0x11 })));
    await ids.event();
    const shown = dumped(Command.cmId);
    // LISTEN, CONNECT at either end.
    expect(shown.map((fields) => fields.get(27)).sort()).toEqual([5, 5, 8]);
    const connecting = shown.find((fields) => fields.get(21) === 0x11);
    expect(connecting?.get(26)).toBe(2);
    expect(connecting?.get(32)).toBe(0x0106);
    const { datagrams } = answer(ask(Command.cmId, DUMP));
    const addresses = objectsIn(datagrams.slice(0, -1)).flatMap((entry) => {
      return attributesOf(entry).filter(([type]) => type === 33 || type === 34);
    });
    const listening = hexOf(bytesOf(`0200 ${port.toString(16).padStart(4, '0')} 7f000001`));
    expect(addresses.every(([, { length }]) => length === 128)).toBe(true);
    const texts = addresses.map(([type, bytes]) => `${type} ${hexOf(bytes.subarray(0, 8))}`);
    expect(texts).toEqual(expect.arrayContaining([`33 ${listening}`, `34 ${listening}`]));
    // The listener has no peer.
    expect(texts).toContain('34 0200000000000000');
    ids.must(cm.destroyId(listener));
  });
});

function errnoOf(request: Uint8Array): number {
  const [bytes = new Uint8Array(0)] = answer(request).datagrams;
  expect(parseNetlink(bytes)?.header.type).toBe(2);
  return -new DataView(bytes.buffer, bytes.byteOffset).getInt32(16, true);
}
