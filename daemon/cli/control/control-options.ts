/** The commands that watch and move a running daemon: their options, and what they mean. */
import type { Command, Option } from 'commander';
import { wholeNumber } from '../arguments.ts';
import type { Output } from '../output.ts';
import { addFault } from './fault-options.ts';
import type { ResetArguments } from './reset.ts';
import type { TopArguments } from './top.ts';
import type { WaitArguments } from './wait.ts';

/** What the commands run in. */
export interface ControlCommandContext {
  readonly output: Output;
  readonly signal: AbortSignal;
  /** The option that names the daemon's socket. */
  readonly socketOption: () => Option;
}

const TIMEOUT_DEFAULT_SECONDS = 10;
const TIMEOUT_MAX_SECONDS = 86_400;
const INTERVAL_MAX_SECONDS = 3600;

/** Adds `reset`, `fault`, `wait` and `top`. */
export function addControl(program: Command, context: ControlCommandContext): void {
  addReset(program, context);
  addFault(program, context);
  addWait(program, context);
  addTop(program, context);
}

function addReset(program: Command, { output, socketOption }: ControlCommandContext): void {
  program
    .command('reset')
    .description('end all clients and connections of a running daemon; tell what was still open')
    .option('--expect-clean', 'fail when a client still held objects: for the end of a test')
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (given: ResetArguments) => {
      const { runReset } = await import('./reset.ts');
      await runReset(given, output);
    });
}

function addWait(program: Command, { output, signal, socketOption }: ControlCommandContext): void {
  program
    .command('wait')
    .description('wait until a daemon is ready')
    .option('--ready', 'until it serves everything that it was started with (default)')
    .option(
      '--timeout <SECONDS>',
      'how long to wait',
      wholeNumber(0, TIMEOUT_MAX_SECONDS),
      TIMEOUT_DEFAULT_SECONDS,
    )
    .option('--json', 'print what it is as JSON, once it is ready')
    .addOption(socketOption())
    .action(async (given: WaitArguments) => {
      const { runWait } = await import('./wait.ts');
      await runWait(given, output, signal);
    });
}

function addTop(program: Command, { output, signal, socketOption }: ControlCommandContext): void {
  program
    .command('top')
    .description('watch what the devices and clients of a running daemon do')
    .option(
      '--interval <SECONDS>',
      'time between two looks',
      wholeNumber(1, INTERVAL_MAX_SECONDS),
      1,
    )
    .option('--count <N>', 'looks to take (default: until Ctrl-C)', wholeNumber(1, 2 ** 31 - 1))
    .option('--json', 'print a JSON object for each look')
    .addOption(socketOption())
    .action(async (given: TopArguments) => {
      const { runTop } = await import('./top.ts');
      await runTop(given, output, signal);
    });
}
