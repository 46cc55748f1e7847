/** `iwarpd start`: the daemon in the foreground, until it is stopped. */
import { readFileSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import type { DestinationStream, Logger } from 'pino';
import { commandOf } from '../../verbs-api/client/start-command.ts';
import type { DeviceInfo } from '../../verbs-api/contract/verbs/attributes.ts';
import { CommandFailure, failureText, fileFailureText, usageFailure } from '../console/failure.ts';
import { jsonLine, type Output } from '../console/output.ts';
import { PRELOAD_NAME, type Variables } from '../console/preload-library.ts';
import { type DaemonOptions, fieldOf, parseDaemonConfig } from '../main/config.ts';
import { type Daemon, type DaemonReady, startDaemon, stopOnSignals } from '../main/daemon.ts';
import { readTokenFile } from '../main/http-token.ts';
import { createLog, standardErrorLog } from '../main/log.ts';
import { notifyService, type ServiceState } from '../main/service-notify.ts';
import { watchTurns } from '../main/turn-watch.ts';
import {
  crcWarning,
  type GivenDevice,
  type HttpPlace,
  isNative,
  keepaliveDefaults,
  type WireArguments,
  wireDefaults,
} from './arguments.ts';
import { lineOfField } from './json-field.ts';

/** The options as commander passes them; undefined if not given. */
export interface StartArguments extends WireArguments {
  readonly device?: readonly GivenDevice[];
  readonly native?: boolean;
  readonly socket?: string;
  readonly config?: string;
  readonly logLevel?: NonNullable<DaemonOptions['logLevel']>;
  readonly logFormat?: NonNullable<DaemonOptions['logFormat']>;
  readonly memoryTier?: NonNullable<DaemonOptions['memoryTiers']>;
  readonly loopback?: NonNullable<DaemonOptions['loopback']>;
  readonly http?: HttpPlace;
  readonly httpTokenFile?: string;
  readonly httpNoToken?: boolean;
  readonly httpHostName?: readonly string[];
  readonly keepalive?: number;
  readonly json?: boolean;
}

type HttpOptions = NonNullable<DaemonOptions['http']>;
type DeviceOptions = NonNullable<DaemonOptions['devices']>[number];

/** Runs a daemon until `signal` fires. CommandFailure or VerbsError if it cannot start. */
export async function runStart(
  given: StartArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const file = given.config === undefined ? undefined : readConfigFile(given.config);
  const options = daemonOptions(given, file?.options ?? {});
  const config = checkedConfig(options, file);
  assertNotOwnProgram(config.socketPath, process.env);
  if (config.devices.some(({ wire }) => wire?.crcRequested === false)) {
    output.note(`warning: ${crcWarning({ crc: false })}`);
  }
  const stream = standardErrorLog(config.logFormat);
  const held = new HeldLines(stream);
  const log = createLog(config.logLevel, held);
  let daemon: Daemon;
  try {
    const logLinesDropped = (): number => stream.dropped;
    daemon = await startDaemon(options, { log, logLinesDropped, onLoaded: watchTurns });
    const { ready } = daemon;
    output.line(given.json === true ? jsonLine(ready) : readyLine(ready, given.socket));
  } catch (error) {
    // A fault may name what only the devices show to be wrong.
    throw fieldOf(error) === undefined ? error : optionFailure(error, options, file);
  } finally {
    held.release();
  }
  reportState('ready', `serves ${config.socketPath}`, log);
  signal.addEventListener('abort', () => reportState('stopping', 'stops', log), { once: true });
  await Promise.race([stopOnSignals(daemon, log), aborted(signal)]);
  await daemon.stop();
}

/**
 * Throws CommandFailure if the daemon runs in the environment of its own programs: with the preload
 * library, its search for devices would query itself, and wait for ever.
 */
export function assertNotOwnProgram(socketPath: string, environment: Variables): void {
  const { LD_PRELOAD: preloaded = '', IWARPD_SOCKET: served } = environment;
  const isProgram = preloaded.split(/[\s:]+/).some((path) => basename(path) === PRELOAD_NAME);
  if (!isProgram || served === undefined || resolve(served) !== socketPath) return;
  throw new CommandFailure(
    `this is the environment of programs that use the daemon at ${socketPath}: start the daemon outside of it, or \`env -u LD_PRELOAD -u SYSFS_PATH\` before the command`,
  );
}

/** Notifies the service manager, if there is one; logs a failure. */
function reportState(state: ServiceState, status: string, log: Logger): void {
  const obstacle = notifyService(state, status);
  if (obstacle !== undefined) log.warn({ kind: 'service' }, obstacle);
}

/** Holds back log lines, so the ready line is first. */
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

  /** Writes the held lines; later lines are written directly. */
  release(): void {
    const lines = this.#lines ?? [];
    this.#lines = undefined;
    for (const line of lines) this.#target.write(line);
  }
}

/** A configuration file. */
interface ConfigFile {
  readonly path: string;
  readonly text: string;
  readonly options: DaemonOptions;
}

function checkedConfig(options: DaemonOptions, file: ConfigFile | undefined) {
  try {
    return parseDaemonConfig(options);
  } catch (error) {
    throw optionFailure(error, options, file);
  }
}

