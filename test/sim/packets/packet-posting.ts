/** Posts work over RoCE: each kind of work request, and its entry in the model. */
import type { WC } from '#contract/verbs/completion';
import { Access, SendFlag, WCFlag, WCOpcode, WROpcode } from '#contract/verbs/enums';
import type { PD } from '#contract/verbs/provider';
import type { SendFields, SGE } from '#contract/verbs/work-request';
import { holdsPattern, PATTERN, PATTERN_BYTES } from '../pattern.ts';
import { drawWeighted } from '../plan.ts';
import { must } from '../rules.ts';
import type { LossyWrite } from './lossy-pieces.ts';
import type { PacketSetting } from './packet-host.ts';
import { PACKET_KINDS, type PacketKind } from './packet-plan.ts';
import {
  GRH_BYTES,
  type Life,
  MAX_INLINE,
  type Message,
  type PacketWindow,
  type ReceiveRecord,
  type SendRecord,
} from './packet-queue-pair.ts';
import { Pieces, WORD_BYTES, wordAt } from './pieces.ts';

/** One work request and its effects. */
interface Work {
  readonly wr: SendFields;
  readonly message?: Message;
  readonly succeed?: () => void;
  readonly signalled?: boolean;
}

/** A datagram that a program sent. */
interface Letter {
  readonly offset: number;
  readonly lengthBytes: number;
  readonly from: Life;
  /** The queue pair or group that it was sent to. */
  readonly to: string;
  /** With the key of another queue pair. */
  readonly misdirected: boolean;
}

interface PostedWrite {
  /** The life whose memory it names. */
  readonly to: Life;
  /** Undefined for one beyond its target. */
  readonly write: LossyWrite | undefined;
}

const SHARED_RECEIVES = 8;
/** Work whose success over iWARP also means that the peer has carried it out. */
const RESPONSES = ['read', 'readTick', 'fetchAdd', 'compareSwap', 'addShared'] as const;
const NOTHING = (): void => {};
/** The number in front of a letter. */
const LETTER_HEAD_BYTES = 4;
export const QKEY = 0x1234_5678;
const ALL_ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead;

/** The world of posted work. */
interface PostingWorld extends PacketSetting {
  nextWrId(): number;
  /** True if the queue pair was ever attached to the group. */
  isMember(life: Life, group: string): boolean;
}

export class PacketPosting {
  readonly #world: PostingWorld;
  readonly #letters = new Map<number, Letter>();
  /** Writes over UC, by number. */
  readonly #writes = new Map<number, PostedWrite>();

  constructor(world: PostingWorld) {
    this.#world = world;
  }

  /** Posts up to `most` work requests and rings the doorbell once. */
  batch(life: Life, most: number): void {
    for (let count = this.#world.prng.between(1, most); count > 0; count -= 1) this.#one(life);
    life.qp.ring();
  }

  #one(life: Life): void {
    const { prng } = this.#world;
    if (life.sends.length >= life.qp.depth) return;
    const kind = life.qp.program.iwarp ? prng.choose(RESPONSES) : this.#kind(life);
    const work = this.#work(life, kind);
    if (work !== undefined) this.#post(life, work, kind);
  }

