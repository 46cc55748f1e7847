/** Procedures that list directories and describe file systems (RFC 1813 §3.3.16 to §3.3.20). */
import { defineProcedure } from '../core/program.ts';
import { roundup } from '../core/xdr-reader.ts';
import {
  ATTRIBUTES_BYTES,
  type Attributes3,
  type FileHandle3,
  type FileName3,
  NAME_READ_MAX_BYTES,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  readHandle,
  readPostOpAttributes,
  readPostOpHandle,
  readTime,
  type Time3,
  writeHandle,
  writePostOpAttributes,
  writePostOpHandle,
  writeTime,
} from './attributes.ts';
import { VERIFIER_BYTES } from './constants.ts';
import { handleCodec } from './file-procedures.ts';
import {
  OBJECT_FAILURE_MAX_BYTES,
  type ObjectFailure,
  type Outcome3,
  objectFailureCodec,
  outcomeCodec,
} from './outcome.ts';

/** READDIR3args. */
export interface ReadDirectoryArgs {
  readonly directory: FileHandle3;
  /** 0, or the cookie of the last entry that was given. */
  readonly cookie: bigint;
  readonly cookieVerifier: Uint8Array;
  /** Octets of the answer's READDIR3resok at most. */
  readonly count: number;
}

/** READDIRPLUS3args. */
export interface ReadDirectoryPlusArgs extends Omit<ReadDirectoryArgs, 'count'> {
  /** Octets of file ids, names and cookies at most. */
  readonly dirCount: number;
  /** Octets of the answer's READDIRPLUS3resok at most. */
  readonly maxCount: number;
}

/** A name in a directory (entry3). */
export interface ListedEntry {
  readonly fileid: bigint;
  readonly name: FileName3;
  readonly cookie: bigint;
}

/** A name in a directory and what it stands for (entryplus3). */
export interface ListedEntryPlus extends ListedEntry {
  readonly attributes: Attributes3 | undefined;
  readonly handle: FileHandle3 | undefined;
}

/** READDIR3resok and READDIRPLUS3resok. */
export interface Listing<E extends ListedEntry> {
  readonly attributes: Attributes3 | undefined;
  readonly cookieVerifier: Uint8Array;
  readonly entries: readonly E[];
  /** Nothing follows the last entry. */
  readonly eof: boolean;
}

/** FSSTAT3resok: octets and files, all of them, free ones, and those free for this user. */
export interface FileSystemStatus {
  readonly attributes: Attributes3 | undefined;
  readonly totalBytes: bigint;
  readonly freeBytes: bigint;
  readonly availableBytes: bigint;
  readonly totalFiles: bigint;
  readonly freeFiles: bigint;
  readonly availableFiles: bigint;
  /** Seconds for which this is not expected to change. */
  readonly invariantSeconds: number;
}

/** FSINFO3resok; sizes in octets. */
export interface FileSystemLimits {
  readonly attributes: Attributes3 | undefined;
  readonly readMax: number;
  readonly readPreferred: number;
  readonly readMultiple: number;
  readonly writeMax: number;
  readonly writePreferred: number;
  readonly writeMultiple: number;
  readonly directoryPreferred: number;
  readonly fileSizeMax: bigint;
  readonly timeGranularity: Time3;
  /** Bits of `FsProperty`. */
  readonly properties: number;
}

/** PATHCONF3resok. */
export interface PathLimits {
  readonly attributes: Attributes3 | undefined;
  readonly linkMax: number;
  /** Octets. */
  readonly nameMax: number;
  /** Names that are too long are refused, not cut. */
  readonly noTrunc: boolean;
  readonly chownRestricted: boolean;
  readonly caseInsensitive: boolean;
  readonly casePreserving: boolean;
}

/** Entries that a reader takes at most; a message holds far fewer. */
const ENTRIES_READ_MAX = 1 << 20;
/** Octets of a listing besides its entries: attributes, verifier, the end of the list and eof. */
export const LISTING_FRAME_MAX_BYTES = POST_OP_ATTRIBUTES_MAX_BYTES + VERIFIER_BYTES + 4 + 4;

/** Octets that an entry of READDIR takes in the list. */
export function entrySizeBytes(nameBytes: number): number {
  return 4 + 8 + 4 + roundup(nameBytes) + 8;
}

/** Octets that an entry of READDIRPLUS takes in the list. */
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
 * Octets of the largest answer to READDIR or READDIRPLUS. The caller's limit is for all of a success
 * (RFC 1813 §3.3.16), but Linux's server counts the entries alone, so there is room for the rest.
 */
function listingMaxBytes(limitBytes: number): number {
  return 4 + LISTING_FRAME_MAX_BYTES + limitBytes;
}

/** READDIR (RFC 1813 §3.3.16). */
export const readdir = defineProcedure<
  ReadDirectoryArgs,
  Outcome3<Listing<ListedEntry>, ObjectFailure>
