/** Requester and responder against each other, in any order of events, with losses in between. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { RequesterEffect } from '#verbs-api/rpcrdma/core/requester-types';
import { readReplyHeader } from '#verbs-api/rpcrdma/core/rpc-message';
import { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { hexOf } from '../support/hex.ts';
import { pattern } from '../support/pattern.ts';
import { Prng } from '../support/prng.ts';
import {
  callPayload,
  type Dispatched,
  RequesterRig,
  ResponderRig,
  replyPayload,
  THRESHOLDS,
} from '../support/rpcrdma-rig.ts';

const DEADLINE_MS = 1e9;

/** Parameters of a call: bytes of its argument, of a bulk result, and of a plain one. */
interface Load {
  readonly argBytes: number;
  readonly bulkBytes: number;
  readonly plainBytes: number;
}

/** A client and a server in one world; every step is chosen by the generator. */
class Pair {
  readonly prng: Prng;
  readonly requester: RequesterRig;
  responder: ResponderRig;
  readonly loads = new Map<number, Load>();
  /** Calls carried out, by XID. */
  readonly carriedOut: number[] = [];
  readonly #credits: number;
  #toResponder: Uint8Array[] = [];
  #toRequester: Uint8Array[] = [];
  #running: Dispatched[] = [];
  #seenSent = 0;
  peakInFlight = 0;

  constructor(seed: number) {
    this.prng = new Prng(seed);
    this.#credits = 1 + this.prng.below(6);
    this.requester = new RequesterRig(
      { credits: 1 + this.prng.below(8), segmentBytesMax: 200 + this.prng.below(3000) },
      'unconnected',
    );
    this.requester.holdExposures = true;
    this.requester.holdWithdrawals = true;
    this.responder = this.#newResponder();
  }

  #newResponder(): ResponderRig {
    const limits = { segmentsMax: 64, readBytesMax: 1 << 20 };
    const options = { credits: this.#credits, limits, pulledBytesMax: 20_000 };
    const responder = new ResponderRig(options, this.requester.memory, THRESHOLDS);
    responder.holdPulls = this.prng.below(2) === 0;
    return responder;
  }

  call(xid: number, load: Load, idempotent: boolean): void {
    this.loads.set(xid, load);
    const payload = callPayload(xid, (writer) => {
      writer.uint32(load.bulkBytes);
      writer.bulk(pattern(load.argBytes));
      writer.uint32(load.plainBytes);
    });
    const request = { payload, resultBytes: [load.bulkBytes], idempotent, deadlineMs: DEADLINE_MS };
    this.requester.call(xid, { ...request, replyMaxBytes: 24 + 8 + load.plainBytes + 3 });
  }

  /** Takes one possible step; false if there is none. */
  step(): boolean {
    this.#collect();
    const actions: (() => void)[] = [];
    const [connect] = this.requester.effects.filter(({ type }) => type === 'connect');
    if (connect) actions.push(() => this.#connect());
    const seen = new Set<number>();
    for (const effect of this.requester.effects) {
      if (!('xid' in effect)) continue;
      // Actions for one call keep their order.
      if (seen.has(effect.xid)) continue;
      seen.add(effect.xid);
      if (effect.type === 'expose') {
        actions.push(() => {
          this.#drop(effect);
          this.requester.expose(effect);
        });
      }
      if (effect.type === 'withdraw') {
        actions.push(() => {
          this.#drop(effect);
          this.requester.withdraw(effect.xid);
        });
      }
    }
    const [call] = this.#toResponder;
    if (call) {
      actions.push(() => {
        this.#toResponder.shift();
        this.responder.handle(call);
      });
    }
    const [reply] = this.#toRequester;
    if (reply) {
      actions.push(() => {
        this.#toRequester.shift();
        this.requester.handle(reply);
      });
    }
    for (const effect of this.responder.effects) {
      if (effect.type !== 'pull') continue;
      actions.push(() => {
        this.responder.effects.splice(this.responder.effects.indexOf(effect), 1);
        this.responder.pull(effect);
      });
    }
    // The wait before it reconnects; calls have no deadline here.
    const { nextDeadlineMs } = this.requester.requester;
    if (nextDeadlineMs < DEADLINE_MS) actions.push(() => this.requester.advanceTo(nextDeadlineMs));
    for (const running of this.#running) actions.push(() => this.#carryOut(running));
    if (actions.length === 0) return false;
    actions[this.prng.below(actions.length)]?.();
    this.peakInFlight = Math.max(this.peakInFlight, this.requester.requester.inFlight);
    return true;
  }

  lose(): void {
    this.#seenSent = this.requester.sent.length;
    this.#toResponder = [];
    this.#toRequester = [];
    this.#running = [];
    this.responder = this.#newResponder();
    this.requester.lose();
  }

  #connect(): void {
    this.requester.take('connect');
    this.requester.connect();
  }

  #drop(effect: RequesterEffect): void {
    const { effects } = this.requester;
    effects.splice(effects.indexOf(effect), 1);
  }

