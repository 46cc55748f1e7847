/**
 * Measures two builds in turns. V8 compiles differently in each start, and a machine's speed changes within
 * minutes, so only rounds of both builds that follow each other compare, over several starts.
 */
import { loadavg } from 'node:os';
import type { Measurement } from '#daemon/bench/measurement';
import { type Failed, machineFacts, median, type Unmeasured } from '#daemon/bench/report';
import type { Rig } from '#daemon/bench/rig';
import { failureText, untilAborted, usageFailure } from '#daemon/console/failure';
import type { Output } from '#daemon/console/output';
import type { AgainstReport, Compared } from './against-report.ts';
import type { Build } from './other-build.ts';

export interface AgainstOptions {
  /** Names of measurements; none for all that both builds have. */
  readonly only: readonly string[];
  /** Rounds of each start. */
  readonly rounds: number;
  /** How often both builds start their processes. */
  readonly starts: number;
}

/** The earlier build, and the one that may be better or worse. */
interface Builds {
  readonly before: Build;
  readonly after: Build;
}

type Values = readonly (readonly [before: number, after: number])[];
type Pair = readonly [before: Measurement, after: Measurement];

/** Rounds that do not count, besides the measurement's own. */
const WARM_UPS = 1;

/** Measures what both builds have, in the same unit. The processes that it started end when it settles. */
export async function runAgainst(
  builds: Builds,
  options: AgainstOptions,
  output: Output,
  signal: AbortSignal,
): Promise<AgainstReport> {
  const date = new Date().toISOString();
  const loadBefore = loadavg()[0] ?? 0;
  const compared: Compared[] = [];
  const unmeasured: Unmeasured[] = [];
  const failed: Failed[] = [];
  const pairs = pairsOf(builds, options.only);
  for (const [index, pair] of pairs.entries()) {
    const [{ name, title }] = pair;
    const missing = pair[1].obstacle?.();
    if (missing !== undefined) {
      unmeasured.push({ name, missing });
      continue;
    }
    output.note(`measuring ${name} (${index + 1} of ${pairs.length}): ${title}`);
    try {
      compared.push(await compare(builds, pair, options, signal));
    } catch (error) {
      if (signal.aborted) throw error;
      failed.push({ name, reason: failureText(error) });
    }
  }
  const { rounds, starts } = options;
  return {
    format: 1,
    emulated: true,
    date,
    ...machineFacts(),
    loadBefore,
    rounds,
    starts,
    compared,
    unmeasured,
    failed,
  };
}

/** The measurements that both builds have. CommandFailure for a name that one of them lacks. */
function pairsOf({ before, after }: Builds, only: readonly string[]): readonly Pair[] {
  const all = after.measurements.flatMap((each): Pair[] => {
    const earlier = before.measurements.find(({ name }) => name === each.name);
    const same = earlier?.unit === each.unit && earlier.better === each.better;
    return earlier === undefined || !same ? [] : [[earlier, each]];
  });
  const unknown = only.find((name) => !all.some(([each]) => each.name === name));
  if (unknown !== undefined) {
    const names = all.map(([{ name }]) => name).join(', ');
    throw usageFailure(`no measurement '${unknown}' in both builds; choose from ${names}`);
  }
  return only.length === 0 ? all : all.filter(([{ name }]) => only.includes(name));
}

async function compare(
  builds: Builds,
  pair: Pair,
  { rounds, starts }: AgainstOptions,
  signal: AbortSignal,
): Promise<Compared> {
  const [, { name, unit, better, once }] = pair;
  const all: Values[] = [];
  let apart: string | undefined;
  for (let start = 0; start < starts; start += 1) {
    const each = once === true ? 1 : rounds;
    try {
      if (apart === undefined) {
        all.push(await inTurns(builds, pair, each, start, signal));
        continue;
      }
    } catch (error) {
      if (signal.aborted || start > 0) throw error;
      // Some need a port that only one of them can have.
      apart = failureText(error);
    }
    all.push(await oneAfterTheOther(builds, pair, each, signal));
  }
  const gain = (before: number, after: number): number =>
    better === 'higher' ? after / before - 1 : 1 - after / before;
  if (all.flat(2).some((value) => !Number.isFinite(value) || value === 0)) {
    throw new Error('a round gave no figure');
  }
  const medianOf = (end: 0 | 1): number => median(all.flat().map((values) => values[end]));
  return {
    name,
    unit,
    apart,
    before: medianOf(0),
    after: medianOf(1),
    gains: all.map((values) => median(values.map(([before, after]) => gain(before, after)))),
  };
}

/**
 * One start: rounds of both builds alternate, and so does the one that goes first. Processes that start later may be
 * slower: a build compared with itself lost 7 % of `nfs-read-1m`. So the build that starts first changes with `start`.
 */
async function inTurns(
  { before, after }: Builds,
  pair: Pair,
  rounds: number,
  start: number,
  signal: AbortSignal,
): Promise<Values> {
  const rigs = [before.newRig(), after.newRig()] as const;
  try {
    const values: [number, number][] = [];
    const first = -warmUpsOf(pair[1]);
    for (let round = first; round < rounds; round += 1) {
      const value: [number, number] = [Number.NaN, Number.NaN];
      for (const end of (round - first + start) % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const)) {
        value[end] = await roundOf(pair[end], rigs[end], signal);
      }
      if (round >= 0) values.push(value);
    }
    return values;
  } finally {
    await Promise.allSettled(rigs.map((rig) => rig.close()));
  }
}

/** One start of each build, not at the same time. */
async function oneAfterTheOther(
  { before, after }: Builds,
  pair: Pair,
  rounds: number,
  signal: AbortSignal,
): Promise<Values> {
  const series: number[][] = [];
  for (const [end, build] of [before, after].entries()) {
    const rig = build.newRig();
    const measurement = end === 0 ? pair[0] : pair[1];
    const values: number[] = [];
    try {
      for (let round = -warmUpsOf(measurement); round < rounds; round += 1) {
        const value = await roundOf(measurement, rig, signal);
        if (round >= 0) values.push(value);
      }
    } finally {
      await rig.close();
    }
    series.push(values);
  }
  const [earlier = [], later = []] = series;
  return earlier.map((value, round) => [value, later[round] ?? Number.NaN]);
}

function warmUpsOf({ once, warmUps = 0 }: Measurement): number {
  return once === true ? 0 : warmUps + WARM_UPS;
}

/** The rig must be of the measurement's build. */
async function roundOf(
  { run }: Measurement,
  rig: Pick<Rig, 'close'>,
  signal: AbortSignal,
): Promise<number> {
  signal.throwIfAborted();
  return await untilAborted(run(rig as Rig, 1), signal);
}
