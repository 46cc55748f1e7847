/** The command line of `npm run bench`. */
import { parseArgs } from 'node:util';
import { failureText, usageFailure } from '#daemon/console/failure';

const ROUNDS = 5;
const ROUNDS_MAX = 1000;
const MINUTES = 15;
const MINUTES_MAX = 24 * 60;
const PROFILE_FOLDER = '.cache/profiles';
const GROWTH = 'growth';
const HELP = ['--help', '-h'];
export const BENCH_USAGE = `usage: npm run bench -- [--only NAME]... [--rounds N] [--json FILE] [--keep] [--profile]
       npm run bench -- growth [--only SERIES]... [--minutes N] [--json FILE] [--keep]`;

/** The parsed arguments, by action. */
export type BenchArguments = TableArguments | GrowthArguments | { readonly command: 'help' };

/** The table of measurements. */
interface TableArguments {
  readonly command: 'table';
  /** Names of measurements; none for all. */
  readonly only: readonly string[];
  readonly rounds: number;
  readonly jsonFile: string | undefined;
  readonly profileFolder: string | undefined;
  /** Whether the run is added to the history. */
  readonly keep: boolean;
}

/** Measurements of how cost grows. */
interface GrowthArguments {
  readonly command: 'growth';
  /** Names of series; none for all. */
  readonly only: readonly string[];
  /** No step starts after this time. */
  readonly minutes: number;
  readonly jsonFile: string | undefined;
  /** Whether to replace the README's tables and chart. */
  readonly keep: boolean;
}

const COMMON = {
  only: { type: 'string', multiple: true },
  json: { type: 'string' },
  keep: { type: 'boolean', default: false },
} as const;

/** Reads the arguments after the program's name. Throws CommandFailure for an invalid one. */
export function parseBenchArguments(words: readonly string[]): BenchArguments {
  if (words.some((word) => HELP.includes(word))) return { command: 'help' };
  const [first, ...others] = words;
  const parsed = first === GROWTH ? parseGrowth(others) : parseTable(words);
  if (parsed.keep && parsed.only.length > 0) {
    throw usageFailure('--keep takes a whole run; leave out --only');
  }
  return parsed;
}

function parseTable(words: readonly string[]): TableArguments {
  const values = orUsage('--only NAME, --rounds N, --json FILE, --keep, --profile', () => {
    const { values } = parseArgs({
      args: [...words],
      options: {
        ...COMMON,
        rounds: { type: 'string', default: String(ROUNDS) },
        profile: { type: 'boolean', default: false },
      },
    });
    return { ...values, rounds: countOf('--rounds', values.rounds, ROUNDS_MAX) };
  });
  return {
    command: 'table',
    only: values.only ?? [],
    rounds: values.rounds,
    jsonFile: values.json,
    profileFolder: values.profile ? PROFILE_FOLDER : undefined,
    keep: values.keep,
  };
}

function parseGrowth(words: readonly string[]): GrowthArguments {
  const values = orUsage('--only SERIES, --minutes N, --json FILE, --keep', () => {
    const { values } = parseArgs({
      args: [...words],
      options: { ...COMMON, minutes: { type: 'string', default: String(MINUTES) } },
    });
    return { ...values, minutes: countOf('--minutes', values.minutes, MINUTES_MAX) };
  });
  const { only = [], minutes, json, keep } = values;
  return { command: 'growth', only, minutes, jsonFile: json, keep };
}

function orUsage<T>(options: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw usageFailure(`${failureText(error)}; options are ${options}`);
  }
}

function countOf(option: string, word: string, most: number): number {
  const count = /^[0-9]{1,9}$/.test(word) ? Number(word) : 0;
  if (count < 1 || count > most) throw new Error(`${option} takes a number from 1 to ${most}`);
  return count;
}
