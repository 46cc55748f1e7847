/**
 * Copies that the agent of a process makes from registered memory of this process into memory of others, while
 * the daemon does other work. They are done in the order in which they were ordered.
 *
 * The daemon makes a copy itself if the agent could not, once all earlier ones are over; the agent stops after a
 * failure, so that no later copy overtakes it. A copy that has not begun can be cancelled. One that has begun
 * is over when the agent says so, or its process ends: until then, the memory that it writes to must not be
 * reused, and a program that takes it back gets no answer.
 */
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import type {
  Copier,
  CopyEnd,
  CopyTaker,
  Lender,
  LentMessage,
} from '#daemon/rnic/memory/memory-backing';
import { COPY_MAX_BYTES, COPY_ORDERS, type CopyRing } from './copy-ring.ts';
import type { CopyMaker, IncomingCopies } from './incoming-copies.ts';

/** Turns of the event loop without a result after which the daemon waits for a message. */
const EMPTY_LOOKS_MAX = 16;
/** Interval of checks that need no message: an agent may end, or be wrong. */
const CHECK_INTERVAL_MICROS: Micros = 10_000;
/** Checks without a result after which the daemon looks whether memory answers: a second. */
const EMPTY_CHECKS_MAX = 100;
/** Errors that the next copy would meet as well: the kernel forbids or lacks these copies. */
const FORBIDDEN: ReadonlySet<number> = new Set([1 /* EPERM */, 38 /* ENOSYS */]);

/** The event loop of the daemon. */
export interface CopyLoop {
  /** Calls back in the next turn. */
  soon(run: () => void): void;
  /** Calls back once the time has passed. */
  after(delayMicros: Micros, run: () => void): void;
  /** Handles all consequences of copies that are done. */
  drain(): void;
  /** Lets another thread have the core. */
  yieldCore(): void;
  /** Reads the clock: accesses to a process's memory look at the last reading. */
  readClock(): void;
}

/** Registered memory of a process. */
interface CopiedMemory {
  /** The number of its process. */
  readonly pid: number;
  /** Copies into memory of its process. */
  readonly incoming: IncomingCopies;
  readonly onReady: (() => void) | undefined;
  /** Where the process has the byte at `offset`. */
  addressOf(offset: number): number;
  read(offset: number, length: number, target: Uint8Array, start: number): boolean;
  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean;
  /**
   * Reads a byte of each page; a process whose memory does not answer is ended, as in any access. Returns false if
   * a page is not there.
   */
  touch(address: number, length: number): boolean;
  /** Kills the process that has the memory. */
  endProcess(): void;
  /** `maker` will copy something into this memory. */
  copyOrdered(maker: CopyMaker): void;
  /** One such copy is over. */
  copyDone(): void;
}

/** The process whose memory is read. */
interface CopySource {
  /** Its agent is connected. */
  readonly agentOpen: boolean;
  /** The thread that copies has ended. */
  readonly ended: boolean;
  /** It sleeps while it copies. */
  readonly asleep: boolean;
  /** Wakes its agent. */
  wake(): void;
  /** No copy is left, and none will be ordered: releases what the copies needed. */
  release(): void;
}

/** A copy, as it is ordered. */
interface CopyOrder {
  readonly source: CopiedMemory;
  readonly sourceOffset: number;
  readonly target: CopiedMemory;
  readonly targetOffset: number;
  readonly length: number;
  readonly taker: CopyTaker;
  readonly lender: Lender;
  readonly message: LentMessage;
}

/** How far a copy is. */
type Stage =
  /** Not posted yet. */
  | 'waiting'
  /** In the ring; the agent may have begun it. */
  | 'posted'
  /** The daemon makes it, in its turn. */
  | 'own'
  | CopyEnd;

/** For copies that the daemon makes; allocated with the first. */
let scratch = new Uint8Array(0);

/** Assigned one by one: objects made by spreading another cost more than the copy itself. */
class Copy implements CopyOrder {
  readonly source: CopiedMemory;
  readonly sourceOffset: number;
  readonly target: CopiedMemory;
  readonly targetOffset: number;
  readonly length: number;
  readonly taker: CopyTaker;
  readonly lender: Lender;
  readonly message: LentMessage;
  stage: Stage = 'waiting';
  /** Place in the ring, and the addresses there. */
  slot = 0;
  from = 0;
  to = 0;
  /** It has begun, and its memory is no longer registered: it is not made again if it fails. */
  revoked = false;
  /** The program that receives, or the one that sends, waits until it is over. */
  receiverWaits = false;
  senderWaits = false;

