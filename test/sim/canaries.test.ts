/** Puts known bugs back, one at a time: the simulation must find each and name the broken rule. */
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CANARIES, type Edit } from './canaries.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const SEEDS_MAX = 1000;
const TIMEOUT_MS = 600_000;
/** Compiled folders that the simulation needs. */
const FOLDERS = ['daemon', 'native-bridge', 'verbs-api', 'test/sim', 'test/support'];

let copy: string;

beforeAll(() => {
  copy = mkdtempSync(join(tmpdir(), 'iwarpd-canary-'));
  for (const folder of FOLDERS) {
    cpSync(join(root, 'dist', folder), join(copy, 'dist', folder), { recursive: true });
  }
  cpSync(join(root, 'package.json'), join(copy, 'package.json'));
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
}, TIMEOUT_MS);

afterAll(() => rmSync(copy, { recursive: true, force: true }));

/** Applies the edits. Returns a function that reverts them. */
function mutate(edits: readonly Edit[]): () => void {
  const originals = new Map<string, string>();
  for (const { file, find, replace } of edits) {
    const path = join(copy, 'dist', file);
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

describe('simulation canaries', () => {
  for (const { bug, rule, edits } of CANARIES) {
    it(`finds the bug: ${bug}`, { timeout: TIMEOUT_MS }, async () => {
      const restore = mutate(edits);
      try {
        const script = join(copy, 'dist/test/sim/canary-run.js');
        const parameters = [script, rule, String(SEEDS_MAX)];
        const { stdout } = await promisify(execFile)(process.execPath, parameters);
        const seed = Number(stdout);
        expect(seed, `a seed up to ${SEEDS_MAX} that breaks '${rule}'`).toBeGreaterThan(0);
      } finally {
        restore();
      }
    });
  }
});
