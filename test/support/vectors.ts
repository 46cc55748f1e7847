import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Files beside the sources, also for the compiled copy of this file in `dist/`. */
function checkout(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) folder = dirname(folder);
  return folder;
}

/** A file of golden bytes from `test/vectors`. The caller names its type. */
export function readVectors<T>(name: string): T {
  return JSON.parse(readFileSync(join(checkout(), 'test/vectors', name), 'utf8')) as T;
}
