/**
 * The exported directory, and the only access to files in it.
 *
 * The kernel never gets a path of more than one name: a file is reached through a descriptor of its
 * parent, as `/proc/self/fd/N/NAME`, and the last name is never followed as a link. So no link can
 * lead out of the directory, whoever creates it and whenever. `..` is not passed to the kernel
 * either. A directory moved out of the tree is detected, since a descriptor shows where its file is
 * now.
 */
import { timingSafeEqual } from 'node:crypto';
import {
  type BigIntStats,
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  readlinkSync,
} from 'node:fs';
import { isKeptInMemory } from '../file-bytes.ts';
import { Nfs3Status } from '../nfs3/constants.ts';
import { DescriptorCache } from './descriptor-cache.ts';
import { claimedNode, HandleMint } from './file-handle.ts';
import { NfsFailure } from './nfs-failure.ts';
import { type FileNode, NodeTable } from './node-table.ts';

/** Limits of a tree. */
export interface TreeLimits {
  /** Maximum files with valid handles. Default 262,144, about 100 MB. */
  readonly nodesMax?: number;
  /** Maximum open descriptors. Default 256. */
  readonly descriptorsMax?: number;
}

/** A file found by handle. */
export interface Located {
  readonly node: FileNode;
  /** A descriptor that names the file without opening it (O_PATH); valid until the next call, or see `usePath`. */
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

/** A path to a descriptor's file. */
export function descriptorPath(fd: number): string {
  return `/proc/self/fd/${fd}`;
}

/** The file `name` in the directory of descriptor `fd`. `name` has one character per byte. */
export function entryPath(fd: number, name: string): Buffer {
  return Buffer.from(`${descriptorPath(fd)}/${name}`, 'latin1');
}

/** See the module's comment. */
export class ExportedTree {
  /** The path when the server started, links resolved. */
  readonly path: string;
  readonly #rootFd: number;
  readonly #mint = new HandleMint();
  readonly #nodes: NodeTable;
  readonly #descriptors: DescriptorCache;
  /** Nodes on the path of the current walk, to detect cycles of names. */
  readonly #walking = new Set<FileNode>();

