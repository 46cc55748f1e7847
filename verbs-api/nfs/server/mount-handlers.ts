/** MOUNT version 3: returns the first handle (RFC 1813 §5). */
import type { Handlers } from '#verbs-api/rpcrdma/rpc-service';
import { MOUNT_PATH_MAX_BYTES, MountStatus } from '../nfs3/constants.ts';
import {
  MOUNT_LIST_MAX,
  type MOUNT3,
  type MountEntry,
  type MountResult,
  NFS_FLAVORS,
} from '../nfs3/mount3-program.ts';
import type { Located } from './exported-tree.ts';
import { NfsFailure } from './nfs-failure.ts';
import { byteText, checkedName, type ServedExport } from './served-export.ts';
import type { Steps } from './steps.ts';
import type { Visit } from './visit.ts';

const STATUSES: ReadonlySet<number> = new Set(Object.values(MountStatus));

/**
 * The MOUNT procedures. The directory is exported under its own path and as `/`; clients may also
 * mount a directory below it.
 */
export function mountHandlers(served: ServedExport): Handlers<typeof MOUNT3> {
  const mounts = new MountList();
  return {
    mnt: (path, call) =>
      served.visit(function* (visit) {
        const text = byteText(path);
        const result = yield* mount(served, text, visit);
        if (result.status === MountStatus.ok) mounts.add(call.address, text);
        return result;
      }),
    dump: () => mounts.entries(),
    umnt: (path, call) => mounts.remove(call.address, byteText(path)),
    umntall: (_args, call) => mounts.removeAll(call.address),
    exports: () => {
      const paths = served.tree.path === '/' ? ['/'] : [served.tree.path, '/'];
      return paths.map((path) => ({ path: Buffer.from(path), groups: [] }));
    },
  };
}

function* mount(served: ServedExport, path: string, visit: Visit): Steps<MountResult> {
  try {
    const { node } = yield* locatePath(served, path, visit);
    const handle = served.tree.handleOf(node);
    return { status: MountStatus.ok, handle, flavors: NFS_FLAVORS };
  } catch (error) {
    return { status: mountStatusOf(error) };
  }
}

/** Walks down from the root by name: follows no links, and rejects `..`. */
function* locatePath(served: ServedExport, path: string, visit: Visit): Steps<Located> {
  const { tree } = served;
  let located = yield* tree.locateNode(tree.root, visit);
  for (const part of inExport(tree.path, path).split('/')) {
    if (part === '' || part === '.') continue;
    const name = checkedName(Buffer.from(part, 'latin1'));
    if (name === '..') throw new NfsFailure(MountStatus.acces, 'the path contains ..');
    const { moves } = tree;
    const stats = yield* tree.entryStats(located, name);
    if (stats === undefined) throw new NfsFailure(MountStatus.noent, 'no such directory');
    if (!stats.isDirectory()) throw new NfsFailure(MountStatus.notdir, 'not a directory');
    located = yield* tree.locateNode(tree.adopt(located, name, stats, moves), visit);
  }
  return located;
}

/** The rest of `path` after the exported directory's path; other paths are relative to `/`. */
function inExport(exported: string, path: string): string {
  const own = Buffer.from(exported).toString('latin1');
  if (path === own) return '';
  return path.startsWith(`${own}/`) ? path.slice(own.length) : path;
}

function mountStatusOf(error: unknown): Exclude<MountStatus, 0> {
  const { status } = error instanceof NfsFailure ? error : { status: MountStatus.serverfault };
  return isMountFailure(status) ? status : MountStatus.serverfault;
}

function isMountFailure(status: number): status is Exclude<MountStatus, 0> {
  return status !== MountStatus.ok && STATUSES.has(status);
}

/** Mounts as clients claim them; only for DUMP, and bounded. */
class MountList {
  readonly #mounts = new Map<string, MountEntry>();

  add(host: string, path: string): void {
    if (this.#mounts.size >= MOUNT_LIST_MAX || path.length > MOUNT_PATH_MAX_BYTES) return;
    const entry = { host: Buffer.from(host), path: Buffer.from(path, 'latin1') };
    this.#mounts.set(`${host} ${path}`, entry);
  }

  entries(): readonly MountEntry[] {
    return [...this.#mounts.values()];
  }

  remove(host: string, path: string): void {
    this.#mounts.delete(`${host} ${path}`);
  }

  removeAll(host: string): void {
    for (const key of [...this.#mounts.keys()]) {
      if (key.startsWith(`${host} `)) this.#mounts.delete(key);
    }
  }
}
