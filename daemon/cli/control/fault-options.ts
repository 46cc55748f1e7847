/** The commands `fault add`, `fault list` and `fault remove`, and their options. */
import { type Command, InvalidArgumentError } from 'commander';
import { FAULT_KINDS, type FaultKind, faultKind } from '../../../verbs-api/contract/faults.ts';
import { wholeNumber } from '../arguments.ts';
import type { ControlCommandContext } from './control-options.ts';
import type { FaultArguments } from './fault.ts';

const NUMBER = wholeNumber(0, Number.MAX_SAFE_INTEGER);

/** Adds `fault`. */
export function addFault(program: Command, context: ControlCommandContext): void {
  const fault = program
    .command('fault')
    .description('have something go wrong in a running daemon, as a test needs it');
  addFaultAdd(fault, context);
  addFaultList(fault, context);
  addFaultRemove(fault, context);
}

function addFaultAdd(fault: Command, { output, socketOption }: ControlCommandContext): void {
  fault
    .command('add')
    .description('add a fault')
    .argument('<KIND>', 'what goes wrong, see below')
    .option('--device <NAME>', 'on this device')
    .option('--qp <NUMBER>', 'on this queue pair', NUMBER)
    .option('--peer <ADDRESS[:PORT]>', 'on connections with this other end')
    .option('--opcode <NAME>', 'to these messages: write, send, read-request, mpa-reply, …')
    .option('--direction <in|out>', 'to what comes, or to what leaves (default: both)')
    .option('--pid <PID>', 'to verbs of this process', NUMBER)
    .option('--verb <NAME>', 'to this verb: regMR, createQP, cmConnect, … (default: any)')
    .option('--nth <N>', 'on the Nth occasion only', NUMBER)
    .option('--every <N>', 'on every Nth occasion', NUMBER)
    .option('--once', 'no more after it happened')
    .option('--probability <P>', 'with this chance, up to 1', parseProbability)
    .option('--seed <N>', 'makes the same choices again (default: chosen, and printed)', NUMBER)
    .option('--ms <N>', 'milliseconds', NUMBER)
    .option('--bytes-per-second <N>', 'of the bandwidth', NUMBER)
    .option('--bytes <N>', 'of a slice', NUMBER)
    .option('--after-bytes <N>', 'octets that still pass (default: 0)', NUMBER)
    .option('--errno <NAME>', 'what the verb fails with, such as ENOMEM')
    .option('--ird <N>', 'the inbound reads that are told at most', NUMBER)
    .option('--ord <N>', 'the outbound reads that are told at most', NUMBER)
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
    .description('show the faults, and how often each has happened')
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
    .description('remove a fault: what it held back goes on')
    .argument('[ID]', 'its number', NUMBER)
    .option('--all', 'remove all')
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (id: number | undefined, given: FaultArguments & { all?: boolean }) => {
      const { runFaultRemove } = await import('./fault.ts');
      await runFaultRemove(id, given, output);
    });
}

/** Kinds for the help, with what they need. */
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

/** How a field is given: `bytesPerSecond` as `--bytes-per-second`. */
function optionOf(field: string): string {
  return `--${field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function parseProbability(text: string): number {
  const value = /^[0-9]*\.?[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  if (value > 0 && value <= 1) return value;
  throw new InvalidArgumentError('It has to be above 0 and at most 1.');
}
