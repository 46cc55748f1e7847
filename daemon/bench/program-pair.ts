/**
 * Runs unmodified programs as a load: both ends under `iwarpd run`, on one daemon or two, or without
 * a daemon, to measure a peer. perftest's programs spin while they wait, so on few cores they take
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
/** Maximum characters stored of a program's output: far more than any prints. */
const OUTPUT_LENGTH_MAX = 1 << 20;
/** Makes the kernel end a program without a daemon when the bench is killed. */
const ENDS_WITH_BENCH = ['setpriv', '--pdeathsig', 'KILL', '--'];

/** Where one end runs: on the devices of the daemon at `socketPath`, or without a daemon. */
export interface ProgramPlace {
  readonly socketPath?: string;
  readonly address: string;
}

/** The command lines of both ends of a program, for a common port. */
interface ProgramEnds {
  readonly server: (port: number) => readonly string[];
  readonly client: (port: number, address: string) => readonly string[];
}

/** Both ends of a program whose port option is -p; the client's last argument is the server's address. */
export function likePerftest(words: readonly string[]): ProgramEnds {
  return {
    server: (port) => [...words, '-p', String(port)],
    client: (port, address) => [...words, '-p', String(port), address],
  };
}

/** Why `program` cannot run on emulated devices; undefined if it can. */
export function programObstacle(program: string, debian = 'perftest'): string | undefined {
  if (!existsSync(preloadPath())) return `the preload library was not built: ${PRELOAD_FIX}`;
  return missingProgram(program, debian);
}

/** Why `program` cannot run without a daemon; undefined if it can. */
export function peerObstacle(program: string, debian: string): string | undefined {
  return missingProgram(program, debian) ?? missingProgram('setpriv', 'util-linux');
}

function missingProgram(program: string, debian: string): string | undefined {
  const { error } = spawnSync(program, ['--version'], { stdio: 'ignore', timeout: 5000 });
  const missing = error !== undefined && 'code' in error && error.code === 'ENOENT';
  return missing ? `${program} is not installed: apt-get install ${debian}` : undefined;
}

/** The programs of a run; they all end with it. */
export class ProgramGroup {
  readonly #running = new Set<PlacedProgram>();
  #closed = false;

  /**
   * Runs both ends of a perftest program to completion; returns the figures that the client prints
   * after `sizeBytes`, the number of iterations first. Rejects if an end fails.
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

  /** Runs both ends of a program to completion; returns the client's output. Rejects if an end fails. */
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

  /** Ends all running programs, and starts no more. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#running].map((program) => program.kill()));
  }

  #start(place: ProgramPlace, words: readonly string[]): PlacedProgram {
    if (this.#closed) throw new Error(`${words.join(' ')} was not started: the bench is ending`);
    const program = new PlacedProgram(place, words);
    this.#running.add(program);
    void program.ended.then(() => this.#running.delete(program));
    return program;
  }
}

/** A running program; ended when it takes too long. */
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

  /** Waits for its end; rejects unless it succeeded. */
  async succeed(): Promise<void> {
    if ((await this.ended) === 0) return;
    const late = performance.now() - this.#start >= PROGRAM_TIMEOUT_MS;
    throw this.failure(late ? `took more than ${PROGRAM_TIMEOUT_MS / 1000} s` : 'failed');
  }

  failure(what: string): Error {
    return new Error(`${this.#words.join(' ')} ${what}: ${tail(this.output)}`);
  }

  /** Sends it SIGTERM if it is running; `run` forwards the signal. */
  async kill(): Promise<void> {
    if (!this.over) this.#child.kill('SIGTERM');
    await this.ended;
  }
}

/** Waits until something listens on the port, since the program does not report it. */
async function untilListening(port: number, server: PlacedProgram): Promise<void> {
  const entry = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} \\S+ 0A `);
  const deadline = Date.now() + LISTEN_TIMEOUT_MS;
  while (!['/proc/net/tcp', '/proc/net/tcp6'].some((path) => entry.test(tableOf(path)))) {
    if (server.over) throw server.failure('ended before it listened');
    if (Date.now() > deadline) throw server.failure('did not listen in time');
    await sleep(LISTEN_POLL_MS);
  }
}

/** A table of the kernel's sockets; empty for an unsupported address family. */
function tableOf(path: string): string {
  return existsSync(path) ? readFileSync(path, 'latin1') : '';
}

async function freePort(address: string): Promise<number> {
  const server = createServer().listen(0, address);
  await once(server, 'listening');
  const place = server.address();
  server.close();
  await once(server, 'close');
  if (place === null || typeof place === 'string') throw new Error('no free port');
  return place.port;
}
