/** The commands `reset`, `fault`, `rail`, `wait`, `top` and `explain` and their options. */
import type { Command } from 'commander';
import { REFUSALS_LIST_MAX } from '#contract/protocol/refusals';
import { wholeNumber } from '../arguments.ts';
import type { ControlCommandContext } from './control-context.ts';
import type { ExplainArguments } from './explain.ts';
import { addFault } from './fault-options.ts';
import { addRail } from './rail-options.ts';
import type { ResetArguments } from './reset.ts';
import type { TopArguments } from './top.ts';
import type { WaitArguments } from './wait.ts';

const TIMEOUT_DEFAULT_SECONDS = 10;
const TIMEOUT_MAX_SECONDS = 86_400;
const INTERVAL_MAX_SECONDS = 3600;

export function addControl(program: Command, context: ControlCommandContext): void {
  addReset(program, context);
  addFault(program, context);
  addRail(program, context);
  addWait(program, context);
  addTop(program, context);
  addExplain(program, context);
}

function addReset(program: Command, { output, socketOption }: ControlCommandContext): void {
  program
    .command('reset')
    .description('disconnect every client, clear all state and report what was still open')
    .option(
      '--expect-clean',
      'fail if a client still holds objects, or has ended without releasing them since the last reset',
    )
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
    .option('--ready', 'wait until the daemon is ready to serve (default)')
    .option(
      '--timeout <SECONDS>',
      'fail after this many seconds',
      wholeNumber(0, TIMEOUT_MAX_SECONDS),
      TIMEOUT_DEFAULT_SECONDS,
    )
    .option('--json', 'print the status of the ready daemon as JSON')
    .addOption(socketOption())
    .action(async (given: WaitArguments) => {
      const { runWait } = await import('./wait.ts');
      await runWait(given, output, signal);
    });
}

function addTop(program: Command, { output, signal, socketOption }: ControlCommandContext): void {
  program
    .command('top')
    .description('show rates of the devices and clients of a running daemon, updated every second')
    .option(
      '--interval <SECONDS>',
      'seconds between two samples',
      wholeNumber(1, INTERVAL_MAX_SECONDS),
      1,
    )
    .option('--count <N>', 'number of samples (default: until Ctrl-C)', wholeNumber(1, 2 ** 31 - 1))
    .option('--json', 'print one JSON object per sample')
    .addOption(socketOption())
    .action(async (given: TopArguments) => {
      const { runTop } = await import('./top.ts');
      await runTop(given, output, signal);
    });
}

function addExplain(
  program: Command,
  { output, signal, socketOption }: ControlCommandContext,
): void {
  program
    .command('explain')
    .description('show what programs were refused, and why: the reason of an EINVAL')
    .option('-f, --follow', 'continue with new ones, until Ctrl-C')
    .option('--program <NAME>', 'only programs of this name')
    .option('--pid <PID>', 'only the program with this process id', wholeNumber(0, 2 ** 31 - 1))
    .option('--device <NAME>', 'only this device')
    .option(
      '-n, --last <N>',
      'print at most this many (default: all that the daemon keeps)',
      wholeNumber(1, REFUSALS_LIST_MAX),
    )
    .option('--json', 'print one JSON object per line')
    .addOption(socketOption())
    .action(async (given: ExplainArguments) => {
      const { runExplain } = await import('./explain.ts');
      await runExplain(given, output, signal);
    });
}
