/** Objects of a RoCE device, by commands as rxe's provider writes them. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { addressOf } from '#native-bridge/libc/libc';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { bytesOf } from '#test/support/hex';
import { commands, le, plain, RSP } from '#test/support/kernel-commands';
import { recordedCommand } from '#test/support/rxe-recordings';
import { UverbsRig } from '#test/support/uverbs-rig';

const { EBUSY, EINVAL } = NEGATIVE_ERRNO;

let rig: UverbsRig;

beforeEach(() => {
  const devices = [{ name: 'rxe0', addresses: ['127.0.0.1'], transport: 'roce' as const }];
  rig = new UverbsRig({ devices });
  rig.must(commands.getContext());
});

afterEach(() => rig.close());

const allocMW = (pd: number, type: number) => plain(14, 8, `${RSP} ${le(pd)} ${le(type, 1)} 00*3`);

describe('a memory window', () => {
  it('is created and freed by the recorded commands', () => {
    rig.create(commands.allocPD());
    const reply = rig.must(bytesOf(recordedCommand('ALLOC_MW').request));
    expect(reply.byteLength).toBe(bytesOf(recordedCommand('ALLOC_MW').response).length);
    expect(reply.getUint32(0, true)).toBe(1);
    expect(reply.getUint32(4, true)).not.toBe(0);
    expect(rig.write(commands.deallocPD(0)).status).toBe(EBUSY);
    rig.must(plain(16, 0, le(1)));
    expect(rig.write(commands.deallocPD(0)).status).toBe(0);
  });

  it('has type 1 or 2', () => {
    rig.create(commands.allocPD());
    expect(rig.write(allocMW(0, 1)).status).toBe(0);
    expect([0, 3].map((type) => rig.write(allocMW(0, type)).status)).toEqual([EINVAL, EINVAL]);
  });

  it('is freed when its file is closed', () => {
    const other = rig.openFile(78);
    rig.must(commands.getContext(), other);
    rig.create(commands.allocPD(), other);
    rig.must(allocMW(0, 2), other);
    const { nic } = other.device;
    expect(nic.liveCounts()['mw']).toBe(1);
    other.close();
    expect(nic.liveCounts()['mw']).toBe(0);
  });
});

describe('a memory region', () => {
  it('keeps the rights to atomics and windows, and its keys have no private part', () => {
    rig.create(commands.allocPD());
    const memory = new Uint8Array(4096);
    const start = le(addressOf(memory), 8);
    const request = `${RSP} ${start} ${le(4096, 8)} ${start} ${le(0)} ${le(0x1f)}`;
    expect(rig.must(plain(9, 12, request)).byteLength).toBe(12);
    expect(rig.file.table.expect('mr', 1).mr.access).toBe(0x1f);
  });

  it('has the rkey 0 unless peers have rights to it', () => {
    rig.create(commands.allocPD());
    const memory = new Uint8Array(4096);
    const start = le(addressOf(memory), 8);
    const keys = (access: number) => {
      const request = `${RSP} ${start} ${le(4096, 8)} ${start} ${le(0)} ${le(access)}`;
      const reply = rig.must(plain(9, 12, request));
      return [reply.getUint32(4, true), reply.getUint32(8, true)] as const;
    };
    for (const access of [0, 1, 0x11]) {
      const [lkey, rkey] = keys(access);
      expect(lkey).not.toBe(0);
      expect(rkey).toBe(0);
    }
    for (const access of [4, 3, 9]) {
      const [lkey, rkey] = keys(access);
      expect(rkey).toBe(lkey);
    }
  });

  it('stays, with EINVAL, while a window is bound to it', () => {
    rig.create(commands.allocPD());
    const memory = new Uint8Array(4096);
    const start = le(addressOf(memory), 8);
    rig.must(plain(9, 12, `${RSP} ${start} ${le(4096, 8)} ${start} ${le(0)} ${le(0x1f)}`));
    const { mr } = rig.file.table.expect('mr', 1);
    rig.must(allocMW(0, 1));
    const { mw } = rig.file.table.expect('mw', 2);
    const user = { pd: mr.pd, qpn: 20, ownWindows: new Set<never>() };
    const { addressHi, addressLo } = mr.entry;
    const range = { addressHi, addressLo, lengthBytes: 16 };
    expect(mw.bind({ key: 1, access: 4, lkey: mr.lkey, ...range }, user)).toBe(true);
    expect(rig.write(commands.deregMR(1)).status).toBe(EINVAL);
    rig.must(plain(16, 0, le(2)));
    expect(rig.write(commands.deregMR(1)).status).toBe(0);
  });
});

describe('an address handle', () => {
  const SELF_GID = '00*10 ffff 7f000001';
  const EMPTY_GID = '00*16';
  const ENODATA = -61;
  const ETIMEDOUT = -110;

  /** CREATE_AH like the recorded request, except for the given fields. */
  function createAH(wish: { dgid?: string; index?: number; global?: number; port?: number } = {}) {
    const { dgid = SELF_GID, index = 1, global = 1, port = 1 } = wish;
    const bytes = bytesOf(recordedCommand('CREATE_AH').request);
    bytes.set(bytesOf(le(0)), 24);
    bytes.set(bytesOf(dgid), 32);
    bytes[52] = index;
    bytes[61] = global;
    bytes[62] = port;
    return bytes;
  }

  it('has a device number beside its handle, and holds its domain', () => {
    rig.create(commands.allocPD());
    const reply = rig.must(createAH());
    expect(reply.byteLength).toBe(bytesOf(recordedCommand('CREATE_AH').response).length);
    expect([0, 4, 8].map((at) => reply.getUint32(at, true))).toEqual([1, 1, 0]);
    expect(rig.must(createAH()).getUint32(4, true)).toBe(2);
    expect(rig.write(commands.deallocPD(0)).status).toBe(EBUSY);
    for (const handle of [1, 2]) rig.must(plain(8, 0, le(handle)));
    expect(rig.write(commands.deallocPD(0)).status).toBe(0);
  });

  it.each([
    ['no GID', { global: 0 }, EINVAL],
    ['another port', { port: 2 }, EINVAL],
    ['a destination of zero', { dgid: EMPTY_GID }, EINVAL],
    ['an empty entry of the GID table', { index: 7 }, ENODATA],
    ['an entry past the GID table', { index: 255 }, ENODATA],
    ['a destination without a route', { dgid: '00*10 ffff 0a090909' }, ETIMEDOUT],
    ['a multicast group', { dgid: '00*10 ffff ef010101' }, 0],
  ])('answers %s as rxe does', (_, wish, status) => {
    rig.create(commands.allocPD());
    expect(rig.write(createAH(wish)).status).toBe(status);
  });
});

