import fc from 'fast-check';
import koffi from 'koffi';
import { describe, expect, it } from 'vitest';
import { SendFlag, WROpcode } from '#contract/verbs/enums';
import type { RecvWR, SendFields, SGE } from '#contract/verbs/work-request';
import { traitsOf } from '#native-bridge/rdma/device-traits';
import { copyOut, peek } from '#native-bridge/rdma/struct-block';
import {
  checkSends,
  type PostLimits,
  postReceives,
  postSends,
} from '#native-bridge/rdma/work-request-list';

const { fence, inline, signaled, solicited } = SendFlag;
const {
  atomicCmpAndSwap,
  atomicFetchAndAdd,
  bindMW,
  immediate,
  localInv,
  rdmaRead,
  rdmaWrite,
  rdmaWriteWithImm,
  send,
  sendWithInv,
} = WROpcode;
const SIW_VENDOR_ID = 0x626d74;
const ENOMEM = 12;
const QUEUE = 4096;

const limits: PostLimits = {
  device: 'siw0',
  traits: traitsOf(0),
  atomics: true,
  maxSendSge: 4,
  maxRecvSge: 4,
  maxSgeRead: 1,
  maxInline: 64,
};

/** A request as the library finds it in memory. */
interface Seen {
  readonly wrId: bigint;
  readonly opcode: number;
  readonly flags: number;
  readonly remoteAddr: bigint;
  readonly rkey: number;
  readonly sges: { addr: bigint; length: number; lkey: number }[];
}

function longAt(address: number): bigint {
  return BigInt(koffi.decode.uint64(BigInt(address)));
}

function sgesAt(list: number, count: number): Seen['sges'] {
  return Array.from({ length: count }, (_, index) => {
    const at = list + index * 16;
    return {
      addr: longAt(at),
      length: peek('ibv_sge', 'length', at),
      lkey: peek('ibv_sge', 'lkey', at),
    };
  });
}

/** A provider of C: walks the list, takes up to `room` requests, and then returns `errno`. */
function provider(room: number, errno = ENOMEM) {
  const seen: Seen[] = [];
  const queues = new Set<number>();
  let calls = 0;
  const walk = (struct: 'ibv_send_wr' | 'ibv_recv_wr') => {
    return (queue: number, list: number, bad: number): number => {
      calls += 1;
      queues.add(queue);
      for (let at = list; at !== 0; at = peek(struct, 'next', at)) {
        if (seen.length === room) {
          koffi.encode(BigInt(bad), 'uint64_t', at);
          return -errno;
        }
        const sends = struct === 'ibv_send_wr';
        seen.push({
          wrId: longAt(at),
          opcode: sends ? peek('ibv_send_wr', 'opcode', at) : -1,
          flags: sends ? peek('ibv_send_wr', 'send_flags', at) : -1,
          remoteAddr: sends ? longAt(at + 40) : 0n,
          rkey: sends ? peek('ibv_send_wr', 'wr.rdma.rkey', at) : 0,
          sges: sgesAt(peek(struct, 'sg_list', at), peek(struct, 'num_sge', at)),
        });
      }
      return 0;
    };
  };
  return {
    seen,
    queues,
    get calls() {
      return calls;
    },
    send: walk('ibv_send_wr'),
    receive: walk('ibv_recv_wr'),
  };
}

const uint32 = fc.integer({ min: 0, max: 2 ** 32 - 1 });
const address = fc.oneof(
  fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
);
const sge: fc.Arbitrary<SGE> = fc.record({ addr: address, length: uint32, lkey: uint32 });
const write: fc.Arbitrary<SendFields & { sgList: SGE[] }> = fc.record({
  wrId: address,
  opcode: fc.constant(rdmaWrite),
  flags: fc.constantFrom(0, signaled, fence | solicited),
  sgList: fc.array(sge, { maxLength: 4 }),
  remoteAddr: address,
  rkey: uint32,
});
const receive: fc.Arbitrary<RecvWR> = fc.record({
  wrId: address,
  sgList: fc.array(sge, { maxLength: 4 }),
});

function sgesOf(list: readonly SGE[]): Seen['sges'] {
  return list.map(({ addr, length, lkey }) => ({ addr: BigInt(addr), length, lkey }));
}

describe('lists of work requests', () => {
  it('reach the library whole and in order, in as few calls as possible', () => {
    fc.assert(
      fc.property(fc.array(write, { maxLength: 150 }), (requests) => {
        const library = provider(Number.POSITIVE_INFINITY);
        const outcome = postSends(requests, limits, library.send, QUEUE);
        expect(outcome).toMatchObject({ posted: requests.length, errno: 0, code: undefined });
        expect(library.calls).toBe(Math.ceil(requests.length / 64));
        expect(library.seen).toEqual(
          requests.map((wr) => ({
            wrId: BigInt(wr.wrId ?? 0),
            opcode: wr.opcode,
            flags: wr.flags,
            remoteAddr: BigInt(wr.remoteAddr ?? 0),
            rkey: wr.rkey,
            sges: sgesOf(wr.sgList),
          })),
        );
        expect([...library.queues].every((queue) => queue === QUEUE)).toBe(true);
      }),
      { numRuns: 50 },
    );
  });

  it('of receives reach it likewise', () => {
    fc.assert(
      fc.property(fc.array(receive, { maxLength: 150 }), (requests) => {
        const library = provider(Number.POSITIVE_INFINITY);
        postReceives(requests, limits, library.receive, QUEUE);
        expect(library.seen.map(({ wrId, sges }) => ({ wrId, sges }))).toEqual(
          requests.map((wr) => ({ wrId: BigInt(wr.wrId ?? 0), sges: sgesOf(wr.sgList) })),
        );
      }),
      { numRuns: 50 },
    );
  });

  it('report the first request that the library refused, whatever the sign of its errno', () => {
    const requests = Array.from({ length: 150 }, (_, wrId) => ({ wrId, sgList: [] }));
    for (const room of [0, 1, 63, 64, 65, 149]) {
      for (const errno of [ENOMEM, -ENOMEM]) {
        const library = provider(room, errno);
        const outcome = postReceives(requests, limits, library.receive, QUEUE);
        expect(outcome).toMatchObject({ posted: room, errno: ENOMEM });
        expect(library.seen).toHaveLength(room);
      }
    }
  });

  it('post the requests before a malformed one', () => {
    const fine: SendFields = { opcode: send };
    for (const index of [0, 1, 63, 64, 100]) {
      const requests = Array.from({ length: 120 }, () => fine);
      requests[index] = { opcode: 99 as WROpcode };
      const library = provider(Number.POSITIVE_INFINITY);
      const outcome = postSends(requests, limits, library.send, QUEUE);
      expect(outcome).toMatchObject({ posted: index, code: 'EINVAL' });
      expect(library.seen).toHaveLength(index);
    }
  });
});

