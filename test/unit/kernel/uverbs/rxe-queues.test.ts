/** Queues of a RoCE device: the commands of rxe's provider, against recordings of the kernel's. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { armRequest, ShimOp } from '#daemon/kernel/shim-protocol';
import { NEGATIVE_ERRNO } from '#test/support/errno';
import { bytesOf, hexOf } from '#test/support/hex';
import { commands, le, plain, RSP } from '#test/support/kernel-commands';
import { recordedCommand } from '#test/support/rxe-recordings';
import { RINGS, request, UverbsRig } from '#test/support/uverbs-rig';

const { EBUSY, EINVAL, ENOENT, EOPNOTSUPP } = NEGATIVE_ERRNO;
const PAGE = 4096;

let rig: UverbsRig;

beforeEach(() => {
  const devices = [{ name: 'rxe0', addresses: ['10.0.2.15'], transport: 'roce' as const }];
  rig = new UverbsRig({ devices });
  rig.must(commands.getContext());
});

afterEach(() => rig.close());

/** The recorded write with its u32 at `offset` replaced, for each pair. */
function recordedRequest(name: string, ...changes: readonly (readonly [number, number])[]) {
  const bytes = bytesOf(recordedCommand(name).request);
  for (const [offset, value] of changes) new DataView(bytes.buffer).setUint32(offset, value, true);
  return bytes;
}

/** The fields of a ring's header: log2 of the slot, mask, producer and consumer. */
function header(offset: number, size: number): number[] {
  const { buffer, byteOffset } = rig.map(offset, size).view;
  const fields = new DataView(buffer, byteOffset);
  return [0, 4, 128, 256].map((at) => fields.getUint32(at, true));
}

/** PD 0, CQ 1. */
function withCQ(): void {
  rig.create(commands.allocPD());
  rig.create(commands.createCQ(0x11n, 20));
}

describe('a completion queue', () => {
  it('is made by the recorded command: 20 entries become 31, and the ring is ready to be read', () => {
    rig.create(commands.allocPD());
    const reply = rig.must(recordedRequest('CREATE_CQ'));
    expect(reply.byteLength).toBe(bytesOf(recordedCommand('CREATE_CQ').response).length);
    expect([reply.getUint32(0, true), reply.getUint32(4, true)]).toEqual([1, 31]);
    expect(reply.getBigUint64(8, true)).toBe(BigInt(RINGS.first));
    const size = reply.getUint32(16, true);
    expect(size % PAGE).toBe(0);
    const [log2 = 0, mask, producer, consumer] = header(RINGS.first, size);
    expect(384 + 32 * 2 ** log2).toBeLessThanOrEqual(size);
    expect([mask, producer, consumer]).toEqual([31, 0, 0]);
  });

  it.each([0, 524_288])('cannot have %i entries', (cqe) => {
    expect(rig.write(commands.createCQ(1n, cqe)).status).toBe(EINVAL);
  });

  it('is resized to a new ring, after the others, and the old one is unmapped', () => {
    withCQ();
    const reply = rig.must(recordedRequest('RESIZE_CQ', [16, 1], [20, 100]));
    expect([reply.byteLength, reply.getUint32(0, true)]).toEqual([24, 127]);
    const offset = Number(reply.getBigUint64(8, true));
    expect(offset).toBeGreaterThan(RINGS.first);
    expect(header(offset, reply.getUint32(16, true)).slice(1)).toEqual([127, 0, 0]);
    expect(rig.map(RINGS.first, PAGE).view.every((byte) => byte === 0)).toBe(true);
    expect(rig.write(recordedRequest('RESIZE_CQ', [16, 1], [20, 0])).status).toBe(EINVAL);
    rig.server.assertDeepInvariants();
    rig.must(commands.destroyCQ(1));
  });

  it('is armed by a command', () => {
    withCQ();
    const request = recordedRequest('REQ_NOTIFY_CQ', [8, 1]);
    expect(rig.write(request)).toEqual({ status: 0, response: '' });
  });

  it('is looked at after it was armed in its ring, by handle and count', () => {
    const seen = 2 ** 32 - 1;
    expect(armRequest(7 + 2 ** 20 * seen)).toEqual({ handle: 7, seen });
    withCQ();
    const arm = (argument: number) => rig.execute(request(ShimOp.arm, { argument })).status;
    expect(arm(1)).toBe(0);
    expect(arm(2)).toBe(ENOENT);
  });

  it('is refused with creation flags, and so is an extended receive queue', () => {
    rig.create(commands.allocPD());
    expect(rig.write(recordedRequest('EX_CREATE_CQ')).status).toBe(EOPNOTSUPP);
    expect(rig.write(recordedRequest('CREATE_XSRQ')).status).toBe(EOPNOTSUPP);
  });
});

