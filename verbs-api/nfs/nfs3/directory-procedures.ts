/** Procedures that list directories and describe file systems (RFC 1813 §3.3.16 to §3.3.20). */
import { bool, chain, opaqueFixed, struct, uint32, uint64 } from '#verbs-api/rpcrdma/core/codecs';
import { defineProcedure, type XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { roundup } from '#verbs-api/rpcrdma/core/xdr-reader';
import {
  ATTRIBUTES_BYTES,
  type Attributes3,
  type FileHandle3,
  type FileName3,
  fileName3,
  handle3,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  postOpAttributes,
  postOpHandle,
  time3,
} from './attributes.ts';
import { VERIFIER_BYTES } from './constants.ts';
import {
  OBJECT_FAILURE_MAX_BYTES,
  type ObjectFailure,
  type Outcome3,
  objectFailure,
  outcome,
} from './outcome.ts';

/** A name in a directory (entry3). */
export interface ListedEntry {
  readonly fileid: bigint;
  readonly name: FileName3;
  readonly cookie: bigint;
}

/** A name in a directory with its file's attributes and handle (entryplus3). */
export interface ListedEntryPlus extends ListedEntry {
  readonly attributes: Attributes3 | undefined;
  readonly handle: FileHandle3 | undefined;
}

/** READDIR3resok and READDIRPLUS3resok. */
export interface Listing<E extends ListedEntry> {
  readonly attributes: Attributes3 | undefined;
  readonly cookieVerifier: Uint8Array;
  readonly entries: readonly E[];
  /** True if no entry follows. */
  readonly eof: boolean;
}

/** Maximum entries a reader accepts; a message holds far fewer. */
const ENTRIES_READ_MAX = 1 << 20;
/** Bytes of a listing besides its entries: attributes, verifier, end of list and eof. */
export const LISTING_FRAME_MAX_BYTES = POST_OP_ATTRIBUTES_MAX_BYTES + VERIFIER_BYTES + 4 + 4;

export function entrySizeBytes(nameBytes: number): number {
  return 4 + 8 + 4 + roundup(nameBytes) + 8;
}

export function entryPlusSizeBytes(
  nameBytes: number,
  hasAttributes: boolean,
  handleBytes: number | undefined,
): number {
  const attributes = hasAttributes ? ATTRIBUTES_BYTES : 0;
  const handle = handleBytes === undefined ? 0 : 4 + roundup(handleBytes);
  return entrySizeBytes(nameBytes) + 4 + attributes + 4 + handle;
}

// NFSR-1813.3-03
/**
 * Bytes of the largest reply to READDIR or READDIRPLUS. The caller's limit covers the whole success
 * reply (RFC 1813 §3.3.16), but Linux's server counts only the entries, so reserve space for the rest.
 */
function listingMaxBytes(limitBytes: number): number {
  return 4 + LISTING_FRAME_MAX_BYTES + limitBytes;
}

const verifier3 = opaqueFixed(VERIFIER_BYTES);
/** The cookie is 0, or that of the last entry received. */
const position = { directory: handle3, cookie: uint64, cookieVerifier: verifier3 };
const listedEntry = { fileid: uint64, name: fileName3, cookie: uint64 };

/** READDIR3resok and READDIRPLUS3resok, or the directory's attributes. */
function listing<E extends ListedEntry>(
  entry: XdrCodec<E>,
): XdrCodec<Outcome3<Listing<E>, ObjectFailure>> {
  const ok = struct<Listing<E>>({
    attributes: postOpAttributes,
    cookieVerifier: verifier3,
    entries: chain(ENTRIES_READ_MAX, entry),
    eof: bool,
  });
  return outcome(ok, objectFailure);
}

/** READDIR (RFC 1813 §3.3.16). */
export const readdir = defineProcedure({
  number: 16,
  args: struct({
    ...position,
    /** Maximum bytes of the reply's READDIR3resok. */
    count: uint32,
  }),
  result: listing(struct<ListedEntry>(listedEntry)),
  resultMaxBytes: ({ count }) => listingMaxBytes(count),
  idempotent: true,
});

/** READDIRPLUS (RFC 1813 §3.3.17). */
export const readdirplus = defineProcedure({
  number: 17,
  args: struct({
    ...position,
    /** Maximum bytes of file ids, names and cookies. */
    dirCount: uint32,
    /** Maximum bytes of the reply's READDIRPLUS3resok. */
    maxCount: uint32,
  }),
  result: listing(
    struct<ListedEntryPlus>({
      ...listedEntry,
      attributes: postOpAttributes,
      handle: postOpHandle,
    }),
  ),
  resultMaxBytes: ({ maxCount }) => listingMaxBytes(maxCount),
  idempotent: true,
});

/** FSSTAT (RFC 1813 §3.3.18): bytes and files in total, free, and free for this user. */
export const fsstat = defineProcedure({
  number: 18,
  args: handle3,
  result: outcome(
    struct({
      attributes: postOpAttributes,
      totalBytes: uint64,
      freeBytes: uint64,
      availableBytes: uint64,
      totalFiles: uint64,
      freeFiles: uint64,
      availableFiles: uint64,
      /** Seconds during which this is not expected to change. */
      invariantSeconds: uint32,
    }),
    objectFailure,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 52,
  idempotent: true,
});

/** FSINFO (RFC 1813 §3.3.19); sizes in bytes, `properties` has bits of `FsProperty`. */
export const fsinfo = defineProcedure({
  number: 19,
  args: handle3,
  result: outcome(
    struct({
      attributes: postOpAttributes,
      readMax: uint32,
      readPreferred: uint32,
      readMultiple: uint32,
      writeMax: uint32,
      writePreferred: uint32,
      writeMultiple: uint32,
      directoryPreferred: uint32,
      fileSizeMax: uint64,
      timeGranularity: time3,
      properties: uint32,
    }),
    objectFailure,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 48,
  idempotent: true,
});

/** PATHCONF (RFC 1813 §3.3.20). */
export const pathconf = defineProcedure({
  number: 20,
  args: handle3,
  result: outcome(
    struct({
      attributes: postOpAttributes,
      linkMax: uint32,
      nameMax: uint32,
      /** Whether names that are too long are rejected rather than truncated. */
      noTrunc: bool,
      chownRestricted: bool,
      caseInsensitive: bool,
      casePreserving: bool,
    }),
    objectFailure,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 24,
  idempotent: true,
});
