/**
 * The part of a list that a reply shows. The rest is only counted: among a million objects, a summary
 * of each would take seconds. Summaries are made over several turns.
 */
import {
  type CQSummary,
  LIST_MAX,
  type MRSummary,
  type ObjectFilter,
  type ObjectSummaries,
  type QPSummary,
} from '#contract/protocol/control';
import { inSlices } from '#daemon/host/slices';

/** Summaries to make in one turn: a millisecond of work. */
const SUMMARIES_PER_TURN = 512;

/** Decides which entries of a list a reply shows; they are offered in the list's order. */
export class ListedPart {
  readonly #filter: ObjectFilter;
  #skipped = 0;
  #taken = 0;

  constructor(filter: ObjectFilter) {
    this.#filter = filter;
  }

  /** True if the next entry belongs to the reply. `pid` is undefined if entries have none. */
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
  readonly #chosen: (() => void)[] = [];

  constructor(kind: keyof ObjectSummaries, filter: ObjectFilter) {
    this.kind = kind;
    this.#part = new ListedPart(filter);
  }

  /**
   * Selects the next object of `kind` if it belongs to the reply. `describe` adds its summary later, or
   * nothing if the object is gone by then.
   */
  offer(device: string, pid: number, describe: () => void): void {
    if (this.#part.takes(device, pid)) this.#chosen.push(describe);
  }

  /**
   * Adds the summaries of the selected objects, the first ones now. `soon` calls back in the next turn.
   * Returns undefined if all are added, otherwise a promise.
   */
  describe(soon: (run: () => void) => void): Promise<void> | undefined {
    return inSlices(this.#chosen, SUMMARIES_PER_TURN, soon, (describe) => describe());
  }
}
