/** `iwarpd start`: the daemon in the foreground, until it is asked to end. */
import { readFileSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { type DestinationStream, destination, type Logger } from 'pino';
import type { DeviceInfo } from '../../verbs-api/contract/attributes.ts';
import { type DaemonOptions, parseDaemonConfig } from '../main/config.ts';
import { type Daemon, type DaemonReady, startDaemon, stopOnSignals } from '../main/daemon.ts';
import { createLog } from '../main/log.ts';
import { notifyService, type ServiceState } from '../main/service-notify.ts';
import {
  crcWarning,
  type GivenDevice,
  type HttpPlace,
  isNative,
  type WireArguments,
  wireDefaults,
} from './arguments.ts';
import { CommandFailure, failureText, usageFailure } from './failure.ts';
import type { Output } from './output.ts';
import { SHIM_PATH, type Variables } from './shim-environment.ts';

/** The options as commander hands them over; each undefined when not given. */
export interface StartArguments extends WireArguments {
  readonly device?: readonly GivenDevice[];
  readonly native?: boolean;
  readonly socket?: string;
  readonly config?: string;
  readonly logLevel?: NonNullable<DaemonOptions['logLevel']>;
  readonly memoryTier?: NonNullable<DaemonOptions['memoryTiers']>;
  readonly http?: HttpPlace;
  readonly httpTokenFile?: string;
  readonly httpHostName?: readonly string[];
  readonly json?: boolean;
}

type DeviceOptions = NonNullable<DaemonOptions['devices']>[number];

/** Runs a daemon until `signal` fires. CommandFailure or VerbsError when it cannot start. */
export async function runStart(
  given: StartArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const options = daemonOptions(given);
  const config = checkedConfig(options, given.config);
  assertNotOwnProgram(config.socketPath, process.env);
  if (config.devices.some(({ wire }) => wire?.crcRequested === false)) {
    output.note(`warning: ${crcWarning({ crc: false })}`);
  }
  const held = new HeldLines(destination({ fd: process.stderr.fd, sync: true }));
  const log = createLog(config.logLevel, held);
  let daemon: Daemon;
  try {
    daemon = await startDaemon(options, { log });
    const { ready } = daemon;
    output.line(given.json === true ? JSON.stringify(ready) : readyLine(ready, given.socket));
  } finally {
    held.release();
  }
  tellService('ready', `serves ${config.socketPath}`, log);
  signal.addEventListener('abort', () => tellService('stopping', 'stops', log), { once: true });
  await Promise.race([stopOnSignals(daemon, log), aborted(signal)]);
  await daemon.stop();
}

/**
 * Throws CommandFailure for a daemon in the environment of the programs that it is to serve: with the
 * preload library, its own look for devices would ask itself, and wait for ever.
 */
export function assertNotOwnProgram(socketPath: string, environment: Variables): void {
  const { LD_PRELOAD: preloaded = '', IWARPD_SOCKET: served } = environment;
  const isProgram = preloaded
    .split(/[\s:]+/)
    .some((path) => basename(path) === basename(SHIM_PATH));
  if (!isProgram || served === undefined || resolve(served) !== socketPath) return;
  throw new CommandFailure(
    `this is the environment of programs that use the daemon at ${socketPath}: start the daemon outside of it, or \`env -u LD_PRELOAD -u SYSFS_PATH\` before the command`,
  );
}

/** Tells the service manager, if there is one; what prevents it is for the log. */
function tellService(state: ServiceState, status: string, log: Logger): void {
  const obstacle = notifyService(state, status);
  if (obstacle !== undefined) log.warn({ kind: 'service' }, obstacle);
}

/** Keeps the lines of the log back, so that the ready line comes first. */
class HeldLines implements DestinationStream {
  readonly #target: DestinationStream;
  #lines: string[] | undefined = [];

  constructor(target: DestinationStream) {
    this.#target = target;
  }

  write(line: string): void {
    if (this.#lines === undefined) this.#target.write(line);
    else this.#lines.push(line);
  }

  /** Writes what was kept; later lines go through at once. */
  release(): void {
    const lines = this.#lines ?? [];
    this.#lines = undefined;
    for (const line of lines) this.#target.write(line);
  }
}

/** Checks all options; an error names the file, if there is one, since its options are in it. */
function checkedConfig(options: DaemonOptions, file: string | undefined) {
  try {
    return parseDaemonConfig(options);
  } catch (error) {
    const where = file === undefined ? '' : `${file}: `;
    throw new CommandFailure(`${where}${failureText(error)}`, { cause: error });
  }
}

/** What the file says, overridden by what the command line says. */
function daemonOptions(given: StartArguments): DaemonOptions {
  const file = given.config === undefined ? {} : readConfigFile(given.config);
  const { device, native, socket, logLevel, memoryTier } = given;
  const http = httpOptions(given, file.http);
  const options: DaemonOptions = {
    ...file,
    ...(device === undefined ? {} : { devices: device.map(copyOf) }),
    // The option is there, and true, unless it was negated: the file then decides.
    ...(native === false ? { native } : {}),
    ...(socket === undefined ? {} : { socketPath: socket }),
    ...(logLevel === undefined ? {} : { logLevel }),
    ...(memoryTier === undefined ? {} : { memoryTiers: [...memoryTier] }),
    ...(http === undefined ? {} : { http }),
  };
  const wire = wireDefaults(given);
  if (Object.keys(wire).length === 0) return options;
  const devices = options.devices ?? [];
  const emulated = devices.some((each) => !('native' in each));
  const all = emulated ? devices : [...parseDaemonConfig({}).devices.map(copyOf), ...devices];
  return {
    ...options,
    // A native device decides for itself how it speaks.
    devices: all.map((each) =>
      'native' in each ? each : { ...each, wire: { ...each.wire, ...wire } },
    ),
  };
}

/** HTTP as the command line wants it, over what the file says; undefined when it says nothing. */
function httpOptions(
  given: StartArguments,
  file: DaemonOptions['http'],
): NonNullable<DaemonOptions['http']> | undefined {
  const { http, httpTokenFile, httpHostName } = given;
  if (http === undefined && httpTokenFile === undefined && httpHostName === undefined) return file;
  if (http === undefined && file === undefined) {
    throw usageFailure('options of HTTP need --http HOST:PORT; see `iwarpd start --help`');
  }
  return {
    ...file,
    ...http,
    ...(httpTokenFile === undefined ? {} : { token: readToken(httpTokenFile) }),
    ...(httpHostName === undefined ? {} : { hostNames: [...httpHostName] }),
  };
}

/** The token in a file, without the newline behind it. */
function readToken(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    throw new CommandFailure(`cannot read the token: ${failureText(error)}`, { cause: error });
  }
}

function copyOf(device: GivenDevice): DeviceOptions {
  const { name } = device;
  const addresses = [...device.addresses];
  return isNative(device) ? { name, native: device.native, addresses } : { name, addresses };
}

/** The object in a JSON file; its fields are checked later, together with those of the options. */
function readConfigFile(path: string): DaemonOptions {
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new TypeError('it has to hold a JSON object');
    }
    return value;
  } catch (error) {
    throw new CommandFailure(`cannot use the configuration ${path}: ${failureText(error)}`, {
      cause: error,
    });
  }
}

/** The one line that says what is there and what to do next. */
function readyLine(ready: DaemonReady, socket: string | undefined): string {
  const devices = ready.devices.map((device) => `${device.name} (${deviceText(device)})`);
  const script = process.argv[1] ?? 'iwarpd';
  // Installed, the command has a link of its name in the PATH; a clone keeps that link for npx.
  const command = basename(script) === 'iwarpd' ? 'iwarpd' : 'npx iwarpd';
  const where = socket === undefined ? '' : ` --socket ${socket}`;
  const address = ready.devices[0]?.addresses[0] ?? '127.0.0.1';
  const http = ready.http === undefined ? '' : ` and ${ready.http.url}`;
  return (
    `iwarpd is ready: ${devices.join(', ')} at ${ready.socketPath}${http}; try, in two other terminals, ` +
    `\`${command} rping -s${where}\` and \`${command} rping -c -a ${address} -C 3 -v${where}\`; Ctrl-C ends it`
  );
}

function deviceText({ backend, addresses }: DeviceInfo): string {
  if (backend === 'native') return ['native', ...addresses].join(', ');
  return addresses.join(', ') || 'every address';
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
