/** The environment in which an unmodified rdma-core program finds the emulated devices. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { sysfsPath } from '../ipc/kernel/sysfs-tree.ts';
import { CommandFailure } from './failure.ts';

/** The preload library, as the build makes it beside the compiled program. */
export const SHIM_PATH = fileURLToPath(
  new URL('../../native-bridge/preload/libiwarpd-preload.so', import.meta.url),
);

/** How to get the preload library where the build left it out. */
export const SHIM_MEND = 'install a C compiler (apt-get install gcc libc6-dev), then npm run build';

/** Variables by name. */
export type Variables = Readonly<Record<string, string | undefined>>;

/**
 * What has to be set for a program that is to use the daemon at `socketPath`. `inherited` is the
 * environment so far: libraries that it preloads stay. CommandFailure when there is no preload
 * library.
 */
export function shimVariables(socketPath: string, inherited: Variables): Record<string, string> {
  checkShim(SHIM_PATH, existsSync(SHIM_PATH));
  const path = resolve(socketPath);
  return {
    LD_PRELOAD: preloadList(SHIM_PATH, inherited['LD_PRELOAD']),
    SYSFS_PATH: sysfsPath(path),
    IWARPD_SOCKET: path,
  };
}

/** CommandFailure for a library that is missing, or whose path LD_PRELOAD cannot carry. */
export function checkShim(path: string, exists: boolean): void {
  if (!exists) {
    throw new CommandFailure(`the preload library was not built (${path}): ${SHIM_MEND}`);
  }
  if (/[\s:]/.test(path)) {
    throw new CommandFailure(
      `LD_PRELOAD cannot carry a path with a space or colon (${path}): install iwarpd elsewhere`,
    );
  }
}

/** The list for LD_PRELOAD with `path` first, once. */
export function preloadList(path: string, inherited: string | undefined): string {
  const others = (inherited ?? '').split(/[\s:]+/).filter((name) => name !== '' && name !== path);
  return [path, ...others].join(':');
}

/** Lines that set the variables in a POSIX shell. */
export function exportLines(variables: Readonly<Record<string, string>>): string[] {
  return Object.entries(variables).map(([name, value]) => `export ${name}=${quoted(value)}`);
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
