/** A long run: distributes inputs to targets and workers, prints progress and collects findings. */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Finding } from './batch.ts';
import type { FromWorker, Unit, UnitReport } from './messages.ts';
import { lookAt, SILENCE_MAX_MS, SilenceWatch } from './silence-watch.ts';
import type { FuzzTarget } from './target.ts';

/** Approximate time of a unit. Between units a worker collects garbage and checks for growth. */
const UNIT_SECONDS = 4;
const PROGRESS_INTERVAL_MS = 10_000;
/**
 * Part of all inputs that each target gets, however slow it is: 100,000 of 10^8. By time alone, the
 * targets with real sockets would get 17,000 and the fastest codec half of all.
 */
const LEAST_SHARE = 0.001;
/** Findings after which a target gets no more inputs. */
const FINDINGS_PER_TARGET = 3;

interface LongRunOptions {
  readonly targets: readonly FuzzTarget[];
  readonly inputs: number;
  readonly seed: number;
  readonly workers: number;
  readonly print: (line: string) => void;
}

export interface TargetTally {
  readonly target: FuzzTarget;
  readonly batches: number;
  assigned: number;
  doneBatches: number;
  inputs: number;
  busyMs: number;
  slowestMs: number;
  readonly outcomes: Map<string, number>;
  readonly findings: Finding[];
}

interface WorkerSlot {
  readonly placePath: string;
  process: ChildProcess;
  unit: Unit | undefined;
  readonly silence: SilenceWatch;
  hung: boolean;
}

/**
 * Distributes `inputs` to targets, in whole batches: each gets its least share, and the rest goes by
 * weight, hence about the same time for each.
 */
export function shareInputs(targets: readonly FuzzTarget[], inputs: number): TargetTally[] {
  const weights = targets.reduce((sum, { weight }) => sum + weight, 0);
  const least = inputs * Math.min(LEAST_SHARE, 1 / targets.length);
  const rest = inputs - least * targets.length;
  return targets.map((target) => {
    const part = least + (rest * target.weight) / weights;
    return {
      target,
      batches: Math.max(1, Math.ceil(part / target.batchInputs)),
      assigned: 0,
      doneBatches: 0,
      inputs: 0,
      busyMs: 0,
      slowestMs: 0,
      outcomes: new Map<string, number>(),
      findings: [],
    };
  });
}

export class LongRun {
  readonly tallies: readonly TargetTally[];
  readonly #options: LongRunOptions;
  readonly #folder = mkdtempSync(join(tmpdir(), 'iwarpd-fuzz-'));
  readonly #slots: WorkerSlot[] = [];
  readonly #startedAt = performance.now();
  #finish: () => void = () => undefined;
  #ended = false;

