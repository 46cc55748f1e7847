/**
 * One connection of the simulation with a model of what must happen on it.
 *
 * Rules that the model holds the NICs to, after every completion:
 * - a receive completes with exactly the next message sent, whole and unchanged;
 * - completions of one queue come in the order of posting, each once, and every signalled one comes;
 * - a read brings what the peer's memory held, an atomic the value before it;
 * - after the run the peer's memory holds every write that succeeded; without a fault, all of them;
 * - nothing fails unless a fault was injected, and after a fault everything posted is flushed.
 */
import type { MR } from '../../daemon/rnic/memory-region.ts';
import type { WC } from '../../verbs-api/contract/completion.ts';
import { SendFlag, WCFlag, WCOpcode, WCStatus, WROpcode } from '../../verbs-api/contract/enums.ts';
import type { SendWR } from '../../verbs-api/contract/work-request.ts';
import { QUEUE_DEPTH, type SimNode, type SimQP } from './node.ts';
import type { Prng } from './prng.ts';

/** Octets of a receive buffer, and so the longest Send. */
const MESSAGE_MAX_BYTES = 70_000;
/** Octets that reads, writes and the sources of everything take from. */
const REGION_BYTES = 200_000;
const COUNTER_BYTES = 8;
/** Part of the sink that one read or atomic has for itself. */
const STRIPE_BYTES = Math.floor(REGION_BYTES / QUEUE_DEPTH / 8) * 8;

/** A message on its way: what the receiver has to see. */
interface Expected {
  readonly payload: Uint8Array;
  readonly solicited: boolean;
  readonly immediate: bigint | undefined;
}

interface PostedSend {
  readonly wrId: bigint;
  readonly signalled: boolean;
  /** Checks the effects of a success. */
  readonly check: () => void;
}

/** One side of the conversation. */
export class Party {
  readonly node: SimNode;
  readonly pair: SimQP;
  /** Never written after the start: source of Sends, Writes and reads by the peer. */
  readonly source: Uint8Array;
  /** Written by the peer's Writes only. */
  readonly target = new Uint8Array(REGION_BYTES);
  /** What `target` must hold in the end. */
  readonly model = new Uint8Array(REGION_BYTES);
  readonly sink = new Uint8Array(REGION_BYTES);
  readonly inbox = new Uint8Array(MESSAGE_MAX_BYTES * QUEUE_DEPTH);
  readonly counter = new Uint8Array(COUNTER_BYTES);
  readonly regions: Readonly<Record<'source' | 'target' | 'sink' | 'inbox' | 'counter', MR>>;
  readonly sends: PostedSend[] = [];
  /** Slots of `inbox` with a posted receive, oldest first. */
  readonly receives: number[] = [];
  readonly expected: Expected[] = [];
  counterModel = 0n;
  /** Where the next Write goes; stripes never overlap, so the order of placement is free. */
  writeCursor = 0;
  /** Reads and atomics so far: the sink's stripe of the next one is free again by then. */
  requests = 0;
  freeSlots = Array.from({ length: QUEUE_DEPTH }, (_, slot) => slot);
  completed = 0;
  failed = false;
  /** From the first failed send on, every one completes. */
  sendFailed = false;

  constructor(node: SimNode, prng: Prng, base: number) {
    this.node = node;
    this.pair = node.createQP();
    this.source = new Uint8Array(REGION_BYTES);
    prng.fill(this.source);
    this.regions = {
      source: node.register(this.source, base),
      target: node.register(this.target, base + 0x100_0000),
      sink: node.register(this.sink, base + 0x200_0000),
      inbox: node.register(this.inbox, base + 0x300_0000),
      counter: node.register(this.counter, base + 0x800_0000),
    };
  }
}

/** What a run may do, by weight; 0 switches an operation off (swarm testing). */
export interface Weights {
  readonly send: number;
  readonly write: number;
  readonly read: number;
  readonly atomic: number;
  readonly immediate: number;
}

/** The two parties of one connection. */
export class Conversation {
  readonly parties: readonly [Party, Party];
  /** Set when a fault was injected: failures are then allowed. */
  faulty = false;
  #nextWrId = 1;
  readonly #prng: Prng;

  constructor(parties: readonly [Party, Party], prng: Prng) {
    this.parties = parties;
    this.#prng = prng;
  }

