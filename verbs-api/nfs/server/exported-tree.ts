/**
 * The exported directory, and the only access to files in it.
 *
 * The kernel never gets a path of more than one name: a file is reached through a descriptor of its
 * parent, as `/proc/self/fd/N/NAME`, and the last name is never followed as a link. So no link can lead
 * out of the directory, regardless of who creates it and when. `..` is not passed to the kernel either.
 * A directory moved out of the tree is detected, since a descriptor shows where its file is now; where
 * system calls may block, this is checked before each of them and after those that return something.
 */
import { timingSafeEqual } from 'node:crypto';
import {
  type BigIntStats,
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  openSync,
  readlinkSync,
} from 'node:fs';
import { isKeptInMemory } from '../file-bytes.ts';
import { Nfs3Status } from '../nfs3/constants.ts';
import { DescriptorCache } from './descriptor-cache.ts';
import { callsFor, type FileCalls } from './file-calls.ts';
import { claimedNode, HandleMint } from './file-handle.ts';
import { NfsFailure } from './nfs-failure.ts';
import { type FileNode, NodeTable } from './node-table.ts';
import { type Steps, settled } from './steps.ts';
import type { Visit } from './visit.ts';

export interface TreeLimits {
  /** Maximum files with valid handles. Default 262,144, about 100 MB. */
  readonly nodesMax?: number;
  /** Maximum open descriptors. Default 256. */
  readonly descriptorsMax?: number;
}

/** A file found by handle. */
export interface Located {
  readonly node: FileNode;
  /** A descriptor that names the file without opening it (O_PATH); see `holdPath`. */
  readonly fd: number;
  readonly stats: BigIntStats;
}

// Linux-specific; missing in Node's constants. Names the file without opening it: no effect on
// devices or FIFOs.
const O_PATH = 0x20_0000;
const NAME_ONLY = O_PATH | constants.O_NOFOLLOW;
const DIRECTORY_ONLY = O_PATH | constants.O_DIRECTORY;
const NODES_MAX = 262_144;
const DESCRIPTORS_MAX = 256;
const DELETED = ' (deleted)';
const OWNER_READ_WRITE = 0o600;

export function descriptorPath(fd: number): string {
  return `/proc/self/fd/${fd}`;
}

/** The file `name` in the directory of descriptor `fd`. `name` has one character per byte. */
export function entryPath(fd: number, name: string): Buffer {
  return Buffer.from(`${descriptorPath(fd)}/${name}`, 'latin1');
}

export class ExportedTree {
  /** The path when the server started, links resolved. */
  readonly path: string;
  readonly #rootFd: number;
  readonly #mint = new HandleMint();
  readonly #nodes: NodeTable;
  readonly #descriptors: DescriptorCache;
  /** How files are reached. */
  readonly calls: FileCalls;
  /** Counts the files that were moved; see `adopt`. */
  #moves = 0;