  constructor(options: LongRunOptions) {
    this.#options = options;
    this.tallies = shareInputs(options.targets, options.inputs);
    mkdirSync(this.#folder, { recursive: true });
  }

  /** Resolves when the run is complete or `signal` fires. */
  async run(signal: AbortSignal): Promise<void> {
    const finished = new Promise<void>((resolve) => {
      this.#finish = resolve;
    });
    signal.addEventListener('abort', () => this.#finish());
    const progress = setInterval(() => this.#look(), PROGRESS_INTERVAL_MS);
    for (let index = 0; index < this.#options.workers; index++) {
      const placePath = join(this.#folder, `place-${index}`);
      const slot: WorkerSlot = {
        placePath,
        process: this.#start(placePath),
        unit: undefined,
        silence: new SilenceWatch(),
        hung: false,
      };
      this.#slots.push(slot);
      this.#listen(slot);
      this.#next(slot);
    }
    await finished;
    this.#ended = true;
    clearInterval(progress);
    for (const { process: child } of this.#slots) child.kill('SIGKILL');
    rmSync(this.#folder, { recursive: true, force: true });
  }

  get inputs(): number {
    return this.tallies.reduce((sum, { inputs }) => sum + inputs, 0);
  }

  get findings(): Finding[] {
    return this.tallies.flatMap(({ findings }) => findings);
  }

  get seconds(): number {
    return (performance.now() - this.#startedAt) / 1000;
  }

  #start(placePath: string): ChildProcess {
    const path = fileURLToPath(new URL('worker-main.js', import.meta.url));
    // Removing the folder also removes what killed workers left behind.
    const env = { ...process.env, TMPDIR: this.#folder };
    return fork(path, [placePath], { env, execArgv: ['--max-old-space-size=1024'] });
  }

  #listen(slot: WorkerSlot): void {
    slot.process.on('message', (message: FromWorker) => {
      this.#noteMessage(slot);
      if (message.type === 'report') this.#take(slot, message.report);
    });
    slot.process.on('exit', (code, killedBy) => {
      if (!this.#ended) this.#lost(slot, killedBy ?? `status ${code}`);
    });
  }

  #noteMessage(slot: WorkerSlot): void {
    slot.silence.noteMessage(performance.now(), lookAt(slot.process.pid));
  }

  /** Takes the next unit from the target that is furthest behind. */
  #next(slot: WorkerSlot): void {
    const open = this.tallies.filter(
      ({ assigned, batches, findings }) =>
        assigned < batches && findings.length < FINDINGS_PER_TARGET,
    );
    const [tally] = open.sort((a, b) => a.assigned / a.batches - b.assigned / b.batches);
    slot.unit = undefined;
    if (tally === undefined) {
      if (this.#slots.every(({ unit }) => unit === undefined)) this.#finish();
      return;
    }
    const { target } = tally;
    const wanted = Math.max(1, Math.round((target.weight * UNIT_SECONDS) / target.batchInputs));
    const batches = Math.min(wanted, tally.batches - tally.assigned);
    slot.unit = { target: target.name, firstBatch: tally.assigned, batches };
    tally.assigned += batches;
    this.#noteMessage(slot);
    slot.process.send({ type: 'unit', unit: slot.unit, runSeed: this.#options.seed });
  }

  #take(slot: WorkerSlot, report: UnitReport): void {
    const tally = this.#tallyOf(report.unit);
    tally.doneBatches += report.batches;
    tally.inputs += report.inputs;
    tally.busyMs += report.busyMs;
    tally.slowestMs = Math.max(tally.slowestMs, report.slowestMs);
    for (const [outcome, count] of Object.entries(report.outcomes)) {
      tally.outcomes.set(outcome, (tally.outcomes.get(outcome) ?? 0) + count);
    }
    if (report.finding !== undefined) this.#note(tally, report.finding);
    this.#next(slot);
  }

  #tallyOf(unit: Unit): TargetTally {
    const tally = this.tallies.find(({ target }) => target.name === unit.target);
    if (tally === undefined) throw new Error(`no tally of ${unit.target}`);
    return tally;
  }

  #note(tally: TargetTally, finding: Finding): void {
    tally.findings.push(finding);
    this.#options.print(`FAILED ${finding.target}: ${finding.text.split('\n')[0]}`);
  }

  /** A worker died; its file names the input. */
  #lost(slot: WorkerSlot, how: string): void {
    const { unit } = slot;
    if (unit !== undefined) {
      const [target = unit.target, seed = '0'] = readPlace(slot.placePath).split(':');
      const text = slot.hung
        ? `hangs for more than ${SILENCE_MAX_MS / 1000} s`
        : `ends its process: ${how}`;
      // The input is unknown; a replay of the batch finds it.
      const finding = { target, seed: Number(seed), input: -1, text, stack: '' };
      this.#note(this.#tallyOf(unit), finding);
    }
    slot.hung = false;
    slot.process = this.#start(slot.placePath);
    this.#listen(slot);
    this.#next(slot);
  }

  #look(): void {
    for (const slot of this.#slots) {
      const { unit, silence, process: child } = slot;
      if (unit === undefined || !silence.hangs(performance.now(), lookAt(child.pid))) continue;
      slot.hung = true;
      child.kill('SIGKILL');
    }
    const { inputs, seconds } = this;
    const rate = inputs / seconds;
    const left = (this.#options.inputs - inputs) / Math.max(1, rate);
    const parts = [
      `${inputs.toLocaleString('en')} inputs`,
      `${Math.round(rate).toLocaleString('en')} a second`,
      `${Math.max(0, Math.round(left))} s left`,
      `${this.findings.length} failed`,
    ];
    const doing = this.#slots.map(({ unit }) => unit?.target ?? 'idle').join(' ');
    this.#options.print(`${Math.round(seconds)} s: ${parts.join(', ')} (${doing})`);
  }
}

function readPlace(path: string): string {
  try {
    return readFileSync(path, 'latin1').trim();
  } catch {
    return '';
  }
}
