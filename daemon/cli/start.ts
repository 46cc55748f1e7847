/** `iwarpd start`: the daemon in the foreground, until it is asked to end. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { type DestinationStream, destination } from 'pino';
import type { DeviceConfig } from '../adapter/device-config.ts';
import { type DaemonOptions, parseDaemonConfig } from '../main/config.ts';
import { type Daemon, type DaemonReady, startDaemon, stopOnSignals } from '../main/daemon.ts';
import { createLog } from '../main/log.ts';
import { crcWarning, type WireArguments, wireDefaults } from './arguments.ts';
import { CommandFailure, failureText } from './failure.ts';
import type { Output } from './output.ts';

/** The options as commander hands them over; each undefined when not given. */
export interface StartArguments extends WireArguments {
  readonly device?: readonly DeviceConfig[];
  readonly socket?: string;
  readonly config?: string;
  readonly logLevel?: NonNullable<DaemonOptions['logLevel']>;
  readonly memoryTier?: NonNullable<DaemonOptions['memoryTiers']>;
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
  if (config.devices.some(({ wire }) => wire?.crcRequested === false)) {
    output.note(`warning: ${crcWarning({ crc: false })}`);
  }
  const held = new HeldLines(destination({ fd: process.stderr.fd, sync: true }));
  const log = createLog(config.logLevel, held);
  let daemon: Daemon;
  try {
    daemon = await startDaemon(options, { log });
    output.line(readyLine(daemon.ready, given.socket));
  } finally {
    held.release();
  }
  await Promise.race([stopOnSignals(daemon, log), aborted(signal)]);
  await daemon.stop();
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
  const { device, socket, logLevel, memoryTier } = given;
  const options: DaemonOptions = {
    ...file,
    ...(device === undefined ? {} : { devices: device.map(copyOf) }),
    ...(socket === undefined ? {} : { socketPath: socket }),
    ...(logLevel === undefined ? {} : { logLevel }),
    ...(memoryTier === undefined ? {} : { memoryTiers: [...memoryTier] }),
  };
  const wire = wireDefaults(given);
  if (Object.keys(wire).length === 0) return options;
  const devices = options.devices ?? parseDaemonConfig({}).devices.map(copyOf);
  return {
    ...options,
    devices: devices.map((each) => ({ ...each, wire: { ...each.wire, ...wire } })),
  };
}

function copyOf({ name, addresses }: DeviceConfig): DeviceOptions {
  return { name, addresses: [...addresses] };
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
  const devices = ready.devices.map(
    ({ name, addresses }) => `${name} (${addresses.join(', ') || 'every address'})`,
  );
  const script = process.argv[1] ?? 'iwarpd';
  // Installed, the command has a link of its name in the PATH; a clone keeps that link for npx.
  const command = basename(script) === 'iwarpd' ? 'iwarpd' : 'npx iwarpd';
  const where = socket === undefined ? '' : ` --socket ${socket}`;
  const address = ready.devices[0]?.addresses[0] ?? '127.0.0.1';
  return (
    `iwarpd is ready: ${devices.join(', ')} at ${ready.socketPath}; try, in two other terminals, ` +
    `\`${command} rping -s${where}\` and \`${command} rping -c -a ${address} -C 3 -v${where}\`; Ctrl-C ends it`
  );
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
