/**
 * The receive side of a queue pair: takes the next receive from its own ring or from the shared
 * one, and scatters the message into it.
 */
import { assert } from '#base/assert';
import { type Cause, NO_RECEIVE, NO_SHARED_RECEIVE, refusedSGE } from '../failure-cause.ts';
import type { PD } from '../memory/protection-domain.ts';
import type { StagTable } from '../memory/stag-table.ts';
import type { QPLayout } from '../queue-pair-init.ts';
import { type ReceiveFormat, receiveFormat } from '../rings/queue-format.ts';
import type { WorkRing } from '../rings/ring.ts';
import { ScatterList, type WriteNotes } from '../rings/scatter-list.ts';
import { AccessRefusal } from '../wire-port.ts';
import type { SRQ } from './shared-receive-queue.ts';
import type { WorkWatch } from './work-watch.ts';

/** Both kinds of rings start with the id. */
const WR_ID = 0;

export class ReceiveQueue {
  /** True from the message's first segment to its completion. */
  active = false;
  /** The active receive's work request id. */
  wrIdLo = 0;
  wrIdHi = 0;
  readonly #own: WorkRing;
  readonly #format: ReceiveFormat;
  readonly #srq: SRQ | undefined;
  readonly #pd: PD;
  /** Allocated with the first receive. */
  #sges: ScatterList | undefined = undefined;
  readonly #table: StagTable;
  /** SGEs that a slot holds. Resizing a shared queue does not change it. */
  readonly #sgeMax: number;

  constructor(layout: QPLayout, srq: SRQ | undefined, pd: PD, table: StagTable) {
    this.#srq = srq;
    this.#own = layout.receives;
    this.#format = receiveFormat(layout.kind);
    // The SGEs of a shared queue belong to that queue's protection domain.
    this.#pd = srq?.pd ?? pd;
    const { sge, sgeMax } = this.#format;
    this.#sgeMax = Math.min(sgeMax, layout.receives.sgeRoom(sge));
    this.#table = table;
  }

  /**
   * Takes the next receive. `noBuffer` when none is posted. After `receiveInvalid` the receive is
   * active, too, and must complete in error. Its memory is checked only when a message arrives, as
   * in siw: programs post receives longer than their memory.
   */
  take(): AccessRefusal {
    const elements = this.#elements();
    if (!elements.ready()) return AccessRefusal.noBuffer;
    const { view, position } = elements;
    const format = this.#format;
    this.wrIdLo = view.getUint32(position + WR_ID, true);
    this.wrIdHi = view.getUint32(position + WR_ID + 4, true);
    const at = position + format.numSge;
    const numSge = format.wide ? view.getUint32(at, true) : view.getUint8(at);
    const usable = numSge <= this.#sgeMax;
    if (usable) {
      this.#sges ??= new ScatterList(this.#table, this.#sgeMax);
      this.#sges.resolve(this.#pd, view, position + format.sge, numSge, true, true);
    }
    elements.release();
    // Other queue pairs also consume receives of a shared queue.
    if (this.#srq !== undefined) elements.giveBack();
    this.active = true;
    this.#srq?.checkLimit();
    return usable ? AccessRefusal.none : AccessRefusal.receiveInvalid;
  }

  /** Takes the next receive, which must be posted, to flush it: reads only its id. */
  takeFlushed(): void {
    const elements = this.#elements();
    const { view, position } = elements;
    this.wrIdLo = view.getUint32(position + WR_ID, true);
    this.wrIdHi = view.getUint32(position + WR_ID + 4, true);
    elements.release();
    this.active = true;
  }

  /** Returns the slot of the active receive, which is about to complete, to the client. */
  end(): void {
    this.active = false;
    if (this.#srq === undefined) this.#own.giveBack();
  }

  /** Forgets the own ring of a destroyed QP; a shared queue stays. */
  endRing(): void {
    if (this.#srq === undefined) this.#own.end?.();
  }

  /** Completions were written for the oldest `count` ended receives. */
  countCompleted(count: number): void {
    if (this.#srq === undefined) this.#own.countCompleted?.(count);
  }

  #elements(): WorkRing {
    return this.#srq === undefined ? this.#own : this.#srq.elements;
  }

  /** Capacity of the active receive. */
  get capacityBytes(): number {
    return this.#sges?.lengthBytes ?? 0;
  }

  /** The cause of the last refusal of `place`. */
  refusalCause(refusal: AccessRefusal): Cause {
    const piece = refusal === AccessRefusal.receiveInvalid ? this.#sges?.refused : undefined;
    return refusedSGE(this.#table, this.#pd, piece, true);
  }

  /** The cause for a message without a receive. */
  get lack(): Cause {
    return this.#srq === undefined ? NO_RECEIVE : NO_SHARED_RECEIVE;
  }

  /** Scatters a segment into the active receive. It must fit (`capacityBytes`). */
  place(
    mo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    notes: WriteNotes,
  ): AccessRefusal {
    assert(this.#sges !== undefined, 'no receive taken');
    return this.#sges.scatter(this.#pd, mo, bytes, start, length, notes);
  }

  /** Reports the next receive, if any, which `qpn` is about to take. */
  reportNext(watch: WorkWatch, qpn: number): void {
    if (!this.#elements().ready()) return;
    watch.reportReceive(qpn, this.#elements(), this.#format, this.#srq !== undefined);
  }

  /** The QP's own ring, to flush; undefined with a shared queue, whose receives serve other QPs. */
  get ownElements(): WorkRing | undefined {
    return this.#srq === undefined ? this.#own : undefined;
  }

  /** Drops, without completions, the active receive and those posted in its own ring (RESET). */
  reset(): void {
    if (this.active) this.end();
    this.ownElements?.clear();
  }
}
