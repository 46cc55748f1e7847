import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { ShimOp, type ShimRequest } from '#daemon/kernel/shim-protocol';
import { addressOf } from '#native-bridge/libc/libc';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { bytesOf } from '#test/support/hex';
import { commands, le, plain, RSP } from '#test/support/kernel-commands';
import { SELF } from '#test/support/own-process';
import { RINGS, request, UverbsRig } from '#test/support/uverbs-rig';

const { ENOENT, EBADF, EACCES, EFAULT, EBUSY, EINVAL, ENOSPC, EOPNOTSUPP, ENOTCONN } =
  NEGATIVE_ERRNO;

let rig: UverbsRig;

beforeEach(() => {
  rig = new UverbsRig();
});

afterEach(() => rig.close());

/** A file with its context. */
function opened(): void {
  rig.must(commands.getContext());
}

/** PD 0, CQ 1. */
function withQueue(): void {
  opened();
  rig.create(commands.allocPD());
  rig.create(commands.createCQ(0x11n, 16));
}

const qpOf = (rest: object = {}) => commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, ...rest });

describe('the header of a command', () => {
  it.each<[string, string, number]>([
    ['shorter than a header', '00000000 0200', EINVAL],
    ['bits that do not exist', `00010000 0400 0400 ${RSP}`, EINVAL],
    ['a command that does not exist', `06000000 0400 0400 ${RSP}`, EOPNOTSUPP],
    ['POLL_CQ, which the provider does itself', `15000000 0400 0400 ${RSP}`, EOPNOTSUPP],
    ['an extended command that does not exist', `32000080 0000 0000 ${RSP} 00*8`, EOPNOTSUPP],
    ['in_words that are not the length', `00000000 0500 0400 ${RSP}`, EINVAL],
    ['a request that ends early', '00000000 0300 0400 00000000', ENOSPC],
    ['no room for the response', `00000000 0400 0100 ${RSP}`, ENOSPC],
    ['no room for the provider’s part of the response', `00000000 0400 0200 ${RSP}`, EINVAL],
    ['a command before GET_CONTEXT', `03000000 0400 0100 ${RSP}`, EINVAL],
    ['an extended command without its header', '01000080 0000 0000 00*8', EINVAL],
    ['extended, reserved not zero', `01000080 0100 2600 ${RSP} 0000 0000 01000000 00*8`, EINVAL],
    ['extended, wrong length', `01000080 0200 2600 ${RSP} 0000 0000 00*4 00*8`, EINVAL],
    ['extended, too short', `01000080 0000 2600 ${RSP} 0000 0000 00*4`, ENOSPC],
    ['extended, no room', `01000080 0100 0100 ${RSP} 0000 0000 00*4 00*8`, ENOSPC],
    ['extended, room without a pointer', `01000080 0100 2600 00*8 0000 0000 00*4 00*8`, EINVAL],
  ])('%s', (_what, bytes, status) => {
    expect(rig.write(bytesOf(bytes)).status).toBe(status);
  });

  it('REG_MR without the provider’s part: EINVAL', () => {
    opened();
    expect(rig.write(plain(9, 20, `${RSP} 00*32`)).status).toBe(EINVAL);
  });
});

describe('GET_CONTEXT', () => {
  it('returns the asynchronous descriptor, once', () => {
    const reply = rig.reply(commands.getContext());
    expect(reply).toMatchObject({
      status: 0,
      response: bytesOf('00000000 01000000 00000000 00000000'),
      descriptors: [{ offset: 0, token: rig.file.asyncQueue.token }],
    });
    expect(rig.write(commands.getContext()).status).toBe(EINVAL);
  });
});

