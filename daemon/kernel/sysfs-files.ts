/** Writes the files of the device tree. */
import { linkSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** In a directory that programs do not list. */
const NEW_FILE = '.new';

/**
 * Writes new files; contents lack the final newline. Files with the same content are hard links to one
 * file: on a disk a link costs a hundredth of a file, and the daemon must not report ready before the
 * tree exists. So files must be replaced, never written to.
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

/** Replaces a file atomically: readers see the old content or the new one. */
export function replaceFile(directory: string, path: string, content: string): void {
  const file = join(directory, NEW_FILE);
  writeFileSync(file, `${content}\n`);
  renameSync(file, join(directory, path));
}
