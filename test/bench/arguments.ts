/** The command line of `npm run bench`. */
import { parseArgs } from 'node:util';
import { failureText, usageFailure } from '#daemon/console/failure';

const ROUNDS = 5;
const ROUNDS_MAX = 1000;
const MINUTES = 15;
const MINUTES_MAX = 24 * 60;
const PROFILE_FOLDER = '.cache/profiles';
/** Even, so that each build starts its processes first as often as the other. */
const STARTS = 4;
const STARTS_MAX = 100;
const GROWTH = 'growth';
const AGAINST = 'against';
const HELP = ['--help', '-h'];
export const BENCH_USAGE = `usage: npm run bench -- [--only NAME]... [--rounds N] [--json FILE] [--keep] [--profile]
       npm run bench -- growth [--only SERIES]... [--minutes N] [--json FILE] [--keep]
       npm run bench -- against DIRECTORY [--only NAME]... [--rounds N] [--starts N] [--json FILE]`;

/** The parsed arguments, by action. */
export type BenchArguments =
  | TableArguments
  | GrowthArguments
  | AgainstArguments
  | { readonly command: 'help' };

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

/** The table of this checkout and of another one, in turns. */
interface AgainstArguments {
  readonly command: 'against';
  /** The other checkout, built. */
  readonly directory: string;
  /** Names of measurements; none for all. */
  readonly only: readonly string[];
  readonly rounds: number;
  readonly starts: number;
  readonly jsonFile: string | undefined;
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
  if (first === AGAINST) return parseAgainst(others);
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

function parseAgainst(words: readonly string[]): AgainstArguments {
  return orUsage('--only NAME, --rounds N, --starts N, --json FILE', () => {
    const { values, positionals } = parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        only: COMMON.only,
        json: COMMON.json,
        rounds: { type: 'string', default: String(ROUNDS) },
        starts: { type: 'string', default: String(STARTS) },
      },
    });
    const [directory, extra] = positionals;
    if (directory === undefined || extra !== undefined) {
      throw new Error(`${AGAINST} takes the directory of another checkout`);
    }
    return {
      command: 'against',
      directory,
      only: values.only ?? [],
      rounds: countOf('--rounds', values.rounds, ROUNDS_MAX),
      starts: countOf('--starts', values.starts, STARTS_MAX),
      jsonFile: values.json,
    };
  });
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
