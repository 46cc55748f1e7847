/**
 * The slow mode: V8 reports which parts of our code an input reaches. Inputs that reach new parts
 * are kept, as tapes of their draws, and mutated. A seed decides the whole run.
 */
import { Session } from 'node:inspector/promises';
import { Draws, hash32 } from '../support/draws.ts';
import type { Finding } from './batch.ts';
import type { FuzzState, FuzzTarget } from './target.ts';

/** Maximum tapes kept for each target. */
const CORPUS_MAX = 2000;
/** One input in this many is new; the others mutate a kept tape. */
const FRESH_EVERY = 4;
/** Inputs that share a state. */
const STATE_INPUTS = 200;

interface CoverageOptions {
  readonly targets: readonly FuzzTarget[];
  readonly inputs: number;
  readonly seed: number;
  readonly print: (line: string) => void;
}

/** A failure, and the draws of its input. */
interface GrownFinding extends Finding {
  readonly tape: readonly number[];
}

interface CoverageRange {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}
interface ScriptCoverage {
  readonly url: string;
  readonly functions: readonly { readonly ranges: readonly CoverageRange[] }[];
}

/** A stretch of a compiled file. */
type Stretch = readonly [start: number, end: number];

/** The parts of a function not yet reached. */
interface FunctionReach {
  readonly lengthCharacters: number;
  unreached: readonly Stretch[];
}

/** Tracks which parts of the compiled program, without tests, have been reached. */
class ReachCounter {
  readonly #session = new Session();
  readonly #functions = new Map<string, FunctionReach>();

  async start(): Promise<void> {
    this.#session.connect();
    await this.#session.post('Profiler.enable');
    await this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  /** True if new code was reached since the last call. */
  async grew(): Promise<boolean> {
    const { result } = (await this.#session.post('Profiler.takePreciseCoverage')) as {
      result: readonly ScriptCoverage[];
    };
    let grew = false;
    for (const { url, functions } of result) {
      if (!/\/(?:daemon|verbs-api|native-bridge)\//.test(url)) continue;
      for (const { ranges } of functions) if (this.#note(url, ranges)) grew = true;
    }
    return grew;
  }

  /** Characters of compiled code reached. */
  get reached(): number {
    let sum = 0;
    for (const { lengthCharacters, unreached } of this.#functions.values()) {
      sum += lengthCharacters - lengthOf(unreached);
    }
    return sum;
  }

  stop(): void {
    this.#session.disconnect();
  }

  /** The first range is the whole function; those within it that did not run have the count 0. */
  #note(url: string, ranges: readonly CoverageRange[]): boolean {
    const [whole] = ranges;
    if (whole === undefined || whole.count === 0) return false;
    const idle = ranges
      .filter(({ count }) => count === 0)
      .map(({ startOffset, endOffset }): Stretch => [startOffset, endOffset]);
    const name = `${url} ${whole.startOffset} ${whole.endOffset}`;
    const known = this.#functions.get(name);
    if (known === undefined) {
      const lengthCharacters = whole.endOffset - whole.startOffset;
      this.#functions.set(name, { lengthCharacters, unreached: idle });
      return true;
    }
    const before = lengthOf(known.unreached);
    known.unreached = common(known.unreached, idle);
    return lengthOf(known.unreached) < before;
  }
}

function lengthOf(stretches: readonly Stretch[]): number {
  return stretches.reduce((sum, [start, end]) => sum + end - start, 0);
}

/** The intersection of two lists of stretches. */
function common(left: readonly Stretch[], right: readonly Stretch[]): Stretch[] {
  return left.flatMap(([start, end]) =>
    right
      .map(([from, to]): Stretch => [Math.max(start, from), Math.min(end, to)])
      .filter(([from, to]) => from < to),
  );
}

/** Runs `inputs` for each target. Returns the failures. */
export async function growCorpus(options: CoverageOptions): Promise<GrownFinding[]> {
  const counter = new ReachCounter();
  await counter.start();
  const findings: GrownFinding[] = [];
  for (const target of options.targets) {
    const grower = new Grower(target, hash32(target.name, options.seed), counter);
    const before = counter.reached;
    const finding = await grower.run(options.inputs);
    if (finding !== undefined) findings.push(finding);
    const reached = counter.reached - before;
    options.print(
      `${target.name.padEnd(15)} ${grower.inputs} inputs reached ${reached} characters more, ${grower.kept} kept`,
    );
  }
  counter.stop();
  return findings;
}

/** Grows the corpus of one target. */
class Grower {
  inputs = 0;
  readonly #target: FuzzTarget;
  readonly #seed: number;
  readonly #counter: ReachCounter;
  readonly #tapes: (readonly number[])[] = [];
  readonly #draws = new Draws();
  /** Chooses what to mutate, independently of the inputs' own draws. */
  readonly #chooser = new Draws();

  constructor(target: FuzzTarget, seed: number, counter: ReachCounter) {
    this.#target = target;
    this.#seed = seed;
    this.#counter = counter;
  }

  get kept(): number {
    return this.#tapes.length;
  }

  async run(inputs: number): Promise<GrownFinding | undefined> {
    let state: FuzzState | undefined;
    try {
      for (; this.inputs < inputs; this.inputs++) {
        if (this.inputs % STATE_INPUTS === 0) {
          await state?.close();
          this.#draws.seed(this.#seed, 0xffff_ffff);
          state = await this.#target.open(this.#draws);
        }
        this.#prepare();
        await state?.run(this.#draws);
        const tape = this.#draws.tape.slice();
        if ((await this.#counter.grew()) && this.#tapes.length < CORPUS_MAX) {
          this.#tapes.push(tape);
        }
      }
      await state?.close();
      return undefined;
    } catch (error) {
      const isError = error instanceof Error;
      return {
        target: this.#target.name,
        seed: this.#seed,
        input: this.inputs,
        text: isError ? error.message : String(error),
        stack: isError ? (error.stack ?? '') : '',
        tape: this.#draws.tape.slice(),
      };
    }
  }

  /** The next input: new, or a tape of the corpus with a few other draws. */
  #prepare(): void {
    const chooser = this.#chooser;
    chooser.seed(this.#seed, this.inputs);
    if (this.#tapes.length === 0 || chooser.oneIn(FRESH_EVERY)) {
      this.#draws.seed(this.#seed, this.inputs, true);
      return;
    }
    const tape = [...chooser.pick(this.#tapes)];
    for (let count = chooser.between(1, 4); count > 0; count--) {
      const at = chooser.below(tape.length + 1);
      const kind = chooser.below(4);
      if (kind === 0) tape[at] = chooser.next();
      else if (kind === 1) tape[at] = chooser.word();
      else if (kind === 2) tape.splice(at, chooser.below(4));
      else tape.splice(at, 0, ...chooser.pick(this.#tapes).slice(0, chooser.below(8)));
    }
    this.#draws.play(tape);
  }
}
