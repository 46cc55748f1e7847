/** The compiled shim and probes, and how they are run. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const probes = fileURLToPath(new URL('probes/', import.meta.url));

/** True when there is a C compiler, without which neither shim nor probes can be made. */
export const hasCompiler = (process.env['PATH'] ?? '')
  .split(delimiter)
  .some((folder) => existsSync(join(folder, 'cc')));

/** What a program did. */
export interface Outcome {
  /** The exit status, or the signal's name. */
  readonly status: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

/** See the module's comment. */
export class ShimRig {
  readonly directory = mkdtempSync(join(tmpdir(), 'iwarpd-unit-'));
  readonly shim = join(this.directory, 'libiwarpd-preload.so');

  /** Compiles the shim, without a warning, and the probes of these names. */
  constructor(...names: readonly string[]) {
    compile('bash', [join(root, 'native-bridge/preload/build.sh'), this.shim, '-Werror']);
    for (const name of names) {
      const source = join(probes, `${name}.c`);
      const flags = ['-std=c11', '-D_GNU_SOURCE', '-O1', '-Wall', '-Wextra', '-pthread'];
      compile('cc', [...flags, source, '-o', this.probe(name)]);
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
    return await runProgram(program, args, { LD_PRELOAD: this.shim, ...variables });
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
  child.stdout.on('data', (octets) => {
    stdout += octets;
  });
  child.stderr.on('data', (octets) => {
    stderr += octets;
  });
  return await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ status: code ?? signal ?? '', stdout, stderr }));
  });
}

function compile(command: string, args: readonly string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} failed: ${stderr}`);
}
