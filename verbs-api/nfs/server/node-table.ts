/**
 * The files of the handles that clients hold: the identity of each (device, inode, birth) and
 * the names it was seen under. A name is a hint, checked at each use; the identity decides.
 */
import { type BigIntStats, statSync } from 'node:fs';

export interface FileNode {
  readonly id: number;
  readonly dev: bigint;
  readonly ino: bigint;
  /** Birth time in nanoseconds, or 0 if the file system does not record it. */
  readonly birth: bigint;
  /** The names under which it was seen, most recent first; only the root has none. */
  readonly names: NodeName[];
  /** Number of names of other nodes in this directory. */
  childCount: number;
  /** Its handle, once issued. */
  handle: Uint8Array | undefined;
  /** Whether its file system is in memory; undefined until checked. */
  inMemory: boolean | undefined;
  /** Changes in progress, and the total so far: needed for weak cache consistency. */
  changing: number;
  changes: number;
}

/** A name in a directory, one character per byte. */
interface NodeName {
  readonly parent: FileNode;
  readonly name: string;
}

/** Names remembered per file. */
const NAMES_MAX = 8;
/** Maximum nodes examined per eviction. */
const EVICTION_STEPS_MAX = 64;

/**
 * True if Node reports birth times. If the system call for them is denied, Node reports the time of
 * the last change for every file instead. File systems without birth times report 0.
 */
function isBirthReported(): boolean {
  return [process.execPath, '/', '/etc', '/tmp', '/usr', process.cwd()].some((path) => {
    const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
    return stats !== undefined && stats.birthtimeNs > 0n && stats.birthtimeNs !== stats.ctimeNs;
  });
}

export class NodeTable {
  readonly root: FileNode;
  readonly #nodesMax: number;
  readonly #birthReported: boolean;
  /** Least recently used first. */
  readonly #byId = new Map<number, FileNode>();
  readonly #byIdentity = new Map<string, FileNode>();
  /** Called for each node that leaves the table. */
  readonly #dropped: (node: FileNode) => void;
  #nextId = 1;

  /** `nodesMax`: nodes to remember; handles of forgotten nodes are stale. */
  constructor(root: BigIntStats, nodesMax: number, dropped: (node: FileNode) => void) {
    this.#nodesMax = nodesMax;
    this.#dropped = dropped;
    this.#birthReported = isBirthReported();
    this.root = this.#add(root);
  }

  get size(): number {
    return this.#byId.size;
  }

  /** The node with this number, which counts as a use; undefined if forgotten. */
  find(id: number): FileNode | undefined {
    const node = this.#byId.get(id);
    if (node !== undefined) this.#touch(node);
    return node;
  }

  /** Like `find`, but does not count as a use. */
  peek(id: number): FileNode | undefined {
    return this.#byId.get(id);
  }

  /** The node of the file found under `name` in `parent`. */
  adopt(parent: FileNode, name: string, stats: BigIntStats): FileNode {
    let node = this.#byIdentity.get(this.#identityOf(stats));
    if (node === undefined) {
      node = this.#add(stats);
    } else {
      this.#touch(node);
    }
    if (node !== this.root) this.#name(node, parent, name, stats.isDirectory());
    this.#evict(node);
    return node;
  }

  /** True if `stats` belong to the node's file. */
  isSame(node: FileNode, stats: BigIntStats): boolean {
    return node.ino === stats.ino && node.dev === stats.dev && node.birth === this.#birthOf(stats);
  }

  /** The node of the file with `stats`, if known. */
  same(stats: BigIntStats): FileNode | undefined {
    return this.#byIdentity.get(this.#identityOf(stats));
  }

  /** The node last seen under `name` in `parent`, if known. */
  named(parent: FileNode, name: string, stats: BigIntStats): FileNode | undefined {
    const node = this.#byIdentity.get(this.#identityOf(stats));
    return node?.names.some((known) => known.parent === parent && known.name === name)
      ? node
      : undefined;
  }

  /** `node` no longer has that name. */
  unname(node: FileNode, parent: FileNode, name: string): void {
    const at = node.names.findIndex((known) => known.parent === parent && known.name === name);
    if (at < 0) return;
    node.names.splice(at, 1);
    parent.childCount -= 1;
  }

  /** The file is gone: its handles are stale from now on. */
  drop(node: FileNode): void {
    if (node === this.root || this.#byId.get(node.id) !== node) return;
    for (const { parent } of node.names.splice(0)) parent.childCount -= 1;
    this.#byId.delete(node.id);
    this.#byIdentity.delete(`${node.dev}:${node.ino}:${node.birth}`);
    this.#dropped(node);
  }

  #add(stats: BigIntStats): FileNode {
    const node: FileNode = {
      id: this.#nextId++,
      dev: stats.dev,
      ino: stats.ino,
      birth: this.#birthOf(stats),
      names: [],
      childCount: 0,
      handle: undefined,
      inMemory: undefined,
      changing: 0,
      changes: 0,
    };
    this.#byId.set(node.id, node);
    this.#byIdentity.set(this.#identityOf(stats), node);
    return node;
  }

  #name(node: FileNode, parent: FileNode, name: string, isDirectory: boolean): void {
    const [first] = node.names;
    if (first?.parent === parent && first.name === name) return;
    this.unname(node, parent, name);
    // A directory has only one name: forget earlier ones.
    const kept = isDirectory ? 0 : NAMES_MAX - 1;
    for (const old of node.names.splice(kept)) old.parent.childCount -= 1;
    node.names.unshift({ parent, name });
    parent.childCount += 1;
  }

  #touch(node: FileNode): void {
    this.#byId.delete(node.id);
    this.#byId.set(node.id, node);
  }

  /** Forgets least recently used nodes, except directories that contain other nodes. */
  #evict(kept: FileNode): void {
    let steps = EVICTION_STEPS_MAX;
    for (const node of this.#byId.values()) {
      if (this.#byId.size <= this.#nodesMax || steps-- === 0) return;
      const needed = node.childCount > 0 || node.changing > 0;
      // Moved to the end so the next eviction does not examine it again at once.
      if (node === this.root || node === kept || needed) this.#touch(node);
      else this.drop(node);
    }
  }

  #identityOf(stats: BigIntStats): string {
    return `${stats.dev}:${stats.ino}:${this.#birthOf(stats)}`;
  }

  #birthOf(stats: BigIntStats): bigint {
    return this.#birthReported ? stats.birthtimeNs : 0n;
  }
}
