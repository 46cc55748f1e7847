/**
 * Calls the native bridge in any order, on objects that are open, closing or closed; awaits some of the
 * calls. Every outcome is a result or a `VerbsError`, and the process survives. Runs like
 * `native-suite.ts`.
 */
import { describe, expect, it } from 'vitest';
import { Access, CMEventType, type QPState, SendFlag, WROpcode } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import type {
  CompChannel,
  ConnectionId,
  Context,
  CQ,
  MR,
  PD,
  QP,
  QPInit,
  SRQ,
  VerbsObject,
} from '#contract/verbs/provider';
import type { SendWR } from '#contract/verbs/work-request';
import { createNative } from '#verbs-api/native/native-provider';
import { DEVICE } from '../support/provider-fixture.ts';

const { bindMW, rdmaRead, rdmaWrite, send, sendWithInv } = WROpcode;
const CALLS = 3000;
/** How long a call is awaited; it then continues beside the others. */
const PATIENCE_MS = 10;
/** Objects of one kind to draw from; older ones stay open until their provider closes. */
const REMEMBERED = 8;
const SEED = 20_261_121;
const OPCODES = [rdmaWrite, send, rdmaRead, sendWithInv, bindMW] as const;

/** The latest objects of one kind, open or not. */
class Pool<T extends VerbsObject> {
  readonly #draw: (below: number) => number;
  #objects: T[] = [];

  constructor(draw: (below: number) => number) {
    this.#draw = draw;
  }

  get some(): T {
    const object = this.#objects[this.#draw(this.#objects.length)];
    if (object === undefined) throw new EmptyPool();
    return object;
  }

  add(object: T): void {
    this.#objects.push(object);
    if (this.#objects.length > REMEMBERED) this.#objects.shift();
  }
}

/** The pool that a call needs is empty. */
class EmptyPool extends Error {}

describe('native soak', () => {
  it(`returns results or errors for ${CALLS} calls in any order, seed ${SEED}`, async () => {
    let state = SEED;
    const draw = (below: number): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    const provider = await createNative();
    const contexts = new Pool<Context>(draw);
    const pds = new Pool<PD>(draw);
    const mrs = new Pool<MR>(draw);
    const channels = new Pool<CompChannel>(draw);
    const cqs = new Pool<CQ>(draw);
    const srqs = new Pool<SRQ>(draw);
    const qps = new Pool<QP>(draw);
    const ids = new Pool<ConnectionId>(draw);
    const listeners = new Pool<ConnectionId>(draw);
    const pools: readonly Pool<VerbsObject>[] = [
      pds,
      mrs,
      channels,
      cqs,
      srqs,
      qps,
      ids,
      listeners,
    ];
    const strangers: unknown[] = [];
    const codes = new Set<string>();

    const guarded = async (call: () => unknown): Promise<void> => {
      try {
        await call();
      } catch (error) {
        if (isVerbsError(error)) codes.add(error.code);
        else if (!(error instanceof EmptyPool || error instanceof DOMException)) {
          strangers.push(error);
        }
      }
    };
    const qpInit = (): QPInit => ({
      sendCQ: cqs.some,
      recvCQ: cqs.some,
      maxSendWr: 4,
      maxRecvWr: 4,
      ...(draw(3) === 0 ? { srq: srqs.some } : {}),
    });
    const answer = async (listener: ConnectionId): Promise<void> => {
      for await (const event of listener.events()) {
        if (event.type !== CMEventType.connectRequest) continue;
        if (draw(2) === 0) await guarded(() => event.id.reject());
        await guarded(() => event.id.createQP(pds.some, qpInit()));
        void guarded(() => event.id.accept());
        ids.add(event.id);
      }
    };
    const calls: readonly (() => unknown)[] = [
      async () => pds.add(await contexts.some.allocPD()),
      async () => channels.add(await contexts.some.createCompChannel()),
      async () => cqs.add(await contexts.some.createCQ({ cqe: 1 + draw(64) })),
      async () => cqs.add(await contexts.some.createCQ({ cqe: 8, channel: channels.some })),
      async () => mrs.add(await pds.some.allocMR(1 + draw(10_000), Access.localWrite)),
      async () => mrs.add(await pds.some.regMR(new Uint8Array(1 + draw(99)), Access.localWrite)),
      async () => srqs.add(await pds.some.createSRQ({ maxWr: 4 })),
      async () => qps.add(await pds.some.createQP(qpInit())),
      async () => ids.add(await provider.createId()),
      async () => {
        const listener = await provider.createId();
        await listener.bindAddr({ address: DEVICE.addresses[0], port: 0 });
        await listener.listen(draw(4));
        listeners.add(listener);
        void guarded(() => answer(listener));
      },
      async () => {
        const id = ids.some;
        const { localAddress } = listeners.some;
        if (localAddress === undefined) return;
        await guarded(() => id.resolveAddr(localAddress, { timeoutMs: 500 }));
        await guarded(() => id.createQP(pds.some, qpInit()));
        await id.connect(draw(3) === 0 ? { qp: qps.some } : {});
      },
      () => {
        const opcode = OPCODES[draw(OPCODES.length)] ?? send;
        const request = { opcode, flags: SendFlag.signaled, sgList: [mrs.some.sge()] };
        const target = { remoteAddr: 1, rkey: 2, invalidateRkey: 3 };
        const anything = { ...request, ...target } as SendWR;
        qps.some.postSend(Array.from({ length: draw(6) }, () => anything));
      },
      () => qps.some.postRecv({ sgList: [mrs.some.sge()] }),
      () => srqs.some.postRecv({ sgList: [] }),
      () => cqs.some.poll(1 + draw(20)),
      () => cqs.some.requestNotify(draw(2) === 0),
      () => cqs.some.wait({ signal: AbortSignal.timeout(50) }),
      () => qps.some.modify({ state: draw(7) as QPState }),
      () => qps.some.query(),
      () => ids.some.disconnect(),
      () => pools[draw(pools.length)]?.some.close(),
      () => pools[draw(pools.length)]?.some.close(),
    ];

    contexts.add(await provider.open(DEVICE.name));
    contexts.add(await provider.open(DEVICE.name));
    for (let count = 0; count < CALLS; count += 1) {
      if (count % 1000 === 999) {
        void guarded(() => contexts.some.close());
        contexts.add(await provider.open(DEVICE.name));
      }
      const call = calls[draw(calls.length)] ?? (() => undefined);
      const done = guarded(call);
      const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS));
      if (draw(3) > 0) await Promise.race([done, patience]);
      else if (count % 20 === 0) await new Promise(setImmediate);
    }
    await provider.close();
    expect(strangers).toEqual([]);
    expect([...codes]).toEqual(expect.arrayContaining(['EINVAL', 'EBUSY', 'ENOMEM']));
    await using after = await createNative();
    expect((await after.devices()).map(({ name }) => name)).toContain(DEVICE.name);
  });
});