describe('queries', () => {
  beforeEach(opened);

  it('QUERY_DEVICE returns the limits of the device', () => {
    const guid = rig.file.device.info.nodeGuid;
    const expected = bytesOf(`
      0000010000000000 ${guid} ${guid} 0000000000800000 0010000000000000
      64776900 01000000 00000000 00400000 00800000 00002000 06000000 01000000
      00800000 00001000 00000400 00400000 80000000 00000000 00002000 80000000
      00*52 00400000 00800000 06000000 0000 00 01 00*4`);
    expect(rig.reply(commands.queryDevice()).response).toEqual(expected);
  });

  it('EX_QUERY_DEVICE appends the fields that fit', () => {
    const { response: plainAnswer = new Uint8Array(0) } = rig.reply(commands.queryDevice());
    const { response = new Uint8Array(0) } = rig.reply(commands.extendedQueryDevice());
    expect(response.subarray(0, 176)).toEqual(plainAnswer);
    expect(response.subarray(176)).toEqual(
      bytesOf('00000000 30010000 00*40 0000200000000000 00*72'),
    );
    const short = rig.reply(commands.extendedQueryDevice(184)).response;
    expect(short?.subarray(176)).toEqual(bytesOf('00000000 b8000000'));
    expect(rig.write(commands.extendedQueryDevice(176)).status).toBe(ENOSPC);
  });

  it('EX_QUERY_DEVICE refuses unknown fields', () => {
    const asked = commands.extendedQueryDevice();
    asked[24] = 1;
    expect(rig.write(asked).status).toBe(EINVAL);
  });

  it('QUERY_PORT describes port 1 and no other', () => {
    expect(rig.reply(commands.queryPort()).response).toEqual(
      bytesOf('00000900 ffffff7f 00*8 01000000 00*6 04 05 05 00*5 01 01 05 02 00 00'),
    );
    expect(rig.write(commands.queryPort(2)).status).toBe(EINVAL);
    expect(rig.write(commands.queryPort(0)).status).toBe(EINVAL);
  });
});

describe('handles', () => {
  it('are one namespace from 0, the lowest free number first', () => {
    opened();
    expect(rig.create(commands.allocPD())).toBe(0);
    expect(rig.create(commands.allocPD())).toBe(1);
    expect(rig.create(commands.createCQ(1n, 5))).toBe(2);
    expect(rig.create(commands.createQP({ pd: 0, sendCQ: 2, recvCQ: 2 }))).toBe(3);
    expect(rig.register(new Uint8Array(64), 0).mr).toBe(4);
    expect(rig.write(commands.deallocPD(1))).toEqual({ status: 0, response: '' });
    expect(rig.create(commands.createSRQ(2n, 0, 4))).toBe(1);
  });

  it('unknown: ENOENT; of another kind: EINVAL', () => {
    withQueue();
    expect(rig.write(commands.deallocPD(9)).status).toBe(ENOENT);
    expect(rig.write(commands.deallocPD(1)).status).toBe(EINVAL);
    expect(rig.write(commands.destroyCQ(0xffffffff)).status).toBe(ENOENT);
    expect(rig.write(commands.destroyQP(1)).status).toBe(EINVAL);
    expect(rig.write(qpOf({ srq: 1 })).status).toBe(EINVAL);
    expect(rig.write(qpOf({ pd: 5 })).status).toBe(ENOENT);
  });

  it('are invalid in another file', () => {
    withQueue();
    const other = rig.openFile(78);
    rig.must(commands.getContext(), other);
    expect(rig.write(commands.deallocPD(0), other).status).toBe(ENOENT);
    other.close();
  });

  it('EBUSY while others use the object', () => {
    withQueue();
    const srq = rig.create(commands.createSRQ(0n, 0, 4));
    const qp = rig.create(qpOf({ srq }));
    for (const busy of [commands.destroyCQ(1), commands.deallocPD(0), commands.destroySRQ(srq)]) {
      expect(rig.write(busy).status).toBe(EBUSY);
    }
    expect(rig.write(commands.destroyQP(qp))).toEqual({ status: 0, response: '00000000' });
    expect(rig.write(commands.destroySRQ(srq))).toEqual({ status: 0, response: '00000000' });
    expect(rig.write(commands.destroyCQ(1))).toEqual({ status: 0, response: '0000000000000000' });
    expect(rig.write(commands.deallocPD(0)).status).toBe(0);
  });
});