describe('one work request', () => {
  const sgl = [{ addr: 0, length: 8, lkey: 1 }];
  const remote = { remoteAddr: 0, rkey: 1 };
  const code = (wr: SendFields, given: PostLimits = limits) => checkSends([wr], given).code;

  it.each<[string, SendFields]>([
    ['an unknown flag', { opcode: send, flags: 16 as SendFlag }],
    ['too many elements', { opcode: send, sgList: [...sgl, ...sgl, ...sgl, ...sgl, ...sgl] }],
    ['an RDMA Read of two elements', { opcode: rdmaRead, sgList: [...sgl, ...sgl], ...remote }],
    ['an RDMA Read inline', { opcode: rdmaRead, flags: inline, ...remote }],
    ['too much inline', { opcode: send, flags: inline, inlineData: new Uint8Array(65) }],
    ['inline with elements', { opcode: send, flags: inline, sgList: sgl }],
    ['no remote address', { opcode: rdmaWrite, rkey: 1 }],
    ['no key', { opcode: rdmaWrite, remoteAddr: 1 }],
    ['a key that is no 32-bit number', { opcode: rdmaWrite, remoteAddr: 1, rkey: -1 }],
    ['a length that is none', { opcode: send, sgList: [{ addr: 0, length: 1.5, lkey: 1 }] }],
    ['an address that is none', { opcode: send, sgList: [{ addr: 0.5, length: 1, lkey: 1 }] }],
    [
      'an atomic of 4 bytes',
      {
        opcode: atomicFetchAndAdd,
        sgList: [{ addr: 0, length: 4, lkey: 1 }],
        compareAdd: 1,
        ...remote,
      },
    ],
    ['a swap without a value', { opcode: atomicCmpAndSwap, sgList: sgl, compareAdd: 1, ...remote }],
    ['an invalidation of nothing', { opcode: sendWithInv }],
  ])('fails with EINVAL for %s', (_name, wr) => {
    expect(code(wr)).toBe('EINVAL');
  });

  it.each<[string, SendFields, PostLimits]>([
    ['8 bytes of Immediate Data', { opcode: immediate, immData: 1 }, limits],
    ['Immediate Data after a Write', { opcode: rdmaWriteWithImm, immData: 1, ...remote }, limits],
    ['memory windows', { opcode: bindMW }, limits],
    [
      'atomics',
      { opcode: atomicFetchAndAdd, sgList: sgl, compareAdd: 1, ...remote },
      { ...limits, atomics: false },
    ],
    [
      'own invalidation on siw',
      { opcode: localInv, invalidateRkey: 1 },
      { ...limits, traits: traitsOf(SIW_VENDOR_ID) },
    ],
  ])('fails with EOPNOTSUPP for %s', (_name, wr, given) => {
    expect(code(wr, given)).toBe('EOPNOTSUPP');
  });

  it('carries a copy of its inline payload', () => {
    const inlineData = Uint8Array.of(1, 2, 3);
    const library = provider(1);
    const flags = inline;
    postSends([{ opcode: send, flags, inlineData }], limits, library.send, QUEUE);
    const [element] = library.seen[0]?.sges ?? [];
    expect(element?.length).toBe(3);
    inlineData.fill(0);
    expect([...copyOut(Number(element?.addr), 3)]).toEqual([1, 2, 3]);
  });

  it('has an empty element for an empty receive, as libsiw requires', () => {
    const library = provider(1);
    const siw = { ...limits, traits: traitsOf(SIW_VENDOR_ID) };
    postReceives([{ sgList: [] }], siw, library.receive, QUEUE);
    expect(library.seen[0]?.sges).toEqual([{ addr: 0n, length: 0, lkey: 0 }]);
  });

  it('has the operands of an atomic at the offsets of the C header', () => {
    const wr: SendFields = {
      opcode: atomicCmpAndSwap,
      sgList: sgl,
      remoteAddr: 2n ** 40n,
      rkey: 7,
      compareAdd: -1n,
      swap: 5,
    };
    let operands: unknown;
    postSends(
      [wr],
      limits,
      (_queue, list) => {
        operands = [
          longAt(list + 40),
          longAt(list + 48),
          longAt(list + 56),
          peek('ibv_send_wr', 'wr.atomic.rkey', list),
        ];
        return 0;
      },
      QUEUE,
    );
    expect(operands).toEqual([2n ** 40n, 2n ** 64n - 1n, 5n, 7]);
  });
});
