/** One exported directory and the state its procedures share. */
import { randomBytes } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import { isKeptInMemory } from '../file-bytes.ts';
import type { Attributes3, FileName3, WccData3 } from '../nfs3/attributes.ts';
import { Nfs3Status, VERIFIER_BYTES } from '../nfs3/constants.ts';
import type { Outcome3 } from '../nfs3/outcome.ts';
import { attributesOf, wccAttributesOf } from './attributes-of.ts';
import { DirectoryLister } from './directory-listing.ts';
import { type DirectoryFiles, MEMORY_FILES, WAITING_FILES } from './directory-reader.ts';
import { DuplicateCache } from './duplicate-cache.ts';
import { ExportedTree, type Located, type TreeLimits } from './exported-tree.ts';
import type { FileCalls } from './file-calls.ts';
import { NfsFailure, statusOfError } from './nfs-failure.ts';
import type { FileNode } from './node-table.ts';
import { type Identity, identityOf, ownIdentity, squashed } from './permissions.ts';
import { type Eventually, runSteps, type Steps } from './steps.ts';
import { ChangeLocks, Visit } from './visit.ts';

/** How a directory is exported. */
export interface ExportOptions extends TreeLimits {
  /** Reject every change with NFS3ERR_ROFS. Default false. */
  readonly readOnly?: boolean;
  /** Map user 0 of clients to the user nobody. Default true. */
  readonly squashRoot?: boolean;
}

/** Maximum bytes of a name (RFC 1813 §3.3.20, name_max), as on Linux. */
export const NAME_MAX_BYTES = 255;

const NO_CHANGE: WccData3 = { before: undefined, after: undefined };

export class ServedExport {
  readonly tree: ExportedTree;
  readonly readOnly: boolean;
  readonly #squashRoot: boolean;
  readonly lister: DirectoryLister;
  readonly duplicates = new DuplicateCache();
  readonly #locks = new ChangeLocks();
  readonly server: Identity = ownIdentity();
  #writeVerifier = randomBytes(VERIFIER_BYTES);

  /**
   * Throws the failed system call if it is not a directory or cannot be entered. `files` reads
   * directories, `calls` reach single files; default: as the file system of the directory needs it.
   */
  constructor(
    directory: string,
    options: ExportOptions = {},
    files?: DirectoryFiles,
    calls?: FileCalls,
  ) {
    this.tree = new ExportedTree(directory, options, calls);
    const inMemory = isKeptInMemory(this.tree.path);
    this.lister = new DirectoryLister(files ?? (inMemory ? MEMORY_FILES : WAITING_FILES));
    this.readOnly = options.readOnly === true;
    this.#squashRoot = options.squashRoot !== false;
  }

  /** Changes when unstable writes may have been lost (RFC 1813 §3.3.7). */
  get writeVerifier(): Uint8Array {
    return this.#writeVerifier;
  }

  get fsid(): bigint {
    return this.tree.root.dev;
  }

  /** The disk lost data: clients must repeat unstable writes. */
  renewWriteVerifier(): void {
    this.#writeVerifier = randomBytes(VERIFIER_BYTES);
  }

  attributes(stats: BigIntStats): Attributes3 {
    return attributesOf(stats, this.fsid);
  }

  /** The current attributes of a handle's file; undefined if not available. */
  *attributesNow(handle: Uint8Array, visit: Visit): Steps<Attributes3 | undefined> {
    try {
      return this.attributes((yield* this.tree.locate(handle, visit)).stats);
    } catch {
      return undefined;
    }
  }

  /** Weak cache consistency data: attributes before and after. */
  *wcc(before: BigIntStats, handle: Uint8Array, visit: Visit): Steps<WccData3> {
    const after = yield* this.attributesNow(handle, visit);
    return { before: wccAttributesOf(before), after };
  }

  /** The effective identity of a caller. */
  caller(credential: Credential): Identity {
    const identity = identityOf(credential);
    return this.#squashRoot ? squashed(identity) : identity;
  }

  /** Throws `NfsFailure` rofs if the export is read-only. */
  demandWritable(): void {
    if (this.readOnly) throw new NfsFailure(Nfs3Status.rofs, 'the export is read-only');
  }

