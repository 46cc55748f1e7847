/** Quotas: what one client may hold, so that it cannot exhaust the daemon. */
import { assert } from '#base/assert';
import type { ClientUsage } from '#contract/protocol/ipc-admin';
import { VerbsError } from '#contract/verbs/errors';
import type { MemoryTier } from '#contract/verbs/provider';
import type { DaemonBudget, UserShare } from './daemon-budget.ts';
import { OWNER } from './shared-limit.ts';

export const OBJECT_KINDS = [
  'context',
  'pd',
  'ah',
  'buffer',
  'mr',
  'mw',
  'channel',
  'cq',
  'srq',
  'qp',
  'id',
] as const;
export type ObjectKind = (typeof OBJECT_KINDS)[number];

export interface ClientQuotas {
  readonly objects: Readonly<Record<ObjectKind, number>>;
  /** Bytes of shared memory: rings and buffers. They take the daemon's memory. */
  readonly sharedBytes: number;
  /**
   * Bytes of the client's own memory that it registers. They cost the daemon nothing, hence the high
   * default.
   */
  readonly pinnedBytes: number;
  /** Elements of all queues together. */
  readonly queueEntries: number;
  /** Limits of all clients together. Default: none. */
  readonly budget?: DaemonBudget;
}

/** Defaults: enough for a large program, too little for a runaway loop to exhaust the daemon. */
export const DEFAULT_QUOTAS: ClientQuotas = {
  objects: {
    // Above what a program's own descriptors allow by default: each takes several.
    context: 1024,
    pd: 4096,
    ah: 32_767,
    buffer: 16_384,
    mr: 65_536,
    mw: 65_536,
    channel: 1024,
    cq: 16_384,
    srq: 4096,
    qp: 8192,
    id: 8192,
  },
  sharedBytes: 8 * 2 ** 30,
  pinnedBytes: 2 ** 40,
  queueEntries: 16 * 2 ** 20,
};

/** Limited amounts other than numbers of objects. */
type Amount = 'sharedBytes' | 'pinnedBytes' | 'queueEntries';

const AMOUNT_TEXT: Readonly<Record<Amount, string>> = {
  sharedBytes: 'bytes of shared memory',
  pinnedBytes: 'bytes of registered memory',
  queueEntries: 'queue entries',
};

export class QuotaLedger {
  readonly #quotas: ClientQuotas;
  readonly #objects = new Map<ObjectKind, number>();
  readonly #amounts: Record<Amount, number> = { sharedBytes: 0, pinnedBytes: 0, queueEntries: 0 };

  readonly #regions = new Map<MemoryTier, { count: number; reason: string }>();
  /** The user's share of the daemon's limits, if there are any. */
  readonly share: UserShare | undefined;

  /**
   * `uid`: the client's user. Everything counts towards that user's share of the daemon's limits.
   */
  constructor(quotas: ClientQuotas, uid: number = OWNER) {
    this.#quotas = quotas;
    this.share = quotas.budget?.of(uid);
  }

  count(kind: ObjectKind): number {
    return this.#objects.get(kind) ?? 0;
  }

  /** How much of an amount the client holds. */
  held(amount: Amount): number {
    return this.#amounts[amount];
  }

  /** Throws ENOMEM if no object of the kind may be added, on a device if the kind belongs to one. */
  assertRoom(kind: ObjectKind, device?: string): void {
    const most = this.#quotas.objects[kind];
    if (this.count(kind) >= most) {
      throw new VerbsError(
        'ENOMEM',
        `limit reached: a client may have at most ${most} objects of kind ${kind}`,
      );
    }
    this.share?.assertRoom(kind, device);
  }

  /** Counts an object that was added (1) or removed (-1). */
  note(kind: ObjectKind, change: 1 | -1, device?: string): void {
    const count = this.count(kind) + change;
    assert(count >= 0, `count of ${kind} < 0`);
    this.#objects.set(kind, count);
    this.share?.note(kind, device, change);
  }

  /** Takes an amount, or throws ENOMEM. */
  take(amount: Amount, value: number): void {
    const most = this.#quotas[amount];
    if (value > most - this.#amounts[amount]) {
      throw new VerbsError(
        'ENOMEM',
        `limit reached: a client may have at most ${most} ${AMOUNT_TEXT[amount]}`,
      );
    }
    if (amount === 'sharedBytes') this.share?.take('sharedBytes', value);
    this.#amounts[amount] += value;
  }

  /** Takes an amount, then calls `make`; gives it back if that fails. */
  takeFor<T>(amount: Amount, value: number, make: () => T): T {
    this.take(amount, value);
    try {
      return make();
    } catch (error) {
      this.give(amount, value);
      throw error;
    }
  }

  give(amount: Amount, value: number): void {
    if (amount === 'sharedBytes') this.share?.give('sharedBytes', value);
    this.#amounts[amount] -= value;
    assert(this.#amounts[amount] >= 0, `${amount} < 0`);
  }

  /** Counts a memory region that was added (1) or removed (-1), with the reason for its tier. */
  noteRegion(tier: MemoryTier, reason: string, change: 1 | -1): void {
    const count = (this.#regions.get(tier)?.count ?? 0) + change;
    assert(count >= 0, `regions of tier ${tier} < 0`);
    if (count === 0) this.#regions.delete(tier);
    else this.#regions.set(tier, { count, reason });
  }

  usage(): ClientUsage {
    const objects: Record<string, number> = {};
    for (const kind of OBJECT_KINDS) objects[kind] = this.count(kind);
    const tiers: Record<string, number> = {};
    const tierReasons: Record<string, string> = {};
    for (const [tier, { count, reason }] of this.#regions) {
      tiers[tier] = count;
      tierReasons[tier] = reason;
    }
    const { sharedBytes, pinnedBytes } = this.#amounts;
    return { objects, sharedBytes, pinnedBytes, tiers, tierReasons };
  }

  /** Throws `InvariantError` when a quota is exceeded. */
  assertInvariants(): void {
    const regions = [...this.#regions.values()].reduce((sum, { count }) => sum + count, 0);
    assert(regions === this.count('mr'), 'regions by tier disagree with their count');
    this.#quotas.budget?.assertInvariants();
    for (const kind of OBJECT_KINDS) {
      const count = this.count(kind);
      assert(count >= 0 && count <= this.#quotas.objects[kind], `count of ${kind} out of range`);
    }
    for (const amount of ['sharedBytes', 'pinnedBytes', 'queueEntries'] as const) {
      const held = this.#amounts[amount];
      assert(held >= 0 && held <= this.#quotas[amount], `${amount} out of range`);
    }
  }
}
