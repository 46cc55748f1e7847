/**
 * `npm run bench`: the full load of `iwarpd bench`, and CPU profiles of the daemons on request.
 * What is measured and where the time goes stands in README.md beside this file.
 */
import { parseArgs } from 'node:util';
import { runBenchCommand } from '../../daemon/bench/bench-command.ts';
import {
  CommandFailure,
  failureText,
  STATUS_FAILED,
  usageFailure,
} from '../../daemon/console/failure.ts';
import { STANDARD_OUTPUT } from '../../daemon/console/output.ts';
import { profileLines } from './profile-summary.ts';

const ROUNDS = 5;
const PROFILE_FOLDER = '.cache/profiles';

interface Arguments {
  readonly only: readonly string[];
  readonly rounds: number;
  readonly jsonFile: string | undefined;
  readonly profileFolder: string | undefined;
}

function parseArguments(words: readonly string[]): Arguments {
  try {
    const { values } = parseArgs({
      args: [...words],
      options: {
        only: { type: 'string', multiple: true },
        rounds: { type: 'string', default: String(ROUNDS) },
        json: { type: 'string' },
        profile: { type: 'boolean', default: false },
      },
    });
    const rounds = Number(values.rounds);
    if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--rounds takes a number from 1');
    return {
      only: values.only ?? [],
      rounds,
      jsonFile: values.json,
      profileFolder: values.profile ? PROFILE_FOLDER : undefined,
    };
  } catch (error) {
    throw usageFailure(
      `${failureText(error)}; options are --only NAME, --rounds N, --json FILE, --profile`,
    );
  }
}

async function main(): Promise<void> {
  const interruption = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.once(name, () => interruption.abort(new CommandFailure('interrupted')));
  }
  try {
    const options = { ...parseArguments(process.argv.slice(2)), scale: 1, targets: true };
    await runBenchCommand(options, STANDARD_OUTPUT, interruption.signal);
    if (options.profileFolder === undefined) return;
    for (const line of profileLines(options.profileFolder)) STANDARD_OUTPUT.line(line);
  } catch (error) {
    STANDARD_OUTPUT.note(`bench: ${failureText(error)}`);
    process.exitCode = error instanceof CommandFailure ? error.exitStatus : STATUS_FAILED;
  }
}

await main();
