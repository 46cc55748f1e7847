/** The command line: its commands and options. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError, Option } from 'commander';
import { socketPathOfThisProcess } from '#verbs-api/client/daemon-place';
import { CommandFailure, untilAborted, usageFailure } from '../console/failure.ts';
import type { Output } from '../console/output.ts';
import { DESCRIPTORS_MIN, openFilesLimit, openFilesRefusal } from '../main/open-files.ts';
import {
  collectQpNumber,
  parseAddress,
  parseAnyPort,
  parsePort,
  wholeNumber,
} from './arguments.ts';
import { addExamples } from './command-examples.ts';
import type { ConformArguments } from './conform/conform-command.ts';
import { addControl } from './control/control-options.ts';
import { addDaemonOptions, addWireOptions, socketOption } from './daemon-options.ts';
import { addDaemonTrustOption } from './daemon-trust-option.ts';
import { addInstanceOption } from './instance.ts';
import { addInstances } from './instances/instance-options.ts';
import { addNfs } from './nfs/nfs-options.ts';
import type { PageArguments } from './page-link.ts';
import type { RpingArguments } from './rping/rping-command.ts';
import { MAX_SIZE_BYTES, MIN_SIZE_BYTES } from './rping/rping-protocol.ts';
import { LINT_MODES } from './run/lint-lines.ts';
import type { RunArguments } from './run/run-command.ts';
import { addShell } from './shell/shell-options.ts';
import type { StartArguments } from './start.ts';
import type { StatusOptions } from './status.ts';
import type { CaptureArguments } from './traffic/capture.ts';
import type { DecodeArguments } from './traffic/decode.ts';
import type { TraceArguments } from './traffic/trace.ts';
import { parseTraceKinds, TRACE_KINDS } from './traffic/trace-kinds.ts';
import { usageText } from './usage-text.ts';

const COUNT_MAX = 2 ** 31 - 1;
const QUICK_ROUNDS = 3;
const DURATION_MAX_SECONDS = 1_000_000;
const QUICK_SCALE = 0.25;
/** How long `conform` waits for an answer: a second, in which an adapter answers a thousand times. */
const PATIENCE_MS = 1000;
/** An endpoint may wait four times its ACK timeout of 67 ms before it repeats a request. */
const PATIENCE_MIN_MS = 300;
const PATIENCE_MAX_MS = 600_000;

/** Commands that clean up when interrupted. All others are abandoned at once. */
const CLEANING: ReadonlySet<string> = new Set([
  'bench',
  'capture',
  'conform',
  'decode',
  'explain',
  'nfs',
  'rail',
  'rping',
  'run',
  'start',
  'top',
  'trace',
  'wait',
]);

