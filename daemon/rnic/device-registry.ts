/** Counts a device's objects by kind, and numbers its queue pairs. */
import { VerbsError } from '#contract/verbs/errors';
import { assert } from '../invariants/assert.ts';
import type { DeviceProfile } from './device-profile.ts';
import type { Random32 } from './stag-table.ts';

const KINDS = ['pd', 'mr', 'mw', 'cq', 'srq', 'qp'] as const;
/** Kinds of counted objects. */
type ObjectKind = (typeof KINDS)[number];

/** How many objects of each kind a device may have. */
export type DeviceCapacity = Readonly<Record<ObjectKind, number>>;

/** QP numbers have 24 bits, as everywhere in verbs. */
const QPN_COUNT = 2 ** 24;
/** 0 and 1 are those of management; Linux keeps all up to 16 for itself. */
const LAST_RESERVED_QPN = 16;
const MULTICAST_QPN = QPN_COUNT - 1;

/** Counts objects against the profile. */
export class DeviceRegistry {
  readonly capacity: DeviceCapacity;
  readonly #counts: Record<ObjectKind, number>;
  #lastQpn = 0;

  constructor(profile: DeviceProfile) {
    this.capacity = {
      pd: profile.maxPd,
      mr: profile.maxMr,
      mw: profile.maxMw,
      cq: profile.maxCq,
      srq: profile.maxSrq,
      qp: profile.maxQp,
    };
    this.#counts = { pd: 0, mr: 0, mw: 0, cq: 0, srq: 0, qp: 0 };
  }

  /** Number of existing objects of a kind. */
  count(kind: ObjectKind): number {
    return this.#counts[kind];
  }

  /** Takes a slot; call the result once to release it. ENOMEM when the device has no more. */
  take(kind: ObjectKind): () => void {
    if (this.#counts[kind] >= this.capacity[kind]) {
      throw new VerbsError('ENOMEM', `the device has at most ${this.capacity[kind]} ${kind}s`);
    }
    this.#counts[kind] += 1;
    return () => this.give(kind);
  }

  /** Releases a slot, of an object that does not keep what `take` returned. */
  give(kind: ObjectKind): void {
    this.#counts[kind] -= 1;
    this.assertInvariants();
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    const counts = this.#counts;
    const limits = this.capacity;
    for (const kind of KINDS) {
      assert(counts[kind] >= 0 && counts[kind] <= limits[kind], `the number of ${kind}s can be`);
    }
  }

  /**
   * A QP number drawn at random, for a wire on which a number is all that a stranger needs to send a
   * packet to it. Those of InfiniBand's own queue pairs and of multicast are left out.
   */
  randomQpn(random: Random32, inUse: (qpn: number) => boolean): number {
    let qpn = 0;
    // Few of the numbers are in use, so a few draws find a free one.
    do qpn = random() >>> 8;
    while (qpn <= LAST_RESERVED_QPN || qpn === MULTICAST_QPN || inUse(qpn));
    return qpn;
  }

  /** The next QP number: counts up from 1, wraps at 24 bits, and skips numbers in use. */
  nextQpn(inUse: (qpn: number) => boolean): number {
    do {
      this.#lastQpn = (this.#lastQpn + 1) % QPN_COUNT;
    } while (this.#lastQpn === 0 || inUse(this.#lastQpn));
    return this.#lastQpn;
  }
}
