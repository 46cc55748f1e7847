/**
 * The part of a list that a reply shows. What is outside is only counted: among a million objects, a
 * summary of each would take seconds.
 */
import {
  type CQSummary,
  LIST_MAX,
  type MRSummary,
  type ObjectFilter,
  type ObjectSummaries,
  type QPSummary,
} from '../../../verbs-api/contract/protocol/control.ts';

/** Decides which entries of a list a reply shows; those are offered in the list's order. */
export class ListedPart {
  readonly #filter: ObjectFilter;
  #skipped = 0;
  #taken = 0;

  constructor(filter: ObjectFilter) {
    this.#filter = filter;
  }

  /** True if the next entry belongs to the reply. `pid` is undefined where entries have none. */
  takes(device: string, pid?: number): boolean {
    const {
      device: wanted = device,
      pid: wantedPid = pid,
      offset = 0,
      limit = LIST_MAX,
    } = this.#filter;
    if (device !== wanted || pid !== wantedPid || this.#taken >= limit) return false;
    if (this.#skipped < offset) {
      this.#skipped += 1;
      return false;
    }
    this.#taken += 1;
    return true;
  }
}

/** The objects of one kind that a reply shows; the lists of the other kinds stay empty. */
export class ObjectWindow implements ObjectSummaries {
  readonly qps: QPSummary[] = [];
  readonly mrs: MRSummary[] = [];
  readonly cqs: CQSummary[] = [];
  readonly kind: keyof ObjectSummaries;
  readonly #part: ListedPart;

  constructor(kind: keyof ObjectSummaries, filter: ObjectFilter) {
    this.kind = kind;
    this.#part = new ListedPart(filter);
  }

  /** True if the next object of `kind` belongs to the reply: its summary must be added. */
  takes(device: string, pid: number): boolean {
    return this.#part.takes(device, pid);
  }
}
