/**
 * The manual page iwarpd(1), in the man macros of groff, generated from the same data as `--help`.
 */
import { FAULT_KINDS, type FaultKind, faultKind } from '#contract/protocol/faults';
import { type CommandExample, examplesOf } from '../command-examples.ts';
import { type CommandFacts, everyCommand, type OptionFacts } from './command-facts.ts';

/** Environment variables that the command and its clients read. */
const ENVIRONMENT: readonly (readonly [string, string])[] = [
  ['IWARPD_SOCKET', 'The socket of the daemon, where neither --socket nor --instance is given.'],
  [
    'IWARPD_ALLOW_DAEMON_UID',
    'The numeric id of another user whose daemon may be used. That user can then read and write the memory of its clients.',
  ],
  [
    'IWARPD_MEMORY_TIERS',
    'Comma-separated ways in which start accesses client memory: shared, process_vm, agent (default: all).',
  ],
  ['IWARPD_HTTP_TOKEN', 'The bearer token of HTTP requests, where --http-token-file is not given.'],
  [
    'IWARPD_POLL',
    'With the value spin, a program that polls an empty completion queue never sleeps.',
  ],
  ['IWARPD_DEBUG', 'If set, a command that fails also prints a stack trace.'],
  ['XDG_RUNTIME_DIR', 'Where the default socket is: iwarpd/iwarpd.sock in this directory.'],
  ['XDG_DATA_HOME', 'Where setup-preload puts the preload library (default: ~/.local/share).'],
  ['LD_PRELOAD, SYSFS_PATH', 'Set for the programs of run and env.'],
  [
    'FI_VERBS_DEVICE_NAME',
    'Set to the first iWARP device for the programs of run and env, unless it is set or that device is the first of all: libfabric connects by rdma_cm.',
  ],
  [
    'NCCL_GIN_TYPE',
    'Set to 0 for the programs of run and env, unless it is set: with GIN, NCCL 2.28 crashes without an mlx5 device.',
  ],
  [
    'NCCL_IB_HCA',
    'Set for the programs of run and env, unless it is set, if there are iWARP devices: NCCL leaves them out.',
  ],
  [
    'VALGRIND_OPTS, ASAN_OPTIONS',
    'For the programs of run and env, these get options against false alarms before those that are set.',
  ],
  ['NOTIFY_SOCKET', 'Where start reports its state to a service manager; see sd_notify(3).'],
];

const EXIT_STATUS: readonly (readonly [string, string])[] = [
  ['0', 'Success.'],
  ['1', 'The command failed. One line on standard error gives the cause and the fix.'],
  ['2', 'The command line is invalid.'],
  ['130', 'Interrupted by Ctrl-C.'],
  ['N', 'run exits with the status of its program, or by the signal that ended it.'],
];

/** The page; `version` appears in its footer. */
export function manualPage(program: CommandFacts, version: string): string {
  const commands = everyCommand(program).slice(1);
  const lines = [
    `.TH IWARPD 1 "" "iwarpd ${version}" "User Commands"`,
    '.SH NAME',
    `iwarpd \\- ${roff(firstLower(program.summary).replace(/\.$/, ''))}`,
    '.SH SYNOPSIS',
    ...program.commands.map((each) => `.PP\n${synopsis(each)}`),
    '.SH COMMANDS',
    ...commands.filter(({ commands: below }) => below.length === 0).flatMap(commandLines),
    '.SH FAULTS',
    'Kinds that \\fBfault add\\fR takes:',
    ...(Object.keys(FAULT_KINDS) as FaultKind[]).flatMap((kind) =>
      tagged(`.B ${roff(kind)}`, faultKind(kind).summary),
    ),
    '.SH ENVIRONMENT',
    ...ENVIRONMENT.flatMap(([name, text]) => tagged(`.B ${roff(name)}`, text)),
    '.SH EXIT STATUS',
    ...EXIT_STATUS.flatMap(([status, text]) => tagged(`.B ${status}`, text)),
    '.SH SEE ALSO',
    '.BR ibv_devices (1),',
    '.BR rping (1),',
    '.BR rdma_cm (7)',
  ];
  return `${lines.join('\n')}\n`;
}

function synopsis({ words, arguments: given, commands, options }: CommandFacts): string {
  const takesOptions = options.some(({ names }) => !names.includes('--help'));
  const rest =
    commands.length > 0
      ? ['COMMAND ...']
      : [...(takesOptions ? ['[OPTION ...]'] : []), ...given.map(({ term }) => term)];
  return `.B ${roff(words.join(' '))}\n${rest.map(roff).join(' ')}`.trimEnd();
}

function commandLines(command: CommandFacts): string[] {
  return [
    `.SS ${roff(command.words.slice(1).join(' '))}`,
    sentence(command.summary),
    `.PP\n${synopsis(command)}`,
    ...command.arguments.flatMap(({ term, text }) => tagged(`.I ${roff(term)}`, text)),
    ...command.options.filter(({ names }) => !names.includes('--help')).flatMap(optionLines),
    ...examplesOf(command.words).flatMap(exampleLines),
  ];
}

function exampleLines({ title, line }: CommandExample): string[] {
  return [`.PP\n${roff(title)}:`, '.RS 4', '.EX', roff(line), '.EE', '.RE'];
}

function optionLines({ flags, text }: OptionFacts): string[] {
  return tagged(`.B ${roff(flags)}`, text);
}

function tagged(tag: string, text: string): string[] {
  return ['.TP', tag, sentence(text)];
}

function sentence(text: string): string {
  const upper = `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
  return roff(/[.!?)]$/.test(upper) ? upper : `${upper}.`);
}

function firstLower(text: string): string {
  return text.startsWith('An ') || text.startsWith('A ')
    ? `${text.charAt(0).toLowerCase()}${text.slice(1)}`
    : text;
}

/** Escapes a line of text, so that it contains no request or escape of roff. */
function roff(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('…', '...')
    .replaceAll('’', "'")
    .replace(/^([.'])/gm, '\\&$1');
}
