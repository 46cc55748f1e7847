import { readFileSync } from 'node:fs';

/** A file of golden bytes from `test/vectors`. The caller names its type. */
export function readVectors<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}`, import.meta.url), 'utf8')) as T;
}
