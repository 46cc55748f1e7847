/** The C program with which the native bridge is compared: compiled for each run, and then removed. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BatchTimes } from './native-worker.ts';
import type { Meeting } from './verbs-worker.ts';

const TIMEOUT_MS = 120_000;
const HEADERS = ['/usr/include/infiniband/verbs.h', '/usr/include/rdma/rdma_cma.h'];
const SOURCE = fileURLToPath(new URL('../../../test/bench/probe/post-poll.c', import.meta.url));

export class NativeProbe {
  readonly #folder: string;
  readonly #program: string;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#program = join(folder, 'post-poll');
  }

  /** Why this machine cannot compile it; undefined if it can. */
  static obstacle(): string | undefined {
    if (!existsSync(SOURCE)) return 'its C program is only in a checkout of iwarpd';
    const { error } = spawnSync(compiler(), ['--version'], { stdio: 'ignore' });
    if (error === undefined && HEADERS.every((header) => existsSync(header))) return undefined;
    return 'its C program cannot be compiled: apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev';
  }

  /** Compiles it. Throws with the compiler's output. */
  static compile(): NativeProbe {
    const probe = new NativeProbe(mkdtempSync(join(tmpdir(), 'iwarpd-probe-')));
    const words = ['-O2', '-o', probe.#program, SOURCE, '-lrdmacm', '-libverbs'];
    const { status, stderr } = spawnSync(compiler(), words, { encoding: 'utf8' });
    if (status === 0) return probe;
    probe.close();
    throw new Error(`${compiler()} failed: ${stderr.trim()}`);
  }

  /** Runs it against the peer at `meeting`, with these environment variables added. */
  async run(
    meeting: Meeting,
    warmUps: number,
    batches: number,
    variables: Readonly<Record<string, string>>,
  ): Promise<BatchTimes> {
    const words = [meeting.address, meeting.port, warmUps, batches].map(String);
    const child = spawn(this.#program, words, {
      env: { ...process.env, ...variables },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: TIMEOUT_MS,
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (bytes: Buffer) => {
        output += bytes.toString();
      });
    }
    const [status, signal] = await once(child, 'close');
    const figures = /^(-?[0-9]+) ([0-9]+)\n$/.exec(output);
    if (status !== 0 || figures === null) {
      throw new Error(`post-poll ended with ${signal ?? status}: ${output.trim()}`);
    }
    return { medianNs: Number(figures[1]), counted: Number(figures[2]) };
  }

  /** Removes the compiled program. */
  close(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function compiler(): string {
  return process.env['CC'] || 'cc';
}
