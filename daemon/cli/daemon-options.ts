/** Options that describe a daemon, shared by the commands that start one: `start` and `run`. */
import { Command, InvalidArgumentError, Option } from 'commander';
import { NETWORKS } from '#contract/protocol/ipc-admin';
import { RAILS_MAX, SHOWN_NODES_MAX } from '../host/rails.ts';
import type { DaemonConfigInput } from '../main/config.ts';
import {
  collectDevice,
  type GivenDevice,
  type HttpPlace,
  parseFpduSize,
  parseHttpPlace,
  parseKeepalive,
  parseMpaRevision,
  type WireArguments,
  wholeNumber,
} from './arguments.ts';
import type { GivenFault } from './control/fault.ts';
import { collectFault } from './control/fault-options.ts';

const LOG_FORMATS = ['text', 'json'];
const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'];

/** The options as commander passes them; undefined if not given. */
export interface DaemonArguments extends WireArguments {
  readonly device?: readonly GivenDevice[];
  readonly rails?: number;
  readonly numaNodes?: number;
  readonly config?: string;
  readonly logLevel?: NonNullable<DaemonConfigInput['logLevel']>;
  readonly logFormat?: NonNullable<DaemonConfigInput['logFormat']>;
  readonly logFile?: string;
  readonly fault?: readonly GivenFault[];
  readonly memoryTier?: NonNullable<DaemonConfigInput['memoryTiers']>;
  readonly network?: NonNullable<DaemonConfigInput['network']>;
  readonly loopback?: NonNullable<DaemonConfigInput['loopback']>;
  readonly http?: HttpPlace;
  readonly httpTokenFile?: string;
  readonly httpNoToken?: boolean;
  readonly httpHostName?: readonly string[];
  readonly keepalive?: number;
}

/** Adds the options to a command that starts a daemon. */
export function addDaemonOptions(command: Command): void {
  command
    .option(
      '--device <NAME=ADDR[,ADDR]>',
      'emulated iWARP device and its IP addresses; repeatable (default: roce0 and iwarp0 on every address). NAME=roce:ADDR[,ADDR] is a RoCE device, NAME=roce one on every address. NAME=sctp:ADDR[,ADDR] is an iWARP device over SCTP by libusrsctp, NAME=kernel-sctp:… by the kernel, NAME=kernel-sctp-udp:… by the kernel in UDP. With `start`, NAME=native:DEVICE serves a real device of rdma-core as NAME',
      collectDevice,
    )
    .option(
      '--rails <COUNT>',
      'this many RoCE devices, each a PCI function with a network interface and an address (127.0.0.1 and up) of its own, instead of the default devices; `rails` of the configuration file names, places and rates them',
      wholeNumber(1, RAILS_MAX),
    )
    .option(
      '--numa-nodes <COUNT>',
      "show programs this many NUMA nodes, with the machine's processors and memory and the rails divided among them (default: the machine's nodes)",
      wholeNumber(1, SHOWN_NODES_MAX),
    )
    .option(
      '--config <FILE>',
      'read settings from a JSON file; options on the command line override it',
    );
  addLogOptions(command);
  command
    .option(
      '--fault <FAULT>',
      "inject a fault from the start, with the options of `fault add`, in quotes: 'drop --probability 0.05'; repeatable",
      collectFault,
    )
    .addOption(
      new Option(
        '--memory-tier <TIER...>',
        'how to access client memory (default: all, fastest first)',
      ).choices(['shared', 'process_vm', 'agent']),
    )
    .addOption(
      new Option(
        '--network <REACH>',
        'host: devices reach other hosts and daemons; isolated: each other only, without a socket of this host (default: host; for private daemons, of `run` or with --instance, isolated)',
      ).choices(NETWORKS),
    )
    .addOption(
      new Option(
        '--loopback <WAY>',
        'connections between iWARP devices of this daemon: through its memory, or as TCP packets on lo (default: memory)',
      ).choices(['memory', 'tcp']),
    );
  addHttpOptions(command);
  addWireOptions(command, 'of connections');
  command.option(
    '--keepalive <SECONDS>',
    'probe a peer after this many seconds of silence; six lost probes end the connection. 0: never (default: 60)',
    parseKeepalive,
  );
}

/** The names of the given values among `addDaemonOptions`, as in `DaemonArguments`. */
export function givenDaemonOptions(given: DaemonArguments): string[] {
  const known = new Command();
  addDaemonOptions(known);
  const names = known.options.map((option) => option.attributeName());
  return names.filter((name) => given[name as keyof DaemonArguments] !== undefined);
}

function addLogOptions(command: Command): void {
  command
    .addOption(
      new Option(
        '--log-level <LEVEL>',
        'log messages of this level and above (default: info)',
      ).choices(LOG_LEVELS),
    )
    .addOption(
      new Option(
        '--log-format <FORMAT>',
        'format of the log (default: text on a terminal, JSON elsewhere)',
      ).choices(LOG_FORMATS),
    )
    .option('--log-file <FILE>', 'append the log to FILE (default: standard error)');
}

function addHttpOptions(command: Command): void {
  command
    .option(
      '--http <HOST:PORT>',
      'serve the web page, health, metrics and JSON over HTTP; port 0 means any free port (default: no HTTP)',
      parseHttpPlace,
    )
    .addOption(
      new Option(
        '--http-token-file <FILE>',
        'read the bearer token that HTTP requests must carry from FILE (default: $IWARPD_HTTP_TOKEN, else a new token in SOCKET.http-token)',
      ).conflicts('httpNoToken'),
    )
    .option(
      '--http-no-token',
      'serve HTTP on loopback to every user of this host, without keys, addresses and traces',
    )
    .option(
      '--http-host-name <NAME...>',
      "accept HTTP requests for these host names, besides the host's addresses and its own name",
    );
}

/** `--socket`, on every command that talks to a daemon. */
export function socketOption(): Option {
  return new Option(
    '--socket <PATH>',
    'socket of the daemon (default: $IWARPD_SOCKET, else one per user)',
  ).argParser((path) => {
    if (path !== '') return path;
    throw new InvalidArgumentError('must be a path');
  });
}

/** Wire options; `whose` says for which connections. */
export function addWireOptions(command: Command, whose: string): void {
  command
    .option('--mpa-revision <1|2>', `MPA revision ${whose} (default: 2)`, parseMpaRevision)
    .option('--crc', 'use CRCs (default)')
    .option('--no-crc', 'use no CRCs if the peer agrees; corrupted data may go unnoticed')
    .option('--markers', 'ask the peer for MPA markers')
    .option(
      '--peer-to-peer',
      'offer a ready-to-receive message, so the server may send first (RFC 6581, default)',
    )
    .option('--no-peer-to-peer', 'offer no ready-to-receive message; the client must send first')
    .option(
      '--fpdu-size <SIZE>',
      'FPDU size: emss (each fits one TCP segment), large (faster between software peers) or a number of bytes (default: emss)',
      parseFpduSize,
    );
}