  constructor(order: CopyOrder) {
    this.source = order.source;
    this.sourceOffset = order.sourceOffset;
    this.target = order.target;
    this.targetOffset = order.targetOffset;
    this.length = order.length;
    this.taker = order.taker;
    this.lender = order.lender;
    this.message = order.message;
  }
}

export class DirectCopies implements Copier, CopyMaker {
  readonly #ring: CopyRing;
  readonly #loop: CopyLoop;
  readonly #source: CopySource;
  /** Copies that are not done, oldest first. */
  readonly #copies: Copy[] = [];
  /** The copies in the ring from slot `#first` on, cancelled ones included, in the order of their slots. */
  readonly #slots: Copy[] = [];
  #first = 0;
  /** Copies before this one are not to be posted any more. */
  #next = 0;
  #served = false;
  #forbidden = false;
  #closed = false;
  #released = false;
  #watching = false;
  #checking = false;
  #emptyLooks = 0;
  #emptyChecks = 0;
  /** The agent has slept in this copy for a while. */
  #sleeping: Copy | undefined = undefined;
  #advancing = false;
  /** Whom to call after copies are over. */
  readonly #ready = new Set<() => void>();
  /** Processes that copies were made into. */
  readonly #targets = new Set<IncomingCopies>();

  constructor(ring: CopyRing, loop: CopyLoop, source: CopySource) {
    this.#ring = ring;
    this.#loop = loop;
    this.#source = source;
  }

  /** True if the agent may be given orders. */
  get usable(): boolean {
    // The process can write anything there, but it cannot take back that it serves the ring.
    this.#served ||= this.#ring.served;
    return this.#served && !this.#forbidden && !this.#closed && this.#source.agentOpen;
  }

  /** Copies that are not over. */
  get count(): number {
    return this.#copies.length;
  }

  /** Orders a copy of at most `COPY_MAX_BYTES`. Its taker is told later. */
  add(order: CopyOrder): void {
    assert(order.length <= COPY_MAX_BYTES, 'copy too long');
    order.target.copyOrdered(this);
    this.#targets.add(order.target.incoming);
    this.#copies.push(new Copy(order));
    this.#post();
    this.#watch();
  }

