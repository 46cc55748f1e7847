/** What an operation of the control plane is made of. */
import type { z } from 'zod';
import type {
  ControlOperationName,
  ControlReply,
  ControlRequest,
} from '../../verbs-api/contract/control.ts';
import { type ErrnoCode, VerbsError } from '../../verbs-api/contract/errors.ts';
import type { ControlTarget } from './target.ts';

/** One operation: what it takes, what it answers, and how. */
export interface Operation<N extends ControlOperationName> {
  /** One line for people: the OpenAPI description shows it. */
  readonly summary: string;
  /** Checks requests; a strict object, so that a misspelt field is an error. */
  readonly request: z.ZodType<ControlRequest<N>>;
  /** Describes replies; tests check them with it, the daemon does not. */
  readonly reply: z.ZodType<ControlReply<N>>;
  /**
   * True for what the daemon's own user alone may see; else whoever may use the daemon may look, and
   * that user alone may change.
   */
  readonly ownerOnly?: true;
  /** Throws `VerbsError` for a request that is well-formed but cannot be done. */
  readonly run: (
    target: ControlTarget,
    request: ControlRequest<N>,
  ) => ControlReply<N> | Promise<ControlReply<N>>;
}

/** The field that is wrong in a request, behind an EINVAL or whatever the operation says. */
export class ControlError extends VerbsError {
  /** Path of the field in the request, like `scope.device`; '' for the request as a whole. */
  readonly field: string;
  /** The message without the field. */
  readonly reason: string;

  constructor(code: ErrnoCode, field: string, reason: string) {
    super(code, field === '' ? reason : `${field}: ${reason}`);
    this.field = field;
    this.reason = reason;
  }
}
