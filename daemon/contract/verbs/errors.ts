/**
 * Errors of verbs.
 *
 * The codes are the errno names that rdma-core's users expect (man 3 of each verb). Callers match
 * the code, never the text, since an error crosses the IPC boundary as data.
 */

/** errno name → number (Linux) and its default text. */
export const ERRNO = {
  EPERM: { number: 1, text: 'operation not permitted' },
  ENOENT: { number: 2, text: 'no such object' },
  EINTR: { number: 4, text: 'interrupted' },
  EIO: { number: 5, text: 'the device or its daemon is gone' },
  EBADF: { number: 9, text: 'bad descriptor' },
  EAGAIN: { number: 11, text: 'try again' },
  ENOMEM: { number: 12, text: 'out of memory, queue entries or quota' },
  EACCES: { number: 13, text: 'permission denied' },
  EFAULT: { number: 14, text: 'bad address' },
  EBUSY: { number: 16, text: 'the object is in use' },
  ENODEV: { number: 19, text: 'no such device' },
  EINVAL: { number: 22, text: 'invalid argument' },
  EMFILE: { number: 24, text: 'too many open files' },
  ENOSPC: { number: 28, text: 'no space left' },
  ENOSYS: { number: 38, text: 'not implemented' },
  ENODATA: { number: 61, text: 'no data available' },
  EPROTO: { number: 71, text: 'protocol error' },
  EMSGSIZE: { number: 90, text: 'message too long' },
  EOPNOTSUPP: { number: 95, text: 'not supported by this device' },
  EADDRINUSE: { number: 98, text: 'address already in use' },
  EADDRNOTAVAIL: { number: 99, text: 'no device has this address' },
  ENETUNREACH: { number: 101, text: 'network is unreachable' },
  ECONNABORTED: { number: 103, text: 'connection aborted' },
  ECONNRESET: { number: 104, text: 'connection reset by peer' },
  EISCONN: { number: 106, text: 'already connected' },
  ENOTCONN: { number: 107, text: 'not connected' },
  ETIMEDOUT: { number: 110, text: 'timed out' },
  ECONNREFUSED: { number: 111, text: 'connection refused' },
  EHOSTUNREACH: { number: 113, text: 'no route to host' },
} as const;

/** A stable error code: an errno name. */
export type ErrnoCode = keyof typeof ERRNO;

/** Extra fields of a `VerbsError`. */
export interface VerbsErrorFields {
  /** For a refused list of work requests: the index of the first bad one (`bad_wr`). */
  readonly badIndex?: number | undefined;
}

/** Marks the errors of every loaded copy of this package. */
const MARK = Symbol.for('iwarpd.VerbsError');

/** A verb failed. `code` is stable; `message` is for people. */
export class VerbsError extends Error {
  /** Stable code, an errno name. */
  readonly code: ErrnoCode;
  /** Index of the first bad work request of a refused post, else undefined. */
  declare readonly badIndex: number | undefined;

  static {
    Object.defineProperty(VerbsError.prototype, MARK, { value: true });
  }

  constructor(code: ErrnoCode, message?: string, fields: VerbsErrorFields = {}) {
    super(message ?? ERRNO[code].text);
    this.code = code;
    // Most errors have none, and a report of an uncaught error lists the properties that exist.
    if (fields.badIndex !== undefined) this.badIndex = fields.badIndex;
  }

  /** The name of the error's class. */
  override get name(): string {
    return 'VerbsError';
  }

  /**
   * Why, in the program's terms: the field, its value and the accepted values. Undefined if the
   * error has nothing beyond its code.
   */
  get reason(): string | undefined {
    return this.message === ERRNO[this.code].text ? undefined : this.message;
  }

  /** The errno number of `code` on Linux. */
  get errno(): number {
    return ERRNO[this.code].number;
  }
}

/** The error for an invalid argument: EINVAL. */
export function invalid(reason: string): VerbsError {
  return new VerbsError('EINVAL', reason);
}

/** True for a `VerbsError` of any loaded copy of this package. */
export function isVerbsError(error: unknown): error is VerbsError {
  return error instanceof Error && Reflect.get(error, MARK) === true;
}

/** True when `code` is one of `ERRNO`'s names. */
export function isErrnoCode(code: string): code is ErrnoCode {
  return Object.hasOwn(ERRNO, code);
}
