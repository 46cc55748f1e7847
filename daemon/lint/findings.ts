/** What a program does that works here, and fails or costs on other adapters. */

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

/** What is to be said about one object. */
export interface Advice {
  readonly rule: LintRule;
  /** Names the object, and what became of it. */
  readonly sentence: string;
}

/** A process on a device. */
export interface LintedProgram {
  readonly pid: number;
  readonly program: string;
  readonly device: string;
  /** It is one in TypeScript, else in C. */
  readonly script: boolean;
  /** A connection manager has chosen attributes of its queue pairs. */
  readonly usesCm: boolean;
}

/** Advice to one process about one device. */
export interface Finding extends Advice {
  readonly pid: number;
  readonly program: string;
  readonly device: string;
  /** Objects of which the same is true: `sentence` is about the first. */
  readonly times: number;
}

/** Findings that are kept: more than someone reads. */
export const FINDINGS_MAX = 1000;

/** The findings about the programs of one daemon. */
export class Findings {
  readonly #kept = new Map<string, Finding>();
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

  /** In the order in which the first of each was found. */
  list(): readonly Finding[] {
    return [...this.#kept.values()];
  }

  /** Advice that was not kept. */
  get left(): number {
    return this.#left;
  }
}
