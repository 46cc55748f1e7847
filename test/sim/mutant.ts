/** A copy of the compiled code, for inserting bugs. */
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import type { Edit } from './canaries.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
/** Compiled folders that a simulation needs. */
const FOLDERS = ['daemon', 'native-bridge', 'verbs-api', 'test/sim', 'test/support'];

/** See the module's comment. */
export class Mutant {
  readonly #copy = mkdtempSync(join(tmpdir(), 'iwarpd-canary-'));

  constructor() {
    for (const folder of FOLDERS) {
      cpSync(join(root, 'dist', folder), join(this.#copy, 'dist', folder), { recursive: true });
    }
    cpSync(join(root, 'package.json'), join(this.#copy, 'package.json'));
    symlinkSync(join(root, 'node_modules'), join(this.#copy, 'node_modules'));
  }

  remove(): void {
    rmSync(this.#copy, { recursive: true, force: true });
  }

  /**
   * Runs `script` of the copy with these edits, until it has found a seed that breaks `rule`.
   * Returns its output.
   */
  async find(
    edits: readonly Edit[],
    script: string,
    rule: string,
    seeds: number,
    more: readonly string[] = [],
  ): Promise<number> {
    const restore = this.#mutate(edits);
    try {
      const parameters = [join(this.#copy, 'dist', script), rule, String(seeds), ...more];
      const { stdout } = await promisify(execFile)(process.execPath, parameters);
      return Number(stdout);
    } finally {
      restore();
    }
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
