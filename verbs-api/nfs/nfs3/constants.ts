/** Constants of NFS version 3 and MOUNT version 3 (RFC 1813). */

/** Program numbers and versions (RFC 1813 §2.1, §5.1). NFSR-8166.9-01: the same on every transport. */
export const NFS_PROGRAM = 100003;
export const NFS_VERSION = 3;
export const MOUNT_PROGRAM = 100005;
export const MOUNT_VERSION = 3;

/** Customary port of MOUNT; not assigned. */
export const MOUNT_PORT = 20048;

/** Maximum bytes of a file handle (RFC 1813 §2.4, NFS3_FHSIZE). */
export const HANDLE_MAX_BYTES = 64;
/** Bytes of a cookie, create or write verifier. */
export const VERIFIER_BYTES = 8;
/** Maximum bytes of a path to mount (RFC 1813 §5.1.2, MNTPATHLEN). */
export const MOUNT_PATH_MAX_BYTES = 1024;
/** Maximum bytes of a name in MOUNT's lists (MNTNAMLEN). */
export const MOUNT_NAME_MAX_BYTES = 255;

/** Status codes of NFS (RFC 1813 §2.6). */
export const Nfs3Status = {
  ok: 0,
  perm: 1,
  noent: 2,
  io: 5,
  nxio: 6,
  acces: 13,
  exist: 17,
  xdev: 18,
  nodev: 19,
  notdir: 20,
  isdir: 21,
  inval: 22,
  fbig: 27,
  nospc: 28,
  rofs: 30,
  mlink: 31,
  nametoolong: 63,
  notempty: 66,
  dquot: 69,
  stale: 70,
  remote: 71,
  badhandle: 10001,
  notSync: 10002,
  badCookie: 10003,
  notsupp: 10004,
  toosmall: 10005,
  serverfault: 10006,
  badtype: 10007,
  jukebox: 10008,
} as const;
export type Nfs3Status = (typeof Nfs3Status)[keyof typeof Nfs3Status];
/** Every status except success. */
export type Nfs3Error = Exclude<Nfs3Status, 0>;

const STATUS_NAMES = new Map<number, string>(
  Object.entries(Nfs3Status).map(([name, status]) => [status, name]),
);

/** The RFC 1813 name of a status, for example `NFS3ERR_NOENT`. */
export function statusName(status: Nfs3Status): string {
  const name = STATUS_NAMES.get(status) ?? String(status);
  if (status === Nfs3Status.ok) return 'NFS3_OK';
  return `NFS3ERR_${name.replace(/[A-Z]/, (letter) => `_${letter}`).toUpperCase()}`;
}

/** File types (RFC 1813 §2.6, ftype3). */
export const FileType = { reg: 1, dir: 2, blk: 3, chr: 4, lnk: 5, sock: 6, fifo: 7 } as const;
export type FileType = (typeof FileType)[keyof typeof FileType];

/** Rights requested and granted by ACCESS (RFC 1813 §3.3.4). */
export const Access3 = {
  read: 0x01,
  lookup: 0x02,
  modify: 0x04,
  extend: 0x08,
  delete: 0x10,
  execute: 0x20,
} as const;

/** Data that WRITE must commit to stable storage before it replies (RFC 1813 §3.3.7, stable_how). */
export const StableHow = { unstable: 0, dataSync: 1, fileSync: 2 } as const;
export type StableHow = (typeof StableHow)[keyof typeof StableHow];

/** How CREATE handles an existing file (RFC 1813 §3.3.8, createmode3). */
export const CreateMode = { unchecked: 0, guarded: 1, exclusive: 2 } as const;
export type CreateMode = (typeof CreateMode)[keyof typeof CreateMode];

/** Capabilities of a file system (RFC 1813 §3.3.19, FSINFO properties). */
export const FsProperty = {
  link: 0x01,
  symlink: 0x02,
  homogeneous: 0x08,
  canSetTime: 0x10,
} as const;

/** Status codes of MNT (RFC 1813 §5.1.5, mountstat3). */
export const MountStatus = {
  ok: 0,
  perm: 1,
  noent: 2,
  io: 5,
  acces: 13,
  notdir: 20,
  inval: 22,
  nametoolong: 63,
  notsupp: 10004,
  serverfault: 10006,
} as const;
export type MountStatus = (typeof MountStatus)[keyof typeof MountStatus];

const MOUNT_STATUS_NAMES = new Map<number, string>(
  Object.entries(MountStatus).map(([name, status]) => [status, name]),
);

/** The RFC 1813 name of a status, for example `MNT3ERR_NOENT`. */
export function mountStatusName(status: MountStatus): string {
  if (status === MountStatus.ok) return 'MNT3_OK';
  return `MNT3ERR_${(MOUNT_STATUS_NAMES.get(status) ?? String(status)).toUpperCase()}`;
}