  hasten(lender: Lender): void {
    this.#takeBackTo(this.#copies.findLastIndex((copy) => copy.lender === lender));
    for (const copy of this.#copies) if (copy.lender === lender) awaitBySender(copy);
    this.#watch();
  }

  conclude(taker: CopyTaker): void {
    this.#takeBackTo(this.#copies.findLastIndex((copy) => copy.taker === taker));
    for (const copy of this.#copies) if (copy.taker === taker) awaitByReceiver(copy);
    this.#watch();
  }

  abandon(taker: CopyTaker): void {
    this.#drop((copy) => copy.taker === taker);
  }

  /** Memory of this backing is no longer registered. */
  dropInto(target: object): void {
    this.#drop((copy) => copy.target === target);
  }

  /** The process with this memory has ended. */
  dropAllInto(process: IncomingCopies): void {
    this.#drop((copy) => copy.target.incoming === process);
    process.forget(this);
    this.#targets.delete(process);
  }

  /** The process has moved memory of this backing: copies that have not begun use its new place. */
  follow(moved: object): void {
    const uses = (copy: Copy): boolean => copy.source === moved || copy.target === moved;
    const first = this.#copies.findIndex(uses);
    if (first < 0) return;
    // Later ones must not be made before them.
    this.#takeBack((_, index) => index >= first);
    for (const copy of this.#copies) {
      if (copy.target === moved && copy.stage === 'posted') awaitByReceiver(copy);
    }
    this.#watch();
  }

  /** The agent has sent a message. */
  handleCopied(): void {
    this.collect();
    this.#watch();
  }

  /** The agent's connection has closed: the daemon makes the copies that it has not begun. */
  handleClosed(): void {
    this.#retake();
    this.collect();
    this.#watch();
  }

  /** The process's memory is no longer accessible. */
  close(): void {
    this.#closed = true;
    this.#retake();
    this.collect();
    this.#releaseUnused();
  }

  /** Takes note of copies that are over, and posts others. Returns true if any copy is. */
  collect(): boolean {
    if (this.#advancing) return false;
    this.#advancing = true;
    this.#sweep();
    const ready = this.#ready;
    let done = 0;
    for (; done < this.#copies.length; done += 1) {
      const copy = this.#copies[done] as Copy;
      if (copy.stage === 'waiting' && !this.usable) copy.stage = 'own';
      if (copy.stage === 'own') {
        this.#loop.readClock();
        copy.stage = carryOut(copy);
        if (copy.stage === 'unread') this.#leaveOut(copy);
      }
      if (copy.stage === 'waiting' || copy.stage === 'posted') break;
      finish(copy, copy.stage);
      if (copy.target.onReady !== undefined) ready.add(copy.target.onReady);
      if (copy.source.onReady !== undefined) ready.add(copy.source.onReady);
    }
    if (done > 0) {
      this.#copies.splice(0, done);
      this.#emptyChecks = 0;
      this.#sleeping = undefined;
    }
    this.#next = Math.max(0, this.#next - done);
    this.#advancing = false;
    this.#post();
    if (done === 0) return false;
    const calls = [...ready];
    ready.clear();
    for (const run of calls) run();
    this.#loop.drain();
    this.#releaseUnused();
    return true;
  }

  /** Nothing of the same connection arrives after what could not be read. */
  #leaveOut({ taker }: Copy): void {
    for (const copy of this.#copies) {
      if (copy.taker === taker && (copy.stage === 'own' || copy.stage === 'waiting'))
        copy.stage = 'unread';
    }
  }

  /** Throws `InvariantError` if its counts are wrong. */
  assertInvariants(): void {
    assert(this.#slots.length <= COPY_ORDERS, 'more orders than slots');
    for (const { stage } of this.#copies) {
      assert(stage !== 'posted' || this.#slots.length > 0, 'posted copy without a slot');
    }
  }

  /** Frees the slots of orders that the agent has carried out or passed. */
  #sweep(): void {
    const ring = this.#ring;
    for (let copy = this.#slots[0]; copy !== undefined; copy = this.#slots[0]) {
      if (!ring.isDone(this.#first)) break;
      const error = ring.errorOf(this.#first);
      if (copy.stage === 'posted') this.#handleResult(copy, error);
      ring.free(this.#first);
      this.#first = (this.#first + 1) % COPY_ORDERS;
      this.#slots.shift();
      if (error !== 0 && ring.takeIdle()) this.#source.wake();
    }
  }

  #handleResult(copy: Copy, error: number): void {
    copy.stage = error === 0 ? 'placed' : copy.revoked ? 'lost' : 'own';
    if (error === 0) return;
    if (FORBIDDEN.has(error)) this.#forbidden = true;
    // The agent waits until this slot is free. What follows waits until the daemon has made this copy.
    this.#retake();
  }

  /** A process that has ended copies no more. */
  #bury(): void {
    if (this.#slots.length === 0 || !this.#source.ended) return;
    this.#closed = true;
    for (const copy of this.#slots.splice(0)) {
      if (copy.stage === 'posted') copy.stage = copy.revoked ? 'lost' : 'own';
    }
  }

  #releaseUnused(): void {
    if (!this.#closed || this.#copies.length > 0 || this.#released) return;
    this.#released = true;
    for (const process of this.#targets) process.forget(this);
    this.#targets.clear();
    this.#ring.release();
    this.#source.release();
  }

  /** Leaves everything that has not begun to the daemon. */
  #retake(): void {
    this.#takeBack(() => true);
  }

  /** Leaves copies up to this one to the daemon, with all before it, which it would wait for. */
  #takeBackTo(last: number): void {
    this.#takeBack((_, index) => index <= last);
  }

  /** Leaves the meant copies that have not begun to the daemon. */
  #takeBack(isMeant: (copy: Copy, index: number) => boolean): void {
    const meant = this.#copies.filter(isMeant);
    // The newest first: the agent begins whatever follows one that is taken.
    for (const copy of meant.reverse()) if (this.#take(copy)) copy.stage = 'own';
    // What is ordered later must not overtake them either.
    const own = this.#copies.findIndex(({ stage }) => stage === 'own');
    if (own >= 0) this.#next = Math.min(this.#next, own);
  }

  /** True if the copy has not begun, and the agent will never begin it. */
  #take(copy: Copy): boolean {
    if (copy.stage === 'waiting' || copy.stage === 'own') return true;
    return copy.stage === 'posted' && this.#ring.cancel(copy.slot);
  }

  #drop(isMeant: (copy: Copy) => boolean): void {
    this.#sweep();
    for (const copy of this.#copies.filter(isMeant).reverse()) {
      if (this.#take(copy)) copy.stage = 'lost';
      else if (copy.stage === 'posted') {
        copy.revoked = true;
        awaitByReceiver(copy);
      }
    }
    this.#watch();
  }

  #post(): void {
    if (!this.usable) return;
    const ring = this.#ring;
    let posted = false;
    for (; this.#next < this.#copies.length; this.#next += 1) {
      const copy = this.#copies[this.#next] as Copy;
      if (copy.stage === 'own' || this.#slots.length === COPY_ORDERS) break;
      if (copy.stage !== 'waiting') continue;
      copy.slot = (this.#first + this.#slots.length) % COPY_ORDERS;
      const { target } = copy;
      copy.from = copy.source.addressOf(copy.sourceOffset);
      copy.to = target.addressOf(copy.targetOffset);
      ring.post(copy.slot, copy.from, target.pid, copy.to, copy.length);
      copy.stage = 'posted';
      this.#slots.push(copy);
      posted = true;
    }
    if (posted && ring.takeIdle()) this.#source.wake();
  }

  /** Looks for results in the next turns; later, the agent says so. */
  #watch(): void {
    this.#emptyLooks = 0;
    if (this.#watching || this.#copies.length === 0) return;
    this.#watching = true;
    this.#ring.awaitNone();
    this.#loop.soon(this.#look);
  }

  readonly #look = (): void => {
    if (this.collect()) this.#emptyLooks = 0;
    else this.#emptyLooks += 1;
    if (this.#copies.length > 0 && this.#emptyLooks < EMPTY_LOOKS_MAX) {
      this.#loop.soon(this.#look);
      if (this.#emptyLooks > 0) this.#loop.yieldCore();
      return;
    }
    this.#watching = false;
    if (this.#copies.length === 0) return;
    this.#ring.awaitNext();
    if (this.#ring.isDone(this.#first)) this.#watch();
    else this.#checkLater();
  };

  #checkLater(): void {
    if (this.#checking) return;
    this.#checking = true;
    this.#loop.after(CHECK_INTERVAL_MICROS, this.#check);
  }

  readonly #check = (): void => {
    this.#checking = false;
    if (this.#watching || this.#copies.length === 0) return;
    this.#bury();
    this.collect();
    this.#emptyChecks += 1;
    if (this.#emptyChecks === EMPTY_CHECKS_MAX) this.#touch();
    if (this.#copies.length > 0) this.#checkLater();
  };

  /** Finds out whose memory the agent waits for, if it does: one process must not hold up all that another sends. */
  #touch(): void {
    this.#emptyChecks = 0;
    const copy = this.#slots[0];
    if (copy?.stage !== 'posted') return;
    this.#loop.readClock();
    const { source, target, length } = copy;
    const readable = source.touch(copy.from, length);
    const writable = target.touch(copy.to, length);
    const { asleep } = this.#source;
    if (asleep && this.#sleeping === copy) {
      // A process has unmapped what the agent still waits for. If neither has, the agent itself is held up.
      if (!readable) source.endProcess();
      else if (!writable) target.endProcess();
    }
    this.#sleeping = asleep ? copy : undefined;
  }
}

function awaitByReceiver(copy: Copy): void {
  if (isOver(copy)) return;
  copy.target.incoming.concerned += 1;
  if (copy.receiverWaits) return;
  copy.receiverWaits = true;
  copy.target.incoming.beginEnding();
}

function awaitBySender(copy: Copy): void {
  if (isOver(copy)) return;
  copy.source.incoming.concerned += 1;
  if (copy.senderWaits) return;
  copy.senderWaits = true;
  copy.source.incoming.beginEnding();
}

/** True if nothing is written any more. */
function isOver({ stage }: Copy): boolean {
  return stage === 'placed' || stage === 'lost' || stage === 'unread';
}

/** Makes a copy by way of the daemon. */
function carryOut({ source, sourceOffset, target, targetOffset, length }: Copy): CopyEnd {
  if (scratch.length === 0) scratch = new Uint8Array(COPY_MAX_BYTES);
  if (!source.read(sourceOffset, length, scratch, 0)) return 'unread';
  return target.write(targetOffset, scratch, 0, length) ? 'placed' : 'lost';
}

function finish(copy: Copy, end: CopyEnd): void {
  const { source, target, length, lender, message, taker } = copy;
  target.copyDone();
  if (end === 'unread') lender.lendingFailed(message);
  lender.returned(message, length);
  taker.copied(end);
  if (copy.receiverWaits) target.incoming.endEnding();
  if (copy.senderWaits) source.incoming.endEnding();
}
