/** One exported directory with all that its procedures share. */
import { randomBytes } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import type { Attributes3, FileName3, WccData3 } from '../../verbs-api/rpcrdma/nfs3/attributes.ts';
import { Nfs3Status, VERIFIER_BYTES } from '../../verbs-api/rpcrdma/nfs3/constants.ts';
import type { Outcome3 } from '../../verbs-api/rpcrdma/nfs3/outcome.ts';
import { attributesOf, wccAttributesOf } from './attributes-of.ts';
import { DirectoryLister } from './directory-listing.ts';
import { DuplicateCache } from './duplicate-cache.ts';
import { ExportedTree, type Located, type TreeLimits } from './exported-tree.ts';
import { NfsFailure, statusOfError } from './nfs-failure.ts';
import { type Identity, ownIdentity } from './permissions.ts';

/** How a directory is served. */
export interface ExportOptions extends TreeLimits {
  /** Refuse every change with NFS3ERR_ROFS. Default false. */
  readonly readOnly?: boolean;
}

/** Octets of a name at most (RFC 1813 §3.3.20, name_max), as Linux has it. */
export const NAME_MAX_BYTES = 255;

const NO_CHANGE: WccData3 = { before: undefined, after: undefined };

/** See the module's comment. */
export class ServedExport {
  readonly tree: ExportedTree;
  readonly readOnly: boolean;
  readonly lister = new DirectoryLister();
  readonly duplicates = new DuplicateCache();
  /** Who the server runs as. */
  readonly server: Identity = ownIdentity();
  #writeVerifier = randomBytes(VERIFIER_BYTES);

  /** Throws the failed system call for what is no directory, or cannot be entered. */
  constructor(directory: string, options: ExportOptions = {}) {
    this.tree = new ExportedTree(directory, options);
    this.readOnly = options.readOnly === true;
  }

  /** Changes when octets that were written, but not stable, may be lost (RFC 1813 §3.3.7). */
  get writeVerifier(): Uint8Array {
    return this.#writeVerifier;
  }

  get fsid(): bigint {
    return this.tree.root.dev;
  }

  /** The disk lost something: clients have to write again what was not stable. */
  renewWriteVerifier(): void {
    this.#writeVerifier = randomBytes(VERIFIER_BYTES);
  }

  attributes(stats: BigIntStats): Attributes3 {
    return attributesOf(stats, this.fsid);
  }

  /** What a handle stands for has these attributes now; undefined where that cannot be told. */
  attributesNow(handle: Uint8Array): Attributes3 | undefined {
    try {
      return this.attributes(this.tree.locate(handle).stats);
    } catch {
      return undefined;
    }
  }

  /** Weak cache consistency data: how it was, and how it is now. */
  wcc(before: BigIntStats, handle: Uint8Array): WccData3 {
    return { before: wccAttributesOf(before), after: this.attributesNow(handle) };
  }

  /** Throws `NfsFailure` rofs when nothing may be changed. */
  demandWritable(): void {
    if (this.readOnly) throw new NfsFailure(Nfs3Status.rofs, 'the export is read-only');
  }

  /**
   * Carries out a change of what `handle` stands for. On failure the caller still learns how that
   * is now.
   */
  change<O>(
    handle: Uint8Array,
    run: (located: Located) => O,
  ): Outcome3<O, { readonly wcc: WccData3 }> {
    let before: BigIntStats | undefined;
    try {
      const located = this.tree.locate(handle);
      before = located.stats;
      this.demandWritable();
      return { status: Nfs3Status.ok, ok: run(located) };
    } catch (error) {
      const status = statusOfError(error);
      return { status, fail: { wcc: before ? this.wcc(before, handle) : NO_CHANGE } };
    }
  }

  /** Carries out a query of what `handle` stands for. */
  query<O>(
    handle: Uint8Array,
    run: (located: Located) => O,
  ): Outcome3<O, { readonly attributes: Attributes3 | undefined }> {
    try {
      return { status: Nfs3Status.ok, ok: run(this.tree.locate(handle)) };
    } catch (error) {
      const status = statusOfError(error);
      return { status, fail: { attributes: this.attributesNow(handle) } };
    }
  }

  /** Closes every file. */
  close(): void {
    this.tree.close();
  }
}

/**
 * A name as a caller gave it, one character for each octet. `NfsFailure`: acces for an empty one
 * (RFC 1813 §3.2), nametoolong, inval for octets that no name may have.
 */
export function checkedName(name: FileName3): string {
  if (name.length === 0) throw new NfsFailure(Nfs3Status.acces, 'an empty name');
  if (name.length > NAME_MAX_BYTES) {
    throw new NfsFailure(Nfs3Status.nametoolong, `a name of ${name.length} octets`);
  }
  if (name.includes(0) || name.includes(0x2f)) {
    throw new NfsFailure(Nfs3Status.inval, 'a name with a slash or a NUL');
  }
  return octetText(name);
}

/** The same for a name that is to be made, moved or removed: `.` and `..` are refused with `status`. */
export function checkedNewName(name: FileName3, status: NfsFailure['status']): string {
  const text = checkedName(name);
  if (text === '.' || text === '..') throw new NfsFailure(status, `the name ${text}`);
  return text;
}

/** Octets as text of one character for each, a copy. */
export function octetText(octets: Uint8Array): string {
  return Buffer.from(octets.buffer, octets.byteOffset, octets.byteLength).toString('latin1');
}
