/**
 * Programs of which a process was killed because its memory did not respond (`copy-guard.ts`). For some
 * minutes the daemon does not touch memory of their other processes, each of which could block it for
 * another two seconds. Their agents copy it instead.
 */

/** Short enough that a program fixed and restarted gets the faster tier back soon. */
const SUSPECT_MS = 300_000;
/** Once this many programs are suspected at a time, all are: a program could change its name. */
const PROGRAMS_MAX = 3;

export class StalledPrograms {
  readonly #now: () => number;
  /** End of the suspicion for each program, by name. */
  readonly #until = new Map<string, number>();

  /** `now` counts milliseconds. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Records that a process of this program was killed. */
  note(program: string): void {
    this.#until.delete(program);
    this.#until.set(program, this.#now() + SUSPECT_MS);
    const [oldest] = this.#until.keys();
    if (this.#until.size > PROGRAMS_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  /** True if the daemon must not touch the memory of this program's processes. */
  suspects(program: string): boolean {
    if (this.#until.size === 0) return false;
    const now = this.#now();
    for (const [name, until] of this.#until) if (until <= now) this.#until.delete(name);
    return this.#until.has(program) || this.#until.size >= PROGRAMS_MAX;
  }
}

/** For this process, whose only thread does the copying. */
export const stalledPrograms = new StalledPrograms(() => performance.now());
