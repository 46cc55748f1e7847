/**
 * The completion queue: writes CQEs into the shared ring and fires the notification.
 *
 * An entry is free when its flags octet is 0. The body is written first, the flags with VALID
 * last. The client arms the queue through the notify word behind the ring; the device stores 0
 * there before it fires, so each arming fires once. In the word behind it the device keeps the number
 * of CQEs that it has written, for whoever has to go on should this process end all of a sudden.
 */
import { AsyncEventType } from '../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import {
  CQE,
  CQE_BYTES,
  type CQEStatus,
  Notify,
  QueueFlag,
} from '../../verbs-api/contract/queue-layout.ts';
import type { EffectQueue, NicEffect } from './effect.ts';
import { type NicFaults, noNicFaults } from './nic-faults.ts';
import { WorkWatch } from './work-watch.ts';

/** Options of a completion queue. */
export interface CQInit {
  /** Entries wanted; rounded up to a power of two. */
  readonly cqe: number;
  /** Supplies the ring's memory: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  /** The host's own; the NIC only carries it. */
  readonly tag: unknown;
}

/** A completion queue. */
export class CQ {
  /** Entries it holds, a power of two. */
  readonly count: number;
  readonly ring: Uint8Array;
  tag: unknown;
  /** Queue pairs that complete to it. */
  users = 0;
  closed = false;
  /** CQEs written, and those lost because the client was too slow. */
  written = 0;
  lost = 0;
  private readonly view: DataView;
  private readonly notify: Int32Array;
  private readonly mask: number;
  private readonly effects: EffectQueue;
  private readonly fired: NicEffect;
  private readonly onClose: () => void;
  private readonly faults: NicFaults;
  private readonly watch: WorkWatch;
  private tail = 0;
  private overflowing = false;

  /** `ring` has `cqBytes(count)` octets; `onClose` gives the device's slot back. */
  constructor(
    ring: Uint8Array,
    count: number,
    tag: unknown,
    effects: EffectQueue,
    onClose: () => void,
    faults: NicFaults = noNicFaults(),
    watch: WorkWatch = new WorkWatch(),
  ) {
    this.ring = ring;
    this.count = count;
    this.tag = tag;
    this.effects = effects;
    this.onClose = onClose;
    this.faults = faults;
    this.watch = watch;
    this.mask = count - 1;
    this.view = new DataView(ring.buffer, ring.byteOffset, ring.byteLength);
    this.notify = new Int32Array(ring.buffer, ring.byteOffset + count * CQE_BYTES, 2);
    this.fired = { type: 'completion', cq: this };
  }

  /**
   * Writes one completion. `flags` are bits of `QueueFlag` beside VALID; `solicited` is whether a
   * queue armed for solicited events fires. When the ring is full the completion is lost and
   * `cqErr` is raised, once until an entry fits again; the queue pairs go on.
   */
  push(
    wrIdLo: number,
    wrIdHi: number,
    opcode: number,
    status: CQEStatus,
    bytes: number,
    qpn: number,
    flags: number,
    immediateHi: number,
    immediateLo: number,
    solicited: boolean,
  ): void {
    if (this.closed) return;
    if (this.faults.overrun?.(qpn) === true) {
      this.overflow('as a fault has it');
      return;
    }
    const position = (this.tail & this.mask) * CQE_BYTES;
    if (Atomics.load(this.ring, position + CQE.flags) !== 0) {
      this.overflow(`all ${this.count} entries are taken`);
      return;
    }
    this.overflowing = false;
    const { view } = this;
    view.setUint32(position + CQE.wrId, wrIdLo, true);
    view.setUint32(position + CQE.wrId + 4, wrIdHi, true);
    view.setUint8(position + CQE.opcode, opcode);
    view.setUint16(position + CQE.status, status, true);
    view.setUint32(position + CQE.bytes, bytes, true);
    view.setUint32(position + CQE.immediate, immediateLo, true);
    view.setUint32(position + CQE.immediate + 4, immediateHi, true);
    view.setUint32(position + CQE.qpn, qpn, true);
    view.setUint32(position + CQE.qpn + 4, 0, true);
    Atomics.store(this.ring, position + CQE.flags, flags | QueueFlag.valid);
    this.tail = (this.tail + 1) >>> 0;
    this.notify[1] = this.tail;
    this.written += 1;
    const { watch } = this;
    if (watch.observer !== undefined) {
      watch.tellCompletion(
        wrIdLo,
        wrIdHi,
        opcode,
        status,
        bytes,
        qpn,
        flags,
        immediateHi,
        immediateLo,
      );
    }
    const armed = Atomics.load(this.notify, 0);
    if (armed !== Notify.none) this.fire(armed, solicited || status !== 0);
  }

  private fire(armed: number, solicited: boolean): void {
    // RDMAP-5.3-06: a queue armed for solicited events ignores plain Sends.
    const wanted = (armed & Notify.any) !== 0 || ((armed & Notify.solicited) !== 0 && solicited);
    if (!wanted) return;
    Atomics.store(this.notify, 0, Notify.none);
    this.effects.push(this.fired);
  }

  private overflow(why: string): void {
    // SEC-6.4.6-01: the loss stays with this queue; other queues do not notice.
    this.lost += 1;
    if (this.overflowing) return;
    this.overflowing = true;
    this.effects.push({
      type: 'async',
      event: AsyncEventType.cqErr,
      element: this,
      text: `completion queue overflow: ${why}, completions are lost`,
    });
  }

  /** EBUSY while a queue pair uses it; the second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.users > 0) {
      throw new VerbsError('EBUSY', 'queue pairs still complete to the queue');
    }
    this.closed = true;
    this.onClose();
  }
}
