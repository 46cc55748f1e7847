/**
 * The receive side of a queue pair: takes the next receive from its own ring or from the shared
 * one, and scatters the message into it.
 */
import { RQE, RQE_BYTES, SGE_MAX } from '../../verbs-api/contract/protocol/queue-layout.ts';
import type { MemoryBacking } from './memory-backing.ts';
import type { PD } from './protection-domain.ts';
import { ElementRing } from './ring.ts';
import { ScatterList } from './scatter-list.ts';
import type { SRQ } from './shared-receive-queue.ts';
import type { StagTable } from './stag-table.ts';
import { Fault } from './wire-port.ts';
import type { WorkWatch } from './work-watch.ts';

/** The receives of one queue pair. */
export class ReceiveQueue {
  /** True from the message's first segment to its completion. */
  active = false;
  /** The active receive's work request id. */
  wrIdLo = 0;
  wrIdHi = 0;
  readonly #elements: ElementRing;
  readonly #srq: SRQ | undefined;
  readonly #pd: PD;
  readonly #sges: ScatterList;

  /** With `srq` undefined, `count` elements are at `start` in `ring`. */
  constructor(
    ring: Uint8Array,
    start: number,
    count: number,
    srq: SRQ | undefined,
    pd: PD,
    table: StagTable,
  ) {
    this.#srq = srq;
    this.#elements = srq?.elements ?? new ElementRing(ring, start, count, RQE_BYTES, RQE.flags);
    // The SGEs of a shared queue belong to that queue's protection domain.
    this.#pd = srq?.pd ?? pd;
    this.#sges = new ScatterList(table);
  }

  /**
   * Takes the next receive. `noBuffer` when none is posted. After `receiveInvalid` the receive is
   * active, too, and must complete in error. Whether its memory may be used is checked when a
   * message arrives, as in siw: programs post receives that are longer than their memory.
   */
  take(): Fault {
    const elements = this.#elements;
    if (!elements.ready()) return Fault.noBuffer;
    const { view, position } = elements;
    this.wrIdLo = view.getUint32(position + RQE.wrId, true);
    this.wrIdHi = view.getUint32(position + RQE.wrId + 4, true);
    const numSge = view.getUint8(position + RQE.numSge);
    const usable = numSge <= SGE_MAX;
    if (usable) {
      this.#sges.resolve(this.#pd, view, position + RQE.sge, numSge, true, true);
    }
    elements.release();
    this.active = true;
    this.#srq?.checkLimit();
    return usable ? Fault.none : Fault.receiveInvalid;
  }

  /** Capacity of the active receive. */
  get capacityBytes(): number {
    return this.#sges.lengthBytes;
  }

  /** Scatters a segment into the active receive; it fits (`capacityBytes`). */
  place(
    mo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    written: (backing: MemoryBacking) => void,
  ): Fault {
    return this.#sges.scatter(this.#pd, mo, bytes, start, length, written);
  }

  /** Reports the next receive, if any, which `qpn` is about to take. */
  tellNext(watch: WorkWatch, qpn: number): void {
    if (!this.#elements.ready()) return;
    watch.tellReceive(qpn, this.#elements, this.#srq !== undefined);
  }

  /**
   * The QP's own ring, to be flushed; undefined with a shared queue, whose receives others may use.
   */
  get ownElements(): ElementRing | undefined {
    return this.#srq === undefined ? this.#elements : undefined;
  }

  /** Drops the active receive and, in an own ring, the posted ones, without completions (RESET). */
  reset(): void {
    this.active = false;
    const elements = this.ownElements;
    if (elements === undefined) return;
    for (let budget = elements.count; budget > 0 && elements.ready(); budget -= 1) {
      elements.release();
    }
  }
}
