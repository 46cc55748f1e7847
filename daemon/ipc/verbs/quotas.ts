/** What one client may hold, so that no client can use up the daemon. */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';

/** Kinds of objects with a handle. */
export const OBJECT_KINDS = [
  'context',
  'pd',
  'buffer',
  'mr',
  'mw',
  'channel',
  'cq',
  'srq',
  'qp',
  'id',
] as const;
/** Kind of an object with a handle. */
export type ObjectKind = (typeof OBJECT_KINDS)[number];

/** Limits of one client. */
export interface ClientQuotas {
  /** Objects of each kind. */
  readonly objects: Readonly<Record<ObjectKind, number>>;
  /** Octets of shared memory: rings and buffers. It is the daemon's memory that they take. */
  readonly sharedBytes: number;
  /** Octets of registered own memory. They cost the daemon nothing, so this is generous. */
  readonly pinnedBytes: number;
  /** Elements of all queues together. */
  readonly queueEntries: number;
}

/** Defaults: a large program fits, a runaway loop does not take the daemon with it. */
export const DEFAULT_QUOTAS: ClientQuotas = {
  objects: {
    context: 64,
    pd: 4096,
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

/** Amounts that are limited beside the number of objects. */
export type Amount = 'sharedBytes' | 'pinnedBytes' | 'queueEntries';

const AMOUNT_TEXT: Readonly<Record<Amount, string>> = {
  sharedBytes: 'octets of shared memory',
  pinnedBytes: 'octets of registered memory',
  queueEntries: 'queue entries',
};

/** Counts what a client holds against its quotas. */
export class QuotaLedger {
  readonly #quotas: ClientQuotas;
  readonly #objects = new Map<ObjectKind, number>();
  readonly #amounts: Record<Amount, number> = { sharedBytes: 0, pinnedBytes: 0, queueEntries: 0 };

  constructor(quotas: ClientQuotas) {
    this.#quotas = quotas;
  }

  /** Objects of a kind. */
  count(kind: ObjectKind): number {
    return this.#objects.get(kind) ?? 0;
  }

  /** What is held of an amount. */
  held(amount: Amount): number {
    return this.#amounts[amount];
  }

  /** ENOMEM when no object of the kind may be added. */
  assertRoom(kind: ObjectKind): void {
    const most = this.#quotas.objects[kind];
    if (this.count(kind) >= most) {
      throw new VerbsError('ENOMEM', `quota: a client has at most ${most} objects of kind ${kind}`);
    }
  }

  /** Counts an object that was added (1) or removed (-1). */
  note(kind: ObjectKind, change: 1 | -1): void {
    this.#objects.set(kind, this.count(kind) + change);
  }

  /** Takes an amount, or throws ENOMEM. */
  take(amount: Amount, value: number): void {
    const most = this.#quotas[amount];
    if (value > most - this.#amounts[amount]) {
      throw new VerbsError('ENOMEM', `quota: a client has at most ${most} ${AMOUNT_TEXT[amount]}`);
    }
    this.#amounts[amount] += value;
  }

  /** Gives an amount back. */
  give(amount: Amount, value: number): void {
    this.#amounts[amount] -= value;
  }
}
