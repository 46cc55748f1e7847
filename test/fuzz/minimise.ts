/** Minimises a failing input: shortens the tape of its draws and lowers its numbers. */
import { Draws } from '../support/draws.ts';
import type { FuzzTarget } from './target.ts';

/** Maximum attempts for one input. */
const ATTEMPTS_MAX = 2000;

/** A small input that fails on its own. */
interface SmallInput {
  readonly tape: readonly number[];
  readonly text: string;
  readonly shown: readonly string[];
}

/** Runs a tape on a new state. Returns why it fails, or undefined. */
export async function playTape(
  target: FuzzTarget,
  seed: number,
  tape: readonly number[],
): Promise<SmallInput | undefined> {
  const draws = new Draws();
  draws.seed(seed, 0xffff_ffff);
  const state = await target.open(draws);
  let failure: unknown;
  try {
    draws.play(tape);
    await state.run(draws);
  } catch (error) {
    failure = error;
  }
  const used = draws.tape.slice();
  const shown = [...draws.shown];
  try {
    await state.close();
  } catch (error) {
    failure ??= error;
  }
  if (failure === undefined) return undefined;
  return { tape: used, text: failure instanceof Error ? failure.message : String(failure), shown };
}

/**
 * Returns the smallest input found that fails as `tape` does; undefined if it fails only after
 * earlier inputs.
 */
export async function minimise(
  target: FuzzTarget,
  seed: number,
  tape: readonly number[],
): Promise<SmallInput | undefined> {
  let best = await playTape(target, seed, tape);
  if (best === undefined) return undefined;
  const likeFirst = kindOf(best.text);
  let attempts = 0;
  const better = async (candidate: readonly number[]): Promise<boolean> => {
    attempts += 1;
    const played = await playTape(target, seed, candidate);
    if (played === undefined || kindOf(played.text) !== likeFirst) return false;
    best = { ...played, tape: trimmed(played.tape) };
    return true;
  };
  for (let improved = true; improved && attempts < ATTEMPTS_MAX; ) {
    improved = false;
    // Remove stretches, long ones first.
    for (let size = Math.max(1, best.tape.length >> 1); size >= 1; size >>= 1) {
      for (let at = 0; at < best.tape.length && attempts < ATTEMPTS_MAX; ) {
        const candidate = [...best.tape.slice(0, at), ...best.tape.slice(at + size)];
        if (await better(candidate)) improved = true;
        else at += size;
      }
    }
    for (let at = 0; at < best.tape.length && attempts < ATTEMPTS_MAX; at++) {
      for (const value of smaller(best.tape[at] ?? 0)) {
        const candidate = best.tape.slice();
        candidate[at] = value;
        if (!(await better(candidate))) continue;
        improved = true;
        break;
      }
    }
  }
  return best;
}

/** Numbers smaller than a draw, smallest first. */
function smaller(value: number): number[] {
  return [0, 1, value & 0xff, value >>> 8, value >>> 1].filter((each) => each < value);
}

/** Drops trailing zeros: a tape yields zeros after its end anyway. */
function trimmed(tape: readonly number[]): number[] {
  let end = tape.length;
  while (end > 0 && tape[end - 1] === 0) end -= 1;
  return tape.slice(0, end);
}

/** The message without its numbers, which differ from input to input. */
function kindOf(text: string): string {
  return text.replaceAll(/[0-9a-f]{2,}|\d+/g, '#').slice(0, 60);
}