interface CommandContext {
  readonly output: Output;
  /** Fires on Ctrl-C, SIGTERM and SIGHUP. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command line (without node and script). Throws `CommandFailure` for a usage error, and
 * rethrows the command's own failure.
 */
export async function runCommandLine(
  words: readonly string[],
  context: CommandContext,
): Promise<void> {
  const program = buildProgram(context);
  try {
    const command = program.parseAsync(words, { from: 'user' });
    await (CLEANING.has(words[0] ?? '') ? command : untilAborted(command, context.signal));
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // commander printed help or the version, and throws an error with status 0 to end parsing.
    if (error.exitCode === 0) return;
    throw usageFailure(usageText(error, words, program));
  }
}

function buildProgram(context: CommandContext): Command {
  const program = new Command('iwarpd')
    .description('An RDMA NIC in a process: emulates RoCE and iWARP devices.')
    .version(packageVersion(), '-V, --version', 'print the version')
    .exitOverride()
    // The caller prints the error.
    .configureOutput({ writeErr: () => {} })
    .showHelpAfterError(false)
    // Options after the program of `run` belong to the program.
    .enablePositionalOptions();
  addStart(program, context);
  addStatus(program, context);
  addPage(program, context);
  addInstances(program, { ...context, socketOption });
  addControl(program, { ...context, socketOption });
  addRun(program, context);
  addRping(program, context);
  addNfs(program, { ...context, socketOption, addWireOptions });
  addConform(program, context);
  addBench(program, context);
  addCapture(program, context);
  addTrace(program, context);
  addDecode(program, context);
  addDoctor(program, context);
  addShell(program, context.output, packageVersion());
  addVersion(program, context);
  addInstanceOption(program);
  addDaemonTrustOption(program);
  addExamples(program);
  return program;
}

function addVersion(program: Command, { output }: CommandContext): void {
  program
    .command('version')
    .description('print the version, as --version does')
    .action(() => output.line(packageVersion()));
}

function addStart(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('start')
    .description(
      'run the daemon, in the foreground until Ctrl-C or with --detach in the background',
    )
    .addOption(socketOption());
  addDaemonOptions(command);
  command
    .option('--no-native', 'serve no real devices (default: those given with --device, else all)')
    .option(
      '--detach',
      'return once the daemon is ready, and print its pid; the log goes to --log-file (default: NAME.log beside the socket). `stop` ends it',
    )
    .option('--json', 'print the ready line as JSON, with the chosen ports')
    .action(async (given: StartArguments) => {
      assertOpenFiles();
      if (given.detach === true) {
        const { runDetached } = await import('./detach.ts');
        await runDetached(given, output, signal);
        return;
      }
      const { runStart } = await import('./start.ts');
      await runStart(given, output, signal);
    });
}

/** Called before the daemon is loaded: with too few descriptors, even loading it fails. */
function assertOpenFiles(): void {
  const limit = openFilesLimit();
  if (limit < DESCRIPTORS_MIN) throw new CommandFailure(openFilesRefusal(limit));
}

function addStatus(program: Command, { output }: CommandContext): void {
  program
    .command('status')
    .description('show devices, counters and clients of a running daemon')
    .addOption(socketOption())
    .option('--json', 'print JSON')
    .action(async (given: StatusOptions) => {
      const { runStatus } = await import('./status.ts');
      await runStatus(given, output);
    });
  program
    .command('devices')
    .description('list the devices of a running daemon')
    .addOption(socketOption())
    .option('--json', 'print JSON')
    .action(async (given: StatusOptions) => {
      const { runDevices } = await import('./status.ts');
      await runDevices(given, output);
    });
}

function addPage(program: Command, { output }: CommandContext): void {
  program
    .command('page')
    .description('print the link to the web page of a running daemon, with its token')
    .option('--token', 'print the token alone')
    .addOption(socketOption())
    .action(async (given: PageArguments) => {
      const { printPage } = await import('./page-link.ts');
      await printPage({ ...given, socket: given.socket ?? socketPathOfThisProcess() }, output);
    });
}

function addRun(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('run')
    .description('run an unmodified rdma-core program on emulated devices')
    .argument('<PROGRAM...>', 'program and arguments; put -- before them')
    .option(
      '--fresh',
      'start a private daemon for this program, even if a daemon runs; --expect-clean, --lint and the options of `start` do so, too',
    )
    .option(
      '--expect-clean',
      'fail if the program, or a process that it started, leaves objects open',
    )
    .option(
      '--mount-sysfs',
      'show the devices in /sys by mounts, too, for static programs and others that the preload library does not reach',
    )
    .option('--capture <FILE>', 'record all traffic to FILE, as `capture` does')
    .option(
      '--trace <FILE>',
      'write work requests, completions and wire traffic to FILE, as `trace` does',
    )
    .option('--junit <FILE>', 'write the result to FILE as JUnit XML, with the end of the output')
    .addOption(
      new Option('--lint [HOW]', 'print advice about the program at its end; `error`: fail for it')
        .choices(LINT_MODES)
        .preset('print'),
    )
    .option('--explain', "print the reason of each refused verb on the program's standard error")
    .addOption(socketOption())
    .passThroughOptions();
  addDaemonOptions(command);
  command.action(async (words: string[], given: RunArguments) => {
    const { runProgram } = await import('./run/run-command.ts');
    await runProgram(words, given, output, signal);
  });
  program
    .command('setup-preload')
    .description('compile the preload library of `run` for this machine with $CC or cc')
    .action(async () => {
      const { setupPreload } = await import('../console/preload-library.ts');
      await setupPreload(process.env, output);
    });
  program
    .command('env')
    .description('print the environment that `run` sets, as shell commands')
    .addOption(socketOption())
    .action(async (given: { socket?: string }) => {
      const { printEnvironment } = await import('./environment.ts');
      await printEnvironment(given.socket ?? socketPathOfThisProcess(), output);
    });
}

function addRping(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('rping')
    .description('ping over RDMA; interoperates with rping of rdma-core')
    .option('-s', 'act as server')
    .option('-c', 'act as client')
    .option(
      '-a <ADDRESS>',
      'server: address to listen on (default: every address); client: address of the server',
    )
    .option('-p <PORT>', 'port (default: 7174); server: 0 means any free port', parseAnyPort)
    .option('-I <ADDRESS>', 'client: address to connect from')
    .option(
      '-C <COUNT>',
      'client: number of pings (default: until Ctrl-C)',
      wholeNumber(0, COUNT_MAX),
    )
    .option(
      '-S <SIZE>',
      'bytes per ping (default: 64; server: any size)',
      wholeNumber(MIN_SIZE_BYTES, MAX_SIZE_BYTES),
    )
    .option('-v', 'print each ping')
    .option('-V', 'client: check the returned data')
    .option('-d', 'print each step')
    .option('-P', 'server: serve any number of clients until Ctrl-C')
    .option('-q', 'create the queue pair with ibv_create_qp instead of rdma_create_qp')
    .option('--embedded', 'emulate the RNIC in this process instead of using a daemon')
    .option('--native', 'use a real device through rdma-core instead of a daemon')
    .addOption(socketOption());
  addWireOptions(command, 'of the connection');
  command.action(async (given: RpingArguments) => {
    const { runRping } = await import('./rping/rping-command.ts');
    await runRping(given, output, signal);
  });
}

function addConform(program: Command, { output, signal }: CommandContext): void {
  program
    .command('conform')
    .description(
      'test the wire of a RoCEv2 or iWARP endpoint against the specifications, packet by packet',
    )
    .option('--peer <ADDRESS>', 'test the endpoint at this address', parseAddress)
    .option('--serve', 'be the endpoint: serve testers until Ctrl-C')
    .option('--list', 'list the rows of the test')
    .option('-p, --port <PORT>', "port of the service (default: 7174, as rping's)", parsePort)
    .option(
      '--address <ADDRESS>',
      'with --serve: address to listen on; :: also serves IPv6 (default: every IPv4 address)',
      parseAddress,
    )
    .option('--native', 'with --serve: use a real device through rdma-core instead of a daemon')
    .option('--from <ADDRESS>', 'address of this host to test from', parseAddress)
    .addOption(new Option('--over <WIRE>', 'test this wire only').choices(['roce', 'iwarp']))
    .option('--only <ID...>', 'run only these rows')
    .option(
      '--patience <MS>',
      'how long an answer may take',
      wholeNumber(PATIENCE_MIN_MS, PATIENCE_MAX_MS),
      PATIENCE_MS,
    )
    .option('--json', 'print JSON')
    .option('--junit <FILE>', 'write the results to FILE as JUnit XML')
    .addOption(socketOption())
    .action(async (given: ConformArguments) => {
      const { runConform } = await import('./conform/conform-command.ts');
      await runConform(given, output, signal);
    });
}

interface BenchArguments {
  readonly only?: string[];
  readonly rounds: number;
  readonly targets?: boolean;
  readonly json?: string | true;
}

function addBench(program: Command, { output, signal }: CommandContext): void {
  program
    .command('bench')
    .description(
      'compare the emulated RNIC with raw TCP and with installed peers, on private daemons',
    )
    .option('--only <NAME...>', 'run only these measurements (default: all)')
    .option('--rounds <N>', 'rounds per measurement', wholeNumber(1, 1000), QUICK_ROUNDS)
    .option('--targets', "also print the project's target for each measurement")
    .option('--json [FILE]', 'print JSON instead of the table, or write it to FILE')
    .action(async (given: BenchArguments) => {
      const { runBenchCommand } = await import('../bench/bench-command.ts');
      const options = {
        only: given.only ?? [],
        rounds: given.rounds,
        scale: QUICK_SCALE,
        profileFolder: undefined,
        jsonFile: given.json === true ? '-' : given.json,
        targets: given.targets === true,
      };
      await runBenchCommand(options, output, signal);
    });
}

function addCapture(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('capture')
    .description('record the traffic of a running daemon as pcapng, for Wireshark')
    .requiredOption('-w, --write <FILE>', 'file to write; - means standard output');
  addTrafficOptions(command).action(async (given: CaptureArguments) => {
    const { runCapture } = await import('./traffic/capture.ts');
    const socket = given.socket ?? socketPathOfThisProcess();
    await runCapture({ ...given, socket }, output, signal);
  });
}

function addTrace(program: Command, { output, signal }: CommandContext): void {
  const command = program
    .command('trace')
    .description(
      'print work requests, completions, wire traffic and refusals of a running daemon, one line each',
    )
    .addOption(
      new Option(
        '--only <KINDS>',
        `print only these: ${TRACE_KINDS.join(',')} (default: all)`,
      ).argParser(parseTraceKinds),
    )
    .option('--json', 'print one JSON object per line');
  addTrafficOptions(command).action(async (given: TraceArguments) => {
    const { runTrace } = await import('./traffic/trace.ts');
    const socket = given.socket ?? socketPathOfThisProcess();
    await runTrace({ ...given, socket }, output, signal);
  });
}

/** Options of `capture` and `trace`: what to record, and for how long. */
function addTrafficOptions(command: Command): Command {
  return command
    .option(
      '--qp <NUMBER>',
      'only this queue pair with its connection or packets; repeatable',
      collectQpNumber,
    )
    .option('--device <NAME>', 'only this device')
    .option(
      '--address <ADDRESS>',
      'only connections and packets from or to this address',
      parseAddress,
    )
    .option('--port <PORT>', 'only connections and packets from or to this port', parsePort)
    .option(
      '--duration <SECONDS>',
      'stop after this many seconds (default: at Ctrl-C)',
      wholeNumber(1, DURATION_MAX_SECONDS),
    )
    .addOption(socketOption());
}

function addDecode(program: Command, { output, signal }: CommandContext): void {
  program
    .command('decode')
    .description('decode the iWARP (over TCP or SCTP) and RoCEv2 traffic in a pcap or pcapng file')
    .argument('<FILE>', 'capture file; - means standard input')
    .option('--json', 'print one JSON object per line')
    .action(async (file: string, given: DecodeArguments) => {
      const { runDecode } = await import('./traffic/decode.ts');
      await runDecode(file, given, output, signal);
    });
}

function addDoctor(program: Command, { output }: CommandContext): void {
  program
    .command('doctor')
    .description('check the setup, or a program, and explain how to fix what is missing')
    .argument('[PROGRAM]', 'program or library: what it links, and whether `run` can serve it')
    .addOption(socketOption())
    .option('--json', 'print JSON')
    .action(async (named: string | undefined, given: { socket?: string; json?: boolean }) => {
      const { runDoctor } = await import('./doctor/doctor.ts');
      const socketPath = given.socket ?? socketPathOfThisProcess();
      await runDoctor({ socketPath, json: given.json === true, program: named }, output);
    });
}

/** The version in package.json, three folders above the compiled module. */
function packageVersion(): string {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  const manifest: unknown = JSON.parse(text);
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown';
}