>({
  number: 16,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.directory);
      writer.uint64(value.cookie);
      writer.opaqueFixed(value.cookieVerifier);
      writer.uint32(value.count);
    },
    decode: (reader) => ({
      directory: readHandle(reader),
      cookie: reader.uint64(),
      cookieVerifier: reader.opaqueFixed(VERIFIER_BYTES),
      count: reader.uint32(),
    }),
  },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.opaqueFixed(value.cookieVerifier);
        writer.chain(value.entries, (target, entry) => {
          target.uint64(entry.fileid);
          target.opaque(entry.name);
          target.uint64(entry.cookie);
        });
        writer.bool(value.eof);
      },
      decode: (reader) => ({
        attributes: readPostOpAttributes(reader),
        cookieVerifier: reader.opaqueFixed(VERIFIER_BYTES),
        entries: reader.chain(ENTRIES_READ_MAX, (source) => ({
          fileid: source.uint64(),
          name: source.opaque(NAME_READ_MAX_BYTES),
          cookie: source.uint64(),
        })),
        eof: reader.bool(),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: ({ count }) => listingMaxBytes(count),
  idempotent: true,
});

/** READDIRPLUS (RFC 1813 §3.3.17). */
export const readdirplus = defineProcedure<
  ReadDirectoryPlusArgs,
  Outcome3<Listing<ListedEntryPlus>, ObjectFailure>
>({
  number: 17,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.directory);
      writer.uint64(value.cookie);
      writer.opaqueFixed(value.cookieVerifier);
      writer.uint32(value.dirCount);
      writer.uint32(value.maxCount);
    },
    decode: (reader) => ({
      directory: readHandle(reader),
      cookie: reader.uint64(),
      cookieVerifier: reader.opaqueFixed(VERIFIER_BYTES),
      dirCount: reader.uint32(),
      maxCount: reader.uint32(),
    }),
  },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.opaqueFixed(value.cookieVerifier);
        writer.chain(value.entries, (target, entry) => {
          target.uint64(entry.fileid);
          target.opaque(entry.name);
          target.uint64(entry.cookie);
          writePostOpAttributes(target, entry.attributes);
          writePostOpHandle(target, entry.handle);
        });
        writer.bool(value.eof);
      },
      decode: (reader) => ({
        attributes: readPostOpAttributes(reader),
        cookieVerifier: reader.opaqueFixed(VERIFIER_BYTES),
        entries: reader.chain(ENTRIES_READ_MAX, (source) => ({
          fileid: source.uint64(),
          name: source.opaque(NAME_READ_MAX_BYTES),
          cookie: source.uint64(),
          attributes: readPostOpAttributes(source),
          handle: readPostOpHandle(source),
        })),
        eof: reader.bool(),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: ({ maxCount }) => listingMaxBytes(maxCount),
  idempotent: true,
});

/** FSSTAT (RFC 1813 §3.3.18). */
export const fsstat = defineProcedure<FileHandle3, Outcome3<FileSystemStatus, ObjectFailure>>({
  number: 18,
  args: handleCodec,
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.uint64(value.totalBytes);
        writer.uint64(value.freeBytes);
        writer.uint64(value.availableBytes);
        writer.uint64(value.totalFiles);
        writer.uint64(value.freeFiles);
        writer.uint64(value.availableFiles);
        writer.uint32(value.invariantSeconds);
      },
      decode: (reader) => ({
        attributes: readPostOpAttributes(reader),
        totalBytes: reader.uint64(),
        freeBytes: reader.uint64(),
        availableBytes: reader.uint64(),
        totalFiles: reader.uint64(),
        freeFiles: reader.uint64(),
        availableFiles: reader.uint64(),
        invariantSeconds: reader.uint32(),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 52,
  idempotent: true,
});

/** FSINFO (RFC 1813 §3.3.19). */
export const fsinfo = defineProcedure<FileHandle3, Outcome3<FileSystemLimits, ObjectFailure>>({
  number: 19,
  args: handleCodec,
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.uint32(value.readMax);
        writer.uint32(value.readPreferred);
        writer.uint32(value.readMultiple);
        writer.uint32(value.writeMax);
        writer.uint32(value.writePreferred);
        writer.uint32(value.writeMultiple);
        writer.uint32(value.directoryPreferred);
        writer.uint64(value.fileSizeMax);
        writeTime(writer, value.timeGranularity);
        writer.uint32(value.properties);
      },
      decode: (reader) => ({
        attributes: readPostOpAttributes(reader),
        readMax: reader.uint32(),
        readPreferred: reader.uint32(),
        readMultiple: reader.uint32(),
        writeMax: reader.uint32(),
        writePreferred: reader.uint32(),
        writeMultiple: reader.uint32(),
        directoryPreferred: reader.uint32(),
        fileSizeMax: reader.uint64(),
        timeGranularity: readTime(reader),
        properties: reader.uint32(),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 48,
  idempotent: true,
});

/** PATHCONF (RFC 1813 §3.3.20). */
export const pathconf = defineProcedure<FileHandle3, Outcome3<PathLimits, ObjectFailure>>({
  number: 20,
  args: handleCodec,
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.uint32(value.linkMax);
        writer.uint32(value.nameMax);
        writer.bool(value.noTrunc);
        writer.bool(value.chownRestricted);
        writer.bool(value.caseInsensitive);
        writer.bool(value.casePreserving);
      },
      decode: (reader) => ({
        attributes: readPostOpAttributes(reader),
        linkMax: reader.uint32(),
        nameMax: reader.uint32(),
        noTrunc: reader.bool(),
        chownRestricted: reader.bool(),
        caseInsensitive: reader.bool(),
        casePreserving: reader.bool(),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 24,
  idempotent: true,
});
