/** The settings of a daemon: the configuration file, overridden by the command line. */
import type { NetworkReach } from '#contract/protocol/ipc-admin';
import { CommandFailure, failureText, fileFailureText, usageFailure } from '../console/failure.ts';
import { readTextFile } from '../console/text-file.ts';
import {
  type DaemonConfig,
  type DaemonConfigInput,
  fieldOf,
  parseDaemonConfig,
} from '../main/config.ts';
import { readTokenFile } from '../main/http-token.ts';
import { fileLog, standardErrorLog } from '../main/log.ts';
import type { LogStream } from '../main/log-stream.ts';
import { type GivenDevice, isNative, keepaliveDefaults, wireDefaults } from './arguments.ts';
import { checkedFault, type GivenFault } from './control/fault.ts';
import type { DaemonArguments } from './daemon-options.ts';
import { placeOfField, syntaxFault } from './json-field.ts';

type HttpOptions = NonNullable<DaemonConfigInput['http']>;
type DeviceOptions = NonNullable<DaemonConfigInput['devices']>[number];

export interface DaemonSettings {
  readonly options: DaemonConfigInput;
  readonly config: DaemonConfig;
  /** The error to report if starting the daemon fails with `error`: it may concern an option. */
  failure(error: unknown): unknown;
}

/**
 * The settings of the command line and its configuration file. `own` settings, of the command itself,
 * override both; `network` applies if neither specifies one. CommandFailure names the wrong option, and
 * its line in the file.
 */
export function daemonSettings(
  given: DaemonArguments,
  own: Pick<DaemonConfigInput, 'socketPath' | 'native' | 'logLevel'>,
  network: NetworkReach,
): DaemonSettings {
  const file = given.config === undefined ? undefined : readConfigFile(given.config);
  const options = { network, ...daemonOptions(given, file?.options ?? {}), ...own };
  return {
    options,
    config: checkedConfig(options, file),
    // A fault may name devices that do not exist.
    failure: (error) =>
      fieldOf(error) === undefined ? error : optionFailure(error, options, file),
  };
}

/** Opens the log: `file`, by default standard error. CommandFailure if the file cannot be opened. */
export function openLog(file: string | undefined, format: DaemonConfig['logFormat']): LogStream {
  if (file === undefined) return standardErrorLog(format);
  try {
    return fileLog(file, format);
  } catch (error) {
    throw new CommandFailure(`cannot write the log ${file}: ${fileFailureText(error)}`, {
      cause: error,
    });
  }
}

interface ConfigFile {
  readonly path: string;
  readonly text: string;
  readonly options: DaemonConfigInput;
}

function checkedConfig(options: DaemonConfigInput, file: ConfigFile | undefined): DaemonConfig {
  try {
    return parseDaemonConfig(options);
  } catch (error) {
    throw optionFailure(error, options, file);
  }
}

/** Adds the file and the position in it to an error about an option of the file. */
function optionFailure(
  error: unknown,
  options: DaemonConfigInput,
  file: ConfigFile | undefined,
): CommandFailure {
  if (file === undefined) return new CommandFailure(failureText(error), { cause: error });
  const field = fieldOf(error);
  const name = field?.[0] as keyof DaemonConfigInput | undefined;
  // The option may come from the command line.
  const own = name !== undefined && file.options[name] === options[name];
  const place = own && field !== undefined ? `:${placeOfField(file.text, field)}` : '';
  return new CommandFailure(`${file.path}${place}: ${failureText(error)}`, { cause: error });
}

function railsOptions(
  { rails: count, numaNodes: numa }: DaemonArguments,
  file: DaemonConfigInput['rails'],
): Pick<DaemonConfigInput, 'rails'> {
  if (count === undefined && numa === undefined) return {};
  const rails = { ...file, ...(count === undefined ? {} : { count }) };
  if (rails.count === undefined) throw usageFailure('--numa-nodes is for rails: add --rails COUNT');
  return { rails: { ...rails, count: rails.count, ...(numa === undefined ? {} : { numa }) } };
}

/** The options of the file, overridden by the command line. */
function daemonOptions(given: DaemonArguments, file: DaemonConfigInput): DaemonConfigInput {
  const { device, logLevel, logFormat, fault, memoryTier, network, loopback } = given;
  const http = httpOptions(given, file.http);
  const options: DaemonConfigInput = {
    ...file,
    ...(device === undefined ? {} : { devices: device.map(deviceOptions) }),
    ...railsOptions(given, file.rails),
    ...(logLevel === undefined ? {} : { logLevel }),
    ...(logFormat === undefined ? {} : { logFormat }),
    ...(fault === undefined ? {} : { faults: withFaults(file.faults, fault) }),
    ...(memoryTier === undefined ? {} : { memoryTiers: [...memoryTier] }),
    ...(network === undefined ? {} : { network }),
    ...(loopback === undefined ? {} : { loopback }),
    ...(http === undefined ? {} : { http }),
  };
  const wire = { ...wireDefaults(given), ...keepaliveDefaults(given.keepalive) };
  if (Object.keys(wire).length === 0) return options;
  const devices = options.devices ?? [];
  const emulated = devices.some((each) => !('native' in each));
  const all =
    emulated || options.rails !== undefined
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

/** Adds to the faults of the file; a value other than a list is rejected later. */
function withFaults(
  inFile: DaemonConfigInput['faults'],
  given: readonly GivenFault[],
): NonNullable<DaemonConfigInput['faults']> {
  if (inFile !== undefined && !Array.isArray(inFile)) return inFile;
  return [...(inFile ?? []), ...given.map(checkedFault)];
}

/** HTTP options of the command line, merged over those of the file; undefined if there are none. */
function httpOptions(
  given: DaemonArguments,
  file: DaemonConfigInput['http'],
): HttpOptions | undefined {
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

/** Reads the token once: the file may be a pipe. */
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
  const failure = (reason: string, cause: unknown): CommandFailure => {
    return new CommandFailure(`cannot read the configuration ${path}: ${reason}`, { cause });
  };
  let text = '';
  try {
    text = readTextFile(path);
  } catch (error) {
    throw failure(fileFailureText(error), error);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const fault = syntaxFault(text);
    if (fault === undefined) throw failure(failureText(error), error);
    throw new CommandFailure(`${path}:${fault.place}: ${fault.reason}`, { cause: error });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw failure('it must contain a JSON object', undefined);
  }
  return { path, text, options: value };
}
