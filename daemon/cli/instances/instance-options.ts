/** The commands `stop` and `list`, for life with several daemons. */
import type { Command } from 'commander';
import { wholeNumber } from '../arguments.ts';
import type { ControlCommandContext } from '../control/control-context.ts';
import type { ListArguments } from './list.ts';
import type { StopArguments } from './stop.ts';

/** Longer than a daemon waits for its connections to end. */
const TIMEOUT_DEFAULT_SECONDS = 15;
const TIMEOUT_MAX_SECONDS = 86_400;

/** Adds both. */
export function addInstances(program: Command, context: ControlCommandContext): void {
  const { output, socketOption } = context;
  program
    .command('stop')
    .description('stop a running daemon, and wait until it has ended')
    .option('--all', 'stop every daemon of this user, except those of `run`')
    .option(
      '--timeout <SECONDS>',
      'fail if it has not ended after this many seconds',
      wholeNumber(0, TIMEOUT_MAX_SECONDS),
      TIMEOUT_DEFAULT_SECONDS,
    )
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (given: StopArguments) => {
      const { runStop } = await import('./stop.ts');
      await runStop(given, output);
    });
  program
    .command('list')
    .description('list the daemons of this user: by name, with pid, start, devices and socket')
    .option('--json', 'print JSON')
    .action(async (given: ListArguments) => {
      const { runList } = await import('./list.ts');
      await runList(given, output);
    });
}