describe('REG_MR', () => {
  beforeEach(withQueue);

  const bytes = new Uint8Array(8192);
  const start = addressOf(bytes);

  it('returns one number as lkey, rkey and STag', () => {
    const reply = rig.must(commands.regMR({ start, length: 100, pd: 0, access: 7 }));
    expect(reply.byteLength).toBe(20);
    expect(reply.getUint32(0, true)).toBe(2);
    const key = reply.getUint32(4, true);
    expect(key & 0xff).toBe(0);
    expect(key >>> 8).not.toBe(0);
    expect([reply.getUint32(8, true), reply.getUint32(12, true)]).toEqual([key, key]);
    expect(rig.client.ledger.usage().tiers).toEqual({ process_vm: 1 });
    expect(rig.write(commands.deregMR(2)).status).toBe(0);
    expect(rig.client.ledger.usage()).toMatchObject({ tiers: {}, pinnedBytes: 0 });
  });

  it('uses the STag key of the provider', () => {
    const reply = rig.must(commands.regMR({ start, length: 1, pd: 0, access: 1, key: 0xab }));
    expect(reply.getUint32(12, true) & 0xff).toBe(0xab);
  });

  it('follows memory that its process moved, at unchanged addresses for peers', () => {
    const moved = new Uint8Array(100).fill(7);
    const handle = rig.create(commands.regMR({ start, length: 100, pd: 0, access: 1 }));
    const [region] = rig.file.table.ofKind('mr');
    const { address } = region?.mr ?? {};
    const to = bytesOf(le(addressOf(moved), 8));
    const move = (argument: number, payload: Uint8Array) =>
      rig.execute(request(ShimOp.move, { argument, payload })).status;
    expect(move(handle, to)).toBe(0);
    const target = new Uint8Array(1);
    expect(region?.mr.backing.read(7, 1, target, 0)).toBe(true);
    expect([target[0], region?.mr.address]).toEqual([7, address]);
    expect(move(99, to)).toBe(ENOENT);
    expect(move(0, to)).toBe(EINVAL);
    expect(move(handle, to.subarray(1))).toBe(EINVAL);
  });

  it('honours hca_va, all 64 bits of it [DDP-4.2-07]', () => {
    const hcaVa = 0xffff_ffff_ffff_e000n + (start & 4095n);
    const handle = rig.create(commands.regMR({ start, length: 100, hcaVa, pd: 0, access: 1 }));
    const [region] = rig.file.table.ofKind('mr');
    expect(region?.handle).toBe(handle);
    expect([region?.mr.iova, region?.mr.address]).toEqual([hcaVa, hcaVa]);
    const target = new Uint8Array(1);
    bytes[7] = 42;
    expect(region?.mr.backing.read(7, 1, target, 0)).toBe(true);
    expect(target[0]).toBe(42);
  });

  it.each<[string, Partial<Parameters<typeof commands.regMR>[0]>, number]>([
    ['no bytes', { length: 0 }, EINVAL],
    ['start and hca_va at different places of a page', { hcaVa: start + 1n }, EINVAL],
    ['remote write without local write', { access: 2 }, EINVAL],
    ['remote atomic without local write', { access: 8 }, EINVAL],
    ['on-demand paging', { access: 64 }, EINVAL],
    ['unknown rights', { access: 0x400 }, EINVAL],
    ['unmapped memory', { start: 4096n, hcaVa: 0n }, EFAULT],
    ['an unknown PD', { pd: 9 }, ENOENT],
    ['a CQ as PD', { pd: 1 }, EINVAL],
    ['an address beyond 53 bits', { start: 1n << 60n, hcaVa: 0n }, EINVAL],
  ])('%s', (_what, wrong, status) => {
    const asked = commands.regMR({ start, length: 100, pd: 0, access: 1, ...wrong });
    expect(rig.write(asked).status).toBe(status);
    expect(rig.client.ledger.count('mr')).toBe(0);
    expect(rig.client.ledger.held('pinnedBytes')).toBe(0);
  });

  it('keeps the three access rights that the provider supports', () => {
    rig.create(commands.regMR({ start, length: 100, pd: 0, access: 0xbf | (1 << 20) }));
    expect(rig.file.table.ofKind('mr')[0]?.mr.access).toBe(7);
  });

  it('refuses a caller other than the connection’s process', () => {
    const payload = commands.regMR({ start, length: 100, pd: 0, access: 1 });
    const caller = { credentials: SELF, ownPid: false, isOpener: true };
    expect(() => rig.file.execute(request(ShimOp.write, { payload }), caller)).toThrow(
      expect.objectContaining({ code: 'EPERM' }),
    );
  });
});