describe('a multicast group', () => {
  const GROUP = '00*10 ffff ef010101';
  const attach = (qp: number, gid = GROUP) => plain(30, 0, `${gid} ${le(qp)} 00*4`);
  const detach = (qp: number, gid = GROUP) => plain(31, 0, `${gid} ${le(qp)} 00*4`);

  function pair(type: number): number {
    rig.create(commands.allocPD());
    rig.create(commands.createCQ(1n, 4));
    return rig.create(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, type }));
  }

  it('has datagram queue pairs, which cannot be destroyed until they leave it', () => {
    const qp = pair(4);
    expect([attach(qp), attach(qp)].map((each) => rig.write(each).status)).toEqual([0, 0]);
    expect(rig.write(commands.destroyQP(qp)).status).toBe(EBUSY);
    expect(rig.write(attach(qp, '00*10 ffff 0a00020f')).status).toBe(EINVAL);
    expect(rig.write(detach(qp)).status).toBe(0);
    expect(rig.write(detach(qp)).status).toBe(EINVAL);
    expect(rig.write(commands.destroyQP(qp)).status).toBe(0);
  });

  it('has no connected ones, and a bounded number', () => {
    const ENOMEM = -12;
    expect(rig.write(attach(pair(2))).status).toBe(EINVAL);
    const statuses = Array.from({ length: 57 }, () => {
      const qp = rig.create(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, type: 4 }));
      return rig.write(attach(qp)).status;
    });
    expect(statuses.indexOf(ENOMEM)).toBe(56);
  });
});
