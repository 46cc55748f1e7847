/**
 * How long a test waits for an event: the timeouts of all suites.
 *
 * A wait ends with its event. The timeout only catches hangs, so it is many times what an idle
 * machine needs, and grows with the load: no test fails because the machine is busy.
 */
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';

/** Asked once: newer Node.js reads files for it each time. */
const PROCESSORS = availableParallelism();

/** For one event on an idle machine, including the start of a process. */
const EVENT_MS = 30_000;
/** For a program from its start to its end. */
export const PROGRAM_MS = 120_000;
/** For a whole test or hook, which waits for several. */
export const TEST_MS = 300_000;
/** Maximum factor for load: a test that hangs must eventually fail. */
const SLOWDOWN_MAX = 10;
/** The first looks are a turn of the event loop apart, the others an interval. */
const QUICK_LOOKS = 10;
const LOOK_INTERVAL_MS = 5;

/** How many times slower than a real machine this one is, if it is emulated. */
const OF_MACHINE = Math.max(1, Number(process.env['IWARPD_PATIENCE']) || 1);

/** Runnable tasks for each processor, now or over the last minute, as the kernel counts: at least 1. */
function crowding(): number {
  let text: string;
  try {
    text = readFileSync('/proc/loadavg', 'utf8');
  } catch {
    return 1;
  }
  const [, minute = 0, running = 0] = /^([\d.]+) \S+ \S+ (\d+)\//.exec(text)?.map(Number) ?? [];
  return Math.max(1, Math.max(minute, running) / PROCESSORS);
}

/** Milliseconds to wait now for an event that takes less than `idleMs` on an idle machine. */
export function patience(idleMs: number = EVENT_MS): number {
  return Math.ceil(idleMs * Math.min(SLOWDOWN_MAX, OF_MACHINE * crowding()));
}

/** Seconds for `timeout`, which ends a program whose test does not. */
export function programSeconds(): number {
  return Math.ceil(patience(PROGRAM_MS) / 1000);
}

/** A signal that aborts when the timeout expires. */
export function patient(idleMs?: number): AbortSignal {
  return AbortSignal.timeout(patience(idleMs));
}

/** The result of a look that found something. */
type Found<T> = Exclude<T, undefined | null | false | 0 | ''>;

/**
 * Calls `look` until it returns something, and returns that; throws when the timeout expires.
 * `what` follows "waited in vain for" in the message, and may add the observed state.
 */
export async function until<T>(
  what: string | (() => string),
  look: () => T | Promise<T>,
  idleMs?: number,
): Promise<Found<T>> {
  const deadline = performance.now() + patience(idleMs);
  for (let looks = 1; ; looks += 1) {
    const found = await look();
    if (found) return found as Found<T>;
    if (performance.now() > deadline) {
      throw new Error(`waited in vain for ${typeof what === 'string' ? what : what()}`);
    }
    await (looks < QUICK_LOOKS ? turn() : sleep(LOOK_INTERVAL_MS));
  }
}

/**
 * Waits for a time in which nothing may happen. No event marks an absence, so the time is fixed;
 * load can make it miss a fault, never cause one.
 */
export async function quiet(milliseconds: number): Promise<void> {
  await sleep(milliseconds);
}
