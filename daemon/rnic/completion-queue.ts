/**
 * The completion queue: writes CQEs into the shared ring and fires the notification.
 *
 * An entry is free when its flags byte is 0. The body is written first, the flags with VALID last.
 * The client arms the queue through the notify word behind the ring; the device stores 0 there
 * before it fires, so each arming fires once. The next word counts the CQEs written, so the preload
 * library can complete outstanding work if the daemon dies.
 */

import {
  CQE,
  CQE_BYTES,
  CQEStatus,
  Notify,
  QueueFlag,
} from '../../verbs-api/contract/protocol/queue-layout.ts';
import type { CompletedWork } from '../../verbs-api/contract/protocol/work-records.ts';
import { AsyncEventType } from '../../verbs-api/contract/verbs/enums.ts';
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../invariants/assert.ts';
import type { AsyncEffect, EffectSink } from './effect-sink.ts';
import { type NicFaults, noNicFaults } from './nic-faults.ts';
import { WorkWatch } from './work-watch.ts';

/** Options of a completion queue. */
export interface CQInit {
  /** Requested entries; rounded up to a power of two. */
  readonly cqe: number;
  /** Supplies the ring's memory: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  /** Belongs to the host; the NIC does not look at it. */
  readonly tag: unknown;
}

/** Effects of a CQ. */
export type CQEffect =
  /** An armed CQ fired; its tag tells the host which client it belongs to. */
  { readonly type: 'completion'; readonly cq: CQ } | AsyncEffect<CQ>;

/** Options of the constructor. */
interface CQOptions {
  /** `cqBytes(count)` bytes, shared with the client. */
  readonly ring: Uint8Array;
  readonly count: number;
  readonly tag: unknown;
  readonly faults?: NicFaults;
  readonly watch?: WorkWatch;
}

/** A completion to write. Callers reuse one. */
export class Completion implements CompletedWork {
  qpn = 0;
  opcode = 0;
  status: CQEStatus = CQEStatus.success;
  /** Bits of `QueueFlag` beside VALID. */
  flags = 0;
  wrIdHi = 0;
  wrIdLo = 0;
  lengthBytes = 0;
  immediateHi = 0;
  immediateLo = 0;
  /** True: a queue armed for solicited events fires. */
  solicited = false;
}

/** A completion queue. */
export class CQ {
  /** Number of entries, a power of two. */
  readonly count: number;
  readonly ring: Uint8Array;
  tag: unknown;
  /** Queue pairs that complete to it. */
  users = 0;
  closed = false;
  /** CQEs written, and CQEs lost because the client was too slow. */
  written = 0;
  lost = 0;
  readonly #view: DataView;
  readonly #notify: Int32Array;
  readonly #mask: number;
  readonly #effects: EffectSink<CQEffect>;
  readonly #fired: CQEffect;
  readonly #onClose: () => void;
  readonly #faults: NicFaults;
  readonly #watch: WorkWatch;
  #tail = 0;
  #overflowing = false;

  /** `onClose` releases the device's slot. */
  constructor(options: CQOptions, effects: EffectSink<CQEffect>, onClose: () => void) {
    const { ring, count, faults = noNicFaults(), watch = new WorkWatch() } = options;
    this.ring = ring;
    this.count = count;
    this.tag = options.tag;
    this.#effects = effects;
    this.#onClose = onClose;
    this.#faults = faults;
    this.#watch = watch;
    this.#mask = count - 1;
    this.#view = new DataView(ring.buffer, ring.byteOffset, ring.byteLength);
    this.#notify = new Int32Array(ring.buffer, ring.byteOffset + count * CQE_BYTES, 2);
    this.#fired = { type: 'completion', cq: this };
  }

  /**
   * Writes one completion. When the ring is full the completion is lost and the CQ raises `cqErr`,
   * once until an entry fits again. The queue pairs continue.
   */
  push(completion: Completion): void {
    if (this.closed) return;
    if (this.#faults.overrun?.(completion.qpn) === true) {
      this.#overflow('injected fault');
      return;
    }
    const position = (this.#tail & this.#mask) * CQE_BYTES;
    if (Atomics.load(this.ring, position + CQE.flags) !== 0) {
      this.#overflow(`all ${this.count} entries are taken`);
      return;
    }
    this.#overflowing = false;
    const view = this.#view;
    const { wrIdLo, wrIdHi, opcode, status, lengthBytes } = completion;
    const { qpn, flags, immediateHi, immediateLo, solicited } = completion;
    view.setUint32(position + CQE.wrId, wrIdLo, true);
    view.setUint32(position + CQE.wrId + 4, wrIdHi, true);
    view.setUint8(position + CQE.opcode, opcode);
    view.setUint16(position + CQE.status, status, true);
    view.setUint32(position + CQE.bytes, lengthBytes, true);
    view.setUint32(position + CQE.immediate, immediateLo, true);
    view.setUint32(position + CQE.immediate + 4, immediateHi, true);
    view.setUint32(position + CQE.qpn, qpn, true);
    view.setUint32(position + CQE.qpn + 4, 0, true);
    Atomics.store(this.ring, position + CQE.flags, flags | QueueFlag.valid);
    this.#tail = (this.#tail + 1) >>> 0;
    this.#notify[1] = this.#tail;
    this.written += 1;
    const watch = this.#watch;
    if (watch.observer !== undefined) {
      watch.tellCompletion(completion);
    }
    const armed = Atomics.load(this.#notify, 0);
    if (armed !== Notify.none) this.#fire(armed, solicited || status !== 0);
  }

  #fire(armed: number, solicited: boolean): void {
    // RDMAP-5.3-06: a queue armed for solicited events ignores plain Sends.
    const wanted = (armed & Notify.any) !== 0 || ((armed & Notify.solicited) !== 0 && solicited);
    if (!wanted) return;
    Atomics.store(this.#notify, 0, Notify.none);
    this.#effects.push(this.#fired);
  }

  #overflow(why: string): void {
    // SEC-6.4.6-01: the loss stays with this queue and does not affect others.
    this.lost += 1;
    if (this.#overflowing) return;
    this.#overflowing = true;
    this.#effects.push({
      type: 'async',
      event: AsyncEventType.cqErr,
      element: this,
      text: `completion queue overflow: ${why}, completions are lost`,
    });
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.users >= 0, 'the users of a CQ are not negative');
    assert(!this.closed || this.users === 0, 'no one uses a closed CQ');
  }

  /** EBUSY while a queue pair uses it; a second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.users > 0) {
      throw new VerbsError('EBUSY', 'queue pairs still complete to the queue');
    }
    this.closed = true;
    this.#onClose();
  }
}
