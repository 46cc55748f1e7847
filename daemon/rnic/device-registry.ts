/** Counts a device's objects by kind, and numbers its queue pairs. */
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../invariants/assert.ts';
import type { DeviceProfile } from './device-profile.ts';

const KINDS = ['pd', 'mr', 'mw', 'cq', 'srq', 'qp'] as const;
/** Kinds of counted objects. */
type ObjectKind = (typeof KINDS)[number];

/** QP numbers have 24 bits, as everywhere in verbs. */
const QPN_COUNT = 2 ** 24;

/** Counts objects against the profile. */
export class DeviceRegistry {
  readonly #limits: Readonly<Record<ObjectKind, number>>;
  readonly #counts: Record<ObjectKind, number>;
  #lastQpn = 0;

  constructor(profile: DeviceProfile) {
    this.#limits = {
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
    if (this.#counts[kind] >= this.#limits[kind]) {
      throw new VerbsError('ENOMEM', `the device has no more than ${this.#limits[kind]} ${kind}s`);
    }
    this.#counts[kind] += 1;
    return () => {
      this.#counts[kind] -= 1;
      this.assertInvariants();
    };
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    const counts = this.#counts;
    const limits = this.#limits;
    for (const kind of KINDS) {
      assert(counts[kind] >= 0 && counts[kind] <= limits[kind], `the number of ${kind}s can be`);
    }
  }

  /** The next QP number: counts up from 1, wraps at 24 bits, and skips numbers in use. */
  nextQpn(inUse: (qpn: number) => boolean): number {
    do {
      this.#lastQpn = (this.#lastQpn + 1) % QPN_COUNT;
    } while (this.#lastQpn === 0 || inUse(this.#lastQpn));
    return this.#lastQpn;
  }
}
