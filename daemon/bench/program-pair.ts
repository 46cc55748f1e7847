/**
 * perftest, unmodified, as a load: each end runs by `iwarpd run`, on daemons of their own or on one. Its
 * programs spin while they wait, so on few cores they take processor time from the daemons.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { PRELOAD_FIX, preloadPath } from '../console/preload-library.ts';

const PROGRAM_TIMEOUT_MS = 60_000;
const LISTEN_TIMEOUT_MS = 15_000;
const LISTEN_POLL_MS = 20;
/** What is kept of a failed program's output, in characters. */
const COMPLAINT_LENGTH = 600;

/** Where one end runs. */
export interface ProgramPlace {
  readonly socketPath: string;
  readonly address: string;
}

/** What keeps `program` from running on emulated devices; undefined when nothing does. */
export function programObstacle(program: string, debian = 'perftest'): string | undefined {
  if (!existsSync(preloadPath())) return `the preload library was not built: ${PRELOAD_FIX}`;
  const { error } = spawnSync(program, ['--version'], { stdio: 'ignore', timeout: 5000 });
  return error === undefined ? undefined : `there is no ${program}: apt-get install ${debian}`;
}

/**
 * Runs both ends of a perftest program to their ends; the figures that the client prints
 * behind `sizeBytes`, the number of iterations first. Rejects when an end fails.
 */
export async function runProgramPair(
  active: ProgramPlace,
  passive: ProgramPlace,
  words: readonly string[],
  sizeBytes: number,
): Promise<readonly number[]> {
  const output = await runBothEnds(active, passive, [...words, '-s', String(sizeBytes)]);
  return figuresOf(output, sizeBytes);
}

/** Runs both ends of a program that takes a port and a host as perftest's do; what the client says. */
export async function runBothEnds(
  active: ProgramPlace,
  passive: ProgramPlace,
  words: readonly string[],
): Promise<string> {
  const port = await freePort(passive.address);
  const all = [...words, '-p', String(port)];
  const server = new PlacedProgram(passive, all);
  try {
    await untilListening(port, server);
    const client = new PlacedProgram(active, [...all, passive.address]);
    await client.succeed();
    await server.succeed();
    return client.output;
  } finally {
    await server.kill();
  }
}

/** The figures behind `sizeBytes` in perftest's table. Throws when it has no such line. */
export function figuresOf(output: string, sizeBytes: number): readonly number[] {
  const rows = output.split('\n').map((line) => line.trim().split(/\s+/).map(Number));
  const row = rows.find(([first]) => first === sizeBytes);
  if (row === undefined) throw new Error(`no figures for ${sizeBytes} bytes: ${tail(output)}`);
  return row.slice(1);
}

/** A program that runs by `iwarpd run`; it is ended when it takes too long. */
class PlacedProgram {
  readonly #words: readonly string[];
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | undefined>;
  output = '';

  constructor({ socketPath }: ProgramPlace, words: readonly string[]) {
    this.#words = words;
    const main = fileURLToPath(new URL('../cli/main.js', import.meta.url));
    const child = spawn(process.execPath, [main, 'run', '--socket', socketPath, '--', ...words], {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PROGRAM_TIMEOUT_MS,
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (bytes: Buffer) => {
        this.output += bytes.toString();
      });
    }
    this.#ended = once(child, 'close').then(([status]) => status ?? undefined);
  }

  get over(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Waits for its end; rejects unless it ended well. */
  async succeed(): Promise<void> {
    if ((await this.#ended) !== 0) throw this.failure('failed');
  }

  failure(what: string): Error {
    return new Error(`${this.#words.join(' ')} ${what}: ${tail(this.output)}`);
  }

  /** Ends it if it still runs; `run` passes the signal on. */
  async kill(): Promise<void> {
    if (!this.over) this.#child.kill('SIGTERM');
    await this.#ended;
  }
}

function tail(output: string): string {
  return output.trim().slice(-COMPLAINT_LENGTH) || 'it said nothing';
}

/** Waits until something listens on the port: the program does not tell. */
async function untilListening(port: number, server: PlacedProgram): Promise<void> {
  const entry = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} \\S+ 0A `);
  const deadline = Date.now() + LISTEN_TIMEOUT_MS;
  while (!entry.test(readFileSync('/proc/net/tcp', 'latin1'))) {
    if (server.over) throw server.failure('ended before it listened');
    if (Date.now() > deadline) throw server.failure('did not listen in time');
    await sleep(LISTEN_POLL_MS);
  }
}

async function freePort(address: string): Promise<number> {
  const server = createServer().listen(0, address);
  await once(server, 'listening');
  const place = server.address();
  server.close();
  await once(server, 'close');
  if (place === null || typeof place === 'string') throw new Error('there is no free port');
  return place.port;
}