describe('a queue pair', () => {
  it('is made by the recorded command, with the requested sizes', () => {
    withCQ();
    const reply = rig.must(recordedRequest('CREATE_QP', [28, 1], [32, 1]));
    const expected = bytesOf(recordedCommand('CREATE_QP').response);
    expect(reply.byteLength).toBe(expected.length);
    const words = (bytes: DataView) =>
      [8, 12, 16, 20, 24, 28].map((at) => bytes.getUint32(at, true));
    expect(words(reply)).toEqual(words(new DataView(expected.buffer)));
    // The receive queue's mapping is first, and both follow earlier rings without overlap.
    const [receives = 0, sends = 0] = [32, 48].map((at) => Number(reply.getBigUint64(at, true)));
    expect(sends).toBe(RINGS.first + RINGS.step);
    expect(receives).toBeGreaterThanOrEqual(sends + reply.getUint32(56, true));
    expect(receives % RINGS.step).toBe(0);
    expect(header(receives, reply.getUint32(40, true))).toEqual([6, 1, 0, 0]);
    expect(header(sends, reply.getUint32(56, true))).toEqual([8, 31, 0, 0]);
  });

  it('is made by the recorded extended command, with a response of matching length', () => {
    withCQ();
    const reply = rig.must(recordedRequest('EX_CREATE_QP', [32, 0], [36, 1], [40, 1]));
    const expected = new DataView(bytesOf(recordedCommand('EX_CREATE_QP').response).buffer);
    expect(reply.byteLength).toBe(expected.byteLength);
    for (const at of [8, 12, 16, 20, 24, 28, 32, 36]) {
      expect(reply.getUint32(at, true), `at ${at}`).toBe(expected.getUint32(at, true));
    }
    const flagged = recordedRequest('EX_CREATE_QP', [32, 0], [36, 1], [40, 1], [76, 1]);
    expect(rig.write(flagged).status).toBe(EINVAL);
  });

  it.each([
    ['1 SGE, 100 inline bytes', 1, 100, 6, 100],
    ['1 SGE, none', 1, 0, 1, 16],
    ['neither', 0, 0, 0, 0],
  ])('trades room for SGEs and inline data: %s', (_, sendSge, inline, grantedSge, granted) => {
    withCQ();
    const pair = { pd: 0, sendCQ: 1, recvCQ: 1, sendSge, inline };
    const reply = rig.must(commands.createQP(pair));
    expect([reply.getUint32(16, true), reply.getUint32(24, true)]).toEqual([grantedSge, granted]);
  });

  it.each<[string, object, number]>([
    ['too many sends', { sendWr: 1_048_577 }, EINVAL],
    ['too many SGEs', { recvSge: 33 }, EINVAL],
    ['too much inline data', { inline: 513 }, EINVAL],
    ['a raw packet type', { type: 8 }, EOPNOTSUPP],
  ])('is refused with %s', (_, wish, status) => {
    withCQ();
    const pair = { pd: 0, sendCQ: 1, recvCQ: 1, ...wish };
    expect(rig.write(commands.createQP(pair)).status).toBe(status);
  });

  it('is queried as recorded in RESET: rounded sizes, the lowest MTU, a global address', () => {
    withCQ();
    const pair = { pd: 0, sendCQ: 1, recvCQ: 1, sendWr: 1, recvWr: 500 };
    const qp = rig.create(commands.createQP(pair));
    const reply = rig.write(commands.queryQP(qp));
    expect(reply.response).toBe(recordedCommand('QUERY_QP').response);
  });

  it('goes to INIT with exactly the attributes of its type, and refuses doorbells below RTS', () => {
    withCQ();
    const qp = rig.create(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }));
    expect(rig.write(commands.postSend(qp)).status).toBe(EINVAL);
    expect(rig.write(commands.modifyQP(qp, 0x31, { state: 1, port: 1 })).status).toBe(EINVAL);
    expect(rig.write(commands.modifyQP(qp, 0x39, { state: 1, port: 2 })).status).toBe(EINVAL);
    const init = { state: 1, port: 1, access: 0x0e };
    expect(rig.write(commands.modifyQP(qp, 0x39, init)).status).toBe(0);
    const reply = rig.must(commands.queryQP(qp));
    expect([reply.getUint8(108), reply.getUint8(109)]).toEqual([1, 0]);
    expect([reply.getUint32(100, true), reply.getUint8(116)]).toEqual([0x0e, 1]);
    expect(rig.write(commands.postSend(qp)).status).toBe(EINVAL);
    expect(rig.write(commands.modifyQP(qp, 0x20_0000)).status).toBe(EOPNOTSUPP);
  });

  it('refuses the attributes of RTR from a program without a GID, as recorded', () => {
    withCQ();
    const qp = rig.create(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1 }));
    rig.must(commands.modifyQP(qp, 0x39, { state: 1, port: 1 }));
    expect(recordedRequest('MODIFY_QP', [72, qp]).length).toBe(120);
    const refused = bytesOf(recordedRefusal());
    new DataView(refused.buffer).setUint32(72, qp, true);
    expect(rig.write(refused).status).toBe(EINVAL);
  });
});