/** An error about options names the file, if there is one, and the line of a field in it. */
function optionFailure(
  error: unknown,
  options: DaemonOptions,
  file: ConfigFile | undefined,
): CommandFailure {
  if (file === undefined) return new CommandFailure(failureText(error), { cause: error });
  const field = fieldOf(error);
  const name = field?.[0] as keyof DaemonOptions | undefined;
  // The command line has options, too.
  const own = name !== undefined && file.options[name] === options[name];
  const line = own && field !== undefined ? `:${lineOfField(file.text, field)}` : '';
  return new CommandFailure(`${file.path}${line}: ${failureText(error)}`, { cause: error });
}

/** The options in the file, overridden by those on the command line. */
function daemonOptions(given: StartArguments, file: DaemonOptions): DaemonOptions {
  const { device, native, socket, logLevel, logFormat, memoryTier, loopback } = given;
  const http = httpOptions(given, file.http);
  const options: DaemonOptions = {
    ...file,
    ...(device === undefined ? {} : { devices: device.map(deviceOptions) }),
    // True unless negated: the file then decides.
    ...(native === false ? { native } : {}),
    ...(socket === undefined ? {} : { socketPath: socket }),
    ...(logLevel === undefined ? {} : { logLevel }),
    ...(logFormat === undefined ? {} : { logFormat }),
    ...(memoryTier === undefined ? {} : { memoryTiers: [...memoryTier] }),
    ...(loopback === undefined ? {} : { loopback }),
    ...(http === undefined ? {} : { http }),
  };
  const wire = { ...wireDefaults(given), ...keepaliveDefaults(given.keepalive) };
  if (Object.keys(wire).length === 0) return options;
  const devices = options.devices ?? [];
  const emulated = devices.some((each) => !('native' in each));
  const all = emulated
    ? devices
    : [...parseDaemonConfig({}).devices.map(deviceOptions), ...devices];
  if (all.every((each) => 'native' in each || each.transport === 'roce')) {
    throw usageFailure('wire options require an iWARP device; see `iwarpd start --help`');
  }
  return {
    ...options,
    // A native device sets its own wire options.
    devices: all.map((each) => {
      if ('native' in each || each.transport === 'roce') return each;
      return { ...each, wire: { ...each.wire, ...wire } };
    }),
  };
}

/** HTTP options of the command line, merged over those of the file; undefined if there are none. */
function httpOptions(given: StartArguments, file: DaemonOptions['http']): HttpOptions | undefined {
  const { http, httpTokenFile, httpNoToken, httpHostName } = given;
  const named = [http, httpTokenFile, httpNoToken, httpHostName];
  if (named.every((option) => option === undefined)) return file;
  if (http === undefined && file === undefined) {
    throw usageFailure('HTTP options require --http HOST:PORT; see `iwarpd start --help`');
  }
  return {
    ...file,
    ...http,
    ...(httpTokenFile === undefined ? {} : tokenOptions(httpTokenFile)),
    ...(httpNoToken === true ? { noToken: true } : {}),
    ...(httpHostName === undefined ? {} : { hostNames: [...httpHostName] }),
  };
}

/** The token is read once: the file may be a pipe. */
function tokenOptions(tokenFile: string): Pick<HttpOptions, 'token' | 'tokenFile'> {
  return { token: readTokenFile(tokenFile), tokenFile };
}

function deviceOptions(device: GivenDevice): DeviceOptions {
  const { name } = device;
  const addresses = [...device.addresses];
  if (isNative(device)) return { name, native: device.native, addresses };
  const { transport = 'iwarp', lowerLayer, sctpTransport } = device;
  return {
    name,
    addresses,
    transport,
    ...(lowerLayer === undefined ? {} : { lowerLayer }),
    ...(sctpTransport === undefined ? {} : { sctpTransport }),
  };
}

/** The object in a JSON file; its fields are checked later, together with the options. */
function readConfigFile(path: string): ConfigFile {
  try {
    const text = readFileSync(path, 'utf8');
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new TypeError('it must contain a JSON object');
    }
    return { path, text, options: value };
  } catch (error) {
    throw new CommandFailure(`cannot read the configuration ${path}: ${fileFailureText(error)}`, {
      cause: error,
    });
  }
}

/** The line that reports what is running and what to do next. */
function readyLine(ready: DaemonReady, socket: string | undefined): string {
  const devices = ready.devices.map((device) => `${device.name} (${deviceText(device)})`);
  const command = commandOf(process.argv[1]);
  const where = socket === undefined ? '' : ` --socket ${socket}`;
  const connected = ready.devices.find(({ transport }) => transport !== 'roce');
  const address = connected?.addresses[0] ?? '127.0.0.1';
  const page =
    ready.http?.tokenNeeded === true ? ` (\`${command} page${where}\` prints the link)` : '';
  const http = ready.http === undefined ? '' : ` and ${ready.http.url}${page}`;
  const attempt =
    connected === undefined
      ? `in another terminal, \`${command} run${where} -- ibv_devinfo\``
      : `in two other terminals, \`${command} rping -s${where}\` and \`${command} rping -c -a ${address} -C 3 -v${where}\``;
  return `iwarpd is ready: ${devices.join(', ')} at ${ready.socketPath}${http}; try, ${attempt}; Ctrl-C ends it`;
}

function deviceText({ backend, transport, lowerLayer, addresses }: DeviceInfo): string {
  if (backend === 'native') return ['native', ...addresses].join(', ');
  const where = addresses.join(', ') || 'every address';
  if (lowerLayer === 'sctp') return `iWARP over SCTP, ${where}`;
  return transport === 'roce' ? `RoCE, ${where}` : where;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
