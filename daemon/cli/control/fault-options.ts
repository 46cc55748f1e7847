/** The commands `fault add`, `fault list` and `fault remove`, and their options. */
import { Argument, Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import {
  FAULT_KINDS,
  FAULT_OPCODES,
  FAULT_SYNDROMES,
  FAULT_VERB_CALLS,
  FAULT_VERBS,
  type FaultKind,
  faultKind,
} from '#contract/protocol/faults';
import { didYouMean } from '#daemon/console/closest';
import { wholeNumber } from '../arguments.ts';
import { reasonOf } from '../usage-text.ts';
import type { ControlCommandContext } from './control-context.ts';
import type { FaultArguments, GivenFault } from './fault.ts';
import { optionOf } from './option-name.ts';

const NUMBER = wholeNumber(0, Number.MAX_SAFE_INTEGER);

export function addFault(program: Command, context: ControlCommandContext): void {
  const fault = program.command('fault').description('inject faults into a running daemon');
  addFaultAdd(fault, context);
  addFaultList(fault, context);
  addFaultRemove(fault, context);
}

function addFaultAdd(fault: Command, { output, socketOption }: ControlCommandContext): void {
  addFaultFields(fault.command('add').description('add a fault'))
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .addHelpText('after', `\n${kindLines().join('\n')}`)
    .action(async (kind: string, given: FaultArguments & Readonly<Record<string, unknown>>) => {
      const { runFaultAdd } = await import('./fault.ts');
      await runFaultAdd(kind, given, output);
    });
}

/** Adds the description of a fault: its kind as an argument, its fields as options. */
function addFaultFields(command: Command): Command {
  return command
    .addArgument(faultKindArgument())
    .option('--device <NAME>', 'only on this device')
    .option('--qp <NUMBER>', 'only on this queue pair', NUMBER)
    .option('--peer <ADDRESS[:PORT]>', 'only on connections to this peer')
    .addOption(
      new Option('--opcode <NAME>', 'only on messages of this kind').choices(FAULT_OPCODES),
    )
    .addOption(
      new Option(
        '--direction <in|out>',
        'only on received or only on sent bytes or packets (default: both)',
      ).choices(['in', 'out']),
    )
    .option('--pid <PID>', 'only on verbs that this process calls', NUMBER)
    .addOption(verbOption())
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
    .addOption(new Option('--syndrome <NAME>', 'reason of a NAK').choices(FAULT_SYNDROMES))
    .option('--errno <NAME>', 'errno that the verb fails with, for example ENOMEM')
    .option('--ird <N>', 'cap the IRD advertised to the peer', NUMBER)
    .option('--ord <N>', 'cap the ORD advertised to the peer', NUMBER);
}

/** Accepts a verb by its name in TypeScript or in C. */
function verbOption(): Option {
  const names = Object.entries(FAULT_VERB_CALLS);
  const text = 'only on this verb, named as in TypeScript or C (default: any)';
  const option = new Option('--verb <NAME>', text).choices(FAULT_VERBS);
  const { parseArg } = option;
  return option.argParser((word: string) => {
    const call = word.replace(/_ex$/, '');
    const verb = names.find(([, each]) => each === call)?.[0];
    if (verb === undefined && /^(?:ibv|rdma)_/.test(word)) {
      const meant = didYouMean(word, Object.values(FAULT_VERB_CALLS));
      throw new InvalidArgumentError(`faults cannot make it fail${meant}`);
    }
    return parseArg?.(verb ?? word, undefined);
  });
}

/** Completion offers the kinds; `fault.ts` rejects others and suggests the closest one. */
function faultKindArgument(): Argument {
  const argument = new Argument('<KIND>', 'what the fault does; see below');
  argument.argChoices = Object.keys(FAULT_KINDS);
  return argument;
}

/** Collects the values of a repeatable option with the syntax of `fault add`: `drop --nth 3`. */
export function collectFault(text: string, earlier: readonly GivenFault[] = []): GivenFault[] {
  const command = addFaultFields(new Command('fault').exitOverride().helpOption(false));
  command.configureOutput({ writeErr: () => {} });
  const words = text.split(/\s+/).filter((word) => word !== '');
  try {
    command.parse(words, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    throw new InvalidArgumentError(reasonOf(error));
  }
  return [...earlier, { kind: command.args[0] ?? '', fields: command.opts() }];
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
    .argument('[ID]', 'number of the fault, from `fault list`; all removes every fault', faultId)
    .option('--all', 'remove all faults')
    .option('--json', 'print JSON')
    .addOption(socketOption())
    .action(async (id: number | 'all' | undefined, given: FaultArguments & { all?: boolean }) => {
      const { runFaultRemove } = await import('./fault.ts');
      if (id === 'all') await runFaultRemove(undefined, { ...given, all: true }, output);
      else await runFaultRemove(id, given, output);
    });
}

/** The kinds with their options, for `--help`. */
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

function faultId(text: string): number | 'all' {
  return text === 'all' ? text : NUMBER(text);
}

function parseProbability(text: string): number {
  const value = /^[0-9]*\.?[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  if (value > 0 && value <= 1) return value;
  throw new InvalidArgumentError('must be greater than 0 and at most 1');
}
