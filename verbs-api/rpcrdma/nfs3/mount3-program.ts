/** MOUNT version 3 as an RPC program: what gives the first file handle (RFC 1813 §5). */

import { AuthFlavor } from '../core/credential.ts';
import { defineProcedure, defineProgram, voidCodec } from '../core/program.ts';
import { XdrError } from '../core/xdr-reader.ts';
import type { FileHandle3 } from './attributes.ts';
import {
  HANDLE_MAX_BYTES,
  isMountStatus,
  MOUNT_NAME_MAX_BYTES,
  MOUNT_PATH_MAX_BYTES,
  MOUNT_PROGRAM,
  MOUNT_VERSION,
  MountStatus,
} from './constants.ts';

/** mountres3. */
export type MountResult =
  | {
      readonly status: typeof MountStatus.ok;
      readonly handle: FileHandle3;
      /** Authentication flavors that NFS takes, the best first. */
      readonly flavors: readonly number[];
    }
  | { readonly status: Exclude<MountStatus, 0> };

/** Who has mounted what (mountbody); as good as what clients say. */
export interface MountEntry {
  readonly host: Uint8Array;
  readonly path: Uint8Array;
}

/** What is exported to whom (exportnode); no groups means everybody. */
export interface ExportEntry {
  readonly path: Uint8Array;
  readonly groups: readonly Uint8Array[];
}

/** Flavors, mounts and exports that a reader takes and a server tells at most. */
export const MOUNT_LIST_MAX = 1024;
const FLAVORS_MAX = 64;

/** MNT (RFC 1813 §5.2.1). */
const mnt = defineProcedure<Uint8Array, MountResult>({
  number: 1,
  args: {
    encode: (writer, path) => writer.opaque(path),
    decode: (reader) => reader.opaque(MOUNT_PATH_MAX_BYTES),
  },
  result: {
    encode(writer, value) {
      writer.uint32(value.status);
      if (value.status !== MountStatus.ok) return;
      writer.opaque(value.handle);
      writer.array(value.flavors, (target, flavor) => target.uint32(flavor));
    },
    decode(reader) {
      const status = reader.uint32();
      if (!isMountStatus(status)) throw new XdrError(`${status} is no status of MOUNT`);
      if (status !== MountStatus.ok) return { status };
      const handle = reader.opaque(HANDLE_MAX_BYTES);
      const flavors = reader.array(FLAVORS_MAX, (source) => source.uint32());
      return { status, handle, flavors };
    },
  },
  resultMaxBytes: () => 4 + 4 + HANDLE_MAX_BYTES + 4 + 4 * FLAVORS_MAX,
  idempotent: true,
});

/** DUMP (RFC 1813 §5.2.2). */
const dump = defineProcedure<void, readonly MountEntry[]>({
  number: 2,
  args: voidCodec,
  result: {
    encode(writer, value) {
      writer.chain(value, (target, entry) => {
        target.opaque(entry.host);
        target.opaque(entry.path);
      });
    },
    decode: (reader) =>
      reader.chain(MOUNT_LIST_MAX, (source) => ({
        host: source.opaque(MOUNT_NAME_MAX_BYTES),
        path: source.opaque(MOUNT_PATH_MAX_BYTES),
      })),
  },
  resultMaxBytes: () => 4 + MOUNT_LIST_MAX * (12 + MOUNT_NAME_MAX_BYTES + 1 + MOUNT_PATH_MAX_BYTES),
  idempotent: true,
});

/** UMNT (RFC 1813 §5.2.3). */
const umnt = defineProcedure<Uint8Array, void>({
  number: 3,
  args: {
    encode: (writer, path) => writer.opaque(path),
    decode: (reader) => reader.opaque(MOUNT_PATH_MAX_BYTES),
  },
  result: voidCodec,
  resultMaxBytes: () => 0,
  idempotent: true,
});

/** UMNTALL (RFC 1813 §5.2.4). */
const umntall = defineProcedure<void, void>({
  number: 4,
  args: voidCodec,
  result: voidCodec,
  resultMaxBytes: () => 0,
  idempotent: true,
});

/** EXPORT (RFC 1813 §5.2.5). */
const exports = defineProcedure<void, readonly ExportEntry[]>({
  number: 5,
  args: voidCodec,
  result: {
    encode(writer, value) {
      writer.chain(value, (target, entry) => {
        target.opaque(entry.path);
        target.chain(entry.groups, (inner, group) => inner.opaque(group));
      });
    },
    decode: (reader) =>
      reader.chain(MOUNT_LIST_MAX, (source) => ({
        path: source.opaque(MOUNT_PATH_MAX_BYTES),
        groups: source.chain(MOUNT_LIST_MAX, (inner) => inner.opaque(MOUNT_NAME_MAX_BYTES)),
      })),
  },
  resultMaxBytes: () => 1 << 20,
  idempotent: true,
});

/** MOUNT version 3. NFSR-8267.5-01: it is offered over TCP, whatever NFS itself runs on. */
export const MOUNT3 = defineProgram({
  name: 'MOUNT',
  number: MOUNT_PROGRAM,
  version: MOUNT_VERSION,
  procedures: { mnt, dump, umnt, umntall, exports },
});

/** Flavors that the NFS server takes (RFC 5531 §8.2). */
export const NFS_FLAVORS: readonly number[] = [AuthFlavor.sys, AuthFlavor.none];
