/**
 * `npm run fuzz`: runs the targets in this folder for a long time, and replays findings. See
 * README.md.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Finding, inputName, judgeBatch, replayCommand, runBatch } from './batch.ts';
import { growCorpus } from './coverage.ts';
import { LongRun, type TargetTally } from './long-run.ts';
import { minimise, playTape } from './minimise.ts';
import { TARGETS, targetsNamed } from './registry.ts';
import type { FuzzTarget } from './target.ts';

const FOLDER = '.cache/fuzz';
const STATUS_FOUND = 1;
const STATUS_USAGE = 2;
const USAGE = `usage: npm run fuzz -- [--inputs N] [--targets NAME,...] [--seed N] [--workers N]
       npm run fuzz -- --coverage [--inputs N] [--targets NAME,...] [--seed N]
       npm run fuzz -- --replay TARGET:SEED[:INPUT] | FILE
       npm run fuzz -- --list`;

interface SavedInput extends Finding {
  /** Draws of a small input that fails on its own; absent if it needs earlier inputs. */
  readonly tape?: readonly number[];
  readonly shown?: readonly string[];
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function wholeNumber(text: string, least: number): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < least)
    throw new Error(`'${text}' is not an integer of at least ${least}`);
  return value;
}

/** The draws of an input of a batch; undefined if the batch now ends before it. */
async function tapeOf(
  target: FuzzTarget,
  finding: Finding,
): Promise<readonly number[] | undefined> {
  let tape: readonly number[] | undefined;
  await runBatch(target, finding.seed, {
    inputs: finding.input + 1,
    recorded: (input) => input === finding.input,
    onInput: (draws, input) => {
      if (input === finding.input) tape = draws.tape.slice();
    },
  });
  return tape;
}

/** Minimises a finding, saves it, and prints the command that replays it. */
async function keep(finding: SavedInput): Promise<void> {
  const [target] = targetsNamed([finding.target]);
  let saved: SavedInput = finding;
  if (target !== undefined && finding.input >= 0) {
    const tape = finding.tape ?? (await tapeOf(target, finding));
    const small = tape === undefined ? undefined : await minimise(target, finding.seed, tape);
    if (small !== undefined) saved = { ...finding, tape: small.tape, shown: small.shown };
  }
  mkdirSync(FOLDER, { recursive: true });
  const path = join(FOLDER, `${inputName(finding).replaceAll(':', '-')}.json`);
  writeFileSync(path, `${JSON.stringify(saved, undefined, 2)}\n`);
  print('');
  print(`${finding.target}: ${finding.text}`);
  for (const line of saved.shown ?? []) print(`  input: ${line.slice(0, 400)}`);
  print(`  replay: ${finding.tape === undefined ? replayCommand(finding) : replayFile(path)}`);
  print(`  saved in ${path}`);
}

function replayFile(path: string): string {
  return `npm run fuzz -- --replay ${path}`;
}

async function replay(what: string): Promise<boolean> {
  if (what.endsWith('.json')) return await replaySaved(what);
  const [name = '', seedText = '', inputText] = what.split(':');
  const [target] = targetsNamed([name]);
  if (target === undefined) throw new Error(`no fuzz target is called ${name}`);
  const seed = wholeNumber(seedText, 0);
  const last = inputText === undefined ? undefined : wholeNumber(inputText, 0);
  const report = await judgeBatch(target, seed, {
    ...(last === undefined ? {} : { inputs: last + 1 }),
    recorded: (input) => input === last,
    onInput: (draws, input) => {
      if (input === last) for (const line of draws.shown) print(`input: ${line}`);
    },
  });
  print(`${report.inputs} inputs, the slowest took ${report.slowestMs.toFixed(1)} ms`);
  return printFinding(report.finding);
}

async function replaySaved(path: string): Promise<boolean> {
  const saved = JSON.parse(readFileSync(path, 'utf8')) as SavedInput;
  if (saved.tape === undefined) return await replay(inputName(saved));
  const [target] = targetsNamed([saved.target]);
  if (target === undefined) throw new Error(`no fuzz target is called ${saved.target}`);
  const played = await playTape(target, saved.seed, saved.tape);
  for (const line of played?.shown ?? []) print(`input: ${line}`);
  print(played === undefined ? 'it does not fail any more' : `fails: ${played.text}`);
  return played !== undefined;
}

function printFinding(finding: Finding | undefined): boolean {
  if (finding === undefined) print('no failure');
  else print(`${inputName(finding)} fails: ${finding.stack === '' ? finding.text : finding.stack}`);
  return finding !== undefined;
}

function tallyLines(tallies: readonly TargetTally[]): string[] {
  return tallies.map(({ target, inputs, busyMs, slowestMs, outcomes, findings }) => {
    const rate = busyMs === 0 ? 0 : (inputs / busyMs) * 1000;
    const most = [...outcomes].sort((a, b) => b[1] - a[1]).slice(0, 6);
    const shares = most.map(([name, count]) => `${name} ${((100 * count) / inputs).toFixed(1)} %`);
    const numbers = [
      `${inputs.toLocaleString('en')} inputs`,
      `${Math.round(rate).toLocaleString('en')} a second and worker`,
      `slowest ${slowestMs.toFixed(0)} ms`,
      `${findings.length} failed`,
    ];
    return `${target.name.padEnd(15)} ${numbers.join(', ')}; ${shares.join(', ')}`;
  });
}

async function longRun(
  targets: readonly FuzzTarget[],
  options: { readonly inputs: number; readonly seed: number; readonly workers: number },
): Promise<boolean> {
  const ending = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => ending.abort());
  const run = new LongRun({ ...options, targets, print });
  print(`seed ${options.seed}, ${options.workers} workers, ${targets.length} targets`);
  await run.run(ending.signal);
  const { seconds } = run;
  print('');
  for (const line of tallyLines(run.tallies)) print(line);
  const rate = Math.round(run.inputs / seconds).toLocaleString('en');
  print(`${run.inputs.toLocaleString('en')} inputs in ${Math.round(seconds)} s, ${rate} a second`);
  for (const finding of run.findings) await keep(finding);
  return run.findings.length > 0;
}

async function main(words: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...words],
    options: {
      inputs: { type: 'string', default: '1e6' },
      targets: { type: 'string' },
      seed: { type: 'string', default: '1' },
      workers: { type: 'string', default: '2' },
      replay: { type: 'string' },
      coverage: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    print(USAGE);
    return 0;
  }
  if (values.list) {
    for (const { name, about } of TARGETS) print(`${name.padEnd(15)} ${about}`);
    return 0;
  }
  if (values.replay !== undefined) return (await replay(values.replay)) ? STATUS_FOUND : 0;
  const targets = values.targets === undefined ? TARGETS : targetsNamed(values.targets.split(','));
  const inputs = wholeNumber(values.inputs, 1);
  const seed = wholeNumber(values.seed, 0) >>> 0;
  if (values.coverage) {
    const findings = await growCorpus({ targets, inputs, seed, print });
    for (const finding of findings) await keep(finding);
    return findings.length > 0 ? STATUS_FOUND : 0;
  }
  const workers = wholeNumber(values.workers, 1);
  return (await longRun(targets, { inputs, seed, workers })) ? STATUS_FOUND : 0;
}

main(process.argv.slice(2)).then(
  (status) => process.exit(status),
  (error: unknown) => {
    process.stderr.write(`fuzz: ${error instanceof Error ? error.message : error}\n${USAGE}\n`);
    process.exit(STATUS_USAGE);
  },
);
