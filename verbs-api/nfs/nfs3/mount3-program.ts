/** MOUNT version 3 as an RPC program: returns the first file handle (RFC 1813 §5). */
import { array, chain, enumeration, opaque, struct, uint32 } from '#verbs-api/rpcrdma/core/codecs';
import { AuthFlavor } from '#verbs-api/rpcrdma/core/credential';
import {
  type Decoded,
  defineProcedure,
  defineProgram,
  voidCodec,
} from '#verbs-api/rpcrdma/core/program';
import { type FileHandle3, handle3 } from './attributes.ts';
import {
  HANDLE_MAX_BYTES,
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
      /** Authentication flavors that NFS accepts, preferred first. */
      readonly flavors: readonly number[];
    }
  | { readonly status: Exclude<MountStatus, 0> };

/** Maximum flavors, mounts and exports that a reader accepts and a server returns. */
export const MOUNT_LIST_MAX = 1024;
const FLAVORS_MAX = 64;

const directoryPath = opaque(MOUNT_PATH_MAX_BYTES);
const hostName = opaque(MOUNT_NAME_MAX_BYTES);
const mountStatus = enumeration(Object.values(MountStatus), 'mountstat3');
/** A client and what it mounted, as claimed by clients. */
const mountEntry = struct({ host: hostName, path: directoryPath });
export type MountEntry = Decoded<typeof mountEntry>;
const flavorList = array(FLAVORS_MAX, uint32);

/** MNT (RFC 1813 §5.2.1). */
const mnt = defineProcedure<Uint8Array, MountResult>({
  number: 1,
  args: directoryPath,
  result: {
    encode(writer, value) {
      writer.uint32(value.status);
      if (value.status !== MountStatus.ok) return;
      handle3.encode(writer, value.handle);
      flavorList.encode(writer, value.flavors);
    },
    decode(reader) {
      const status = mountStatus.decode(reader);
      if (status !== MountStatus.ok) return { status };
      return { status, handle: handle3.decode(reader), flavors: flavorList.decode(reader) };
    },
  },
  resultMaxBytes: () => 4 + 4 + HANDLE_MAX_BYTES + 4 + 4 * FLAVORS_MAX,
  idempotent: true,
});

/** DUMP (RFC 1813 §5.2.2). */
const dump = defineProcedure({
  number: 2,
  args: voidCodec,
  result: chain(MOUNT_LIST_MAX, mountEntry),
  resultMaxBytes: () => 4 + MOUNT_LIST_MAX * (12 + MOUNT_NAME_MAX_BYTES + 1 + MOUNT_PATH_MAX_BYTES),
  idempotent: true,
});

/** UMNT (RFC 1813 §5.2.3). */
const umnt = defineProcedure({
  number: 3,
  args: directoryPath,
  result: voidCodec,
  resultMaxBytes: () => 0,
  idempotent: true,
});

/** UMNTALL (RFC 1813 §5.2.4). */
const umntall = defineProcedure({
  number: 4,
  args: voidCodec,
  result: voidCodec,
  resultMaxBytes: () => 0,
  idempotent: true,
});

/** A directory and who may mount it; no groups means everyone. */
const exportEntry = struct({ path: directoryPath, groups: chain(MOUNT_LIST_MAX, hostName) });

/** EXPORT (RFC 1813 §5.2.5). */
const exports = defineProcedure({
  number: 5,
  args: voidCodec,
  result: chain(MOUNT_LIST_MAX, exportEntry),
  resultMaxBytes: () => 1 << 20,
  idempotent: true,
});

/** MOUNT version 3. NFSR-8267.5-01: served over TCP, whatever transport NFS uses. */
export const MOUNT3 = defineProgram({
  name: 'MOUNT',
  number: MOUNT_PROGRAM,
  version: MOUNT_VERSION,
  procedures: { mnt, dump, umnt, umntall, exports },
});

/** Flavors that the NFS server accepts (RFC 5531 §8.2). */
export const NFS_FLAVORS: readonly number[] = [AuthFlavor.sys, AuthFlavor.none];