describe('completion queues and channels', () => {
  beforeEach(opened);

  it('CREATE_CQ rounds up and returns both sizes and a key', () => {
    expect(rig.write(commands.createCQ(0x11n, 5))).toEqual({
      status: 0,
      response: '00000000 08000000 00000000 08000000 00000a0000000000'.replaceAll(' ', ''),
    });
    expect(rig.write(commands.createCQ(0x12n, 1)).response).toBe(
      `01000000 01000000 01000000 01000000 ${le(RINGS.first + RINGS.step, 8)}`.replaceAll(' ', ''),
    );
  });

  it.each<[string, Uint8Array, number]>([
    ['no entries', commands.createCQ(0n, 0), EINVAL],
    ['too many entries', commands.createCQ(0n, 1_048_577), EINVAL],
    ['all entries', commands.createCQ(0n, 0xffffffff), EINVAL],
    ['a vector that does not exist', commands.createCQ(0n, 1, -1, 1), EINVAL],
    ['a channel that does not exist', commands.createCQ(0n, 1, 4711), EBADF],
  ])('CREATE_CQ with %s', (_what, asked, status) => {
    expect(rig.write(asked).status).toBe(status);
    expect(rig.client.ledger.held('sharedBytes')).toBe(0);
  });

  it('CREATE_COMP_CHANNEL grants a descriptor; a closed one is EBADF', () => {
    const reply = rig.reply(commands.createCompChannel());
    const [channel] = rig.file.channels.values();
    expect(reply).toMatchObject({
      status: 0,
      response: new Uint8Array(4),
      descriptors: [{ offset: 0, token: channel?.token }],
    });
    const number = channel?.number ?? 0;
    expect(rig.write(commands.createCQ(0n, 1, number)).status).toBe(0);
    channel?.end();
    expect(rig.write(commands.createCQ(0n, 1, number)).status).toBe(EBADF);
    expect(rig.client.ledger.count('channel')).toBe(0);
  });
});

describe('shared receive queues', () => {
  beforeEach(opened);

  it('CREATE_SRQ echoes the sizes and rounds the ring up', () => {
    rig.create(commands.allocPD());
    expect(rig.write(commands.createSRQ(9n, 0, 5, 2, 3)).response).toBe(
      '01000000 05000000 02000000 01000000 08000000 00000000 00000a0000000000'.replaceAll(' ', ''),
    );
  });

  it.each<[string, (srq: number) => Uint8Array, number]>([
    ['no entries', () => commands.createSRQ(0n, 0, 0), EINVAL],
    ['too many entries', () => commands.createSRQ(0n, 0, 32_769), EINVAL],
    ['too many SGEs', () => commands.createSRQ(0n, 0, 4, 7), EINVAL],
    ['a limit beyond the entries', () => commands.createSRQ(0n, 0, 4, 1, 5), EINVAL],
    ['a new size', (srq) => commands.modifySRQ(srq, 1, 0, 8), EOPNOTSUPP],
    ['a limit beyond the ring', (srq) => commands.modifySRQ(srq, 2, 9), EINVAL],
    ['a limit', (srq) => commands.modifySRQ(srq, 2, 8), 0],
    ['disarming', (srq) => commands.modifySRQ(srq, 2, 0), 0],
    ['nothing', (srq) => commands.modifySRQ(srq, 0, 99), 0],
  ])('%s', (_what, asked, status) => {
    rig.create(commands.allocPD());
    expect(rig.write(asked(rig.create(commands.createSRQ(0n, 0, 5)))).status).toBe(status);
  });
});

