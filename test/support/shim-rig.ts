/** The compiled shim and probes, and how they are run. */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../', import.meta.url));
const sources = join(root, 'native-bridge/preload');
const probes = fileURLToPath(new URL('../unit/preload/probes/', import.meta.url));

/** The machine that compiles and runs the shim: this machine, or an emulated one. */
interface Machine {
  readonly name: string;
  readonly compiler: string;
  /** The emulator that runs its programs; undefined where they run natively. */
  readonly emulator?: { readonly program: string; readonly args: readonly string[] };
}

/** This machine. */
export const NATIVE: Machine = { name: process.arch, compiler: 'cc' };

/** An emulated arm64 machine. */
export const ARM64: Machine = {
  name: 'arm64',
  compiler: 'aarch64-linux-gnu-gcc',
  emulator: { program: 'qemu-aarch64', args: ['-L', '/usr/aarch64-linux-gnu'] },
};

/** The required programs that are missing, as a reason to skip; else ''. */
export function missingFor({ compiler, emulator }: Machine): string {
  const wanted = emulator === undefined ? [compiler] : [compiler, emulator.program];
  const folders = (process.env['PATH'] ?? '').split(delimiter);
  const missing = wanted.filter(
    (name) => !folders.some((folder) => existsSync(join(folder, name))),
  );
  return missing.length === 0 ? '' : ` (missing: ${missing.join(' ')})`;
}

export interface Outcome {
  /** The exit status, or the signal's name. */
  readonly status: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

export class ShimRig {
  readonly directory = mkdtempSync(join(tmpdir(), 'iwarpd-unit-'));
  readonly shim = join(this.directory, 'libiwarpd-preload.so');

  readonly #machine: Machine;

  /** Compiles the shim, without a warning, and the probes of these names. */
  constructor(machine: Machine, ...names: readonly string[]) {
    this.#machine = machine;
    const { compiler } = machine;
    putShim(machine, this.shim);
    for (const name of names) {
      const source = join(probes, `${name}.c`);
      const flags = ['-std=c11', '-D_GNU_SOURCE', '-O1', '-Wall', '-Wextra', '-pthread'];
      compile(compiler, [...flags, source, '-o', this.probe(name)], compiler);
    }
  }

  /** Path of a compiled probe. */
  probe(name: string): string {
    return join(this.directory, name);
  }

  /** Runs a program under the shim with these variables. */
  async run(
    program: string,
    args: readonly string[],
    variables: Readonly<Record<string, string>> = {},
  ): Promise<Outcome> {
    const { emulator } = this.#machine;
    if (emulator === undefined) {
      return await runProgram(program, args, { LD_PRELOAD: this.shim, ...variables });
    }
    // The emulator is a program of this machine, which cannot load the shim of another one.
    const words = [...emulator.args, '-E', `LD_PRELOAD=${this.shim}`, program, ...args];
    return await runProgram(emulator.program, words, variables);
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Runs a program with these variables and no others but PATH. */
export async function runProgram(
  program: string,
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<Outcome> {
  const env = { PATH: process.env['PATH'] ?? '', ...variables };
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (bytes) => {
    stdout += bytes;
  });
  child.stderr.on('data', (bytes) => {
    stderr += bytes;
  });
  return await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ status: code ?? signal ?? '', stdout, stderr }));
  });
}

/**
 * Puts the shim at a path. The first suite that asks for the shim of a machine compiles it; the
 * others take it from the cache in the checkout, until the sources or the compiler change.
 */
function putShim({ name, compiler }: Machine, target: string): void {
  const hash = createHash('sha256').update(spawnSync(compiler, ['--version']).stdout);
  for (const file of readdirSync(sources).sort()) {
    hash.update(`${file}\n`).update(readFileSync(join(sources, file)));
  }
  const cache = join(root, '.cache/shims');
  mkdirSync(cache, { recursive: true });
  const cached = join(cache, `${name}-${hash.digest('hex').slice(0, 16)}.so`);
  // Removes builds of other sources.
  const script = '[[ -f $1 ]] || { rm -f "$2"-*.so && bash "$3" "$1" -Werror; } && cp "$1" "$4"';
  const words = [cached, join(cache, name), join(sources, 'build.sh'), target];
  compile('flock', [join(cache, 'lock'), 'bash', '-c', script, 'bash', ...words], compiler);
}

function compile(command: string, args: readonly string[], compiler: string): void {
  const env = { ...process.env, CC: compiler };
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8', env });
  if (status !== 0) throw new Error(`${command} failed: ${stderr}`);
}
