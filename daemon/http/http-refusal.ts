/** Rejected requests: a status, the invalid field, and a message. */
import { type ErrnoCode, isVerbsError } from '#contract/verbs/errors';

/** The error code for a status that HTTP itself requires; EINVAL for others. */
const CODE_OF_STATUS: Readonly<Partial<Record<number, ErrnoCode>>> = {
  401: 'EACCES',
  403: 'EACCES',
  404: 'ENOENT',
  405: 'EOPNOTSUPP',
  413: 'EMSGSIZE',
  414: 'EMSGSIZE',
  500: 'EIO',
};

export class HttpRefusal extends Error {
  override readonly name = 'HttpRefusal';
  readonly status: number;
  /** The invalid part: 'header Host', 'query pid', 'body scope.device', 'path' … */
  readonly field: string;
  /** Stable code for programs. */
  readonly code: ErrnoCode;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    field: string,
    message: string,
    extra: { code?: ErrnoCode; headers?: Readonly<Record<string, string>> } = {},
  ) {
    super(message);
    this.status = status;
    this.field = field;
    this.code = extra.code ?? CODE_OF_STATUS[status] ?? 'EINVAL';
    this.headers = extra.headers ?? {};
  }
}

/** The HTTP status for errors of verbs; 400, a client error, for others. */
const STATUS_OF_CODE: Readonly<Partial<Record<ErrnoCode, number>>> = {
  ENOENT: 404,
  ENODEV: 404,
  EBUSY: 409,
  EACCES: 403,
  EPERM: 403,
  ENOMEM: 503,
  ENOSPC: 507,
  EIO: 503,
};

export function statusOfCode(code: ErrnoCode): number {
  return STATUS_OF_CODE[code] ?? 400;
}

/** The response to an error; undefined if the client did not cause it. */
export function refusalOf(error: unknown): HttpRefusal | undefined {
  if (error instanceof HttpRefusal) return error;
  if (!isVerbsError(error)) return undefined;
  const { code } = error;
  return new HttpRefusal(statusOfCode(code), '', error.message, { code });
}