/** The MODIFY_QP that the kernel refused. */
function recordedRefusal(): string {
  return recordedCommand('MODIFY_QP', 'EINVAL').request;
}

describe('a shared receive queue', () => {
  const createSRQ = (maxWr: number, maxSge = 1, limit = 0) =>
    plain(32, 40, `${RSP} ${le(1, 8)} ${le(0)} ${le(maxWr)} ${le(maxSge)} ${le(limit)}`);
  const querySRQ = (srq: number) => plain(34, 16, `${RSP} ${le(srq)} 00*4`);

  it('is made by the recorded command', () => {
    rig.create(commands.allocPD());
    const reply = rig.must(recordedRequest('CREATE_SRQ'));
    expect(reply.byteLength).toBe(bytesOf(recordedCommand('CREATE_SRQ').response).length);
    expect([4, 8, 12].map((at) => reply.getUint32(at, true))).toEqual([500, 1, 0]);
    expect(reply.getBigUint64(16, true)).toBe(BigInt(RINGS.first));
    expect(reply.getUint32(24, true)).toBe(0x9000);
    expect(reply.getUint32(32, true)).toBeGreaterThan(0x2_0000);
    expect(header(RINGS.first, 0x9000)).toEqual([6, 511, 0, 0]);
  });

  it('is queried with its rounded size, and resized to a ring whose mapping is the response', () => {
    rig.create(commands.allocPD());
    const srq = rig.create(createSRQ(7, 0));
    expect(rig.write(querySRQ(srq)).response).toBe(le(7) + le(1) + le(0) + le(0));
    const reply = rig.must(recordedRequest('MODIFY_SRQ', [8, srq]));
    expect(reply.byteLength).toBe(16);
    const offset = Number(reply.getBigUint64(0, true));
    expect(header(offset, reply.getUint32(8, true))).toEqual([6, 31, 0, 0]);
    // The recording asked for 20 entries and a limit of 2.
    expect(rig.write(querySRQ(srq)).response).toBe(recordedCommand('QUERY_SRQ').response);
    rig.must(commands.destroySRQ(srq));
  });

  it('has a limit within its size', () => {
    rig.create(commands.allocPD());
    const srq = rig.create(createSRQ(7));
    const modify = (mask: number, maxWr: number, limit: number) =>
      plain(33, 0, le(srq) + le(mask) + le(maxWr) + le(limit) + le(0, 8));
    expect(rig.write(modify(2, 0, 7))).toEqual({ status: 0, response: '' });
    expect(rig.write(modify(2, 0, 8)).status).toBe(EINVAL);
    expect(rig.write(modify(1, 0, 0)).status).toBe(EINVAL);
    expect(rig.write(createSRQ(0)).status).toBe(EINVAL);
    expect(rig.write(createSRQ(1, 28)).status).toBe(EINVAL);
    // No limit is too high at creation, as recorded.
    for (const asked of [5, 100, 0xffff_ffff]) {
      const made = rig.create(createSRQ(4, 1, asked));
      expect(rig.write(querySRQ(made)).response).toBe(le(7) + le(1) + le(asked) + le(0));
    }
  });

  it('makes a queue pair ignore the sizes of its own receive queue, as in ibv_create_qp(3)', () => {
    withCQ();
    const srq = rig.create(createSRQ(7));
    const sizes = { recvWr: 0xffff_ffff, recvSge: 0xffff_fffe };
    const pair = { pd: 0, sendCQ: 1, recvCQ: 1, ...sizes };
    const reply = rig.must(commands.createQP({ ...pair, srq }));
    expect([12, 20].map((at) => reply.getUint32(at, true))).toEqual(Object.values(sizes));
    const asked = rig.must(commands.queryQP(reply.getUint32(0, true)));
    expect([68, 76].map((at) => asked.getUint32(at, true))).toEqual([0, 0]);
    const extended = recordedRequest(
      'EX_CREATE_QP',
      ...([
        [32, 0],
        [36, 1],
        [40, 1],
        [44, srq],
        [52, sizes.recvWr],
        [60, sizes.recvSge],
      ] as const),
    );
    extended[70] = 1;
    expect(rig.write(extended).status).toBe(0);
    expect(rig.write(commands.createQP(pair)).status).toBe(EINVAL);
    expect(rig.write(commands.createQP({ ...pair, srq, sendWr: 1_048_577 })).status).toBe(EINVAL);
  });

  it('stays while a queue pair receives from it, which has no ring for receives', () => {
    withCQ();
    const srq = rig.create(createSRQ(7));
    const reply = rig.must(commands.createQP({ pd: 0, sendCQ: 1, recvCQ: 1, srq }));
    expect(hexOf(new Uint8Array(reply.buffer, reply.byteOffset + 32, 16))).toBe('00'.repeat(16));
    expect(rig.write(commands.destroySRQ(srq)).status).toBe(EBUSY);
  });
});
