/**
 * The receive side of a queue pair: takes the next receive from its own ring or from the shared
 * one, and scatters the message into it.
 */
import { CQEStatus, RQE, RQE_BYTES, SGE_MAX } from '../../verbs-api/contract/queue-layout.ts';
import { Fault } from '../engine/placement.ts';
import type { MemoryBacking } from './memory-backing.ts';
import type { PD } from './protection-domain.ts';
import { ElementRing } from './ring.ts';
import { ScatterList } from './scatter-list.ts';
import type { SRQ } from './shared-receive-queue.ts';
import type { StagTable } from './stag-table.ts';
import type { WorkWatch } from './work-watch.ts';

/** The receives of one queue pair. */
export class ReceiveQueue {
  /** True from the message's first segment to its completion. */
  active = false;
  /** The active receive's work request id. */
  wrIdLo = 0;
  wrIdHi = 0;
  /** What a receive that `take` refused completes with. */
  takeStatus: CQEStatus = CQEStatus.success;
  private readonly elements: ElementRing;
  private readonly srq: SRQ | undefined;
  private readonly pd: PD;
  private readonly table: StagTable;
  private readonly sges = new ScatterList();

  /** With `srq` undefined, `count` elements are at `start` in `ring`. */
  constructor(
    ring: Uint8Array,
    start: number,
    count: number,
    srq: SRQ | undefined,
    pd: PD,
    table: StagTable,
  ) {
    this.srq = srq;
    this.elements = srq?.elements ?? new ElementRing(ring, start, count, RQE_BYTES, RQE.flags);
    // The SGEs of a shared queue are those of its own protection domain.
    this.pd = srq?.pd ?? pd;
    this.table = table;
  }

  /**
   * Takes the next receive. `none` when it may be used; `noBuffer` when none is posted. After any
   * other fault the receive is active too, and has to be completed in error: `takeStatus` says
   * with what.
   */
  take(): Fault {
    const { elements } = this;
    if (!elements.ready()) return Fault.noBuffer;
    const { view, position } = elements;
    this.wrIdLo = view.getUint32(position + RQE.wrId, true);
    this.wrIdHi = view.getUint32(position + RQE.wrId + 4, true);
    const numSge = view.getUint8(position + RQE.numSge);
    const usable = numSge <= SGE_MAX;
    this.takeStatus = usable ? CQEStatus.locProtErr : CQEStatus.locQpOpErr;
    const fault = usable
      ? this.sges.resolve(this.table, this.pd, view, position + RQE.sge, numSge, true)
      : Fault.bounds;
    elements.release();
    this.active = true;
    this.srq?.checkLimit();
    return fault;
  }

  /** Octets that the active receive has room for. */
  get capacityBytes(): number {
    return this.sges.lengthBytes;
  }

  /** Scatters a segment into the active receive; it fits (`capacityBytes`). */
  place(
    mo: number,
    octets: Uint8Array,
    start: number,
    length: number,
    written: (backing: MemoryBacking) => void,
  ): Fault {
    return this.sges.scatter(mo, octets, start, length, written);
  }

  /** Tells of the next receive, if there is one, which `qpn` is about to take. */
  tellNext(watch: WorkWatch, qpn: number): void {
    if (!this.elements.ready()) return;
    watch.tellReceive(qpn, this.elements, this.srq !== undefined);
  }

  /** The own ring, to be flushed; undefined with a shared queue, whose receives others may use. */
  get ownElements(): ElementRing | undefined {
    return this.srq === undefined ? this.elements : undefined;
  }

  /** Forgets the active receive and, in an own ring, those posted, without completions (RESET). */
  reset(): void {
    this.active = false;
    const elements = this.ownElements;
    if (elements === undefined) return;
    for (let budget = elements.count; budget > 0 && elements.ready(); budget -= 1) {
      elements.release();
    }
  }
}
