import { readFileSync } from 'node:fs';

/** A file of golden octets from `test/vectors`. The caller names the shape that it keeps there. */
export function readVectors<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../vectors/${name}`, import.meta.url), 'utf8')) as T;
}
