/**
 * Makes the daemons that a suite starts as processes watch their turns: one that takes longer than
 * `TURN_MAX_MS` fails the suite, whatever its tests' results.
 */
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { TURN_MAX_MS, TURN_WATCH_VARIABLE } from '#daemon/main/turn-watch';

const directory = mkdtempSync(join(tmpdir(), 'iwarpd-turns-'));
const path = join(directory, 'long');
writeFileSync(path, '');
// Daemons of other users write there, too.
chmodSync(directory, 0o755);
chmodSync(path, 0o666);
process.env[TURN_WATCH_VARIABLE] = path;

afterAll(() => {
  const long = readFileSync(path, 'utf8');
  rmSync(directory, { recursive: true });
  if (long === '') return;
  throw new Error(`a daemon's turn took more than ${TURN_MAX_MS} ms of processor time:\n${long}`);
});
