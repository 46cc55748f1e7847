/**
 * Programs of which a process was ended because its memory did not answer (`copy-guard.ts`). For some
 * minutes the daemon does not touch the memory of their later processes: each would hold it up for two
 * seconds again, as often as one forks. Their agents copy it instead.
 */

/** A program that was mended and started again has the better tier back before long. */
const SUSPECT_MS = 300_000;
/** Programs by whose names the daemon can tell: with as many under suspicion, all of them are. */
const PROGRAMS_MAX = 3;

/** See the module's comment. */
export class StalledPrograms {
  readonly #now: () => number;
  /** Until when a program is under suspicion, by name. */
  readonly #until = new Map<string, number>();

  /** `now` counts milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** A process of this program was ended. */
  note(program: string): void {
    this.#until.delete(program);
    this.#until.set(program, this.#now() + SUSPECT_MS);
    const [oldest] = this.#until.keys();
    if (this.#until.size > PROGRAMS_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** True if the memory of this program's processes is not to be touched. */
  suspects(program: string): boolean {
    if (this.#until.size === 0) return false;
    const now = this.#now();
    for (const [name, until] of this.#until) if (until <= now) this.#until.delete(name);
    return this.#until.has(program) || this.#until.size >= PROGRAMS_MAX;
  }
}

/** Those of this process, whose only thread copies. */
export const stalledPrograms = new StalledPrograms(() => performance.now());