  /** One random action of a random party. */
  act(weights: Weights, now: number): void {
    const prng = this.#prng;
    const from = this.parties[prng.below(2) === 0 ? 0 : 1];
    const to = from === this.parties[0] ? this.parties[1] : this.parties[0];
    if (from.failed || from.sends.length >= QUEUE_DEPTH) return;
    this.#postReceives(to);
    const actions: readonly (readonly [number, () => void])[] = [
      [weights.send, () => this.#send(from, to, now)],
      [weights.write, () => this.#write(from, to, now)],
      [weights.read, () => this.#read(from, to, now)],
      [weights.atomic, () => this.#atomic(from, to, now)],
      [weights.immediate, () => this.#immediate(from, to, now)],
    ];
    let draw = prng.below(actions.reduce((sum, [weight]) => sum + weight, 0));
    for (const [weight, action] of actions) {
      if (draw < weight) {
        action();
        return;
      }
      draw -= weight;
    }
  }

  #postReceives(party: Party): void {
    while (party.freeSlots.length > 0 && !party.failed) {
      const slot = party.freeSlots.shift() ?? 0;
      const cut = this.#prng.below(MESSAGE_MAX_BYTES);
      const address = party.regions.inbox.address + slot * MESSAGE_MAX_BYTES;
      const { lkey } = party.regions.inbox;
      const posted = party.node.postReceive(party.pair, {
        wrId: slot,
        // Two pieces, so that scattering is part of every run.
        sgList: [
          { addr: address, length: cut, lkey },
          { addr: address + cut, length: MESSAGE_MAX_BYTES - cut, lkey },
        ],
      });
      must(posted, 'a receive queue with free slots takes a receive');
      party.receives.push(slot);
    }
  }

  #send(from: Party, to: Party, now: number): void {
    if (to.expected.length >= to.receives.length) return;
    const length = this.#length(MESSAGE_MAX_BYTES);
    const offset = this.#prng.below(REGION_BYTES - length);
    const payload = from.source.subarray(offset, offset + length);
    const inline = length <= 64 && this.#prng.oneIn(2);
    const solicited = this.#prng.oneIn(4);
    const posted = this.#post(from, now, {
      opcode: WROpcode.send,
      flags: (inline ? SendFlag.inline : 0) | (solicited ? SendFlag.solicited : 0),
      ...(inline ? { inlineData: payload } : { sgList: pieces(from, offset, length) }),
    });
    if (posted) to.expected.push({ payload, solicited, immediate: undefined });
  }

  #immediate(from: Party, to: Party, now: number): void {
    if (to.expected.length >= to.receives.length) return;
    const immediate = (BigInt(this.#prng.next()) << 32n) | BigInt(this.#prng.next());
    if (!this.#post(from, now, { opcode: WROpcode.immediate, immData: immediate })) return;
    to.expected.push({ payload: new Uint8Array(0), solicited: false, immediate });
  }

  #write(from: Party, to: Party, now: number): void {
    const length = Math.min(this.#length(REGION_BYTES / 4), REGION_BYTES - to.writeCursor);
    const offset = this.#prng.below(REGION_BYTES - length);
    const at = to.writeCursor;
    const posted = this.#post(from, now, {
      opcode: WROpcode.rdmaWrite,
      sgList: pieces(from, offset, length),
      remoteAddr: to.regions.target.address + at,
      rkey: to.regions.target.rkey,
    });
    if (!posted) return;
    to.model.set(from.source.subarray(offset, offset + length), at);
    to.writeCursor += length;
  }

  #read(from: Party, to: Party, now: number): void {
    const length = this.#length(STRIPE_BYTES);
    const offset = this.#prng.below(REGION_BYTES - length);
    const stripe = STRIPE_BYTES * (from.requests++ % QUEUE_DEPTH);
    this.#post(
      from,
      now,
      {
        opcode: WROpcode.rdmaRead,
        sgList: [
          {
            addr: from.regions.sink.address + stripe,
            length,
            lkey: from.regions.sink.lkey,
          },
        ],
        remoteAddr: to.regions.source.address + offset,
        rkey: to.regions.source.rkey,
      },
      () => {
        const got = from.sink.subarray(stripe, stripe + length);
        must(same(got, to.source.subarray(offset, offset + length)), 'a read brings the source');
      },
    );
  }

  #atomic(from: Party, to: Party, now: number): void {
    const add = BigInt(this.#prng.next());
    const before = to.counterModel;
    const at = STRIPE_BYTES * (from.requests++ % QUEUE_DEPTH);
    const posted = this.#post(
      from,
      now,
      {
        opcode: WROpcode.atomicFetchAndAdd,
        sgList: [{ addr: from.regions.sink.address + at, length: 8, lkey: from.regions.sink.lkey }],
        remoteAddr: to.regions.counter.address,
        rkey: to.regions.counter.rkey,
        compareAdd: add,
      },
      () => {
        const view = new DataView(from.sink.buffer, at, 8);
        must(view.getBigUint64(0, true) === before, 'an atomic brings the value before it');
      },
    );
    if (posted) to.counterModel = BigInt.asUintN(64, before + add);
  }

  #post(from: Party, now: number, wr: SendWR, check: () => void = nothing): boolean {
    const wrId = this.#nextWrId++;
    // The last free entry is signalled, so that a full queue always drains.
    const signalled = this.#prng.oneIn(2) || from.sends.length === QUEUE_DEPTH - 1;
    const flags =
      (wr.flags ?? 0) |
      (signalled ? SendFlag.signaled : 0) |
      (this.#prng.oneIn(5) ? SendFlag.fence : 0);
    if (!from.node.postSend(from.pair, { ...wr, wrId, flags }, now)) return false;
    from.sends.push({ wrId: BigInt(wrId), signalled, check });
    return true;
  }

  #length(max: number): number {
    const prng = this.#prng;
    if (prng.oneIn(8)) return 0;
    return prng.oneIn(3) ? prng.between(1, max - 1) : prng.between(1, 300);
  }

  /** A completion of `party`. */
  complete(party: Party, wc: WC): void {
    party.completed++;
    if (wc.status !== WCStatus.success) {
      must(this.faulty, `a completion with status ${wc.status} without a fault`);
      party.failed = true;
    }
    const receive = wc.opcode === WCOpcode.recv || wc.opcode === WCOpcode.recvImmediate;
    if (receive) this.#completeReceive(party, wc);
    else this.#completeSend(party, wc);
  }

  #completeReceive(party: Party, wc: WC): void {
    const slot = party.receives.shift();
    must(slot !== undefined && BigInt(slot) === wc.wrId, 'receives complete in order');
    party.freeSlots.push(Number(wc.wrId));
    if (wc.status !== WCStatus.success) return;
    const expected = party.expected.shift();
    must(expected !== undefined, 'a receive completes for a message that was sent');
    if (expected === undefined) return;
    if (expected.immediate !== undefined) {
      must((wc.wcFlags & WCFlag.withImm) !== 0, 'Immediate Data is told');
      must(wc.immData === expected.immediate, 'Immediate Data arrives unchanged');
      return;
    }
    const start = Number(wc.wrId) * MESSAGE_MAX_BYTES;
    must(
      wc.byteLen === expected.payload.length,
      `a message of ${expected.payload.length} octets arrives with its length, not ${wc.byteLen}`,
    );
    const got = party.inbox.subarray(start, start + wc.byteLen);
    must(same(got, expected.payload), 'a message arrives unchanged');
  }

  #completeSend(party: Party, wc: WC): void {
    for (;;) {
      const send = party.sends.shift();
      must(send !== undefined, 'a completion has a work request');
      if (send === undefined) return;
      if (send.wrId === wc.wrId) {
        if (wc.status === WCStatus.success) {
          must(send.signalled, 'a success completes only if it was asked for');
          send.check();
        } else {
          party.sendFailed = true;
        }
        return;
      }
      must(!send.signalled, 'no signalled work request is passed over');
      must(!party.sendFailed, 'a failed queue passes nothing over');
    }
  }

  /** After a run without a fault: all that was asked for has happened. */
  checkEnd(): void {
    for (const party of this.parties) {
      const open = party.sends.filter((send) => send.signalled);
      must(open.length === 0, `${open.length} signalled work requests never completed`);
      if (this.faulty) continue;
      must(party.expected.length === 0, `${party.expected.length} messages never arrived`);
      must(same(party.target, party.model), 'memory holds what was written');
      const value = new DataView(party.counter.buffer).getBigUint64(0, true);
      must(value === party.counterModel, 'the counter holds all that was added');
    }
  }
}

function nothing(): void {
  // Most operations have no effect at the poster.
}

function pieces(
  party: Party,
  offset: number,
  length: number,
): { addr: number; length: number; lkey: number }[] {
  const { address, lkey } = party.regions.source;
  const first = Math.floor(length / 3);
  return [
    { addr: address + offset, length: first, lkey },
    { addr: address + offset + first, length: length - first, lkey },
  ];
}

function same(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}

/** A broken rule ends the run. */
export class BrokenRule extends Error {}

function must(condition: boolean, rule: string): void {
  if (!condition) throw new BrokenRule(rule);
}
