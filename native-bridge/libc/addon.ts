/**
 * koffi's own addon. Node unloads an addon with the last thread that uses it, but an ended worker
 * closes its watches later, with the addon's code. So the addon is kept loaded.
 */
import { readFileSync } from 'node:fs';
import { libc } from './libc.ts';

const dlopen = libc.func('void *dlopen(const char *path, int flags)') as (
  path: string,
  flags: number,
) => bigint | null;

const RTLD_NOW = 2;
const RTLD_NODELETE = 0x1000;

let kept = false;

/** Keeps the addon loaded for the life of the process. */
export function keepAddonLoaded(): void {
  if (kept) return;
  kept = true;
  const line = readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .find((entry) => entry.endsWith('/koffi.node'));
  if (line !== undefined) dlopen(line.slice(line.indexOf('/')), RTLD_NOW | RTLD_NODELETE);
}
