/** How the files of the device tree are written. */
import { linkSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** Not in a folder that programs list. */
const NEW_FILE = '.new';

/**
 * Writes new files, each path without its final newline. Files with the same content are one file
 * with several names: on a disk a name costs a hundredth of a file, and a daemon is ready only when
 * the tree is there. So none may be written to later, only replaced.
 */
export function writeFiles(directory: string, files: ReadonlyMap<string, string>): void {
  const folders = new Set([...files.keys()].map((path) => dirname(path)));
  for (const folder of folders) mkdirSync(join(directory, folder), { recursive: true });
  const written = new Map<string, string>();
  for (const [path, content] of files) {
    const file = join(directory, path);
    const same = written.get(content);
    if (same === undefined) {
      writeFileSync(file, `${content}\n`);
      written.set(content, file);
    } else {
      linkSync(same, file);
    }
  }
}

/** Replaces one of them. A reader sees the old content or the new one, never a part. */
export function replaceFile(directory: string, path: string, content: string): void {
  const file = join(directory, NEW_FILE);
  writeFileSync(file, `${content}\n`);
  renameSync(file, join(directory, path));
}
