/** How many objects of each kind a device has, and the numbers it gives to queue pairs. */
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { DeviceProfile } from './device-profile.ts';

/** Kinds of counted objects. */
export type ObjectKind = 'pd' | 'mr' | 'mw' | 'cq' | 'srq' | 'qp';

/** QP numbers have 24 bits, as everywhere in verbs. */
const QPN_COUNT = 2 ** 24;

/** Counts objects against the profile. */
export class DeviceRegistry {
  private readonly limits: Readonly<Record<ObjectKind, number>>;
  private readonly counts: Record<ObjectKind, number>;
  private lastQpn = 0;

  constructor(profile: DeviceProfile) {
    this.limits = {
      pd: profile.maxPd,
      mr: profile.maxMr,
      mw: profile.maxMw,
      cq: profile.maxCq,
      srq: profile.maxSrq,
      qp: profile.maxQp,
    };
    this.counts = { pd: 0, mr: 0, mw: 0, cq: 0, srq: 0, qp: 0 };
  }

  /** Objects of a kind that exist now. */
  count(kind: ObjectKind): number {
    return this.counts[kind];
  }

  /** Takes a slot; call the result once to give it back. ENOMEM when the device has no more. */
  take(kind: ObjectKind): () => void {
    if (this.counts[kind] >= this.limits[kind]) {
      throw new VerbsError('ENOMEM', `the device has no more than ${this.limits[kind]} ${kind}s`);
    }
    this.counts[kind] += 1;
    return () => {
      this.counts[kind] -= 1;
    };
  }

  /** The next QP number: 1 upwards, around at 24 bits, never one that is in use. */
  nextQpn(inUse: (qpn: number) => boolean): number {
    do {
      this.lastQpn = (this.lastQpn + 1) % QPN_COUNT;
    } while (this.lastQpn === 0 || inUse(this.lastQpn));
    return this.lastQpn;
  }
}