  /** Draws a kind by the plan's weights. */
  #kind({ peer }: Life): PacketKind {
    const { prng, plan } = this.#world;
    const drawn = drawWeighted(prng, PACKET_KINDS, plan.kinds);
    if (peer?.rights === true || drawn.startsWith('send')) return drawn;
    return prng.oneIn(20) ? 'noRight' : 'send';
  }

  /** Posts receives to the queue pair's own queue or to its shared one. */
  receives(life: Life, count: number): void {
    const { prng } = this.#world;
    const { qp } = life;
    const { srq, program } = qp;
    const inbox = srq?.inbox ?? life.inbox;
    if (inbox === undefined) return;
    for (let left = count; left > 0; left -= 1) {
      const at = inbox.take();
      if (at === undefined) return;
      const wrId = this.#world.nextWrId();
      const cut = prng.below(inbox.pieceBytes + 1);
      const { area, lkey } = inbox.registered;
      const addr = area.address + at;
      const sgList = [
        { addr, length: cut, lkey },
        { addr: addr + cut, length: inbox.pieceBytes - cut, lkey },
      ];
      const posted =
        srq === undefined ? qp.postReceive({ wrId, sgList }) : srq.post({ wrId, sgList });
      if (!posted) {
        inbox.give(at);
        return;
      }
      const own = srq === undefined ? life : undefined;
      const record: ReceiveRecord = { queue: 'receive', wrId, life: own, pieces: inbox, at };
      program.records.set(wrId, record);
      own?.receives.push(record);
      if (srq !== undefined) srq.posted += 1;
    }
  }

  /** Posts as many receives as the queue pair's own queue holds, or more of them to its shared one. */
  fill(life: Life): void {
    this.receives(life, life.qp.srq === undefined ? life.qp.receiveDepth : SHARED_RECEIVES);
  }

  // Work

  #work(life: Life, kind: PacketKind): Work | undefined {
    switch (kind) {
      case 'send':
        return this.#send(life);
      case 'sendImmediate':
        return this.#send(life, BigInt(this.#world.prng.next()));
      case 'sendInvalidate':
        return this.#sendInvalidate(life);
      case 'write':
        return this.#write(life);
      case 'writeImmediate':
        return this.#write(life, BigInt(this.#world.prng.next()));
      case 'read':
        return this.#read(life);
      case 'readTick':
        return this.#readTick(life);
      case 'fetchAdd':
      case 'compareSwap':
        return this.#atomic(life, kind === 'fetchAdd');
      case 'addShared':
        return this.#addShared(life);
      default:
        return this.#misuse(life, kind);
    }
  }

  #send(life: Life, immediate?: bigint, window?: PacketWindow): Work {
    const { prng, plan } = this.#world;
    const lengthBytes = prng.length(plan.messageBytes);
    const offset = this.#place(lengthBytes);
    const inline = lengthBytes <= MAX_INLINE && prng.oneIn(2);
    const flags = (inline ? SendFlag.inline : 0) | (prng.oneIn(4) ? SendFlag.solicited : 0);
    const opcode =
      window !== undefined
        ? WROpcode.sendWithInv
        : immediate === undefined
          ? WROpcode.send
          : WROpcode.sendWithImm;
    const wr: SendFields = {
      opcode,
      flags,
      ...(window === undefined ? {} : { invalidateRkey: window.rkey }),
      ...(immediate === undefined ? {} : { immData: immediate }),
      ...(inline
        ? { inlineData: PATTERN.subarray(offset, offset + lengthBytes) }
        : { sgList: this.#pieces(life, offset, lengthBytes) }),
    };
    const invalidates = window?.rkey;
    return { wr, message: { offset, lengthBytes, immediate, invalidates, checkWrite: undefined } };
  }

  #sendInvalidate(life: Life): Work {
    const window = this.#openWindow(life);
    if (window === undefined) return this.#send(life);
    window.open = false;
    return this.#send(life, undefined, window);
  }

  #write(life: Life, immediate?: bigint): Work | undefined {
    const { prng } = this.#world;
    const { peer } = life;
    if (peer === undefined) return undefined;
    const window = prng.oneIn(3) ? this.#openWindow(life) : undefined;
    const target = window?.target ?? peer.target;
    const at = target.take();
    if (at === undefined) return undefined;
    const lengthBytes = prng.length(target.pieceBytes);
    const offset = this.#place(lengthBytes);
    const { area, rkey } = target.registered;
    let settled = false;
    const check = (): void => {
      if (settled || target.forged) return;
      const whole = area.lost || holdsPattern(area.bytes, at, offset, lengthBytes);
      must(whole, 'placed', () => `a Write of ${lengthBytes} bytes is not in place`);
    };
    const succeed = (): void => {
      check();
      settled = true;
      target.give(at);
    };
    const wr: SendFields = {
      opcode: immediate === undefined ? WROpcode.rdmaWrite : WROpcode.rdmaWriteWithImm,
      sgList: this.#pieces(life, offset, lengthBytes),
      remoteAddr: area.address + at,
      rkey: window?.rkey ?? rkey,
      ...(immediate === undefined ? {} : { immData: immediate }),
    };
    if (immediate === undefined) return { wr, succeed };
    const message = {
      offset: 0,
      lengthBytes,
      immediate,
      invalidates: undefined,
      checkWrite: check,
    };
    return { wr, succeed, message };
  }

  #read(life: Life): Work | undefined {
    const { prng } = this.#world;
    const { peer, sink } = life;
    const at = peer === undefined ? undefined : sink.take();
    if (peer === undefined || at === undefined) return undefined;
    const lengthBytes = prng.length(sink.pieceBytes);
    const offset = this.#place(lengthBytes);
    const { area, lkey } = sink.registered;
    const { source } = peer.qp.program;
    const succeed = (): void => {
      const whole = holdsPattern(area.bytes, at, offset, lengthBytes);
      must(whole, 'placed', () => `a Read of ${lengthBytes} bytes succeeded without them`);
      sink.give(at);
    };
    const wr: SendFields = {
      opcode: WROpcode.rdmaRead,
      sgList: [{ addr: area.address + at, length: lengthBytes, lkey }],
      remoteAddr: source.area.address + offset,
      rkey: source.rkey,
    };
    return { wr, succeed };
  }

  /** Reads a word that the peer increases. */
  #readTick(life: Life): Work | undefined {
    const { peer, sink } = life;
    const at = peer === undefined ? undefined : sink.take();
    if (peer === undefined || at === undefined) return undefined;
    const { tick } = peer.qp.program;
    const before = wordAt(tick.area.bytes, 0);
    const { area, lkey } = sink.registered;
    const succeed = (): void => {
      const value = wordAt(area.bytes, at);
      const after = wordAt(tick.area.bytes, 0);
      must(value >= before && value <= after, 'moment', () => {
        return `read ${value}; it was ${before} at the post and is ${after}`;
      });
      sink.give(at);
    };
    const wr: SendFields = {
      opcode: WROpcode.rdmaRead,
      sgList: [{ addr: area.address + at, length: WORD_BYTES, lkey }],
      remoteAddr: tick.area.address,
      rkey: tick.rkey,
    };
    return { wr, succeed };
  }

  #atomic(life: Life, add: boolean): Work | undefined {
    const { prng } = this.#world;
    const { peer, sink } = life;
    const at = peer === undefined ? undefined : sink.take();
    if (peer === undefined || at === undefined) return undefined;
    const { counter } = peer;
    const before = counter.last;
    const operand = BigInt(1 + prng.next());
    const compare = prng.oneIn(2) ? before : before + 1n;
    const swapped = compare === before ? operand : before;
    const number = counter.post(add ? BigInt.asUintN(64, before + operand) : swapped);
    const { area, lkey } = sink.registered;
    const { area: words, rkey } = counter.registered;
    const succeed = (): void => {
      const original = wordAt(area.bytes, at);
      must(original === before, 'atomic', () => `an atomic found ${original}, not ${before}`);
      counter.succeed(number);
      sink.give(at);
    };
    const wr: SendFields = {
      opcode: add ? WROpcode.atomicFetchAndAdd : WROpcode.atomicCmpAndSwap,
      sgList: [{ addr: area.address + at, length: WORD_BYTES, lkey }],
      remoteAddr: words.address,
      rkey,
      compareAdd: add ? operand : compare,
      ...(add ? {} : { swap: operand }),
    };
    return { wr, succeed };
  }

  /** Adds 1 to a word of the peer's program, as other queue pairs do. */
  #addShared(life: Life): Work | undefined {
    const { peer, sink } = life;
    const at = peer === undefined ? undefined : sink.take();
    if (peer === undefined || at === undefined) return undefined;
    const { shared } = peer.qp.program;
    shared.post();
    const { area, lkey } = sink.registered;
    const succeed = (): void => {
      shared.succeed(wordAt(area.bytes, at));
      sink.give(at);
    };
    const wr: SendFields = {
      opcode: WROpcode.atomicFetchAndAdd,
      sgList: [{ addr: area.address + at, length: WORD_BYTES, lkey }],
      remoteAddr: shared.registered.area.address,
      rkey: shared.registered.rkey,
      compareAdd: 1n,
    };
    return { wr, succeed };
  }

  /** Work that ends the connection, whatever the network does. */
  #misuse(life: Life, kind: PacketKind): Work | undefined {
    const { prng, plan } = this.#world;
    const { peer, pair } = life;
    if (peer === undefined || pair === undefined || peer.qp.srq !== undefined) return undefined;
    const { area, rkey } = peer.target.registered;
    pair.excuse(kind);
    const write = { opcode: WROpcode.rdmaWrite, remoteAddr: area.address };
    switch (kind) {
      case 'badKey': {
        const wrong = (rkey ^ (1 << prng.below(32))) >>> 0;
        const succeed = (): void => must(false, 'window', 'a Write with a wrong key succeeded');
        return { wr: { ...write, sgList: this.#pieces(life, 0, 4), rkey: wrong }, succeed };
      }
      case 'noRight': {
        const { source } = peer.qp.program;
        const succeed = (): void => must(false, 'window', 'a Write without the right succeeded');
        if (!peer.rights) return { wr: { ...write, sgList: [], rkey }, succeed, signalled: true };
        const sgList = this.#pieces(life, 0, 4);
        return {
          wr: { ...write, sgList, remoteAddr: source.area.address, rkey: source.rkey },
          succeed,
        };
      }
      case 'tooLong': {
        const length = plan.messageBytes + 1;
        const message = plainMessage(length);
        return { wr: { opcode: WROpcode.send, sgList: this.#pieces(life, 0, length) }, message };
      }
      default: {
        const [piece] = this.#pieces(life, 0, 4);
        const sgList = [{ addr: 0, length: 4, lkey: (piece?.lkey ?? 0) ^ 0xff00 }];
        return { wr: { opcode: WROpcode.send, sgList }, message: plainMessage(4) };
      }
    }
  }

  #post(life: Life, work: Work, what: string): boolean {
    const { prng } = this.#world;
    const { qp } = life;
    if (life.sends.length >= qp.depth) return false;
    const signalled =
      life.sends.length === qp.depth - 1 || work.signalled === true || prng.oneIn(2);
    const flags =
      (work.wr.flags ?? 0) |
      (signalled ? SendFlag.signaled : 0) |
      (prng.oneIn(8) ? SendFlag.fence : 0);
    const wrId = this.#world.nextWrId();
    if (!qp.post({ ...work.wr, wrId, flags })) return false;
    let message: number | undefined;
    if (work.message !== undefined) message = life.messages.push(work.message) - 1;
    const succeed = work.succeed ?? NOTHING;
    const record: SendRecord = { queue: 'send', wrId, life, signalled, what, message, succeed };
    life.sends.push(record);
    this.#world.log?.(`  ${qp.program.name} posts ${wrId} to ${qp.name}: ${what}`);
    qp.program.records.set(wrId, record);
    return true;
  }

  // Windows

  /** Binds a type 2 window for the peer. */
  bind(life: Life): void {
    const { program } = life.qp;
    const { messageBytes } = this.#world.plan;
    const region = program.register(2 * messageBytes, ALL_ACCESS | Access.mwBind);
    const { mw, rkey } = program.call('allocMW', { pd: program.pd, type: 2 });
    const key = ((rkey & ~0xff) | ((rkey + 1) & 0xff)) >>> 0;
    const target = new Pieces(region, messageBytes);
    const window: PacketWindow = { mw, region, target, rkey: key, life, open: false };
    const wr: SendFields = {
      opcode: WROpcode.bindMW,
      bind: {
        rkey: key,
        lkey: region.lkey,
        addr: region.area.address,
        length: region.area.bytes.length,
        access: Access.remoteWrite | Access.remoteRead,
      },
    };
    const succeed = (): void => {
      window.open = !life.over;
    };
    if (this.#post(life, { wr, succeed, signalled: true }, 'bind')) program.windows.add(window);
    else {
      program.call('deallocMW', { mw });
      program.deregister(region);
    }
    life.qp.ring();
  }

  /** Writes through a window that is no longer open: the Write must not be placed. */
  stale(life: Life, { target, region, rkey }: PacketWindow): void {
    life.pair?.excuse('a stale window');
    const wr: SendFields = {
      opcode: WROpcode.rdmaWrite,
      sgList: this.#pieces(life, this.#place(WORD_BYTES), WORD_BYTES),
      remoteAddr: region.area.address,
      rkey,
    };
    const succeed = (): void => {
      must(false, 'window', 'a Write through a stale window succeeded');
      target.check();
    };
    this.#post(life, { wr, succeed, signalled: true }, 'a Write to a stale window');
    life.qp.ring();
  }

  /** An open window of the peer. */
  #openWindow({ peer }: Life): PacketWindow | undefined {
    if (peer === undefined) return undefined;
    for (const window of peer.qp.program.windows) {
      if (window.life === peer && window.open) return window;
    }
    return undefined;
  }

  // Unreliable messages and datagrams

  /** Sends a message over UC, or a datagram to `ah`, with a number by which its receiver knows it. */
  letter(life: Life, to: string, ud?: { readonly ah: number; readonly qpn: number }): boolean {
    const { prng } = this.#world;
    const { program } = life.qp;
    const { letters, domain } = program;
    const at = life.sends.length >= life.qp.depth ? undefined : letters.take();
    if (at === undefined) return false;
    const lengthBytes = prng.between(LETTER_HEAD_BYTES, letters.pieceBytes);
    const offset = this.#place(lengthBytes);
    const number = this.#world.nextWrId();
    const { area, lkey } = letters.registered;
    area.bytes.set(PATTERN.subarray(offset, offset + lengthBytes), at);
    new DataView(area.bytes.buffer, area.bytes.byteOffset).setUint32(at, number);
    const misdirected = ud !== undefined && prng.oneIn(20);
    this.#letters.set(number, { offset, lengthBytes, from: life, to, misdirected });
    const immediate = prng.oneIn(3) ? { immData: BigInt(number) } : undefined;
    const destination =
      ud === undefined
        ? {}
        : {
            ud: {
              ah: { pd: domain as PD, number: ud.ah },
              remoteQpNum: ud.qpn,
              remoteQkey: misdirected ? 1 : QKEY,
            },
          };
    const wr: SendFields = {
      opcode: immediate === undefined ? WROpcode.send : WROpcode.sendWithImm,
      sgList: [{ addr: area.address + at, length: lengthBytes, lkey }],
      ...immediate,
      ...destination,
    };
    const succeed = (): void => letters.give(at);
    const posted = this.#post(life, { wr, succeed }, `letter ${number} to ${to}`);
    if (!posted) letters.give(at);
    return posted;
  }

  /** Posts a Write over UC; sometimes one beyond the end of its target. */
  lossyWrite(life: Life, peer: Life): void {
    const { prng, plan } = this.#world;
    const { lossy: target } = peer;
    if (target === undefined || life.sends.length >= life.qp.depth) return;
    const { area, rkey } = target.registered;
    const { pieceBytes } = target;
    // Often several packets.
    const lengthBytes = prng.oneIn(2) ? prng.length(pieceBytes) : prng.between(1, pieceBytes);
    const offset = this.#place(lengthBytes);
    const beyond = lengthBytes > 0 && prng.oneIn(8);
    const write = beyond ? undefined : target.expect(offset, lengthBytes);
    if (!beyond && write === undefined) return;
    const at = write?.at ?? area.bytes.length - prng.below(lengthBytes);
    const number = this.#world.nextWrId();
    const immediate = prng.oneIn(2) ? { immData: BigInt(number) } : undefined;
    this.#writes.set(number, { to: peer, write });
    const wr: SendFields = {
      opcode: immediate === undefined ? WROpcode.rdmaWrite : WROpcode.rdmaWriteWithImm,
      sgList: this.#pieces(life, offset, lengthBytes),
      remoteAddr: area.address + at,
      rkey,
      ...immediate,
    };
    const { host } = life.qp.program;
    const within = peer.qp.program.host === host && peer.up && !plan.tiers.includes('agent');
    const succeed = (): void => {
      const loses = host.accounts.faulted || host.moved || !life.healthy;
      if (write !== undefined && within && !loses) write.sure = true;
    };
    const what = `Write ${number} of ${lengthBytes} bytes ${beyond ? 'beyond' : 'to'} its target`;
    this.#post(life, { wr, succeed }, what);
  }

  /** Checks the receive of a Write over UC. */
  #checkLossyWrite(life: Life, wc: WC): void {
    const number = Number(wc.immData);
    const posted = this.#writes.get(number);
    must(posted !== undefined, 'lossy', () => `Write ${number} was never posted`);
    const { to, write } = posted;
    must(write !== undefined, 'lossy', () => `Write ${number} is beyond its target`);
    must(
      wc.byteLen === write.lengthBytes,
      'lossy',
      () => `it is reported with ${wc.byteLen} bytes`,
    );
    // The key of one without data is not checked: it may be for the queue pair's last life.
    const mine = to === life || (write.lengthBytes === 0 && to.qp === life.qp);
    must(mine, 'lossy', () => `Write ${number} was posted to another queue pair`);
    if (to === life) life.lossy?.checkWhole(write);
  }

  /** Checks what arrived over UC, or a datagram. */
  checkLetter(life: Life, record: ReceiveRecord, wc: WC): void {
    if (wc.opcode === WCOpcode.recvImmediate) {
      this.#checkLossyWrite(life, wc);
      return;
    }
    const { area } = record.pieces.registered;
    const datagram = (wc.wcFlags & WCFlag.grh) !== 0;
    const head = datagram ? GRH_BYTES : 0;
    const fields = new DataView(area.bytes.buffer, area.bytes.byteOffset);
    const number = area.lost ? 0 : fields.getUint32(record.at + head);
    const letter = this.#letters.get(number);
    if (area.lost) return;
    must(letter !== undefined, 'datagram', () => `${number} was never sent`);
    const { offset, lengthBytes, from, to, misdirected } = letter;
    must(!misdirected, 'datagram', () => `letter ${number} with another key arrived`);
    must(wc.byteLen === lengthBytes + head, 'datagram', () => {
      return `${lengthBytes} bytes arrived as ${wc.byteLen}`;
    });
    const rest = lengthBytes - LETTER_HEAD_BYTES;
    const at = record.at + head + LETTER_HEAD_BYTES;
    const whole = holdsPattern(area.bytes, at, offset + LETTER_HEAD_BYTES, rest);
    must(whole, 'datagram', () => `letter ${number} has other bytes`);
    const immediate = (wc.wcFlags & WCFlag.withImm) !== 0 ? wc.immData : undefined;
    must(immediate === undefined || immediate === BigInt(number), 'datagram', 'immediate data');
    const mine = to === addressOf(life) || this.#world.isMember(life, to);
    must(mine, 'datagram', () => `letter ${number} to ${to} arrived at ${addressOf(life)}`);
    const named = !datagram || wc.srcQp === from.qp.qpn;
    must(named, 'datagram', () => `letter ${number} came from QP ${wc.srcQp}`);
  }

  #place(lengthBytes: number): number {
    return this.#world.prng.below(PATTERN_BYTES - lengthBytes);
  }

  #pieces(life: Life, offset: number, lengthBytes: number): SGE[] {
    const { area, lkey } = life.qp.program.source;
    const addr = area.address + offset;
    if (this.#world.prng.oneIn(2)) return [{ addr, length: lengthBytes, lkey }];
    const first = this.#world.prng.below(lengthBytes + 1);
    return [
      { addr, length: first, lkey },
      { addr: addr + first, length: lengthBytes - first, lkey },
    ];
  }
}

function plainMessage(lengthBytes: number): Message {
  return {
    offset: 0,
    lengthBytes,
    immediate: undefined,
    invalidates: undefined,
    checkWrite: undefined,
  };
}

/** Names a queue pair that receives datagrams. */
export function addressOf({ qp }: Life): string {
  return `${qp.program.host.index} ${qp.program.deviceName} ${qp.qpn}`;
}
