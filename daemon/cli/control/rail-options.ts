/** The commands `rail down`, `rail up` and `rail play`, and their options. */
import type { Command } from 'commander';
import { FAULT_MS_MAX } from '#contract/protocol/faults';
import { duration, wholeNumber } from '../arguments.ts';
import type { ControlCommandContext } from './control-context.ts';
import type { RailDownArguments } from './rail.ts';
import type { RailPlayArguments } from './rail-play.ts';

const TIMES_MAX = 1_000_000;

export function addRail(program: Command, context: ControlCommandContext): void {
  const rail = program
    .command('rail')
    .description('take devices down and up, as the rails of a machine');
  addDown(rail, context);
  addUp(rail, context);
  addPlay(rail, context);
}

function addDown(rail: Command, { output, socketOption }: ControlCommandContext): void {
  rail
    .command('down')
    .description('take the port of a device down: programs get the event, and packets are lost')
    .argument('<DEVICE>', 'name of the device')
    .option('--silent', 'lose every packet without an event, as a switch may')
    .option(
      '--for <TIME>',
      'take it up again after this time, for example 7s, 500ms or 2m',
      duration(FAULT_MS_MAX),
    )
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (device: string, given: RailDownArguments) => {
      const { runRailDown } = await import('./rail.ts');
      await runRailDown(device, given, output);
    });
}

function addUp(rail: Command, { output, socketOption }: ControlCommandContext): void {
  rail
    .command('up')
    .description('take a device up again')
    .argument('<DEVICE>', 'name of the device')
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(
      async (device: string, given: { readonly socket?: string; readonly json?: boolean }) => {
        const { runRailUp } = await import('./rail.ts');
        await runRailUp(device, given, output);
      },
    );
}

function addPlay(rail: Command, { output, signal, socketOption }: ControlCommandContext): void {
  rail
    .command('play')
    .description('take devices down and up at the times in a file, until its end or Ctrl-C')
    .argument('<FILE>', 'lines such as `2s down roce1 --silent --for 500ms` and `5s up roce1`')
    .option(
      '--times <N>',
      'play it this often; a round ends after its last step and the time of its --for (default: 1)',
      wholeNumber(1, TIMES_MAX),
      1,
    )
    .addOption(socketOption())
    .action(async (file: string, given: RailPlayArguments) => {
      const { runRailPlay } = await import('./rail-play.ts');
      await runRailPlay(file, given, output, signal);
    });
}
