/** NFS failures, and the mapping of failed system calls to status codes (RFC 1813 §2.6). */
import { type Nfs3Error, Nfs3Status } from '../nfs3/constants.ts';

export class NfsFailure extends Error {
  override readonly name = 'NfsFailure';
  readonly status: Nfs3Error;

  constructor(status: Nfs3Error, message: string) {
    super(message);
    this.status = status;
  }
}

const STATUS_OF_ERRNO: Readonly<Record<string, Nfs3Error>> = {
  EPERM: Nfs3Status.perm,
  ENOENT: Nfs3Status.noent,
  EIO: Nfs3Status.io,
  ENXIO: Nfs3Status.nxio,
  EACCES: Nfs3Status.acces,
  ETXTBSY: Nfs3Status.acces,
  EBUSY: Nfs3Status.acces,
  // A link replaced a file or a directory meanwhile: not followed.
  ELOOP: Nfs3Status.acces,
  EEXIST: Nfs3Status.exist,
  EXDEV: Nfs3Status.xdev,
  ENODEV: Nfs3Status.nodev,
  ENOTDIR: Nfs3Status.notdir,
  EISDIR: Nfs3Status.isdir,
  EINVAL: Nfs3Status.inval,
  EFBIG: Nfs3Status.fbig,
  ENOSPC: Nfs3Status.nospc,
  EROFS: Nfs3Status.rofs,
  EMLINK: Nfs3Status.mlink,
  ENAMETOOLONG: Nfs3Status.nametoolong,
  ENOTEMPTY: Nfs3Status.notempty,
  EDQUOT: Nfs3Status.dquot,
  ESTALE: Nfs3Status.stale,
  EOPNOTSUPP: Nfs3Status.notsupp,
  ENOTSUP: Nfs3Status.notsupp,
  // Temporary: the client retries.
  EMFILE: Nfs3Status.jukebox,
  ENFILE: Nfs3Status.jukebox,
  ENOMEM: Nfs3Status.jukebox,
  EAGAIN: Nfs3Status.jukebox,
};

/**
 * The status for a thrown error. Rethrows errors other than `NfsFailure` and failed system calls.
 */
export function statusOfError(error: unknown): Nfs3Error {
  if (error instanceof NfsFailure) return error.status;
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (typeof code !== 'string' || !/^E[A-Z0-9]+$/.test(code)) throw error;
  return STATUS_OF_ERRNO[code] ?? Nfs3Status.io;
}
