/** Errors between this process and rdma-core: a code, a cause, and the failed call. */
import { type ErrnoCode, isErrnoCode, VerbsError } from '#contract/verbs/errors';
import { errnoName } from '../libc/libc.ts';

/**
 * The cause of a native error, for programs that decide what to do next:
 *
 * - `libraryMissing`, `libraryTooOld`: libibverbs or librdmacm cannot be loaded, or lacks a call.
 * - `noDevice`: rdma-core finds no device, none of that name, or no connection manager.
 * - `noPermission`: a device node may not be opened.
 * - `lockedMemory`: registering takes more locked memory than the process may have.
 * - `deviceGone`: the device failed or was removed.
 * - `unsupported`: this device, or rdma-core itself, lacks the feature.
 * - `closed`: the object was disposed of; nothing was called.
 * - `inUse`: other objects depend on this one; nothing was called.
 * - `refused`: the library or the device refused the call for another reason; see `code`.
 */
type NativeCause =
  | 'libraryMissing'
  | 'libraryTooOld'
  | 'noDevice'
  | 'noPermission'
  | 'lockedMemory'
  | 'deviceGone'
  | 'unsupported'
  | 'closed'
  | 'inUse'
  | 'refused';

/** A call of the native bridge failed. `kind` and `code` are stable; the text is for humans. */
export class NativeError extends VerbsError {
  /** The cause, see `NativeCause`. */
  readonly kind: NativeCause;

  constructor(kind: NativeCause, code: ErrnoCode, message: string, badIndex?: number) {
    super(code, message, badIndex === undefined ? {} : { badIndex });
    this.kind = kind;
  }

  override get name(): string {
    return 'NativeError';
  }
}

/** The code for an errno number; EIO for one that the contract lacks. */
export function codeOf(errno: number): ErrnoCode {
  const name = errnoName(Math.abs(errno));
  if (isErrnoCode(name)) return name;
  return CODES_OF_OTHERS[name] ?? 'EIO';
}

/** Errnos of rdma-core that the contract lacks, with the closest code. */
const CODES_OF_OTHERS: Readonly<Record<string, ErrnoCode>> = {
  ENXIO: 'ENODEV',
  ENODATA: 'EIO',
  ENOTSUP: 'EOPNOTSUPP',
  EAFNOSUPPORT: 'EINVAL',
  EDESTADDRREQ: 'EINVAL',
  E2BIG: 'EINVAL',
  ENETDOWN: 'ENETUNREACH',
  EHOSTDOWN: 'EHOSTUNREACH',
  EPIPE: 'ECONNRESET',
};

/** The error of a failed call; it names the call, its subject and the errno. */
export function callFailure(call: string, subject: string, errno: number): NativeError {
  const name = errnoName(Math.abs(errno));
  return new NativeError(reasonOf(name), codeOf(errno), `${call} on ${subject}: ${name}`);
}

function reasonOf(name: string): NativeCause {
  switch (name) {
    case 'EACCES':
    case 'EPERM':
      return 'noPermission';
    case 'ENODEV':
    case 'ENXIO':
      return 'noDevice';
    case 'EIO':
      return 'deviceGone';
    case 'EOPNOTSUPP':
    case 'ENOTSUP':
    case 'ENOSYS':
      return 'unsupported';
    case 'EBUSY':
      return 'inUse';
    default:
      return 'refused';
  }
}

/** The error for invalid parameters. */
export function invalid(text: string, badIndex?: number): NativeError {
  return new NativeError('refused', 'EINVAL', text, badIndex);
}

/** The error for a feature that a device lacks. */
export function unsupported(device: string, what: string, badIndex?: number): NativeError {
  return new NativeError('unsupported', 'EOPNOTSUPP', `${device} has no ${what}`, badIndex);
}
