/**
 * Compares the object counts of a device with its objects. Too expensive to run always; for tests.
 */
import { assert } from '#base/assert';
import type { MW } from './memory/memory-window.ts';
import type { PD } from './memory/protection-domain.ts';
import type { StagEntry, StagTable } from './memory/stag-table.ts';
import type { QP } from './queue-pair.ts';
import type { CQ } from './queues/completion-queue.ts';
import type { SRQ } from './queues/shared-receive-queue.ts';

/** Counts objects by their owner. */
class Tally<T> extends Map<T, number> {
  note(owner: T): void {
    this.set(owner, (this.get(owner) ?? 0) + 1);
  }
}

/**
 * Compares the counts of regions, domains and queues with the device's STags, windows (by STag
 * index) and queue pairs. Throws `InvariantError`.
 */
export function assertCounts(
  stags: StagTable,
  windows: ReadonlyMap<number, MW>,
  qps: Iterable<QP>,
): void {
  const members = new Tally<PD>();
  const streams = new Tally<PD>();
  const users = new Tally<CQ | SRQ>();
  const bound = new Tally<StagEntry>();
  stags.assertDeepInvariants();
  for (const { pd } of stags.values()) members.note(pd);
  for (const [index, mw] of windows) {
    assert(mw.rkey >>> 8 === index, 'window filed under another index');
    mw.assertInvariants();
    if (mw.boundOnto !== undefined) bound.note(mw.boundOnto);
  }
  for (const qp of qps) {
    qp.assertInvariants();
    members.note(qp.pd);
    if (qp.wire !== undefined) streams.note(qp.pd);
    users.note(qp.sendCQ);
    users.note(qp.recvCQ);
    if (qp.srq !== undefined) users.note(qp.srq);
  }
  for (const entry of stags.values()) {
    assert(entry.windows === (bound.get(entry) ?? 0), 'region: wrong count of windows');
  }
  for (const [pd, count] of members) {
    // Shared receive queues are members, too, but are in no list.
    assert(pd.members >= count, 'PD: members < objects found');
    assert(pd.streams === (streams.get(pd) ?? 0), 'PD: wrong count of streams');
  }
  for (const [queue, count] of users) {
    assert(queue.users === count, 'queue: wrong count of QPs');
  }
}
