/**
 * The last refusals of a daemon, by user, so that one user cannot push out another's; and counts by
 * kind. Filled where an error becomes an errno or an error reply.
 */
import {
  REFUSALS_LIST_MAX,
  REFUSALS_OF_USER_MAX,
  type Refusal,
  type RefusalCount,
  type RefusalFilter,
  type RefusalList,
  SENTENCE_MAX,
} from '#contract/protocol/refusals';

/** Users whose refusals are stored. Beyond that, the user with the oldest last refusal is dropped. */
export const REFUSED_USERS_MAX = 64;
/** Watchers at a time: open pages and running commands. */
export const REFUSAL_WATCHERS_MAX = 256;
/** Pairs of verb and code with their own count; others count as `other`. */
export const REFUSAL_COUNTS_MAX = 1024;
/** Length limit for names of programs, verbs, codes and devices. */
const NAME_MAX = 64;

export type RefusalReport = Omit<Refusal, 'number' | 'at' | 'times'>;

/** Called for each refusal; repeats are counted in it. Must not throw. */
type RefusalWatcher = (refusal: Refusal) => void;

/** One user's refusals, oldest first. */
interface UserRefusals {
  readonly kept: Refusal[];
  /** Number of the last refusal that was pushed out. */
  lostUpTo: number;
}

export class Refusals {
  readonly #now: () => string;
  /** The user refused last is at the end. */
  readonly #users = new Map<number, UserRefusals>();
  readonly #counts = new Map<string, RefusalCount>();
  readonly #watchers = new Set<RefusalWatcher>();
  #last = 0;
  #total = 0;

  /** `now` returns the time as ISO 8601. */
  constructor(now: () => string) {
    this.#now = now;
  }

  /** Number of the last refusal; 0 before the first. */
  get last(): number {
    return this.#last;
  }

  /** Refusals since the daemon started or was reset. */
  get total(): number {
    return this.#total;
  }

  /** Records a refusal, and returns the stored one. */
  record(report: RefusalReport): Refusal {
    const { uid } = report;
    const kept = this.#keptOf(uid);
    const before = kept.kept.at(-1);
    this.#last += 1;
    this.#total += 1;
    const short = shortened(report);
    const repeats = before !== undefined && isSame(before, short);
    const times = repeats ? before.times + 1 : 1;
    const refusal: Refusal = { number: this.#last, at: this.#now(), ...short, times };
    if (repeats) kept.kept.pop();
    kept.kept.push(refusal);
    if (kept.kept.length > REFUSALS_OF_USER_MAX) {
      kept.lostUpTo = kept.kept.shift()?.number ?? kept.lostUpTo;
    }
    this.#count(refusal);
    for (const watcher of this.#watchers) watcher(refusal);
    return refusal;
  }

  /** Calls `watcher` for each refusal until the result is called. Undefined if there are too many watchers. */
  watch(watcher: RefusalWatcher): (() => void) | undefined {
    if (this.#watchers.size >= REFUSAL_WATCHERS_MAX) return undefined;
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
    };
  }

  /** The matching refusals of one user, or of all. */
  list(filter: RefusalFilter, uid: number | undefined): RefusalList {
    const { after = 0, limit = REFUSALS_LIST_MAX } = filter;
    const found: Refusal[] = [];
    let lost = 0;
    for (const [user, { kept, lostUpTo }] of this.#users) {
      if (uid !== undefined && user !== uid) continue;
      // It is unknown how many of those pushed out would have matched, only whether there were any.
      if (lostUpTo > after && after > 0) lost += 1;
      for (const refusal of kept) {
        if (refusal.number > after && matches(refusal, filter)) found.push(refusal);
      }
    }
    found.sort((one, other) => one.number - other.number);
    const shown = found.slice(-limit);
    return { refusals: shown, last: this.#last, lost: lost + found.length - shown.length };
  }

  /** Refusals by kind since the daemon started or was reset. */
  counts(): readonly Readonly<RefusalCount>[] {
    return [...this.#counts.values()];
  }

  /** Clears all refusals and counts; numbers continue. */
  clear(): void {
    this.#users.clear();
    this.#counts.clear();
    this.#total = 0;
  }

  #keptOf(uid: number): UserRefusals {
    const known = this.#users.get(uid);
    this.#users.delete(uid);
    const kept = known ?? { kept: [], lostUpTo: 0 };
    this.#users.set(uid, kept);
    if (this.#users.size > REFUSED_USERS_MAX) {
      for (const oldest of this.#users.keys()) {
        this.#users.delete(oldest);
        break;
      }
    }
    return kept;
  }

  #count({ api, verb, code }: Refusal): void {
    let key = `${api} ${verb} ${code}`;
    let known = this.#counts.get(key);
    if (known === undefined) {
      const isFull = this.#counts.size >= REFUSAL_COUNTS_MAX;
      if (isFull) key = OTHER;
      known = this.#counts.get(key) ?? {
        api: isFull ? OTHER : api,
        verb: isFull ? OTHER : verb,
        code: isFull ? OTHER : code,
        count: 0,
      };
      this.#counts.set(key, known);
    }
    known.count += 1;
  }
}

const OTHER = 'other';

/** True for a refusal that passes the filter; ignores `after`. */
function matches(refusal: Refusal, filter: RefusalFilter): boolean {
  return (
    (filter.pid === undefined || refusal.pid === filter.pid) &&
    (filter.program === undefined || refusal.program === filter.program) &&
    (filter.device === undefined || refusal.device === filter.device)
  );
}

function isSame(one: Refusal, other: RefusalReport): boolean {
  return (
    one.sentence === other.sentence &&
    one.code === other.code &&
    one.verb === other.verb &&
    one.step === other.step &&
    one.pid === other.pid &&
    one.program === other.program &&
    one.api === other.api &&
    one.device === other.device &&
    sameNumbers(one.objects, other.objects)
  );
}

function sameNumbers(
  one: Readonly<Record<string, number>> = {},
  other: Readonly<Record<string, number>> = {},
): boolean {
  const kinds = Object.keys(one);
  return (
    kinds.length === Object.keys(other).length && kinds.every((kind) => one[kind] === other[kind])
  );
}

/** A report with its texts limited in length and without control characters: programs choose some. */
function shortened(report: RefusalReport): RefusalReport {
  return {
    ...report,
    program: printable(report.program, NAME_MAX),
    verb: printable(report.verb, NAME_MAX),
    code: printable(report.code, NAME_MAX),
    sentence: printable(report.sentence, SENTENCE_MAX),
  };
}

/** Control characters of C0 and C1, and separators that some terminals treat as a new line. */
const UNPRINTABLE = /[\p{Cc}\u2028\u2029]/gu;

function printable(text: string, max: number): string {
  const clean = text.replace(UNPRINTABLE, '?');
  return clean.length <= max ? clean : `${clean.slice(0, max - 1)}…`;
}
