/**
 * The preload library of `iwarpd run`: finds it, and compiles it for `iwarpd setup-preload` if the
 * package has none for this machine.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CommandFailure } from './failure.ts';
import type { Output } from './output.ts';

/** The library's file name in every directory. */
export const PRELOAD_NAME = 'libiwarpd-preload.so';

/** The variables of `process.env` that the loader needs. */
export type Variables = Readonly<Record<string, string | undefined>>;

/** How to get a missing preload library. */
export const PRELOAD_FIX =
  'install a C compiler (apt-get install gcc libc6-dev), then run `iwarpd setup-preload`';

/**
 * The preload library of this machine: the one compiled by `setup-preload`, or the installed one.
 */
export function preloadPath(environment: Variables = process.env): string {
  const compiled = compiledPath(environment);
  return existsSync(compiled) ? compiled : installedPath(process.arch);
}

/** The library of the build or the package for architecture `arch`, in Node's spelling. */
export function installedPath(arch: string): string {
  return join(packageRoot(), 'dist/native-bridge/preload', `linux-${arch}`, PRELOAD_NAME);
}

/**
 * Where `setup-preload` stores the library: in the user's data directory, under a digest of the
 * sources, so another release never loads it.
 */
export function compiledPath(environment: Variables): string {
  const data = environment['XDG_DATA_HOME'] || join(homeOfUser(), '.local/share');
  return join(data, 'iwarpd', `preload-${sourcesDigest()}`, PRELOAD_NAME);
}

/** In a container, a user often has a number but no name: the home then contains no library. */
function homeOfUser(): string {
  try {
    return homedir();
  } catch {
    return '/nonexistent';
  }
}

/** Suppressions for valgrind; undefined if only the compiled part of the package was copied. */
export function suppressionsPath(): string | undefined {
  const path = join(sourcesFolder(), 'valgrind.supp');
  return existsSync(path) ? path : undefined;
}

/**
 * Compiles the library for this machine and prints its path. CommandFailure with the compiler's
 * first line if that fails.
 */
export async function setupPreload(environment: Variables, output: Output): Promise<void> {
  const target = compiledPath(environment);
  const build = join(sourcesFolder(), 'build.sh');
  const compiler = environment['CC'] || 'cc';
  const { status, text } = await run('bash', [build, target, '-s']);
  if (status !== 0) {
    const [cause = `${compiler} failed without a message`] = text.trim().split('\n');
    throw new CommandFailure(
      `cannot compile the preload library: ${cause}; it needs bash and a C compiler ($CC, else cc): apt-get install gcc libc6-dev`,
    );
  }
  output.line(target);
}

function run(command: string, words: readonly string[]): Promise<{ status: number; text: string }> {
  return new Promise((resolve) => {
    const child = spawn(command, words, { stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    child.on('error', (error) => resolve({ status: 1, text: error.message }));
    child.on('close', (code) => resolve({ status: code ?? 1, text }));
  });
}

/** The directory of package.json: of the checkout or of the installed package. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json')) && folder !== '/') folder = dirname(folder);
  return folder;
}

function sourcesFolder(): string {
  return join(packageRoot(), 'native-bridge/preload');
}

function sourcesDigest(): string {
  const digest = createHash('sha256');
  const folder = sourcesFolder();
  const names = existsSync(folder) ? readdirSync(folder) : [];
  for (const name of names.filter((each) => /\.(c|h|sh)$/.test(each)).sort()) {
    digest.update(name).update(readFileSync(join(folder, name)));
  }
  return digest.digest('hex').slice(0, 16);
}
