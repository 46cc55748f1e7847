/**
 * Work that waits only where it must: the same code for file systems that respond at once and for
 * those that may block.
 *
 * Steps are a generator. It yields a promise for each system call that went to a thread; if none
 * did, it runs to its end at once, without a promise or a turn of the event loop.
 */

/** Work with a result. Its yields are promises, each answered with what it resolves to. */
export type Steps<T> = Generator<Promise<unknown>, T, unknown>;

/** A result that is available, or will be. */
export type Eventually<T> = T | Promise<T>;

/** Waits for `value` unless it is available. */
export function* settled<T>(value: Eventually<T>): Steps<T> {
  return value instanceof Promise ? ((yield value) as T) : value;
}

/** Runs `steps`: to the end if nothing waits, which throws what they throw. */
export function runSteps<T>(steps: Steps<T>): Eventually<T> {
  const step = steps.next();
  return step.done === true ? step.value : finish(steps, step.value);
}

async function finish<T>(steps: Steps<T>, first: Promise<unknown>): Promise<T> {
  let waiting = first;
  for (;;) {
    let answer: unknown;
    let failed = false;
    try {
      answer = await waiting;
    } catch (error) {
      answer = error;
      failed = true;
    }
    const step = failed ? steps.throw(answer) : steps.next(answer);
    if (step.done === true) return step.value;
    waiting = step.value;
  }
}

/** Steps that need no system call. */
export function present<A, T>(run: (given: A) => T): (given: A) => Steps<T> {
  // biome-ignore lint/correctness/useYield: it never waits.
  return function* (given) {
    return run(given);
  };
}
