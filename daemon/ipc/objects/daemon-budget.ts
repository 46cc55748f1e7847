/** Limits of all clients together: quotas limit one client, and there can be any number of clients. */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../../invariants/assert.ts';

/** Limits of all clients together. */
export interface DaemonLimits {
  /** Bytes of shared memory. */
  readonly sharedBytes: number;
  /** Mappings of shared memory: beyond vm.max_map_count the process cannot allocate any more. */
  readonly mappings: number;
  /** Objects of all kinds: each takes some of the daemon's heap. */
  readonly objects: number;
}

/** The limits, by name in the configuration. */
type BudgetKind = keyof DaemonLimits;

const KIND_TEXT: Readonly<Record<BudgetKind, string>> = {
  sharedBytes: 'bytes of shared memory',
  mappings: 'mappings of shared memory',
  objects: 'objects',
};

/** Use of a limit. */
interface BudgetUse {
  readonly used: number;
  readonly limit: number;
}

/** See the module's comment. */
export class DaemonBudget {
  readonly #limits: DaemonLimits;
  readonly #mappings: () => number;
  #sharedBytes = 0;
  #objects = 0;

  /** `mappings` returns the number of shared mappings. */
  constructor(limits: DaemonLimits, mappings: () => number) {
    this.#limits = limits;
    this.#mappings = mappings;
  }

  /** Use of every limit. */
  uses(): Record<BudgetKind, BudgetUse> {
    const { sharedBytes, mappings, objects } = this.#limits;
    return {
      sharedBytes: { used: this.#sharedBytes, limit: sharedBytes },
      mappings: { used: this.#mappings(), limit: mappings },
      objects: { used: this.#objects, limit: objects },
    };
  }

  /** Takes shared memory, which is one mapping. ENOMEM. */
  takeShared(bytes: number): void {
    if (bytes > this.#limits.sharedBytes - this.#sharedBytes) throw this.#refusal('sharedBytes');
    if (this.#mappings() >= this.#limits.mappings) throw this.#refusal('mappings');
    this.#sharedBytes += bytes;
  }

  /** Returns shared memory. */
  giveShared(bytes: number): void {
    this.#sharedBytes -= bytes;
    assert(this.#sharedBytes >= 0, 'no more shared bytes are given back than were taken');
  }

  /** ENOMEM when no object may be added. */
  assertRoom(): void {
    if (this.#objects >= this.#limits.objects) throw this.#refusal('objects');
  }

  /** Counts an object that was added (1) or removed (-1). */
  note(change: 1 | -1): void {
    this.#objects += change;
    assert(this.#objects >= 0, 'no more objects are removed than were added');
  }

  /** Throws `InvariantError` when a limit is exceeded. */
  assertInvariants(): void {
    const { sharedBytes, objects } = this.#limits;
    assert(this.#sharedBytes <= sharedBytes, 'the limit of shared bytes is kept');
    assert(this.#objects <= objects, 'the limit of objects is kept');
  }

  #refusal(kind: BudgetKind): VerbsError {
    const most = this.#limits[kind];
    const text = `all clients together may have at most ${most} ${KIND_TEXT[kind]}; raise limits.${kind} of the daemon`;
    return new VerbsError('ENOMEM', text);
  }
}
