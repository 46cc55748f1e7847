/** `iwarpd start`: the daemon in the foreground, until it is stopped. */
import { basename, resolve } from 'node:path';
import type { DestinationStream, Logger } from 'pino';
import { type DeviceInfo, protocolText } from '#contract/verbs/attributes';
import { commandOf } from '#verbs-api/client/start-command';
import { CommandFailure } from '../console/failure.ts';
import { jsonLine, type Output } from '../console/output.ts';
import { PRELOAD_NAME, type Variables } from '../console/preload-library.ts';
import { type Daemon, type DaemonReady, startDaemon, stopOnSignals } from '../main/daemon.ts';
import { createLog } from '../main/log.ts';
import { notifyService, type ServiceState } from '../main/service-notify.ts';
import { watchTurns } from '../main/turn-watch.ts';
import { crcWarning } from './arguments.ts';
import type { DaemonArguments } from './daemon-options.ts';
import { type DaemonSettings, daemonSettings, openLog } from './daemon-settings.ts';

/** The options as commander passes them; undefined if not given. */
export interface StartArguments extends DaemonArguments {
  readonly socket?: string;
  /** A private daemon, isolated by default; `socket` has its socket. */
  readonly instance?: string;
  readonly detach?: boolean;
  /** True unless negated; then the configuration file decides. */
  readonly native?: boolean;
  readonly json?: boolean;
}

/** The settings described by these options. CommandFailure names the wrong one. */
export function startSettings(given: StartArguments): DaemonSettings {
  const own = {
    ...(given.socket === undefined ? {} : { socketPath: given.socket }),
    ...(given.native === false ? { native: false } : {}),
  };
  return daemonSettings(given, own, given.instance === undefined ? 'host' : 'isolated');
}

/** Runs a daemon until `signal` fires. CommandFailure or VerbsError if it cannot start. */
export async function runStart(
  given: StartArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const settings = startSettings(given);
  const { options, config } = settings;
  assertNotOwnProgram(config.socketPath, process.env);
  if (config.devices.some(({ wire }) => wire?.crcRequested === false)) {
    output.note(`warning: ${crcWarning({ crc: false })}`);
  }
  const stream = openLog(given.logFile, config.logFormat);
  const held = new HeldLines(stream);
  const log = createLog(config.logLevel, held);
  let daemon: Daemon;
  try {
    const logLinesDropped = (): number => stream.dropped;
    daemon = await startDaemon(options, { log, logLinesDropped, onLoaded: watchTurns });
    const { ready } = daemon;
    output.line(given.json === true ? jsonLine(ready) : readyLine(ready, given, 'Ctrl-C ends it'));
  } catch (error) {
    throw settings.failure(error);
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
 * library, its search for devices would query itself, and wait forever.
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

/** Holds log lines back, so that the ready line comes first. */
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

/** The line that reports the running daemon and the next step; `end` is its last part. */
export function readyLine(ready: DaemonReady, given: StartArguments, end: string): string {
  const devices = ready.devices.map((device) => `${device.name} (${deviceText(device)})`);
  const command = commandOf(process.argv[1]);
  const where = placeText(given);
  const connected = ready.devices.find(({ transport }) => transport !== 'roce');
  const address = connected?.addresses[0] ?? '127.0.0.1';
  const page =
    ready.http?.tokenNeeded === true ? ` (\`${command} page${where}\` prints the link)` : '';
  const http = ready.http === undefined ? '' : `; ${ready.http.url}${page}`;
  const attempt =
    connected === undefined
      ? `\`${command} run${where} -- ibv_devinfo\``
      : `\`${command} rping -s${where}\` and \`${command} rping -c -a ${address} -C 3 -v${where}\``;
  return `iwarpd is ready: ${devices.join(', ')}${http}; try, in other terminals, ${attempt}; ${end}`;
}

/** The options that name the daemon, as typed. */
function placeText({ instance, socket }: StartArguments): string {
  if (instance !== undefined) return ` --instance ${instance}`;
  return socket === undefined ? '' : ` --socket ${socket}`;
}

function deviceText(device: DeviceInfo): string {
  const { backend, addresses } = device;
  if (backend === 'native') return ['native', ...addresses].join(', ');
  const where = addresses.join(', ') || 'every address';
  return [protocolText(device), where].filter(Boolean).join(', ');
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
