/**
 * The completion queue: writes CQEs to the shared ring and fires the notification.
 *
 * The ring's writer knows the layout and what the client waits for. The queue disarms the ring
 * before it fires, so each arming fires once.
 */
import { assert } from '#base/assert';
import { Notify } from '#contract/protocol/queue-layout';
import { AsyncEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { AsyncEffect, EffectSink } from '../effect-sink.ts';
import { type NicFaults, noNicFaults } from '../nic-faults.ts';
import type {
  CompletionRecord,
  CompletionWriter,
  UntakenCompletions,
} from '../rings/completion-writer.ts';
import type { RingKind } from '../rings/ring.ts';
import { WorkWatch } from './work-watch.ts';

export interface CQInit {
  /** Requested entries; rounded up. */
  readonly cqe: number;
  /** Default: 'flags'. */
  readonly kind?: RingKind;
  /** Supplies the ring's memory: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  /** Belongs to the host; the NIC does not look at it. */
  readonly tag: unknown;
}

export type CQEffect =
  /** An armed CQ fired; its tag tells the host which client it belongs to. */
  { readonly type: 'completion'; readonly cq: CQ } | AsyncEffect<CQ>;

interface CQOptions {
  readonly writer: CompletionWriter;
  readonly tag: unknown;
  readonly faults?: NicFaults;
  readonly watch?: WorkWatch;
  /** Raise an event for every loss, as rxe does, instead of one for each series of losses. */
  readonly reportsEachLoss?: boolean;
}

export class CQ {
  tag: unknown;
  /** Queue pairs that complete to it. */
  users = 0;
  closed = false;
  /** Set by the owner: the program has given it a completion channel. */
  hasChannel = false;
  /** CQEs written, and CQEs lost because the ring was full. */
  written = 0;
  lost = 0;
  readonly #writer: CompletionWriter;
  readonly #effects: EffectSink<CQEffect>;
  readonly #fired: CQEffect;
  readonly #onClose: () => void;
  readonly #faults: NicFaults;
  readonly #watch: WorkWatch;
  readonly #reportsEachLoss: boolean;
  #overflowing = false;
  #wasArmed = false;
  /** `written` when the queue last fired. */
  #firedAt = 0;
  /** `written` after the last CQE that fires a queue armed for solicited events. */
  #solicitedAt = Number.NEGATIVE_INFINITY;

  /** `onClose` releases the device's slot. */
  constructor(options: CQOptions, effects: EffectSink<CQEffect>, onClose: () => void) {
    const { writer, faults = noNicFaults(), watch = new WorkWatch() } = options;
    this.#writer = writer;
    this.tag = options.tag;
    this.#effects = effects;
    this.#onClose = onClose;
    this.#faults = faults;
    this.#watch = watch;
    this.#reportsEachLoss = options.reportsEachLoss ?? false;
    this.#fired = { type: 'completion', cq: this };
  }

  /** Entries that fit, at least as many as the client asked for. */
  get count(): number {
    return this.#writer.count;
  }

  get ring(): Uint8Array {
    return this.#writer.bytes;
  }

  /**
   * Writes one completion. If the ring is full, the completion is lost, the CQ raises `cqErr` (once
   * until an entry fits again, unless `reportsEachLoss`) and the result is false. The queue pairs
   * decide whether they continue.
   */
  push(completion: CompletionRecord): boolean {
    if (this.closed) return true;
    if (this.#faults.overrun?.(completion.qpn) === true) {
      this.#overflow('injected fault');
      return false;
    }
    const writer = this.#writer;
    if (!writer.write(completion)) {
      this.#overflow(`all ${this.count} entries are taken`);
      return false;
    }
    this.#overflowing = false;
    this.written += 1;
    const watch = this.#watch;
    if (watch.observer !== undefined) {
      watch.reportCompletion(completion);
    }
    const solicited = completion.solicited || completion.status !== 0;
    if (solicited) this.#solicitedAt = this.written;
    const armed = writer.armed();
    if (armed !== Notify.none) {
      this.#wasArmed = true;
      this.#fire(armed, solicited);
    }
    return true;
  }

  /** Requests one notification on a ring that the client may arm by command; EOPNOTSUPP on others. */
  arm(solicitedOnly: boolean): void {
    const writer = this.#writer;
    if (writer.arm === undefined) throw new VerbsError('EOPNOTSUPP', 'the client arms the queue');
    writer.arm(solicitedOnly);
    this.#wasArmed = true;
  }

  /**
   * The client has armed the queue in its ring, when `seen` completions were shown, and then found more: fires
   * if one of these matches and the queue has not fired for it.
   */
  checkArmed(seen: number): void {
    const writer = this.#writer;
    // It was armed after it fired, if it has.
    const since = Math.min(writer.writtenSince?.(seen) ?? 0, this.written - this.#firedAt);
    if (since > 0) this.#fire(writer.armed(), this.written - this.#solicitedAt < since);
  }

  /**
   * Moves to a new ring; EOPNOTSUPP if this kind of ring does not support that. Completions that
   * the client has not taken come first. EINVAL, without a change, when there are more than `cqe`.
   */
  resize(cqe: number, memory: (bytes: number) => Uint8Array): void {
    const writer = this.#writer;
    if (writer.resize === undefined) {
      throw new VerbsError('EOPNOTSUPP', 'a completion queue of an iWARP device keeps its size');
    }
    writer.resize(cqe, memory);
  }

  #fire(armed: number, solicited: boolean): void {
    // RDMAP-5.3-06: a queue armed for solicited events ignores plain Sends.
    const wanted = (armed & Notify.any) !== 0 || ((armed & Notify.solicited) !== 0 && solicited);
    if (!wanted) return;
    this.#wasArmed = true;
    this.#firedAt = this.written;
    this.#writer.disarm();
    this.#effects.push(this.#fired);
  }

  /** The client has asked for a notification at least once. */
  get wasArmed(): boolean {
    return this.#wasArmed || this.#writer.armed() !== Notify.none;
  }

  /** Counts the completions that the client has not taken. */
  untaken(): UntakenCompletions {
    return this.#writer.untaken();
  }

  /** Counts completions as lost after one found the queue full. */
  lose(count: number): void {
    this.lost += count;
  }

  #overflow(why: string): void {
    // SEC-6.4.6-01: the loss stays with this queue and does not affect others.
    this.lost += 1;
    if (this.#overflowing && !this.#reportsEachLoss) return;
    this.#overflowing = true;
    this.#effects.push({
      type: 'async',
      event: AsyncEventType.cqErr,
      object: this,
      text: `completion queue overflow: ${why}, completions are lost`,
    });
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.users >= 0, 'CQ: users < 0');
    assert(!this.closed || this.users === 0, 'closed CQ has users');
  }

  /** EBUSY while a queue pair uses it; a second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.users > 0) {
      throw new VerbsError('EBUSY', 'queue pairs still complete to the queue: destroy them first');
    }
    this.closed = true;
    this.#onClose();
  }
}
