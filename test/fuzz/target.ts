/** Defines a fuzz target. registry.ts lists all targets; README.md says how to add one. */
import type { Draws } from '../support/draws.ts';

/** The outcome of an input, in a word or two. A run counts them to show how deep its inputs reach. */
export type Outcome = string;

/** Real objects that process inputs; the inputs of a batch share them. */
export interface FuzzState {
  /** Makes one input from `draws` and runs it. Throws if an invariant breaks. */
  run(draws: Draws): Outcome | Promise<Outcome>;
  /** Ends the objects. Throws if anything is left. */
  close(): void | Promise<void>;
}

/** A defect planted in the code under test, which the target's oracles must find. */
interface Canary {
  /** Plants the defect in this process. Returns a function that removes it. */
  readonly plant: () => () => void;
  /** Number of inputs within which it must be found. */
  readonly inputs: number;
}

/** One parser or command surface that accepts outside input. */
export interface FuzzTarget {
  /** Group and surface, such as `wire-stream`; `--targets wire` selects the whole group. */
  readonly name: string;
  readonly about: string;
  /** Inputs that share a state. */
  readonly batchInputs: number;
  /** Share of a run's inputs, relative to other targets: about as many as it processes per second. */
  readonly weight: number;
  /** Inputs for each seed of `npm test`. */
  readonly smokeInputs: number;
  readonly canary: Canary;
  open(draws: Draws): FuzzState | Promise<FuzzState>;
}

/** Throws unless an invariant holds. */
export function claim(condition: boolean, text: string): asserts condition {
  if (!condition) throw new Error(text);
}

/** A function that replaces a method and gets the original as its first argument. */
type Replacement<T, Method> = Method extends (...given: infer Given) => infer Result
  ? (this: T, original: (...given: Given) => Result, ...given: Given) => Result
  : never;

/** Replaces a method of a class. Returns a function that restores it. */
export function patch<T extends object, K extends keyof T>(
  prototype: T,
  method: K,
  replacement: Replacement<T, T[K]>,
): () => void {
  const original = prototype[method];
  prototype[method] = function (this: T, ...given: unknown[]) {
    const call = (...more: unknown[]) => Reflect.apply(original as never, this, more);
    return Reflect.apply(replacement as never, this, [call, ...given]);
  } as T[K];
  return () => {
    prototype[method] = original;
  };
}

/** A canary that replaces a method of a class. */
export function canary<T extends object, K extends keyof T>(
  inputs: number,
  ...replaced: [prototype: T, method: K, replacement: Replacement<T, T[K]>]
): Canary {
  return { inputs, plant: () => patch(...replaced) };
}
