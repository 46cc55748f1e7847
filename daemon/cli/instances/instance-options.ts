/** The commands `stop` and `list`, for working with several daemons. */
import type { Command } from 'commander';
import { usageFailure } from '#daemon/console/failure';
import { wholeNumber } from '../arguments.ts';
import type { ControlCommandContext } from '../control/control-context.ts';
import { instanceSocket, parseInstance } from '../instance.ts';
import type { ListArguments } from './list.ts';
import type { StopArguments } from './stop.ts';

/** Longer than a daemon waits for its connections to close. */
const TIMEOUT_DEFAULT_SECONDS = 15;
const TIMEOUT_MAX_SECONDS = 86_400;

function withInstances(names: readonly string[], given: StopArguments): StopArguments {
  const { all, socket } = given;
  if (all !== true && socket === undefined) return { ...given, sockets: names.map(instanceSocket) };
  throw usageFailure(
    'an instance, --instance, --socket and --all each name daemons: give one of them',
  );
}

function collectInstance(name: string, earlier: readonly string[] = []): string[] {
  return [...earlier, parseInstance(name)];
}

export function addInstances(program: Command, context: ControlCommandContext): void {
  const { output, socketOption } = context;
  program
    .command('stop')
    .description('stop running daemons, and wait until they have ended')
    .argument('[INSTANCE...]', 'the instances; short for --instance', collectInstance)
    .option('--all', 'stop every daemon of this user, except those of `run`')
    .option(
      '--timeout <SECONDS>',
      'fail if it has not ended after this many seconds',
      wholeNumber(0, TIMEOUT_MAX_SECONDS),
      TIMEOUT_DEFAULT_SECONDS,
    )
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (names: readonly string[], given: StopArguments) => {
      const { runStop } = await import('./stop.ts');
      await runStop(names.length === 0 ? given : withInstances(names, given), output);
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
