/** Records what works here, but fails or costs on other adapters. */

/** The rules. `daemon/LINT.md` explains each of them. */
export const LINT_RULES = [
  'mr-unused',
  'rq-empty',
  'sq-unsignaled',
  'cq-unpolled',
  'cq-events-unacked',
  'qp-in-init',
  'inline-unused',
  'gid-of-host',
] as const;

type LintRule = (typeof LINT_RULES)[number];

export interface Advice {
  readonly rule: LintRule;
  /** Names the object, and what happened to it. */
  readonly sentence: string;
}

export interface LintedProgram {
  readonly pid: number;
  readonly program: string;
  readonly device: string;
  /** True for TypeScript, false for C. */
  readonly script: boolean;
  /** A connection manager chose attributes of its queue pairs. */
  readonly usesCm: boolean;
}

/** Advice to one process about one device. */
export interface LintFinding extends Advice {
  readonly pid: number;
  readonly program: string;
  readonly device: string;
  /** Number of objects with this finding; `sentence` is about the first. */
  readonly times: number;
}

/** Maximum findings stored: more than anyone reads. */
export const FINDINGS_MAX = 1000;

/** The findings about the programs of one daemon. */
export class Findings {
  readonly #kept = new Map<string, LintFinding>();
  #left = 0;

  /** Records advice; the same rule for the same process and device counts in `times`. */
  note({ pid, program, device }: LintedProgram, { rule, sentence }: Advice): void {
    const key = `${pid} ${rule} ${device}`;
    const known = this.#kept.get(key);
    if (known === undefined && this.#kept.size === FINDINGS_MAX) {
      this.#left += 1;
      return;
    }
    const { sentence: first, times } = known ?? { sentence, times: 0 };
    this.#kept.set(key, { rule, sentence: first, pid, program, device, times: times + 1 });
  }

  /** Sorted by the first occurrence of each. */
  list(): readonly LintFinding[] {
    return [...this.#kept.values()];
  }

  /** Findings beyond the maximum. */
  get left(): number {
    return this.#left;
  }
}
