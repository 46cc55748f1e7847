/**
 * Programs, unmodified, as a load: both ends run by `iwarpd run`, on daemons of their own or on one, or
 * as they are, for a peer. perftest's programs spin while they wait, so on few cores they take
 * processor time from the daemons.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { PRELOAD_FIX, preloadPath } from '../console/preload-library.ts';
import { perftestFigures, tail } from './program-figures.ts';

const PROGRAM_TIMEOUT_MS = 60_000;
const LISTEN_TIMEOUT_MS = 15_000;
const LISTEN_POLL_MS = 20;
/** What is kept of a program's output, in characters: all that they print is far less. */
const OUTPUT_LENGTH_MAX = 1 << 20;
/** Has the kernel end a program that is not on a daemon when the bench is killed. */
const ENDS_WITH_BENCH = ['setpriv', '--pdeathsig', 'KILL', '--'];

/** Where one end runs: on the devices of the daemon at `socketPath`, or as it is. */
export interface ProgramPlace {
  readonly socketPath?: string;
  readonly address: string;
}

/** The words of both ends of a program, for the port that they share. */
interface ProgramEnds {
  readonly server: (port: number) => readonly string[];
  readonly client: (port: number, address: string) => readonly string[];
}

/** Both ends of a program that takes its port with -p, and the client the server's address at the end. */
export function likePerftest(words: readonly string[]): ProgramEnds {
  return {
    server: (port) => [...words, '-p', String(port)],
    client: (port, address) => [...words, '-p', String(port), address],
  };
}

/** What keeps `program` from running on emulated devices; undefined when nothing does. */
export function programObstacle(program: string, debian = 'perftest'): string | undefined {
  if (!existsSync(preloadPath())) return `the preload library was not built: ${PRELOAD_FIX}`;
  return missingProgram(program, debian);
}

/** What keeps `program` from running as it is; undefined when nothing does. */
export function peerObstacle(program: string, debian: string): string | undefined {
  return missingProgram(program, debian) ?? missingProgram('setpriv', 'util-linux');
}

function missingProgram(program: string, debian: string): string | undefined {
  const { error } = spawnSync(program, ['--version'], { stdio: 'ignore', timeout: 5000 });
  const missing = error !== undefined && 'code' in error && error.code === 'ENOENT';
  return missing ? `there is no ${program}: apt-get install ${debian}` : undefined;
}

/** The programs of a run, all of which end with it. */
export class ProgramGroup {
  readonly #running = new Set<PlacedProgram>();
  #closed = false;

  /**
   * Runs both ends of a perftest program to their ends; the figures that the client prints
   * behind `sizeBytes`, the number of iterations first. Rejects when an end fails.
   */
  async runPerftest(
    active: ProgramPlace,
    passive: ProgramPlace,
    words: readonly string[],
    sizeBytes: number,
  ): Promise<readonly number[]> {
    const ends = likePerftest([...words, '-s', String(sizeBytes)]);
    return perftestFigures(await this.runBothEnds(active, passive, ends), sizeBytes);
  }

  /** Runs both ends of a program to their ends; what the client says. Rejects when an end fails. */
  async runBothEnds(
    active: ProgramPlace,
    passive: ProgramPlace,
    ends: ProgramEnds,
  ): Promise<string> {
    const port = await freePort(passive.address);
    const server = this.#start(passive, ends.server(port));
    try {
      await untilListening(port, server);
      const client = this.#start(active, ends.client(port, passive.address));
      await client.succeed();
      await server.succeed();
      return client.output;
    } finally {
      await server.kill();
    }
  }

  /** Ends all that runs, and starts nothing any more. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#running].map((program) => program.kill()));
  }

  #start(place: ProgramPlace, words: readonly string[]): PlacedProgram {
    if (this.#closed) throw new Error(`${words.join(' ')} was not started: the bench ends`);
    const program = new PlacedProgram(place, words);
    this.#running.add(program);
    void program.ended.then(() => this.#running.delete(program));
    return program;
  }
}

/** A program that runs; it is ended when it takes too long. */
class PlacedProgram {
  readonly #words: readonly string[];
  readonly #child: ChildProcess;
  readonly #start = performance.now();
  /** Its exit status; undefined if a signal ended it, or it could not be started. */
  readonly ended: Promise<number | undefined>;
  output = '';

  constructor({ socketPath }: ProgramPlace, words: readonly string[]) {
    this.#words = words;
    const main = fileURLToPath(new URL('../cli/main.js', import.meta.url));
    const [program = '', ...others] =
      socketPath === undefined
        ? [...ENDS_WITH_BENCH, ...words]
        : [process.execPath, main, 'run', '--socket', socketPath, '--', ...words];
    const child = spawn(program, others, {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: PROGRAM_TIMEOUT_MS,
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (bytes: Buffer) => {
        this.output = (this.output + bytes.toString()).slice(-OUTPUT_LENGTH_MAX);
      });
    }
    this.ended = once(child, 'close').then(
      ([status]) => status ?? undefined,
      (error: Error) => {
        this.output += error.message;
        return undefined;
      },
    );
  }

  get over(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Waits for its end; rejects unless it ended well. */
  async succeed(): Promise<void> {
    if ((await this.ended) === 0) return;
    const late = performance.now() - this.#start >= PROGRAM_TIMEOUT_MS;
    throw this.failure(late ? `took more than ${PROGRAM_TIMEOUT_MS / 1000} s` : 'failed');
  }

  failure(what: string): Error {
    return new Error(`${this.#words.join(' ')} ${what}: ${tail(this.output)}`);
  }

  /** Ends it if it still runs; `run` passes the signal on. */
  async kill(): Promise<void> {
    if (!this.over) this.#child.kill('SIGTERM');
    await this.ended;
  }
}

/** Waits until something listens on the port: the program does not tell. */
async function untilListening(port: number, server: PlacedProgram): Promise<void> {
  const entry = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} \\S+ 0A `);
  const deadline = Date.now() + LISTEN_TIMEOUT_MS;
  while (!['/proc/net/tcp', '/proc/net/tcp6'].some((path) => entry.test(tableOf(path)))) {
    if (server.over) throw server.failure('ended before it listened');
    if (Date.now() > deadline) throw server.failure('did not listen in time');
    await sleep(LISTEN_POLL_MS);
  }
}

/** Sockets of the kernel; none for a family that it does not have. */
function tableOf(path: string): string {
  return existsSync(path) ? readFileSync(path, 'latin1') : '';
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
