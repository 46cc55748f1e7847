/** How requests are refused: a status, the field that is wrong, and a text for people. */
import { type ErrnoCode, isVerbsError } from '../../verbs-api/contract/errors.ts';

/** What a refusal by HTTP's own rules is called; what is missing here is EINVAL. */
const CODE_OF_STATUS: Readonly<Partial<Record<number, ErrnoCode>>> = {
  401: 'EACCES',
  403: 'EACCES',
  404: 'ENOENT',
  405: 'EOPNOTSUPP',
  413: 'EMSGSIZE',
  414: 'EMSGSIZE',
  500: 'EIO',
};

/** A request that is refused, with what is wrong with it. */
export class HttpRefusal extends Error {
  override readonly name = 'HttpRefusal';
  readonly status: number;
  /** 'header Host', 'query pid', 'body scope.device', 'path' …: what is wrong. */
  readonly field: string;
  /** Stable name for programs. */
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

/** What the refusals of verbs are over HTTP; what is missing here is the caller's fault: 400. */
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

/** The status for a code. */
export function statusOfCode(code: ErrnoCode): number {
  return STATUS_OF_CODE[code] ?? 400;
}

/** What to answer for an error; undefined when it is no fault of the caller. */
export function refusalOf(error: unknown): HttpRefusal | undefined {
  if (error instanceof HttpRefusal) return error;
  if (!isVerbsError(error)) return undefined;
  const { code } = error;
  return new HttpRefusal(statusOfCode(code), '', error.message, { code });
}
