/** Writes the files of the device tree. */
import {
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import type { FileContent } from './pci-tree.ts';

/** Programs only read them. */
const READ_ONLY = 0o444;
/** In a directory that programs do not list. */
const NEW_FILE = '.new';

/**
 * Writes new files; texts lack the final newline. Files with the same content are hard links to one
 * file: on a disk a link costs a hundredth of a file, and the daemon must not report ready before the
 * tree exists. So files must be replaced, never written to.
 */
export function writeFiles(directory: string, files: ReadonlyMap<string, FileContent>): void {
  const folders = new Set([...files.keys()].map((path) => dirname(path)));
  for (const folder of folders) mkdirSync(join(directory, folder), { recursive: true });
  const written = new Map<FileContent, string>();
  for (const [path, content] of files) {
    const file = join(directory, path);
    const same = written.get(content);
    if (same === undefined) {
      const bytes = typeof content === 'string' ? `${content}\n` : content;
      writeFileSync(file, bytes, { mode: READ_ONLY });
      written.set(content, file);
    } else {
      linkSync(same, file);
    }
  }
}

/** Makes symbolic links, by path, to other paths of the tree: relative ones, as in sysfs. */
export function writeLinks(directory: string, links: ReadonlyMap<string, string>): void {
  for (const [path, target] of links) {
    const link = join(directory, path);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(relative(dirname(path), target), link);
  }
}

/** Directories that list what the machine has beside what the tree adds. */
const SHARED_FOLDERS = ['bus/pci/devices', 'class/pci_bus', 'class/net'];

/** Adds links to what the machine has now in the directories that the tree shares with it. */
export function linkMachine(directory: string): void {
  for (const folder of SHARED_FOLDERS) {
    const real = join('/sys', folder);
    if (!existsSync(real)) continue;
    for (const name of readdirSync(real)) {
      const link = join(directory, folder, name);
      const entry = join(real, name);
      // It may have gone meanwhile.
      if (existsSync(entry) && !existsSync(link)) symlinkSync(realpathSync(entry), link);
    }
  }
}

/** Replaces a file atomically: readers see the old content or the new one. */
export function replaceFile(directory: string, path: string, content: string): void {
  const file = join(directory, NEW_FILE);
  try {
    writeFileSync(file, `${content}\n`, { mode: READ_ONLY });
    renameSync(file, join(directory, path));
  } catch (error) {
    // The next one could not write to it.
    rmSync(file, { force: true });
    throw error;
  }
}
