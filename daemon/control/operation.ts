/** The parts of a control-plane operation. */
import type { z } from 'zod';
import type {
  ControlOperationName,
  ControlReply,
  ControlRequest,
} from '#contract/protocol/control';
import { type ErrnoCode, VerbsError } from '#contract/verbs/errors';
import type { ControlTarget } from './target.ts';

export interface Operator {
  /** May change state, not only read it. */
  readonly mayChange: boolean;
  /**
   * Is the daemon's own user or root: may see secrets that give access to other programs, such as
   * the keys of memory regions.
   */
  readonly isOwner: boolean;
  /** The user whose programs' refusals it sees. Default: all users. */
  readonly uid?: number;
}

export const OWNER: Operator = { mayChange: true, isOwner: true };

/** One operation: its request, reply and implementation. */
export interface Operation<N extends ControlOperationName> {
  /** One line, shown in the OpenAPI description. */
  readonly summary: string;
  /** Validates requests; a strict object, so a misspelled field is an error. */
  readonly request: z.ZodType<ControlRequest<N>>;
  /** Describes replies; only tests validate against it. */
  readonly reply: z.ZodType<ControlReply<N>>;
  /**
   * If true, only the daemon's own user may execute it. Otherwise anyone who may use the daemon may
   * execute it if it only reads; only that user may change state.
   */
  readonly ownerOnly?: true;
  /** Throws `VerbsError` for a valid request that cannot be executed. */
  readonly run: (
    target: ControlTarget,
    request: ControlRequest<N>,
    caller: Operator,
  ) => ControlReply<N> | Promise<ControlReply<N>>;
}

/** The invalid field of a request, with EINVAL or the operation's own error code. */
export class ControlError extends VerbsError {
  /** Path of the field in the request, such as `scope.device`; '' for the whole request. */
  readonly field: string;
  readonly #reason: string;

  constructor(code: ErrnoCode, field: string, reason: string) {
    super(code, field === '' ? reason : `${field}: ${reason}`);
    this.field = field;
    this.#reason = reason;
  }

  /** The message without the field. */
  override get reason(): string {
    return this.#reason;
  }
}