  /**
   * Throws the failed system call if it is not a directory or cannot be entered. `calls` reach the
   * files; default: as the file system of the directory needs it.
   */
  constructor(directory: string, limits: TreeLimits = {}, calls?: FileCalls) {
    this.#rootFd = openSync(directory, DIRECTORY_ONLY);
    this.path = readlinkSync(descriptorPath(this.#rootFd));
    this.calls = calls ?? callsFor(descriptorPath(this.#rootFd));
    this.#descriptors = new DescriptorCache(
      limits.descriptorsMax ?? DESCRIPTORS_MAX,
      this.calls.close,
    );
    this.#nodes = new NodeTable(
      fstatSync(this.#rootFd, { bigint: true }),
      limits.nodesMax ?? NODES_MAX,
      (node) => this.#descriptors.forget(node.id),
    );
  }

  get root(): FileNode {
    return this.#nodes.root;
  }

  /** Open descriptors, and files with valid handles. */
  get usage(): { readonly descriptors: number; readonly nodes: number } {
    return { descriptors: this.#descriptors.size, nodes: this.#nodes.size };
  }

  handleOf(node: FileNode): Uint8Array {
    node.handle ??= this.#mint.make(node.id);
    return node.handle;
  }

  /** The file that a handle refers to now. `NfsFailure` badhandle or stale. */
  *locate(handle: Uint8Array, visit: Visit): Steps<Located> {
    return yield* this.locateNode(this.nodeOf(handle), visit);
  }

  /** The node of a handle. `NfsFailure` badhandle or stale. */
  nodeOf(handle: Uint8Array): FileNode {
    const node = this.#nodes.find(this.#open(handle));
    if (node === undefined)
      throw new NfsFailure(Nfs3Status.stale, 'a handle of a file that is gone');
    return node;
  }

  /** Like `locate`, for a directory. Also `NfsFailure` notdir. */
  *locateDirectory(handle: Uint8Array, visit: Visit): Steps<Located> {
    const located = yield* this.locate(handle, visit);
    if (!located.stats.isDirectory()) {
      throw new NfsFailure(Nfs3Status.notdir, 'a file where a directory is needed');
    }
    return located;
  }

  /** The current location of a node. `NfsFailure` stale. */
  *locateNode(node: FileNode, visit: Visit): Steps<Located> {
    const fd = this.#knownPath(node, visit) ?? (yield* this.#walk(node, visit));
    const called = this.calls.fstat(fd);
    const stats = called instanceof Promise ? yield* settled(called) : called;
    if (stats.nlink === 0n && node !== this.root) {
      this.#nodes.drop(node);
      throw new NfsFailure(Nfs3Status.stale, 'the file was removed');
    }
    return { node, fd, stats };
  }

  /** The parent of a directory; the root is its own parent. */
  *parentOf(directory: FileNode, visit: Visit): Steps<Located> {
    return yield* this.locateNode(directory.names[0]?.parent ?? this.root, visit);
  }

  /**
   * The path of `name` in a directory, for one system call, which follows at once. `NfsFailure`
   * stale for a directory that was moved out of the tree since it was located.
   */
  entry(directory: Located, name: string): Buffer {
    if (this.calls.waits) this.#demandInside(directory);
    return entryPath(directory.fd, name);
  }

  /** The file under `name`, not followed if it is a link; undefined if none exists. */
  *entryStats(directory: Located, name: string): Steps<BigIntStats | undefined> {
    const stats = yield* settled(this.calls.lstat(this.entry(directory, name)));
    if (this.calls.waits) this.#demandInside(directory);
    return stats;
  }

  /** Files moved so far. */
  get moves(): number {
    return this.#moves;
  }

  /**
   * The node of the file found under `name`. `moves` is their number when it was looked for: if a
   * file was moved meanwhile, the name is kept only if the file has no other.
   */
  adopt(directory: Located, name: string, stats: BigIntStats, moves = this.#moves): FileNode {
    const known = moves === this.#moves ? undefined : this.#nodes.same(stats);
    if (known !== undefined && known.names.length > 0) return known;
    return this.#nodes.adopt(directory.node, name, stats);
  }

  /** The file with `stats` was removed from `name`. */
  removed(directory: Located, name: string, stats: BigIntStats): void {
    const node = this.#nodes.named(directory.node, name, stats);
    if (node === undefined) return;
    this.#nodes.unname(node, directory.node, name);
    if (stats.isDirectory() || stats.nlink <= 1n) this.#nodes.drop(node);
    // Keep the descriptor: the file has other names.
  }

  /** The file under `name` was moved. */
  moved(from: Located, name: string, to: Located, newName: string, stats: BigIntStats): void {
    this.#moves += 1;
    const node = this.#nodes.adopt(to.node, newName, stats);
    this.#nodes.unname(node, from.node, name);
  }

  /** True if `stats` belong to the node's file. */
  isFileOf(node: FileNode, stats: BigIntStats): boolean {
    return this.#nodes.isSame(node, stats);
  }

  /**
   * A descriptor to read or write a regular file. The owner may do either regardless of the mode,
   * since a file may be made read-only before it is filled. Valid until the visit ends.
   */
  *dataDescriptor(
    { node, fd, stats }: Located,
    purpose: 'read' | 'write',
    visit: Visit,
  ): Steps<number> {
    const { id } = node;
    for (const kind of ['both', purpose] as const) {
      const open = this.#descriptors.find(id, kind);
      if (open === undefined) continue;
      visit.hold(this.#descriptors.use(id, kind));
      return open;
    }
    if (!stats.isFile()) throw new NfsFailure(Nfs3Status.inval, 'not a regular file');
    const opened = yield* this.#openData(fd, stats, purpose);
    this.#descriptors.keep(id, purpose, opened);
    visit.hold(this.#descriptors.use(id, purpose));
    return opened;
  }

  /** Caches a descriptor that reads and writes the node's file. Valid until the visit ends. */
  keepData(node: FileNode, fd: number, visit: Visit): void {
    this.#descriptors.keep(node.id, 'both', fd);
    visit.hold(this.#descriptors.use(node.id, 'both'));
  }

  /** True if the node's file, open as `fd`, is only in memory: no access waits for a disk. */
  isInMemory(node: FileNode, fd: number): boolean {
    node.inMemory ??= !this.calls.waits && isKeptInMemory(descriptorPath(fd));
    return node.inMemory;
  }

  /**
   * Keeps the descriptor of a located file open until the visit ends, as is done for every file
   * whose system calls wait. Otherwise it is open until the running code waits for something else.
   */
  holdPath(node: FileNode, visit: Visit): void {
    if (node !== this.root) visit.hold(this.#descriptors.use(node.id, 'path'));
  }

  close(): void {
    this.#descriptors.close();
    closeSync(this.#rootFd);
  }

  /**
   * The node of a handle; a handle that we issued and still have is compared rather than recomputed.
   */
  #open(handle: Uint8Array): number {
    const claimed = claimedNode(handle);
    const known = claimed === undefined ? undefined : this.#nodes.peek(claimed)?.handle;
    if (claimed !== undefined && known !== undefined && timingSafeEqual(known, handle)) {
      return claimed;
    }
    return this.#mint.open(handle);
  }

  /** The descriptor of a node that is still open, and in the tree. */
  #knownPath(node: FileNode, visit: Visit): number | undefined {
    if (node === this.root) return this.#rootFd;
    const open = this.#descriptors.find(node.id, 'path');
    if (open === undefined || this.#placeOf(open) !== 'inside') return undefined;
    if (this.calls.waits) this.holdPath(node, visit);
    return open;
  }

  /** Finds the file again through the names it was seen under. */
  *#walk(node: FileNode, visit: Visit): Steps<number> {
    visit.walking.add(node);
    try {
      for (const { parent, name } of [...node.names]) {
        if (visit.walking.has(parent)) continue;
        const fd = yield* this.#openEntry(parent, name, visit);
        if (fd === undefined) continue;
        if (yield* this.#isOpen(fd, node)) {
          this.#descriptors.keep(node.id, 'path', fd);
          if (this.calls.waits) this.holdPath(node, visit);
          return fd;
        }
        this.calls.close(fd);
        this.#nodes.unname(node, parent, name);
      }
    } finally {
      visit.walking.delete(node);
    }
    throw new NfsFailure(Nfs3Status.stale, 'the file is not where it was');
  }

  /** True if `fd` is the node's file, in the tree. */
  *#isOpen(fd: number, node: FileNode): Steps<boolean> {
    try {
      const stats = yield* settled(this.calls.fstat(fd));
      return this.#nodes.isSame(node, stats) && !(this.calls.waits && this.#isOutside(fd));
    } catch (error) {
      this.calls.close(fd);
      throw error;
    }
  }

  *#openEntry(parent: FileNode, name: string, visit: Visit): Steps<number | undefined> {
    try {
      const fd = this.#knownPath(parent, visit) ?? (yield* this.#walk(parent, visit));
      return yield* settled(this.calls.open(entryPath(fd, name), NAME_ONLY));
    } catch (error) {
      if (error instanceof NfsFailure) return undefined;
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      // Other errors, such as too many open files, do not prove that the file is gone.
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      throw error;
    }
  }

  *#openData(pathFd: number, stats: BigIntStats, purpose: 'read' | 'write'): Steps<number> {
    const flags =
      (purpose === 'read' ? constants.O_RDONLY : constants.O_WRONLY) | constants.O_NONBLOCK;
    try {
      return yield* settled(this.calls.open(descriptorPath(pathFd), flags));
    } catch (error) {
      const denied = error instanceof Error && 'code' in error && error.code === 'EACCES';
      if (!denied || Number(stats.uid) !== process.geteuid?.()) throw error;
      return openAsOwner(pathFd, flags);
    }
  }

  #demandInside({ node, fd }: Located): void {
    if (node !== this.root && this.#isOutside(fd))
      throw new NfsFailure(Nfs3Status.stale, 'the directory is not where it was');
  }

  #isOutside(fd: number): boolean {
    return this.#placeOf(fd) === 'outside';
  }

  /** Asks the kernel where the descriptor's file is now. */
  #placeOf(fd: number): 'inside' | 'outside' | 'unknown' {
    let root: string;
    let place: string;
    try {
      root = readlinkSync(descriptorPath(this.#rootFd), 'latin1');
      place = readlinkSync(descriptorPath(fd), 'latin1');
    } catch {
      // The path is too long to check; the walk from the root decides.
      return 'unknown';
    }
    const below = place.startsWith(root === '/' ? '/' : `${root}/`) && !place.endsWith(DELETED);
    return below ? 'inside' : 'outside';
  }
}

/**
 * Temporarily grants the owner the rights needed for opening. Synchronous, even on a slow file system:
 * meanwhile no other call may see the mode, or set another.
 */
function openAsOwner(pathFd: number, flags: number): number {
  const path = descriptorPath(pathFd);
  const mode = fstatSync(pathFd).mode & 0o7777;
  chmodSync(path, mode | OWNER_READ_WRITE);
  try {
    return openSync(path, flags);
  } finally {
    chmodSync(path, mode);
  }
}