  #collect(): void {
    const sent = this.requester.sent.slice(this.#seenSent);
    this.#seenSent = this.requester.sent.length;
    this.#toResponder.push(...sent.map(({ bytes }) => bytes));
    // RPCR-6-01 The server posts as many receives as it grants.
    const posted = this.#credits + this.responder.reposted.length;
    expect(this.#toResponder.length).toBeLessThanOrEqual(posted);
    this.#toRequester.push(...this.responder.sent.splice(0).map(({ bytes }) => bytes));
    this.#running.push(...this.responder.dispatched.splice(0));
  }

  #carryOut(running: Dispatched): void {
    this.#running.splice(this.#running.indexOf(running), 1);
    const { reader, xid } = running;
    reader.opaqueFixed(40);
    const bulkBytes = reader.uint32();
    const bytes = reader.bulk(1 << 20);
    const plainBytes = reader.uint32();
    reader.finish();
    expect(hexOf(bytes)).toBe(hexOf(pattern(this.loads.get(xid)?.argBytes ?? -1)));
    this.carriedOut.push(xid);
    const payload = replyPayload(xid, (writer) => {
      writer.bulk(pattern(bulkBytes));
      writer.opaque(pattern(plainBytes));
    });
    this.responder.reply(running, payload);
  }

  /** Checks that a call got its own results. */
  expectResult(xid: number): void {
    const outcome = this.requester.outcomes.get(xid);
    if (outcome?.type !== 'reply') throw new Error(`no reply to ${xid}`);
    const load = this.loads.get(xid);
    const reader = new XdrReader(outcome.bytes, outcome.bulk);
    readReplyHeader(reader);
    expect(hexOf(reader.bulk(1 << 20))).toBe(hexOf(pattern(load?.bulkBytes ?? -1)));
    expect(hexOf(reader.opaque(1 << 20))).toBe(hexOf(pattern(load?.plainBytes ?? -1)));
    reader.finish();
  }
}

const load = fc.record({
  argBytes: fc.oneof(fc.nat(40), fc.nat(3000)),
  bulkBytes: fc.oneof(fc.nat(40), fc.nat(3000)),
  plainBytes: fc.oneof(fc.nat(40), fc.nat(3000)),
});

describe('requester and responder', () => {
  it('return to each call its own results, in any order of events [RPCR-3.3-05, RPCR-6-01, RPCR-3.8-01]', () => {
    fc.assert(
      fc.property(fc.integer(), fc.array(load, { minLength: 1, maxLength: 30 }), (seed, loads) => {
        const pair = new Pair(seed);
        for (const [i, each] of loads.entries()) pair.call(i + 1, each, false);
        while (pair.step());
        for (const [i] of loads.entries()) pair.expectResult(i + 1);
        expect([...pair.carriedOut].sort((a, b) => a - b)).toEqual(loads.map((_load, i) => i + 1));
        expect(pair.requester.memory.regions.size).toBe(0);
        expect(pair.responder.responder).toMatchObject({ callCount: 0, pulledBytes: 0 });
        expect(pair.requester.requester.inFlight).toBe(0);
      }),
    );
  });

  it('end every call once, whatever connections are lost, and never repeat a non-idempotent call [RPCR-8-01]', () => {
    fc.assert(
      fc.property(
        fc.integer(),
        fc.array(fc.record({ load, idempotent: fc.boolean() }), { minLength: 1, maxLength: 20 }),
        fc.array(fc.nat(60), { maxLength: 4 }),
        (seed, calls, losses) => {
          const pair = new Pair(seed);
          for (const [i, each] of calls.entries()) pair.call(i + 1, each.load, each.idempotent);
          for (const steps of losses) {
            let left = steps;
            while (left > 0 && pair.step()) left -= 1;
            pair.lose();
          }
          while (pair.step());
          for (const [i, { idempotent }] of calls.entries()) {
            const xid = i + 1;
            const outcome = pair.requester.outcomes.get(xid);
            const times = pair.carriedOut.filter((each) => each === xid).length;
            if (!idempotent) expect(times).toBeLessThanOrEqual(1);
            if (outcome?.type === 'reply') pair.expectResult(xid);
            else expect(outcome).toMatchObject({ type: 'failure', outcomeUnknown: true });
          }
          expect(pair.requester.memory.regions.size).toBe(0);
          expect(pair.requester.requester.callCount).toBe(0);
        },
      ),
    );
  });
});
