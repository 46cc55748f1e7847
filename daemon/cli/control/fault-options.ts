/** The commands `fault add`, `fault list` and `fault remove`, and their options. */
import { type Command, InvalidArgumentError } from 'commander';
import {
  FAULT_KINDS,
  type FaultKind,
  faultKind,
} from '../../../verbs-api/contract/protocol/faults.ts';
import { wholeNumber } from '../arguments.ts';
import type { ControlCommandContext } from './control-context.ts';
import type { FaultArguments } from './fault.ts';
import { optionOf } from './option-name.ts';

const NUMBER = wholeNumber(0, Number.MAX_SAFE_INTEGER);

/** Adds `fault`. */
export function addFault(program: Command, context: ControlCommandContext): void {
  const fault = program.command('fault').description('inject faults into a running daemon');
  addFaultAdd(fault, context);
  addFaultList(fault, context);
  addFaultRemove(fault, context);
}

function addFaultAdd(fault: Command, { output, socketOption }: ControlCommandContext): void {
  fault
    .command('add')
    .description('add a fault')
    .argument('<KIND>', 'what the fault does; see below')
    .option('--device <NAME>', 'only on this device')
    .option('--qp <NUMBER>', 'only on this queue pair', NUMBER)
    .option('--peer <ADDRESS[:PORT]>', 'only on connections to this peer')
    .option(
      '--opcode <NAME>',
      'only on these messages: write, send, read-request, acknowledge, mpa-reply, …',
    )
    .option(
      '--direction <in|out>',
      'only on received or only on sent bytes or packets (default: both)',
    )
    .option('--pid <PID>', 'only on verbs that this process calls', NUMBER)
    .option('--verb <NAME>', 'only on this verb: regMR, createQP, cmConnect, … (default: any)')
    .option('--nth <N>', 'trigger on the Nth occasion only', NUMBER)
    .option('--every <N>', 'trigger on every Nth occasion', NUMBER)
    .option('--once', 'trigger once')
    .option(
      '--probability <P>',
      'trigger with this probability, greater than 0 and at most 1',
      parseProbability,
    )
    .option('--seed <N>', 'seed for --probability (default: random; `fault add` prints it)', NUMBER)
    .option('--ms <N>', 'delay or duration in milliseconds', NUMBER)
    .option('--bytes-per-second <N>', 'bandwidth limit', NUMBER)
    .option('--bytes <N>', 'size of a slice in bytes', NUMBER)
    .option('--after-bytes <N>', 'bytes to deliver first (default: 0)', NUMBER)
    .option(
      '--syndrome <NAME>',
      'reason of a NAK: psn-sequence, invalid-request, remote-access or remote-operation',
    )
    .option('--errno <NAME>', 'errno that the verb fails with, for example ENOMEM')
    .option('--ird <N>', 'cap the IRD advertised to the peer', NUMBER)
    .option('--ord <N>', 'cap the ORD advertised to the peer', NUMBER)
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .addHelpText('after', `\n${kindLines().join('\n')}`)
    .action(async (kind: string, given: FaultArguments & Readonly<Record<string, unknown>>) => {
      const { runFaultAdd } = await import('./fault.ts');
      await runFaultAdd(kind, given, output);
    });
}

function addFaultList(fault: Command, { output, socketOption }: ControlCommandContext): void {
  fault
    .command('list')
    .description('list the faults and how often each has triggered')
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (given: FaultArguments) => {
      const { runFaultList } = await import('./fault.ts');
      await runFaultList(given, output);
    });
}

function addFaultRemove(fault: Command, { output, socketOption }: ControlCommandContext): void {
  fault
    .command('remove')
    .description('remove a fault and release what it held back')
    .argument('[ID]', 'number of the fault, from `fault list`', NUMBER)
    .option('--all', 'remove all faults')
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (id: number | undefined, given: FaultArguments & { all?: boolean }) => {
      const { runFaultRemove } = await import('./fault.ts');
      await runFaultRemove(id, given, output);
    });
}

/** The kinds for `--help`, with the options that each takes. */
function kindLines(): string[] {
  const width = Math.max(...Object.keys(FAULT_KINDS).map((kind) => kind.length));
  const lines = (Object.keys(FAULT_KINDS) as FaultKind[]).map((kind) => {
    const { summary, needs, takes } = faultKind(kind);
    const options = [
      ...needs.map((field) => optionOf(field)),
      ...takes.map((field) => `[${optionOf(field)}]`),
    ];
    return `  ${kind.padEnd(width)}  ${summary}${options.length === 0 ? '' : `: ${options.join(' ')}`}`;
  });
  return ['Kinds:', ...lines];
}

function parseProbability(text: string): number {
  const value = /^[0-9]*\.?[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  if (value > 0 && value <= 1) return value;
  throw new InvalidArgumentError('must be greater than 0 and at most 1');
}
