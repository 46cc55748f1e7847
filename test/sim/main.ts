/**
 * `npm run sim -- --seeds N --workers W [--first SEED] [--over NET] [--replay SEED]`: runs N seeds and
 * stops at the first that fails. Exits 0 if none fails, 1 if one fails, 2 for a usage error.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { NETWORKS, runOver, type SimulatedOver } from './over.ts';
import { commitSeed, replayCommand } from './seeds.ts';
import type { Batch, BatchReport, Failure } from './worker.ts';

const WORKER = fileURLToPath(new URL('./worker.js', import.meta.url));
/**
 * With room for a run's short-lived objects a worker runs 5 % faster than with V8's default, and 9
 * % faster if its collector starts no threads, which would compete with the other workers.
 */
const WORKER_FLAGS = [
  '--min-semi-space-size=32',
  '--max-semi-space-size=32',
  '--single-threaded-gc',
];
/** Seeds that a worker runs between two reports; about a second of work. */
const BATCH_SEEDS = 100;
const PROGRESS_MS = 10_000;
const SEEDS_DEFAULT = 10_000;
const USAGE = `usage: npm run sim -- [--seeds N] [--workers N] [--first SEED] [--over tcp|sctp|roce]
       npm run sim -- --replay SEED [--over tcp|sctp|roce]`;

interface Options {
  readonly seeds: number;
  readonly workers: number;
  readonly first: number;
  /** Undefined: TCP; some seeds also run over SCTP or RoCE. */
  readonly over: SimulatedOver | undefined;
  readonly replay: number | undefined;
  readonly help: boolean;
}

function parseOptions(): Options {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string' },
      workers: { type: 'string' },
      first: { type: 'string' },
      over: { type: 'string' },
      replay: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const count = (
    name: Exclude<keyof typeof values, 'help' | 'over'>,
    otherwise: number,
    least: number,
  ): number => {
    const text = values[name];
    const value = text === undefined ? otherwise : Number(text);
    if (!Number.isSafeInteger(value) || value < least) {
      throw new RangeError(`--${name} must be an integer of at least ${least}, not '${text}'`);
    }
    return value;
  };
  const over = NETWORKS.find((network) => network === values.over);
  if (values.over !== undefined && over === undefined) {
    throw new RangeError(`--over must be ${NETWORKS.join(' or ')}, not '${values.over}'`);
  }
  return {
    over,
    seeds: count('seeds', SEEDS_DEFAULT, 1),
    workers: count('workers', 1, 1),
    first: count('first', commitSeed(), 0),
    replay: values.replay === undefined ? undefined : count('replay', 0, 0),
    help: values.help,
  };
}

/** Runs one seed and logs every step. */
async function replay(seed: number, over: SimulatedOver): Promise<boolean> {
  try {
    const result = await runOver(seed, over, (text) => console.log(text));
    console.log(result);
    return true;
  } catch (error) {
    console.log(error instanceof Error ? error.stack : error);
    return false;
  }
}

/** Gives workers seeds in batches and adds up their reports. */
class Explorer {
  readonly #options: Options;
  readonly #workers = new Set<ChildProcess>();
  readonly #startedMs = performance.now();
  /** Index of the next seed to give to a worker. */
  #next = 0;
  #done = 0;
  #completions = 0;
  #established = 0;
  #failure: Failure | undefined;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Returns the failure with the lowest seed, if any. */
  async explore(): Promise<Failure | undefined> {
    const { seeds, first, workers } = this.#options;
    console.log(`${seeds} seeds from ${first}, ${workers} worker${workers === 1 ? '' : 's'}`);
    const progress = setInterval(() => this.#printProgress(), PROGRESS_MS);
    await Promise.all(Array.from({ length: workers }, () => this.#work()));
    clearInterval(progress);
    this.#printProgress();
    return this.#failure;
  }

  #work(): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = fork(WORKER, [], { execArgv: WORKER_FLAGS });
      this.#workers.add(worker);
      const next = (): void => {
        const batch = this.#take();
        if (batch === undefined) worker.disconnect();
        else worker.send(batch);
      };
      worker.on('message', (report: BatchReport) => {
        this.#note(report);
        next();
      });
      worker.on('error', reject);
      worker.on('exit', (code) => {
        this.#workers.delete(worker);
        if (code === 0) resolve();
        else reject(new Error(`a worker exited with status ${code}`));
      });
      next();
    });
  }

  #take(): Batch | undefined {
    const { seeds, first, over } = this.#options;
    if (this.#failure !== undefined || this.#next >= seeds) return undefined;
    const count = Math.min(BATCH_SEEDS, seeds - this.#next);
    const batch = { first: first + this.#next, count, stride: 1, over };
    this.#next += count;
    return batch;
  }

  #note({ done, completions, established, failure }: BatchReport): void {
    this.#done += done;
    this.#completions += completions;
    this.#established += established;
    if (failure === undefined) return;
    if (this.#failure === undefined || failure.seed < this.#failure.seed) this.#failure = failure;
  }

  #printProgress(): void {
    const seconds = (performance.now() - this.#startedMs) / 1000;
    const rate = Math.round(this.#done / seconds);
    console.log(
      `${this.#done} of ${this.#options.seeds} seeds, ${rate} a second, ` +
        `${this.#established} connections, ${this.#completions} completions`,
    );
  }
}

async function main(): Promise<number> {
  let options: Options;
  try {
    options = parseOptions();
  } catch (error) {
    console.error(`sim: ${error instanceof Error ? error.message : String(error)}\n${USAGE}`);
    return 2;
  }
  if (options.help) {
    console.log(USAGE);
    return 0;
  }
  if (options.replay !== undefined) {
    return (await replay(options.replay, options.over ?? 'tcp')) ? 0 : 1;
  }
  const failure = await new Explorer(options).explore();
  if (failure === undefined) return 0;
  console.log(`seed ${failure.seed} over ${failure.over} failed: ${failure.text}`);
  console.log(`to replay it: ${replayCommand(failure.seed, failure.over)}`);
  return 1;
}

process.exitCode = await main();