describe('queue pairs', () => {
  beforeEach(withQueue);

  it('CREATE_QP echoes the sizes, and rounds the rings up', () => {
    const reply = rig.write(qpOf({ sendWr: 5, recvWr: 3, sendSge: 2, recvSge: 1, inline: 16 }));
    const qpn = rig.file.table.ofKind('qp')[0]?.qp.qpn ?? 0;
    const sends = RINGS.first + RINGS.step;
    expect(reply).toEqual({
      status: 0,
      response: `02000000 ${le(qpn)} 05000000 03000000 02000000 01000000 50000000 00000000
        ${le(qpn)} 08000000 04000000 00000000 ${le(sends, 8)} ${le(sends + RINGS.step, 8)}`.replaceAll(
        /\s/g,
        '',
      ),
    });
  });

  it('has one receive entry when the program requests none: an empty ring cannot be mapped', () => {
    expect(rig.must(qpOf({ recvWr: 0 })).getUint32(40, true)).toBe(1);
  });

  it('has one send entry when the program only receives', () => {
    expect(rig.must(qpOf({ sendWr: 0 })).getUint32(36, true)).toBe(1);
  });

  it('has no receive ring with a shared queue', () => {
    const srq = rig.create(commands.createSRQ(0n, 0, 4));
    expect(rig.must(qpOf({ srq })).getBigUint64(56, true)).toBe(0n);
    expect(rig.file.table.ofKind('qp')[0]?.receiveRing).toBeUndefined();
    // The fields for its own receive queue are ignored.
    const anything = rig.must(qpOf({ srq, recvWr: 0xffff_ffff, recvSge: 1000 }));
    expect([12, 20].map((at) => anything.getUint32(at, true))).toEqual([0xffff_ffff, 1000]);
  });

  it.each<[string, object, number]>([
    ['UD', { type: 4 }, EOPNOTSUPP],
    ['UC', { type: 3 }, EOPNOTSUPP],
    ['no entries at all', { sendWr: 0, recvWr: 0 }, EINVAL],
    ['too many send entries', { sendWr: 32_769 }, EINVAL],
    ['too many receive entries', { recvWr: 32_769 }, EINVAL],
    ['too many SGEs', { sendSge: 7 }, EINVAL],
    ['too many receive SGEs', { recvSge: 7 }, EINVAL],
    ['too much inline', { inline: 81 }, EINVAL],
    ['an unknown CQ', { sendCQ: 8 }, ENOENT],
  ])('CREATE_QP with %s', (_what, wrong, status) => {
    const before = rig.client.ledger.held('sharedBytes');
    expect(rig.write(qpOf(wrong)).status).toBe(status);
    expect(rig.client.ledger.held('sharedBytes')).toBe(before);
    expect(rig.file.table.ofKind('qp')).toEqual([]);
  });

  it('QUERY_QP returns the true state and sizes', () => {
    const qp = rig.create(qpOf({ sigAll: true }));
    rig.must(commands.modifyQP(qp, 1 | 8, { state: 1, access: 6 }));
    const reply = rig.must(commands.queryQP(qp));
    expect(reply.byteLength).toBe(128);
    const words = [64, 68, 72, 76, 80, 100].map((at) => reply.getUint32(at, true));
    expect(words).toEqual([4, 4, 1, 1, 80, 6]);
    const bytes = [108, 109, 110, 113, 114, 116, 122].map((at) => reply.getUint8(at));
    expect(bytes).toEqual([1, 1, 5, 0, 0, 1, 1]);
  });

  it('QUERY_QP of a new queue pair returns INIT, as an RNIC does', () => {
    const reply = rig.must(commands.queryQP(rig.create(qpOf())));
    expect([108, 109].map((at) => reply.getUint8(at))).toEqual([1, 1]);
  });

  it.each<[string, number, object, number]>([
    ['a port only, as librdmacm does for RTS', 32, { port: 1 }, 0],
    ['another port', 32, { port: 2 }, EINVAL],
    ['another port in the address vector', 128, { destPort: 2 }, EINVAL],
    ['port 1 in the address vector', 128, { destPort: 1 }, 0],
    ['a state that does not exist', 1, { state: 7 }, EINVAL],
    ['a current state that does not exist', 2, { cur: 7 }, EINVAL],
    ['a mask that does not exist', 1 << 21, {}, EOPNOTSUPP],
    ['RTS without a connection', 1, { state: 3 }, EINVAL],
    ['RTR at once', 1, { state: 2 }, 0],
    ['SQD', 1, { state: 4 }, 0],
    ['SQE', 1, { state: 5 }, 0],
    ['ERR', 1, { state: 6 }, 0],
  ])('MODIFY_QP of an idle one: %s', (_what, mask, to, status) => {
    expect(rig.write(commands.modifyQP(rig.create(qpOf()), mask, to)).status).toBe(status);
  });

  it('steps through the idle states, and cannot leave ERR', () => {
    const qp = rig.create(qpOf());
    const states = [1, 1, 2, 4, 5, 0, 2, 6, 0, 1, 2, 3, 4, 5, 6].map((state) => {
      expect(rig.write(commands.modifyQP(qp, 1, { state })).status).toBe(0);
      return rig.must(commands.queryQP(qp)).getUint8(108);
    });
    expect(states).toEqual([1, 1, 2, 2, 2, 0, 0, 6, 6, 6, 6, 6, 6, 6, 6]);
  });

  it('POST_SEND before the connection: ENOTCONN; with work requests: EINVAL', () => {
    const qp = rig.create(qpOf());
    expect(rig.write(commands.postSend(qp)).status).toBe(ENOTCONN);
    expect(rig.execute(request(ShimOp.doorbell, { argument: qp })).status).toBe(ENOTCONN);
    expect(rig.write(commands.postSend(qp, 1)).status).toBe(EINVAL);
    expect(rig.write(commands.postSend(qp, 0, 127)).status).toBe(EINVAL);
    expect(rig.write(commands.postSend(9)).status).toBe(ENOENT);
    expect(rig.write(commands.postSend(0)).status).toBe(EINVAL);
    rig.must(commands.modifyQP(qp, 1, { state: 6 }));
    expect(rig.write(commands.postSend(qp))).toEqual({ status: 0, response: '00000000' });
  });

  it('POST_SEND and doorbells of a child of the opener: EACCES; other commands are served', () => {
    const qp = rig.create(qpOf());
    rig.must(commands.modifyQP(qp, 1, { state: 6 }));
    const child = { credentials: SELF, ownPid: true, isOpener: false };
    const statusOf = (asked: ShimRequest) => rig.file.execute(asked, child).status;
    expect(statusOf(request(ShimOp.write, { payload: commands.postSend(qp) }))).toBe(EACCES);
    expect(statusOf(request(ShimOp.doorbell, { argument: qp }))).toBe(EACCES);
    expect(statusOf(request(ShimOp.write, { payload: commands.queryQP(qp) }))).toBe(0);
  });
});

