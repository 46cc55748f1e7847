/**
 * Feeds mutations of valid octets to a target that must hold its own invariants.
 *
 * `IWARPD_FUZZ_SEED` and `IWARPD_FUZZ_ROUNDS` choose another run; a finding names the seed of its
 * round, which alone gives it again.
 */

import { Prng } from '../sim/prng.ts';
import { hexOf } from '../support/hex.ts';

/** Throws when an invariant breaks. May use `prng` for splits and other choices. */
export type FuzzTarget = (octets: Uint8Array, prng: Prng) => void;

export interface FuzzRun {
  /** Valid inputs; a round starts from one of them. */
  readonly corpus: readonly Uint8Array[];
  readonly target: FuzzTarget;
  /** Rounds when the environment does not say. */
  readonly rounds: number;
}

/** A round whose target threw. */
export interface FuzzFinding {
  readonly seed: number;
  readonly octets: string;
  readonly text: string;
}

function fromEnvironment(name: string, fallback: number): number {
  const text = process.env[name];
  return text === undefined ? fallback : Number.parseInt(text, 10);
}

/** Runs the rounds and returns the first finding, or undefined when there is none. */
export function fuzz(run: FuzzRun): FuzzFinding | undefined {
  const firstSeed = fromEnvironment('IWARPD_FUZZ_SEED', 1);
  const rounds = fromEnvironment('IWARPD_FUZZ_ROUNDS', run.rounds);
  for (let round = 0; round < rounds; round++) {
    const seed = firstSeed + round;
    const prng = new Prng(seed);
    const octets = mutated(run.corpus, prng);
    try {
      run.target(octets, prng);
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return { seed, octets: hexOf(octets), text };
    }
  }
  return undefined;
}

/** One of the corpus with up to four mutations. */
function mutated(corpus: readonly Uint8Array[], prng: Prng): Uint8Array {
  let octets: Uint8Array = pick(corpus, prng).slice();
  for (let count = prng.below(5); count > 0; count--) octets = mutate(octets, corpus, prng);
  return octets;
}

function pick(corpus: readonly Uint8Array[], prng: Prng): Uint8Array {
  return corpus[prng.below(corpus.length)] ?? new Uint8Array(0);
}

function mutate(octets: Uint8Array, corpus: readonly Uint8Array[], prng: Prng): Uint8Array {
  const at = prng.below(octets.length + 1);
  switch (prng.below(7)) {
    case 0: // A bit flips.
      if (at < octets.length) octets[at] = (octets[at] ?? 0) ^ (1 << prng.below(8));
      return octets;
    case 1: // An octet becomes one that limits are made of.
      if (at < octets.length) octets[at] = [0, 1, 0x7f, 0x80, 0xfd, 0xff][prng.below(6)] ?? 0;
      return octets;
    case 2: // A field of two octets becomes noise.
      for (const i of [at, at + 1]) if (i < octets.length) octets[i] = prng.below(256);
      return octets;
    case 3: // The end is missing.
      return octets.slice(0, at);
    case 4: // A stretch is missing.
      return joined(octets.subarray(0, at), octets.subarray(at + prng.below(40)));
    case 5: // A stretch is there twice.
      return joined(octets.subarray(0, at), octets.subarray(Math.max(0, at - prng.below(40))));
    default: // Another input goes on from here.
      return joined(octets.subarray(0, at), pick(corpus, prng));
  }
}

function joined(head: Uint8Array, tail: Uint8Array): Uint8Array {
  const octets = new Uint8Array(head.length + tail.length);
  octets.set(head);
  octets.set(tail, head.length);
  return octets;
}