  /** Throws the failed system call if it is not a directory or cannot be entered. */
  constructor(directory: string, limits: TreeLimits = {}) {
    this.#rootFd = openSync(directory, DIRECTORY_ONLY);
    this.path = readlinkSync(descriptorPath(this.#rootFd));
    this.#descriptors = new DescriptorCache(limits.descriptorsMax ?? DESCRIPTORS_MAX);
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

  /** The handle of a node. */
  handleOf(node: FileNode): Uint8Array {
    node.handle ??= this.#mint.make(node.id);
    return node.handle;
  }

  /** The file that a handle refers to now. `NfsFailure` badhandle or stale. */
  locate(handle: Uint8Array): Located {
    const node = this.#nodes.find(this.#open(handle));
    if (node === undefined)
      throw new NfsFailure(Nfs3Status.stale, 'a handle of a file that is gone');
    return this.locateNode(node);
  }

  /** The same for a directory. Also `NfsFailure` notdir. */
  locateDirectory(handle: Uint8Array): Located {
    const located = this.locate(handle);
    if (!located.stats.isDirectory()) {
      throw new NfsFailure(Nfs3Status.notdir, 'a file where a directory is needed');
    }
    return located;
  }

  /** The current location of a node. `NfsFailure` stale. */
  locateNode(node: FileNode): Located {
    const fd = this.#pathDescriptor(node);
    const stats = fstatSync(fd, { bigint: true });
    if (stats.nlink === 0n && node !== this.root) {
      this.#nodes.drop(node);
      throw new NfsFailure(Nfs3Status.stale, 'the file was removed');
    }
    return { node, fd, stats };
  }

  /** The parent of a directory; the root is its own parent. */
  parentOf(directory: FileNode): Located {
    return this.locateNode(directory.names[0]?.parent ?? this.root);
  }

  /** The file under `name`, not followed if it is a link; undefined if none exists. */
  entryStats(directory: Located, name: string): BigIntStats | undefined {
    return lstatSync(entryPath(directory.fd, name), { bigint: true, throwIfNoEntry: false });
  }

  /** The node of the file found under `name`. */
  adopt(directory: Located, name: string, stats: BigIntStats): FileNode {
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
    const node = this.#nodes.adopt(to.node, newName, stats);
    this.#nodes.unname(node, from.node, name);
  }

  /** True if `stats` belong to the node's file. */
  isFileOf(node: FileNode, stats: BigIntStats): boolean {
    return this.#nodes.isSame(node, stats);
  }

  /**
   * A descriptor to read or write a regular file. The owner may do either regardless of the mode,
   * since a file may be made read-only before it is filled.
   */
  dataDescriptor({ node, fd, stats }: Located, purpose: 'read' | 'write'): number {
    const { id } = node;
    const open = this.#descriptors.find(id, 'both') ?? this.#descriptors.find(id, purpose);
    if (open !== undefined) return open;
    if (!stats.isFile()) throw new NfsFailure(Nfs3Status.inval, 'not a regular file');
    const opened = openData(fd, stats, purpose);
    this.#descriptors.keep(id, purpose, opened);
    return opened;
  }

  /** Caches a descriptor that reads and writes the node's file. */
  keepData(node: FileNode, fd: number): void {
    this.#descriptors.keep(node.id, 'both', fd);
  }

  /** True if the node's file, open as `fd`, is only in memory: no access waits for a disk. */
  isInMemory(node: FileNode, fd: number): boolean {
    node.inMemory ??= isKeptInMemory(descriptorPath(fd));
    return node.inMemory;
  }

  /** Keeps the data descriptor open until the returned function is called. */
  useData(node: FileNode, purpose: 'read' | 'write'): () => void {
    const both = this.#descriptors.find(node.id, 'both') !== undefined;
    return this.#descriptors.use(node.id, both ? 'both' : purpose);
  }

  /** Keeps the descriptor of a located file open until the returned function is called. */
  usePath(node: FileNode): () => void {
    return node === this.root ? () => undefined : this.#descriptors.use(node.id, 'path');
  }

  /** Closes every descriptor. */
  close(): void {
    this.#descriptors.close();
    closeSync(this.#rootFd);
  }

  /**
   * The node of a handle; a handle that we issued and still have is compared rather than
   * recomputed.
   */
  #open(handle: Uint8Array): number {
    const claimed = claimedNode(handle);
    const known = claimed === undefined ? undefined : this.#nodes.peek(claimed)?.handle;
    if (claimed !== undefined && known !== undefined && timingSafeEqual(known, handle)) {
      return claimed;
    }
    return this.#mint.open(handle);
  }

  #pathDescriptor(node: FileNode): number {
    if (node === this.root) return this.#rootFd;
    const open = this.#descriptors.find(node.id, 'path');
    if (open !== undefined && this.#isInside(open)) return open;
    return this.#walk(node);
  }

  /** Finds the file again through the names it was seen under. */
  #walk(node: FileNode): number {
    this.#walking.add(node);
    try {
      for (const { parent, name } of [...node.names]) {
        const fd = this.#walking.has(parent) ? undefined : this.#openEntry(parent, name);
        if (fd === undefined) continue;
        if (this.#nodes.isSame(node, fstatSync(fd, { bigint: true }))) {
          this.#descriptors.keep(node.id, 'path', fd);
          return fd;
        }
        closeSync(fd);
        this.#nodes.unname(node, parent, name);
      }
    } finally {
      this.#walking.delete(node);
    }
    throw new NfsFailure(Nfs3Status.stale, 'the file is not where it was');
  }

  #openEntry(parent: FileNode, name: string): number | undefined {
    try {
      return openSync(entryPath(this.#pathDescriptor(parent), name), NAME_ONLY);
    } catch (error) {
      if (error instanceof NfsFailure) return undefined;
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      // Other errors, such as too many open files, do not prove that the file is gone.
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      throw error;
    }
  }

  /** Asks the kernel whether the descriptor's file is still under the root. */
  #isInside(fd: number): boolean {
    let root: string;
    let place: string;
    try {
      root = readlinkSync(descriptorPath(this.#rootFd), 'latin1');
      place = readlinkSync(descriptorPath(fd), 'latin1');
    } catch {
      // The path is too long to check; the walk from the root decides.
      return false;
    }
    return place.startsWith(root === '/' ? '/' : `${root}/`) && !place.endsWith(DELETED);
  }
}

function openData(pathFd: number, stats: BigIntStats, purpose: 'read' | 'write'): number {
  const flags =
    (purpose === 'read' ? constants.O_RDONLY : constants.O_WRONLY) | constants.O_NONBLOCK;
  try {
    return openSync(descriptorPath(pathFd), flags);
  } catch (error) {
    const denied = error instanceof Error && 'code' in error && error.code === 'EACCES';
    if (!denied || Number(stats.uid) !== process.geteuid?.()) throw error;
    return openAsOwner(pathFd, Number(stats.mode) & 0o7777, flags);
  }
}

/** Temporarily grants the owner the rights needed for opening. */
function openAsOwner(pathFd: number, mode: number, flags: number): number {
  const path = descriptorPath(pathFd);
  chmodSync(path, mode | OWNER_READ_WRITE);
  try {
    return openSync(path, flags);
  } finally {
    chmodSync(path, mode);
  }
}
