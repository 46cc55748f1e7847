/**
 * A worker of a long run: a separate process, since an input may crash or hang it. It records the
 * current input in a file, from which the run learns what killed it.
 */
import { openSync, writeSync } from 'node:fs';
import { hash32 } from '../support/draws.ts';
import { type Finding, judgeBatch } from './batch.ts';
import { GrowthWatch, holdings } from './growth.ts';
import type { FromWorker, ToWorker, Unit, UnitReport } from './messages.ts';
import { TARGETS } from './registry.ts';
import type { FuzzTarget } from './target.ts';

const ALIVE_INTERVAL_MS = 1000;

/** Size of the file that records a worker's place; see `emitPlace`. */
const PLACE_BYTES = 64;

/** A worker's place: the target's name and the batch's seed. */
function emitPlace(target: string, seed: number): Uint8Array {
  return Buffer.from(`${target}:${seed}`.padEnd(PLACE_BYTES, ' '), 'latin1');
}

function batchSeed(runSeed: number, target: string, batch: number): number {
  return hash32(target, runSeed, batch);
}

/** Runs units until a message ends it. */
class Worker {
  readonly #place: number;
  readonly #watches = new Map<string, GrowthWatch>();
  readonly #send: (message: FromWorker) => void;
  #toldAt = 0;

  constructor(placePath: string, send: (message: FromWorker) => void) {
    this.#place = openSync(placePath, 'w');
    this.#send = send;
  }

  async do(unit: Unit, runSeed: number): Promise<void> {
    const target = TARGETS.find(({ name }) => name === unit.target);
    if (target === undefined) throw new Error(`no target ${unit.target}`);
    this.#send({ type: 'report', report: await this.#run(target, unit, runSeed) });
  }

  async #run(target: FuzzTarget, unit: Unit, runSeed: number): Promise<UnitReport> {
    const outcomes: Record<string, number> = {};
    const began = performance.now();
    let inputs = 0;
    let slowestMs = 0;
    let batches = 0;
    let finding: Finding | undefined;
    let seed = 0;
    while (batches < unit.batches && finding === undefined) {
      seed = batchSeed(runSeed, target.name, unit.firstBatch + batches);
      writeSync(this.#place, emitPlace(target.name, seed), 0, PLACE_BYTES, 0);
      const report = await judgeBatch(target, seed, {
        onStart: (input) => this.#alive(target.name, seed, input),
      });
      batches += 1;
      inputs += report.inputs;
      slowestMs = Math.max(slowestMs, report.slowestMs);
      for (const [outcome, count] of report.outcomes) {
        outcomes[outcome] = (outcomes[outcome] ?? 0) + count;
      }
      finding = report.finding;
      // Let timers and messages run.
      await new Promise((resolve) => setImmediate(resolve));
    }
    const busyMs = performance.now() - began;
    const grown = await this.#judgeGrowth(target);
    if (grown !== undefined) {
      finding ??= { target: target.name, seed, input: inputs, text: grown, stack: '' };
    }
    return { unit, inputs, batches, outcomes, slowestMs, busyMs, finding };
  }

  async #judgeGrowth({ name }: FuzzTarget): Promise<string | undefined> {
    const watch = this.#watches.get(name) ?? new GrowthWatch();
    this.#watches.set(name, watch);
    return watch.judge(await holdings());
  }

  /** Checked often, sent rarely. */
  #alive(target: string, seed: number, input: number): void {
    if ((input & 0xff) !== 0) return;
    const now = performance.now();
    if (now - this.#toldAt < ALIVE_INTERVAL_MS) return;
    this.#toldAt = now;
    this.#send({ type: 'alive', target, seed, input });
  }
}

/** The process of a worker: `argv` names its file. */
export function runWorkerProcess(placePath: string): void {
  const worker = new Worker(placePath, (message) => void process.send?.(message));
  process.on('message', (message: ToWorker) => {
    if (message.type === 'end') process.exit(0);
    worker.do(message.unit, message.runSeed).catch((error: unknown) => {
      process.stderr.write(`fuzz worker: ${error instanceof Error ? error.stack : error}\n`);
      process.exit(1);
    });
  });
  // Exit when the run is gone.
  process.on('disconnect', () => process.exit(0));
}
