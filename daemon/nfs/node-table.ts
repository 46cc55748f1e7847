/**
 * What the server knows of the files that clients hold handles of: which file each is (device,
 * inode, birth), and under which names it was seen. A name is a hint and is checked at each use;
 * the identity decides.
 */
import { type BigIntStats, statSync } from 'node:fs';

/** A file that a handle stands for. */
export interface FileNode {
  readonly id: number;
  readonly dev: bigint;
  readonly ino: bigint;
  /** Nanoseconds of its birth, or 0 where the file system tells none. */
  readonly birth: bigint;
  /** Where it was seen, the latest first; the root alone has no names. */
  readonly names: NodeName[];
  /** Names of other nodes that are in this directory. */
  childCount: number;
  /** Its handle, once one was given out. */
  handle: Uint8Array | undefined;
  /** Its file system keeps it in memory; undefined until that was asked. */
  inMemory: boolean | undefined;
  /** Changes under way, and how many there were: what weak cache consistency needs to know. */
  changing: number;
  changes: number;
}

/** A name in a directory. Names are octets, one character for each. */
export interface NodeName {
  readonly parent: FileNode;
  readonly name: string;
}

/** Names that are remembered of a file with many links. */
const NAMES_MAX = 8;
/** Nodes that one eviction looks at. */
const EVICTION_STEPS_MAX = 64;

/**
 * True when Node tells when a file was born. Where the system call for it is denied, Node gives the
 * time of the last change instead, for every file alike. File systems that keep no birth give 0.
 */
function isBirthTold(): boolean {
  return [process.execPath, '/', '/etc', '/tmp', '/usr', process.cwd()].some((path) => {
    const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
    return stats !== undefined && stats.birthtimeNs > 0n && stats.birthtimeNs !== stats.ctimeNs;
  });
}

/** See the module's comment. */
export class NodeTable {
  readonly root: FileNode;
  readonly #nodesMax: number;
  readonly #birthTold: boolean;
  /** In the order of their last use, the oldest first. */
  readonly #byId = new Map<number, FileNode>();
  readonly #byIdentity = new Map<string, FileNode>();
  /** Called for a node that leaves the table. */
  readonly #dropped: (node: FileNode) => void;
  #nextId = 1;

  /** `nodesMax`: nodes to remember; a handle of one that was forgotten is stale. */
  constructor(root: BigIntStats, nodesMax: number, dropped: (node: FileNode) => void) {
    this.#nodesMax = nodesMax;
    this.#dropped = dropped;
    this.#birthTold = isBirthTold();
    this.root = this.#add(root);
  }

  get size(): number {
    return this.#byId.size;
  }

  /** The node of that number, which counts as a use of it; undefined when it is forgotten. */
  find(id: number): FileNode | undefined {
    const node = this.#byId.get(id);
    if (node !== undefined) this.#touch(node);
    return node;
  }

  /** The same without a use of it. */
  peek(id: number): FileNode | undefined {
    return this.#byId.get(id);
  }

  /** The node of the file that was found under `name` in `parent`. */
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

  /** True when `stats` are those of the node's file. */
  isSame(node: FileNode, stats: BigIntStats): boolean {
    return node.ino === stats.ino && node.dev === stats.dev && node.birth === this.#birthOf(stats);
  }

  /** The node last seen under `name` in `parent`, if it is known. */
  named(parent: FileNode, name: string, stats: BigIntStats): FileNode | undefined {
    const node = this.#byIdentity.get(this.#identityOf(stats));
    return node?.names.some((known) => known.parent === parent && known.name === name)
      ? node
      : undefined;
  }

  /** `node` is not under that name any more. */
  unname(node: FileNode, parent: FileNode, name: string): void {
    const at = node.names.findIndex((known) => known.parent === parent && known.name === name);
    if (at < 0) return;
    node.names.splice(at, 1);
    parent.childCount -= 1;
  }

  /** The file is gone: its handles are stale from here on. */
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
    // A directory has one name only: what was known before is history.
    const kept = isDirectory ? 0 : NAMES_MAX - 1;
    for (const old of node.names.splice(kept)) old.parent.childCount -= 1;
    node.names.unshift({ parent, name });
    parent.childCount += 1;
  }

  #touch(node: FileNode): void {
    this.#byId.delete(node.id);
    this.#byId.set(node.id, node);
  }

  /** Forgets nodes that were not used for the longest time, directories of others apart. */
  #evict(kept: FileNode): void {
    let steps = EVICTION_STEPS_MAX;
    for (const node of this.#byId.values()) {
      if (this.#byId.size <= this.#nodesMax || steps-- === 0) return;
      const needed = node.childCount > 0 || node.changing > 0;
      // Behind the others, so that the next eviction does not meet it again at once.
      if (node === this.root || node === kept || needed) this.#touch(node);
      else this.drop(node);
    }
  }

  #identityOf(stats: BigIntStats): string {
    return `${stats.dev}:${stats.ino}:${this.#birthOf(stats)}`;
  }

  #birthOf(stats: BigIntStats): bigint {
    return this.#birthTold ? stats.birthtimeNs : 0n;
  }
}
