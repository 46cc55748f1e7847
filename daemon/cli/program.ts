/** The command line: which commands and options there are, and what they mean. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError, Option } from 'commander';
import { socketPathOfThisProcess } from '../../verbs-api/client/daemon-link.ts';
import {
  collectAnyDevice,
  collectDevice,
  collectQpNumber,
  parseAddress,
  parseAnyPort,
  parseFpduSize,
  parseHttpPlace,
  parseMpaRevision,
  parsePort,
  wholeNumber,
} from './arguments.ts';
import { addControl } from './control/control-options.ts';
import { oneLine, usageFailure } from './failure.ts';
import { addInstanceOption } from './instance.ts';
import { addNfs } from './nfs/nfs-options.ts';
import type { Output } from './output.ts';
import type { RpingArguments } from './rping/rping-command.ts';
import { MAX_SIZE_BYTES, MIN_SIZE_BYTES } from './rping/rping-protocol.ts';
import type { RunArguments } from './run.ts';
import type { StatusOptions } from './status.ts';
import type { CaptureArguments } from './traffic/capture.ts';
import type { DecodeArguments } from './traffic/decode.ts';
import type { TraceArguments } from './traffic/trace.ts';
import { parseTraceKinds, TRACE_KINDS } from './traffic/trace-kinds.ts';

const COUNT_MAX = 2 ** 31 - 1;
const QUICK_ROUNDS = 3;
const DURATION_MAX_SECONDS = 1_000_000;
const QUICK_SCALE = 0.25;
const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'];

/** What the commands run in. */
export interface CommandContext {
  readonly output: Output;
  /** Fires at Ctrl-C, or when the process is asked to end. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command line (without node and script). Throws `CommandFailure` for one that makes no
 * sense, and whatever the command fails with.
 */
export async function runCommandLine(
  words: readonly string[],
  context: CommandContext,
): Promise<void> {
  const program = buildProgram(context);
  try {
    await program.parseAsync(words, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Help and version are printed by then; they end the parsing by an error of status 0.
    if (error.exitCode === 0) return;
    throw usageFailure(usageText(error, words));
  }
}

function usageText(error: CommanderError, words: readonly string[]): string {
  const command = words[0] !== undefined && /^[a-z]+$/.test(words[0]) ? ` ${words[0]}` : '';
  if (error.code === 'commander.help') return 'name a command; `iwarpd --help` lists them';
  const known = error.code === 'commander.unknownCommand' ? '' : command;
  return `${oneLine(error.message).replace(/^error: /, '')}; see \`iwarpd${known} --help\``;
}

function buildProgram(context: CommandContext): Command {
  const program = new Command('iwarpd')
    .description('An RNIC in a process: emulates an iWARP RDMA NIC over ordinary TCP.')
    .version(packageVersion(), '--version', 'print the version')
    .exitOverride()
    // The one line of an error is printed by the caller.
    .configureOutput({ writeErr: () => {} })
    .showHelpAfterError(false)
    // Options behind the program of `run` are the program's.
    .enablePositionalOptions();
  addStart(program, context);
  addStatus(program, context);
  addControl(program, { ...context, socketOption });
  addRun(program, context);
  addRping(program, context);
  addNfs(program, { ...context, socketOption, addWireOptions });
  addBench(program, context);
  addCapture(program, context);
  addTrace(program, context);
  addDecode(program, context);
  addDoctor(program, context);
  addInstanceOption(program);
  return program;
}

function addStart(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('start')
    .description('run the daemon in the foreground, until Ctrl-C')
    .option(
      '--device <NAME=ADDR[,ADDR]>',
      'an RNIC and the addresses that it answers for; repeatable (default: one for all addresses). NAME=native:DEVICE serves that device of rdma-core, under this name',
      collectAnyDevice,
    )
    .option('--no-native', 'do not look for native devices (default: serve all, or those named)')
    .addOption(socketOption())
    .option('--config <FILE>', 'JSON file with the same settings; options given here win')
    .addOption(new Option('--log-level <LEVEL>', 'how much to log').choices(LOG_LEVELS))
    .addOption(
      new Option(
        '--memory-tier <TIER...>',
        'ways to the memory of clients that may be used (default: all, the best first)',
      ).choices(['shared', 'process_vm', 'agent']),
    )
    .option(
      '--http <HOST:PORT>',
      'answer over HTTP: health, metrics, JSON; port 0 is any free one (default: do not)',
      parseHttpPlace,
    )
    .option(
      '--http-token-file <FILE>',
      'what HTTP requests have to carry as bearer token; needed unless HOST is loopback (default: $IWARPD_HTTP_TOKEN)',
    )
    .option(
      '--http-host-name <NAME...>',
      "names of this host in requests, beside its addresses and the system's name for it",
    )
    .option('--json', 'print the ready line as JSON, with the ports that were chosen');
  addWireOptions(command, 'of connections that ask for nothing else');
  command.action(async (given) => {
    const { runStart } = await import('./start.ts');
    await runStart(given, output, signal);
  });
}

function addStatus(program: Command, { output }: CommandContext): void {
  program
    .command('status')
    .description('show what a running daemon has and does')
    .addOption(socketOption())
    .option('--json', 'print JSON')
    .action(async (given: StatusOptions) => {
      const { runStatus } = await import('./status.ts');
      await runStatus(given, output);
    });
  program
    .command('devices')
    .description("list a running daemon's devices")
    .addOption(socketOption())
    .option('--json', 'print JSON')
    .action(async (given: StatusOptions) => {
      const { runDevices } = await import('./status.ts');
      await runDevices(given, output);
    });
}

function addRun(program: Command, { output }: CommandContext): void {
  program
    .command('run')
    .description('run an unmodified rdma-core program on the emulated devices')
    .argument('<PROGRAM...>', 'the program and its arguments, best behind --')
    .option('--fresh', 'start a daemon for the program alone, even if one runs')
    .option(
      '--device <NAME=ADDR[,ADDR]>',
      'a device of a daemon for the program alone; repeatable',
      collectDevice,
    )
    .addOption(socketOption())
    .passThroughOptions()
    .action(async (words: string[], given: Partial<RunArguments>) => {
      const { runProgram } = await import('./run.ts');
      const { fresh = false, device } = given;
      const socket = given.socket ?? socketPathOfThisProcess();
      await runProgram(words, { socket, fresh, device }, output);
    });
  program
    .command('env')
    .description('print the environment of `run` as shell commands: eval "$(iwarpd env)"')
    .addOption(socketOption())
    .action(async (given: { socket?: string }) => {
      const { printEnvironment } = await import('./run.ts');
      await printEnvironment(given.socket ?? socketPathOfThisProcess(), output);
    });
}

function addRping(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('rping')
    .description("ping over RDMA; either side can be rdma-core's rping")
    .option('-s', 'be the server')
    .option('-c', 'be the client')
    .option('-a <ADDRESS>', "server: address to listen on; client: the server's address")
    .option('-p <PORT>', 'TCP port (default: 7174); server: 0 for any free one', parseAnyPort)
    .option('-I <ADDRESS>', 'client: address to connect from')
    .option('-C <COUNT>', 'client: pings to do (default: until Ctrl-C)', wholeNumber(0, COUNT_MAX))
    .option(
      '-S <SIZE>',
      'octets of a ping (default: 64; server: any)',
      wholeNumber(MIN_SIZE_BYTES, MAX_SIZE_BYTES),
    )
    .option('-v', 'show each ping')
    .option('-V', 'client: compare what comes back with what was sent')
    .option('-d', 'tell each step')
    .option('-P', 'server: serve any number of clients, until Ctrl-C')
    .option('-q', 'make the queue pair without the connection manager')
    .option('--embedded', 'use an RNIC in this process instead of a daemon')
    .option('--native', 'use a real device, by the installed rdma-core, instead of a daemon')
    .addOption(socketOption());
  addWireOptions(command, 'of the connection');
  command.action(async (given: RpingArguments) => {
    const { runRping } = await import('./rping/rping-command.ts');
    await runRping(given, output, signal);
  });
}

function addBench(program: Command, { output, signal }: CommandContext): void {
  program
    .command('bench')
    .description('measure the emulated RNIC against raw TCP, on daemons of its own')
    .option('--only <NAME...>', 'measurements to run (default: all)')
    .option('--rounds <N>', 'rounds of each', wholeNumber(1, 1000), QUICK_ROUNDS)
    .option('--json [FILE]', 'write JSON to FILE, or print it instead of the table')
    .action(async (given: { only?: string[]; rounds: number; json?: string | true }) => {
      const { runBenchCommand } = await import('./bench/bench-command.ts');
      const options = {
        only: given.only ?? [],
        rounds: given.rounds,
        scale: QUICK_SCALE,
        profileFolder: undefined,
        jsonFile: given.json === true ? '-' : given.json,
      };
      await runBenchCommand(options, output, signal);
    });
}

function addCapture(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('capture')
    .description("write what passes on a running daemon's connections as pcapng, for Wireshark")
    .requiredOption('-w, --write <FILE>', 'the file; - for standard output');
  addTrafficOptions(command).action(async (given: CaptureArguments) => {
    const { runCapture } = await import('./traffic/capture.ts');
    const socket = given.socket ?? socketPathOfThisProcess();
    await runCapture({ ...given, socket }, output, signal);
  });
}

function addTrace(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('trace')
    .description("show the work of a running daemon's devices and what passes, a line each")
    .addOption(
      new Option('--only <KINDS>', `some of ${TRACE_KINDS.join(',')}`).argParser(parseTraceKinds),
    )
    .option('--json', 'print a JSON object per line');
  addTrafficOptions(command).action(async (given: TraceArguments) => {
    const { runTrace } = await import('./traffic/trace.ts');
    const socket = given.socket ?? socketPathOfThisProcess();
    await runTrace({ ...given, socket }, output, signal);
  });
}

/** Which connections `capture` and `trace` watch, and how long. */
function addTrafficOptions(command: Command): Command {
  return command
    .option('--qp <NUMBER>', 'this queue pair and its connection; repeatable', collectQpNumber)
    .option('--device <NAME>', 'queue pairs and connections of this device')
    .option('--address <ADDRESS>', 'connections with this address at either end', parseAddress)
    .option('--port <PORT>', 'connections with this port at either end', parsePort)
    .option('--duration <SECONDS>', 'end after this time', wholeNumber(1, DURATION_MAX_SECONDS))
    .addOption(socketOption());
}

function addDecode(program: Command, { output, signal }: CommandContext): void {
  program
    .command('decode')
    .description('show the iWARP traffic in a pcap or pcapng file, whoever recorded it')
    .argument('<FILE>', 'the capture; - for standard input')
    .option('--json', 'print a JSON object per line')
    .action(async (file: string, given: DecodeArguments) => {
      const { runDecode } = await import('./traffic/decode.ts');
      await runDecode(file, given, output, signal);
    });
}

function addDoctor(program: Command, { output }: CommandContext): void {
  program
    .command('doctor')
    .description('examine every prerequisite, and say how to mend what is missing')
    .addOption(socketOption())
    .option('--json', 'print JSON')
    .action(async (given: { socket?: string; json?: boolean }) => {
      const { runDoctor } = await import('./doctor.ts');
      const socketPath = given.socket ?? socketPathOfThisProcess();
      await runDoctor({ socketPath, json: given.json === true }, output);
    });
}

function socketOption(): Option {
  return new Option(
    '--socket <PATH>',
    "the daemon's socket (default: $IWARPD_SOCKET, or per user)",
  );
}

function addWireOptions(command: Command, whose: string): void {
  command
    .option('--mpa-revision <1|2>', `MPA revision ${whose} (default: 2)`, parseMpaRevision)
    .option('--crc', 'use CRCs (default)')
    .option('--no-crc', 'do without CRCs where the peer agrees: corruption may pass unnoticed')
    .option('--markers', 'ask the peer for MPA markers')
    .option('--peer-to-peer', 'offer a ready-to-receive message, RFC 6581 (default)')
    .option('--no-peer-to-peer', 'offer none: the client has to send first')
    .option(
      '--fpdu-size <SIZE>',
      'emss: of a TCP segment; large: for software peers; or octets',
      parseFpduSize,
    );
}

/** The version in package.json, which stands three folders above the compiled module. */
function packageVersion(): string {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  const manifest: unknown = JSON.parse(text);
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
}
