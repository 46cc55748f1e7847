/**
 * The directory that is served, and the only way to files in it.
 *
 * No path of more than one name is ever given to the kernel: a file is reached through a descriptor
 * of its parent, as `/proc/self/fd/N/NAME`, and the last name is never followed as a link. So a
 * link cannot lead out of the directory, whoever puts it there and whenever. `..` is not given to
 * the kernel either. A directory that was moved out of the tree under our feet is noticed, since a
 * descriptor tells where its file is now.
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
import { Nfs3Status } from '../../verbs-api/rpcrdma/nfs3/constants.ts';
import { DescriptorCache } from './descriptor-cache.ts';
import { claimedNode, HandleMint } from './file-handle.ts';
import { isKeptInMemory } from './file-octets.ts';
import { NfsFailure } from './nfs-failure.ts';
import { type FileNode, NodeTable } from './node-table.ts';

/** Bounds of a tree. */
export interface TreeLimits {
  /** Files that handles are remembered of. Default 262,144, about 100 MB. */
  readonly nodesMax?: number;
  /** Descriptors kept open. Default 256. */
  readonly descriptorsMax?: number;
}

/** A file that a handle led to. */
export interface Located {
  readonly node: FileNode;
  /** A descriptor that names the file and opens nothing of it; valid until the next call. */
  readonly fd: number;
  readonly stats: BigIntStats;
}

// Linux's own; Node does not name it. The file is named, not opened: no device or FIFO notices.
const O_PATH = 0x20_0000;
const NAME_ONLY = O_PATH | constants.O_NOFOLLOW;
const DIRECTORY_ONLY = O_PATH | constants.O_DIRECTORY;
const NODES_MAX = 262_144;
const DESCRIPTORS_MAX = 256;
const DELETED = ' (deleted)';
const OWNER_READ_WRITE = 0o600;

/** What a descriptor leads to, as a path. */
export function descriptorPath(fd: number): string {
  return `/proc/self/fd/${fd}`;
}

/** The file `name` in the directory that `fd` names. `name` holds one character for each octet. */
export function entryPath(fd: number, name: string): Buffer {
  return Buffer.from(`${descriptorPath(fd)}/${name}`, 'latin1');
}

/** See the module's comment. */
export class ExportedTree {
  /** Where it was when the server started, links resolved. */
  readonly path: string;
  readonly #rootFd: number;
  readonly #mint = new HandleMint();
  readonly #nodes: NodeTable;
  readonly #descriptors: DescriptorCache;
  /** Nodes on the way of the walk under way: names that lead in a circle are none. */
  readonly #walking = new Set<FileNode>();

  /** Throws the failed system call for what is no directory, or cannot be entered. */
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

  /** Descriptors open now, and files that handles are remembered of. */
  get usage(): { readonly descriptors: number; readonly nodes: number } {
    return { descriptors: this.#descriptors.size, nodes: this.#nodes.size };
  }

  /** The handle of a node. */
  handleOf(node: FileNode): Uint8Array {
    node.handle ??= this.#mint.make(node.id);
    return node.handle;
  }

  /** What a handle stands for, now. `NfsFailure` badhandle or stale. */
  locate(handle: Uint8Array): Located {
    const node = this.#nodes.find(this.#open(handle));
    if (node === undefined)
      throw new NfsFailure(Nfs3Status.stale, 'a handle of a file that is gone');
    return this.locateNode(node);
  }

  /** The same for a directory. `NfsFailure` notdir besides. */
  locateDirectory(handle: Uint8Array): Located {
    const located = this.locate(handle);
    if (!located.stats.isDirectory()) {
      throw new NfsFailure(Nfs3Status.notdir, 'a file where a directory is needed');
    }
    return located;
  }

  /** Where a node is now. `NfsFailure` stale. */
  locateNode(node: FileNode): Located {
    const fd = this.#pathDescriptor(node);
    const stats = fstatSync(fd, { bigint: true });
    if (stats.nlink === 0n && node !== this.root) {
      this.#nodes.drop(node);
      throw new NfsFailure(Nfs3Status.stale, 'the file was removed');
    }
    return { node, fd, stats };
  }

  /** The parent of a directory; the root is its own. */
  parentOf(directory: FileNode): Located {
    return this.locateNode(directory.names[0]?.parent ?? this.root);
  }

  /** What is under `name`, not followed if it is a link; undefined when there is nothing. */
  entryStats(directory: Located, name: string): BigIntStats | undefined {
    return lstatSync(entryPath(directory.fd, name), { bigint: true, throwIfNoEntry: false });
  }

  /** The node of what was found under `name`. */
  adopt(directory: Located, name: string, stats: BigIntStats): FileNode {
    return this.#nodes.adopt(directory.node, name, stats);
  }

  /** `stats` are those of what was under `name` and is not any more. */
  removed(directory: Located, name: string, stats: BigIntStats): void {
    const node = this.#nodes.named(directory.node, name, stats);
    if (node === undefined) return;
    this.#nodes.unname(node, directory.node, name);
    if (stats.isDirectory() || stats.nlink <= 1n) this.#nodes.drop(node);
    // The descriptor stays that of the file, which has other names.
  }

  /** What was under `name` is in another place now. */
  moved(from: Located, name: string, to: Located, newName: string, stats: BigIntStats): void {
    const node = this.#nodes.adopt(to.node, newName, stats);
    this.#nodes.unname(node, from.node, name);
  }

  /** True when `stats` are those of the node's file. */
  isFileOf(node: FileNode, stats: BigIntStats): boolean {
    return this.#nodes.isSame(node, stats);
  }

  /**
   * A descriptor to read a regular file, or to write it. The owner may do either whatever the mode
   * says, as a file may be made read-only before it is filled.
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

  /** Hands over a descriptor that reads and writes the node's file. */
  keepData(node: FileNode, fd: number): void {
    this.#descriptors.keep(node.id, 'both', fd);
  }

  /**
   * True when the node's file, which `fd` is open for, is nowhere but in memory: no access to it
   * waits for a disk.
   */
  isInMemory(node: FileNode, fd: number): boolean {
    node.inMemory ??= isKeptInMemory(descriptorPath(fd));
    return node.inMemory;
  }

  /** Keeps the data descriptor open until the function that is returned is called. */
  useData(node: FileNode, purpose: 'read' | 'write'): () => void {
    const both = this.#descriptors.find(node.id, 'both') !== undefined;
    return this.#descriptors.use(node.id, both ? 'both' : purpose);
  }

  /** Closes every descriptor. */
  close(): void {
    this.#descriptors.close();
    closeSync(this.#rootFd);
  }

  /** The node of a handle; one that we gave out and still know is compared, not computed anew. */
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

  /** Finds the file anew, through each name that it was seen under. */
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
      // Anything else, such as too many open files, is no proof that the file is gone.
      if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
      throw error;
    }
  }

  /** The kernel says where the file of a descriptor is now: still under the root? */
  #isInside(fd: number): boolean {
    let root: string;
    let place: string;
    try {
      root = readlinkSync(descriptorPath(this.#rootFd), 'latin1');
      place = readlinkSync(descriptorPath(fd), 'latin1');
    } catch {
      // Too long a path cannot be told; the walk from the root finds out.
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

/** Lends the owner the rights for the moment of opening. */
function openAsOwner(pathFd: number, mode: number, flags: number): number {
  const path = descriptorPath(pathFd);
  chmodSync(path, mode | OWNER_READ_WRITE);
  try {
    return openSync(path, flags);
  } finally {
    chmodSync(path, mode);
  }
}
