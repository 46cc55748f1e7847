/** Posts work: each kind of work request, and its entry in the model. */
import { Access, QPState, SendFlag, WROpcode } from '#contract/verbs/enums';
import type { SendFields, SGE } from '#contract/verbs/work-request';
import { holdsPattern, PATTERN, PATTERN_BYTES } from './pattern.ts';
import { drawWeighted, KINDS, type WorkKind } from './plan.ts';
import { must } from './rules.ts';
import { programOf } from './sim-client.ts';
import { MAX_INLINE, type Party, type SendRecord, type SimQp, SimWindow } from './sim-qp.ts';
import { type Message, Target, type WriteRecord } from './target.ts';
import type { World } from './world.ts';

/** One work request and its effects. */
interface Work {
  readonly wr: SendFields;
  readonly message?: Omit<Message, 'writesBefore' | 'late'>;
  readonly write?: WriteRecord;
  readonly check?: () => void;
  /** Signalled: the model needs its completion. */
  readonly signalled?: boolean;
}

const WORD_BYTES = 8;
const WINDOW_BYTES = 1000;
const FLOOD_BYTES = 1_000_000;
const ALL_ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead;

/** Posts for the parties of a world. */
export class Posting {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** Posts up to `most` work requests and rings the doorbell once. */
  batch(party: Party, most: number): void {
    for (let count = this.#world.prng.between(1, most); count > 0; count -= 1) this.one(party);
    if (!this.#world.prng.oneIn(12)) party.qp.ring();
  }

  /** Posts as many Sends and Writes as the queue holds and rings the doorbell once. */
  fill(party: Party): void {
    const { prng } = this.#world;
    for (let count = party.qp.depth; count > 0; count -= 1) {
      const kind = prng.oneIn(4) ? 'write' : 'send';
      const full = party.sends.length >= party.qp.depth;
      const work = full ? undefined : this.#work(party, kind);
      if (work !== undefined) this.#post(party, work, kind);
    }
    party.qp.ring();
  }

  /** Draws a kind by the plan's weights and posts one. */
  one(party: Party): void {
    if (party.sends.length >= party.qp.depth) return;
    const { prng, plan } = this.#world;
    const kind = drawWeighted(prng, KINDS, plan.kinds);
    const work = this.#work(party, kind);
    if (work !== undefined) this.#post(party, work, kind);
  }

  /** Posts receives to the queue pair's own queue or to its shared one. */
  receives(qp: SimQp, count: number): void {
    const { client, srq } = qp;
    const inbox = srq?.inbox ?? qp.inbox;
    const slots = srq?.freeSlots ?? qp.freeSlots;
    const { prng, plan } = this.#world;
    if (inbox === undefined) return;
    for (let left = count; left > 0; left -= 1) {
      const slot = slots.pop();
      if (slot === undefined) return;
      const at = slot * plan.messageBytes;
      const wrId = this.#world.nextWrId();
      const cut = prng.below(plan.messageBytes + 1);
      const addr = inbox.area.address + at;
      const { lkey } = inbox;
      const sgList = [
        { addr, length: cut, lkey },
        { addr: addr + cut, length: plan.messageBytes - cut, lkey },
      ];
      const posted =
        srq === undefined ? qp.postReceive({ wrId, sgList }) : srq.post({ wrId, sgList });
      if (!posted) {
        slots.push(slot);
        return;
      }
      const record = {
        queue: 'receive',
        wrId,
        party: srq === undefined ? qp.party : undefined,
        area: inbox.area,
        at,
        lengthBytes: plan.messageBytes,
        giveBack: () => slots.push(slot),
      } as const;
      client.records.set(wrId, record);
      if (srq === undefined) qp.party.receives.push(record);
    }
  }

  /** Binds a type 2 window for the current peer. */
  bind(party: Party): void {
    const client = programOf(party.qp);
    const region = client.register(WINDOW_BYTES, client.tier(), ALL_ACCESS | Access.mwBind);
    const { mw, rkey } = client.call('allocMW', { pd: client.pd, type: 2 });
    const key = ((rkey & ~0xff) | ((rkey + 1) & 0xff)) >>> 0;
    const target = new Target(region.area, key);
    const window = new SimWindow(mw, region, target, party);
    const wr: SendFields = {
      opcode: WROpcode.bindMW,
      bind: {
        rkey: key,
        lkey: region.lkey,
        addr: region.area.address,
        length: WINDOW_BYTES,
        access: Access.remoteWrite | Access.remoteRead,
      },
    };
    const check = (): void => {
      if (window.state === 'binding') window.state = 'open';
    };
    if (this.#post(party, { wr, check, signalled: true }, 'bind')) client.windows.add(window);
    else {
      client.call('deallocMW', { mw });
      client.deregister(region);
    }
    party.qp.ring();
  }

  /** Writes through a window whose stream has ended: the Write must not be placed. */
  useStale(party: Party, window: SimWindow): void {
    const { prng } = this.#world;
    const at = window.target.cursor + prng.below(Math.max(1, window.target.room - WORD_BYTES));
    if (at + WORD_BYTES > window.region.area.bytes.length) return;
    party.flow?.excuse('a stale window');
    window.misused = true;
    const wr: SendFields = {
      opcode: WROpcode.rdmaWrite,
      sgList: this.#pieces(party, this.#place(WORD_BYTES), WORD_BYTES),
      remoteAddr: window.target.address + at,
      rkey: window.target.rkey,
    };
    this.#post(party, { wr }, 'a Write to a stale window');
    party.qp.ring();
  }

  /** Posts a message larger than the buffers of a network and a stream. */
  flood(party: Party): void {
    const length = FLOOD_BYTES;
    const sgList = [{ ...this.#pieces(party, 0, 0)[0], length }] as SGE[];
    this.#post(party, { wr: { opcode: WROpcode.send, sgList } }, 'a flood');
    party.qp.ring();
  }

  /** Posts a Read that a hostile peer never answers. */
  unanswered(party: Party): void {
    const work = this.#read(party);
    if (work !== undefined) this.#post(party, work, 'a Read');
    party.qp.ring();
  }

  #work(party: Party, kind: WorkKind): Work | undefined {
    switch (kind) {
      case 'send':
        return this.#send(party, undefined);
      case 'sendInvalidate':
        return this.#sendInvalidate(party);
      case 'write':
        return this.#write(party, undefined);
      case 'writeImmediate':
        return this.#write(party, this.#immediateValue());
      case 'immediate':
        return this.#immediate(party);
      case 'read':
        return this.#read(party);
      case 'fetchAdd':
      case 'compareSwap':
        return this.#atomic(party, kind === 'fetchAdd');
      default:
        return this.#misuse(party, kind);
    }
  }

  /** True if the peer has, or now posts, a receive for one more message. */
  #roomAt(party: Party): boolean {
    const { peer, flow } = party;
    if (flow?.hostile === true || party.disconnectAskedAt !== undefined) return true;
    if (peer === undefined || peer.abandoned || !peer.qp.alive) return false;
    const room = (): number => {
      if (peer.qp.srq !== undefined) return peer.qp.srq.spare;
      return peer.receives.length + peer.delivered - party.messages.length;
    };
    if (room() <= 0 && peer.qp.client.alive) {
      this.receives(peer.qp, this.#world.prng.between(1, peer.qp.depth));
    }
    return room() > 0;
  }

  #send(party: Party, invalidates: SimWindow | undefined): Work | undefined {
    if (!this.#roomAt(party)) return undefined;
    const { prng, plan } = this.#world;
    const lengthBytes = this.#length(plan.messageBytes);
    const offset = this.#place(lengthBytes);
    const inline = lengthBytes <= MAX_INLINE && prng.oneIn(2);
    const flags = (inline ? SendFlag.inline : 0) | (prng.oneIn(4) ? SendFlag.solicited : 0);
    const rkey = invalidates?.target.rkey;
    const wr: SendFields = {
      opcode: rkey === undefined ? WROpcode.send : WROpcode.sendWithInv,
      flags,
      ...(rkey === undefined ? {} : { invalidateRkey: rkey }),
      ...(inline
        ? { inlineData: PATTERN.subarray(offset, offset + lengthBytes) }
        : { sgList: this.#pieces(party, offset, lengthBytes) }),
    };
    const message = { offset, lengthBytes, immediate: undefined, invalidates: rkey };
    return { wr, message };
  }

  #sendInvalidate(party: Party): Work | undefined {
    const window = this.#openWindow(party);
    if (window === undefined) return this.#send(party, undefined);
    const work = this.#send(party, window);
    if (work !== undefined) window.state = 'over';
    return work;
  }

  #write(party: Party, immediate: bigint | undefined): Work | undefined {
    const { prng, plan } = this.#world;
    const { peer, flow } = party;
    if (immediate !== undefined && !this.#roomAt(party)) return undefined;
    const opcode = immediate === undefined ? WROpcode.rdmaWrite : WROpcode.rdmaWriteWithImm;
    const extra = immediate === undefined ? {} : { immData: immediate };
    const most = plan.messageBytes;
    if (peer === undefined) {
      if (flow?.hostile !== true) return undefined;
      const length = this.#length(most);
      const sgList = this.#pieces(party, this.#place(length), length);
      return { wr: { opcode, sgList, remoteAddr: 4096, rkey: prng.next(), ...extra } };
    }
    const target = prng.oneIn(3) ? this.#openWindow(party)?.target : undefined;
    const where = target ?? peer.target;
    const lengthBytes = Math.min(this.#length(most), where.room);
    const offset = this.#place(lengthBytes);
    const late = party.disconnectAskedAt !== undefined;
    const write = late
      ? { area: where.area, at: where.cursor, offset, lengthBytes, done: false }
      : where.take(lengthBytes, offset);
    const message =
      immediate === undefined
        ? {}
        : { message: { offset: 0, lengthBytes: WORD_BYTES, immediate, invalidates: undefined } };
    const wr: SendFields = {
      opcode,
      sgList: this.#pieces(party, offset, lengthBytes),
      remoteAddr: where.address + write.at,
      rkey: where.rkey,
      ...extra,
    };
    return { wr, write, ...message };
  }

  #immediate(party: Party): Work | undefined {
    if (!this.#roomAt(party)) return undefined;
    const immediate = this.#immediateValue();
    return {
      wr: { opcode: WROpcode.immediate, immData: immediate },
      message: { offset: 0, lengthBytes: WORD_BYTES, immediate, invalidates: undefined },
    };
  }

  #read(party: Party): Work | undefined {
    const { plan, prng } = this.#world;
    const { peer, qp } = party;
    const lengthBytes = this.#length(plan.messageBytes);
    const at = this.#stripe(party);
    const { area, lkey } = qp.sink;
    const sgList = [{ addr: area.address + at, length: lengthBytes, lkey }];
    if (peer === undefined) {
      if (party.flow?.hostile !== true) return undefined;
      return { wr: { opcode: WROpcode.rdmaRead, sgList, remoteAddr: 0, rkey: prng.next() } };
    }
    const { source } = peer.qp.client;
    const offset = this.#place(lengthBytes);
    area.bytes.fill(0, at, at + lengthBytes);
    const check = (): void => {
      must(holdsPattern(area.bytes, at, offset, lengthBytes), 'placed', () => {
        return `a Read of ${lengthBytes} bytes succeeded without them`;
      });
    };
    const remoteAddr = source.area.address + offset;
    return { wr: { opcode: WROpcode.rdmaRead, sgList, remoteAddr, rkey: source.rkey }, check };
  }

  #atomic(party: Party, add: boolean): Work | undefined {
    const { prng, plan } = this.#world;
    const { peer, qp } = party;
    if (peer === undefined || plan.messageBytes < WORD_BYTES) return undefined;
    const at = this.#stripe(party);
    const { area, lkey } = qp.sink;
    const before = party.counterModel;
    const operand = BigInt(prng.next());
    const compare = prng.oneIn(2) ? before : before + 1n;
    const wr: SendFields = {
      opcode: add ? WROpcode.atomicFetchAndAdd : WROpcode.atomicCmpAndSwap,
      sgList: [{ addr: area.address + at, length: WORD_BYTES, lkey }],
      remoteAddr: peer.counter.address,
      rkey: peer.counter.rkey,
      compareAdd: add ? operand : compare,
      ...(add ? {} : { swap: operand }),
    };
    if (party.disconnectAskedAt === undefined) {
      if (add) party.counterModel = BigInt.asUintN(64, before + operand);
      else if (compare === before) party.counterModel = operand;
    }
    const view = new DataView(area.bytes.buffer, area.bytes.byteOffset + at, WORD_BYTES);
    view.setBigUint64(0, 0xdead_beef_dead_beefn);
    const check = (): void => {
      must(
        view.getBigUint64(0, true) === before,
        'placed',
        'an atomic did not return the previous value',
      );
    };
    return { wr, check };
  }

  #misuse(party: Party, kind: WorkKind): Work | undefined {
    const { prng, plan } = this.#world;
    const { peer, flow } = party;
    // Not with a shared receive queue: the misuse would consume receives that others count on.
    if (flow === undefined || peer?.qp.srq !== undefined) return undefined;
    if (!prng.oneIn(6)) return undefined;
    flow.excuse(`misuse: ${kind}`);
    const { lkey, area } = party.qp.client.source;
    switch (kind) {
      case 'badKey': {
        const opcode = prng.oneIn(2) ? WROpcode.rdmaWrite : WROpcode.rdmaRead;
        const sink = party.qp.sink;
        const sgList = [{ addr: sink.area.address, length: WORD_BYTES, lkey: sink.lkey }];
        return { wr: { opcode, sgList, remoteAddr: 64, rkey: prng.next() } };
      }
      case 'badLocal': {
        const sgList = [{ addr: area.address, length: WORD_BYTES, lkey: lkey ^ 0x5500 }];
        return { wr: { opcode: WROpcode.send, sgList }, signalled: true };
      }
      case 'tooLong': {
        const length = plan.messageBytes + 1;
        const message = {
          offset: 0,
          lengthBytes: length,
          immediate: undefined,
          invalidates: undefined,
        };
        return { wr: { opcode: WROpcode.send, sgList: this.#pieces(party, 0, length) }, message };
      }
      default: {
        const message = { offset: 0, lengthBytes: 4, immediate: undefined, invalidates: undefined };
        return { wr: { opcode: WROpcode.send, sgList: this.#pieces(party, 0, 4) }, message };
      }
    }
  }

  #post(party: Party, work: Work, what: string): boolean {
    const { prng } = this.#world;
    const { qp } = party;
    if (party.sends.length >= qp.depth) return false;
    const late = party.disconnectAskedAt !== undefined;
    const last = party.sends.length === qp.depth - 1;
    const signalled = last || work.signalled === true || prng.oneIn(2);
    const flags =
      (work.wr.flags ?? 0) |
      (signalled ? SendFlag.signaled : 0) |
      (prng.oneIn(8) ? SendFlag.fence : 0);
    const wrId = this.#world.nextWrId();
    if (!qp.post({ ...work.wr, wrId, flags })) return false;
    if (work.write !== undefined && !late) party.writes.push(work.write);
    if (work.message !== undefined) {
      party.messages.push({ ...work.message, writesBefore: party.writes.length, late });
    }
    const record: SendRecord = {
      queue: 'send',
      wrId,
      party,
      signalled,
      what,
      late: late && qp.state === QPState.RTS,
      messages: party.messages.length,
      write: work.write,
      check: work.check,
    };
    party.sends.push(record);
    this.#world.log?.(
      `  ${qp.client.name} posts ${wrId} to ${qp.name}: ${what}, message ${party.messages.length}`,
    );
    qp.client.records.set(wrId, record);
    return true;
  }

  /** An open window of the peer. */
  #openWindow(party: Party): SimWindow | undefined {
    const { peer } = party;
    if (peer === undefined) return undefined;
    for (const window of peer.qp.client.windows) {
      if (window.party === peer && window.state === 'open') return window;
    }
    return undefined;
  }

  #stripe(party: Party): number {
    const at = (party.requests % party.qp.depth) * this.#world.plan.messageBytes;
    party.requests += 1;
    return at;
  }

  #immediateValue(): bigint {
    const { prng } = this.#world;
    return (BigInt(prng.next()) << 32n) | BigInt(prng.next());
  }

  #length(most: number): number {
    const { prng } = this.#world;
    // Big runs use mostly long messages.
    return most >= 40_000 && !prng.oneIn(4) ? prng.between(most >> 1, most) : prng.length(most);
  }

  #place(lengthBytes: number): number {
    return this.#world.prng.below(PATTERN_BYTES - lengthBytes);
  }

  #pieces(party: Party, offset: number, lengthBytes: number): SGE[] {
    const { area, lkey } = party.qp.client.source;
    const addr = area.address + offset;
    if (this.#world.prng.oneIn(2)) return [{ addr, length: lengthBytes, lkey }];
    const first = this.#world.prng.below(lengthBytes + 1);
    return [
      { addr, length: first, lkey },
      { addr: addr + first, length: lengthBytes - first, lkey },
    ];
  }
}
