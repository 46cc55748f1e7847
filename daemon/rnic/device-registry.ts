/** Counts a device's objects by kind, and numbers its queue pairs. */
import { assert } from '#base/assert';
import type { Random32 } from '#base/random';
import { VerbsError } from '#contract/verbs/errors';
import type { DeviceProfile } from './device-profile.ts';

const KINDS = ['pd', 'mr', 'mw', 'cq', 'srq', 'qp'] as const;
type ObjectKind = (typeof KINDS)[number];

/** How many objects of each kind a device may have. */
export type DeviceCapacity = Readonly<Record<ObjectKind, number>>;

/** QP numbers have 24 bits, as everywhere in verbs. */
const QPN_COUNT = 2 ** 24;
/** 0 and 1 are the management QPs; Linux reserves all up to 16. */
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

  count(kind: ObjectKind): number {
    return this.#counts[kind];
  }

  /** Takes a slot; call the result once to release it. ENOMEM at the limit. */
  take(kind: ObjectKind): () => void {
    if (this.#counts[kind] >= this.capacity[kind]) {
      throw new VerbsError('ENOMEM', `the device has at most ${this.capacity[kind]} ${kind}s`);
    }
    this.#counts[kind] += 1;
    return () => this.give(kind);
  }

  /** Releases a slot, for objects that do not keep the result of `take`. */
  give(kind: ObjectKind): void {
    this.#counts[kind] -= 1;
    this.assertInvariants();
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    const counts = this.#counts;
    const limits = this.capacity;
    for (const kind of KINDS) {
      assert(counts[kind] >= 0 && counts[kind] <= limits[kind], `${kind}s: count out of range`);
    }
  }

  /**
   * Draws a random QP number, for wires on which anyone who knows the number can send the QP a
   * packet. Skips reserved numbers and the multicast number.
   */
  randomQpn(random: Random32, inUse: (qpn: number) => boolean): number {
    let qpn = 0;
    // Few numbers are in use, so a few draws find a free one.
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
