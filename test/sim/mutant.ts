/** A copy of the compiled code, for inserting bugs. */
import { type ChildProcess, execFile, fork } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import type { CleanSeed } from './clean-run.ts';
import type { RunName } from './runs.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
/** Compiled folders that a simulation needs. */
const FOLDERS = ['daemon', 'native-bridge', 'verbs-api', 'test/sim', 'test/support'];

/** One edit of a compiled file. */
export interface Edit {
  /** Path below `dist/`. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** A bug, and the rule that it breaks. */
export interface Canary {
  readonly bug: string;
  readonly rule: string;
  /** A seed that finds it, the first to be tried. */
  readonly seed: number;
  readonly edits: readonly Edit[];
}

/** See the module's comment. */
export class Mutant {
  readonly #copy = mkdtempSync(join(tmpdir(), 'iwarpd-canary-'));
  /** Runs seeds without a bug. */
  #clean: ChildProcess | undefined;

  constructor() {
    for (const folder of FOLDERS) {
      cpSync(join(root, 'dist', folder), join(this.#copy, 'dist', folder), { recursive: true });
    }
    cpSync(join(root, 'package.json'), join(this.#copy, 'package.json'));
    symlinkSync(join(root, 'node_modules'), join(this.#copy, 'node_modules'));
  }

  remove(): void {
    this.#clean?.disconnect();
    rmSync(this.#copy, { recursive: true, force: true });
  }

  /**
   * Expects that the canary's seed, or else one up to `most`, finds the bug, and that this seed keeps every
   * rule without it.
   */
  async expectFound(canary: Canary, run: RunName, most: number): Promise<void> {
    const { bug, rule } = canary;
    const seed = await this.#find(canary, run, most);
    expect(seed, `a seed up to ${most} that breaks '${rule}'`).toBeGreaterThan(0);
    if (seed !== canary.seed) console.log(`${bug}: seed ${seed} finds it, not ${canary.seed}`);
    expect(await this.#errorOf({ run, seed })).toBe('');
  }

  /** Returns 0 if no seed finds it. */
  async #find({ edits, rule, seed }: Canary, run: RunName, most: number): Promise<number> {
    const restore = this.#mutate(edits);
    try {
      const script = join(this.#copy, 'dist/test/sim/canary-run.js');
      const parameters = [script, run, rule, String(seed), String(most)];
      const { stdout } = await promisify(execFile)(process.execPath, parameters);
      return Number(stdout);
    } finally {
      restore();
    }
  }

  /** The error of a seed without a bug; '' if it keeps every rule. */
  #errorOf(seed: CleanSeed): Promise<string> {
    this.#clean ??= fork(join(root, 'dist/test/sim/clean-run.js'), [], { execArgv: [] });
    const clean = this.#clean;
    return new Promise((resolve, reject) => {
      const ended = (): void => reject(new Error('the process of clean runs has ended'));
      clean.once('exit', ended);
      clean.once('message', (text) => {
        clean.off('exit', ended);
        resolve(String(text));
      });
      clean.send(seed);
    });
  }

  /** Applies the edits. Returns a function that reverts them. */
  #mutate(edits: readonly Edit[]): () => void {
    const originals = new Map<string, string>();
    for (const { file, find, replace } of edits) {
      const path = join(this.#copy, 'dist', file);
      const text = readFileSync(path, 'utf8');
      if (!originals.has(path)) originals.set(path, text);
      expect(text.split(find).length - 1, `'${find}' in ${file}`).toBe(1);
      writeFileSync(
        path,
        text.replace(find, () => replace),
      );
    }
    return () => {
      for (const [path, text] of originals) writeFileSync(path, text);
    };
  }
}