describe('quotas', () => {
  it('fail with ENOMEM when exceeded, keeping nothing', async () => {
    await rig.close();
    const objects = { ...DEFAULT_QUOTAS.objects, pd: 1, channel: 1, qp: 1 };
    rig = new UverbsRig(
      {},
      { ...DEFAULT_QUOTAS, objects, sharedBytes: 5 * 4096, queueEntries: 40 },
    );
    withQueue();
    expect(rig.write(commands.allocPD()).status).toBe(-12);
    rig.must(commands.createCompChannel());
    expect(rig.write(commands.createCompChannel()).status).toBe(-12);
    // Shared memory, then queue entries.
    expect(rig.write(commands.createCQ(0n, 1024)).status).toBe(-12);
    expect(rig.write(commands.createCQ(0n, 32)).status).toBe(-12);
    // The bytes of the first queue, and of the channel.
    expect(rig.client.ledger.held('sharedBytes')).toBe(2 * 4096);
    rig.create(qpOf());
    expect(rig.write(qpOf()).status).toBe(-12);
    expect(rig.client.ledger.held('sharedBytes')).toBe(4 * 4096);
  });

  it('by default let a program open a device 1,024 times', () => {
    const most = 1024;
    for (let files = 1; files < most; files += 1) rig.openFile(100 + files);
    expect(() => rig.openFile()).toThrow(/at most 1024 objects of kind context/);
  });

  it('a channel gets no memory for its events when none is left', async () => {
    await rig.close();
    rig = new UverbsRig({}, { ...DEFAULT_QUOTAS, sharedBytes: 4096 });
    rig.must(commands.getContext());
    rig.must(commands.createCompChannel());
    rig.must(commands.createCompChannel());
    const welcomes = [...rig.file.channels.values()].map(({ welcome }) => welcome.split(' '));
    expect(welcomes.map(({ length }) => length)).toEqual([2, 1]);
  });
});

describe('the last close', () => {
  it('destroys all remaining objects, in an order that works', () => {
    withQueue();
    rig.must(commands.createCompChannel());
    const [channel] = rig.file.channels.values();
    const cq = rig.create(commands.createCQ(5n, 4, channel?.number));
    const srq = rig.create(commands.createSRQ(0n, 0, 4));
    rig.create(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: cq, srq }));
    rig.register(new Uint8Array(64), 0);
    rig.file.close();
    const { objects, sharedBytes, pinnedBytes } = rig.client.ledger.usage();
    expect(Object.values(objects).every((count) => count === 0)).toBe(true);
    expect([sharedBytes, pinnedBytes]).toEqual([0, 0]);
    rig = new UverbsRig();
  });
});