  /**
   * Executes a change to the file of `handle`, and to those of `others`. On failure the caller still
   * gets the file's current attributes. Changes to the same file wait for each other.
   */
  change<O>(
    handle: Uint8Array,
    run: (located: Located, visit: Visit) => Steps<O>,
    others: readonly Uint8Array[] = [],
  ): Eventually<Outcome3<O, { readonly wcc: WccData3 }>> {
    return runSteps(this.#change(handle, run, others));
  }

  *#change<O>(
    handle: Uint8Array,
    run: (located: Located, visit: Visit) => Steps<O>,
    others: readonly Uint8Array[],
  ): Steps<Outcome3<O, { readonly wcc: WccData3 }>> {
    const visit = new Visit();
    let before: BigIntStats | undefined;
    try {
      if (this.tree.calls.waits) yield* this.#lock([handle, ...others], visit);
      const located = yield* this.tree.locate(handle, visit);
      before = located.stats;
      this.demandWritable();
      return { status: Nfs3Status.ok, ok: yield* run(located, visit) };
    } catch (error) {
      const status = statusOfError(error);
      return { status, fail: { wcc: before ? yield* this.wcc(before, handle, visit) : NO_CHANGE } };
    } finally {
      visit.end();
    }
  }

  /** Locks the files for this visit, and counts the change for WRITE. */
  *#lock(handles: readonly Uint8Array[], visit: Visit): Steps<void> {
    const nodes = new Set(handles.map((handle) => this.tree.nodeOf(handle)));
    // In one order for all calls: no two wait for each other.
    for (const node of [...nodes].sort((left, right) => left.id - right.id)) {
      yield* this.lockOne(node, visit);
    }
  }

  /** Locks one file for this visit, after the directories that the visit changes. */
  *lockOne(node: FileNode, visit: Visit): Steps<void> {
    yield* this.#locks.enter(node, visit);
    node.changes += 1;
    node.changing += 1;
    visit.hold(() => {
      node.changing -= 1;
    });
  }

  /** Executes a query of the file of `handle`. */
  query<O>(
    handle: Uint8Array,
    run: (located: Located, visit: Visit) => Steps<O>,
  ): Eventually<Outcome3<O, { readonly attributes: Attributes3 | undefined }>> {
    return runSteps(this.#query(handle, run));
  }

  *#query<O>(
    handle: Uint8Array,
    run: (located: Located, visit: Visit) => Steps<O>,
  ): Steps<Outcome3<O, { readonly attributes: Attributes3 | undefined }>> {
    const visit = new Visit();
    try {
      return {
        status: Nfs3Status.ok,
        ok: yield* run(yield* this.tree.locate(handle, visit), visit),
      };
    } catch (error) {
      const status = statusOfError(error);
      return { status, fail: { attributes: yield* this.attributesNow(handle, visit) } };
    } finally {
      visit.end();
    }
  }

  /** Runs steps that reach files; what the visit holds is released after the last. */
  visit<T>(run: (visit: Visit) => Steps<T>): Eventually<T> {
    return runSteps(visiting(run));
  }

  close(): void {
    this.tree.close();
  }
}

function* visiting<T>(run: (visit: Visit) => Steps<T>): Steps<T> {
  const visit = new Visit();
  try {
    return yield* run(visit);
  } finally {
    visit.end();
  }
}

/**
 * A name from a caller, decoded to one character per byte. `NfsFailure`: acces for an empty name
 * (RFC 1813 §3.2), nametoolong, inval for bytes not allowed in names.
 */
export function checkedName(name: FileName3): string {
  if (name.length === 0) throw new NfsFailure(Nfs3Status.acces, 'an empty name');
  if (name.length > NAME_MAX_BYTES) {
    throw new NfsFailure(Nfs3Status.nametoolong, `a name of ${name.length} bytes`);
  }
  if (name.includes(0) || name.includes(0x2f)) {
    throw new NfsFailure(Nfs3Status.inval, 'a name with a slash or a NUL');
  }
  return byteText(name);
}

/** The same for a name to create, move or remove: rejects `.` and `..` with `status`. */
export function checkedNewName(name: FileName3, status: NfsFailure['status']): string {
  const text = checkedName(name);
  if (text === '.' || text === '..') throw new NfsFailure(status, `the name ${text}`);
  return text;
}

/** Decodes bytes to text, one character per byte; a copy. */
export function byteText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}
