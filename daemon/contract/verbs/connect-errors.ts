/** The errors of a refused connection and of a failed operation. */
import type { WC } from './completion.ts';
import { WC_STATUS_TEXT, WCStatus } from './enums.ts';
import { type ErrnoCode, VerbsError } from './errors.ts';
import type { CMEvent } from './provider.ts';

/**
 * The peer rejected the connection, or nothing listens at the address. The code is ECONNREFUSED, as
 * for a synchronous `rdma_connect`; `event` has the peer's private data and depths, and the errno
 * that the device reported.
 */
export class ConnectionRejectedError extends VerbsError {
  /** The rejection: the peer's private data, its depths and the device's errno. */
  declare readonly event: CMEvent;

  /** `what` failed, if the caller knows; the event has the reason. */
  constructor(event: CMEvent, what?: string) {
    super('ECONNREFUSED', what === undefined ? event.text : `${what}: ${event.text}`);
    // Not listed with an uncaught error: the event leads to the id and all that belongs to it.
    Object.defineProperty(this, 'event', { value: event });
  }

  override get name(): string {
    return 'ConnectionRejectedError';
  }
}

/**
 * An awaited operation completed with an error. The code is ENOTCONN when the connection ended
 * first (the request was flushed), EACCES or EFAULT when the peer or this device denied access, and
 * EIO otherwise; `completion` has the status.
 */
export class OperationError extends VerbsError {
  /** The completion with the error. */
  declare readonly completion: WC;

  /** `what` is the operation; `why` is the reason for the end of the connection, if known. */
  constructor(what: string, completion: WC, why?: string) {
    const { status } = completion;
    const flushed = status === WCStatus.wrFlushErr;
    const { reason = WC_STATUS_TEXT[status] } = completion;
    const text = flushed ? 'the connection has ended' : reason;
    super(CODES.get(status) ?? 'EIO', `${what}: ${text}${why === undefined ? '' : ` (${why})`}`);
    // Not listed with an uncaught error: the message suffices.
    Object.defineProperty(this, 'completion', { value: completion });
  }

  override get name(): string {
    return 'OperationError';
  }

  /** Why it failed: see `WC.reason`. */
  override get reason(): string | undefined {
    return this.completion.reason;
  }
}

const CODES: ReadonlyMap<WCStatus, ErrnoCode> = new Map<WCStatus, ErrnoCode>([
  [WCStatus.wrFlushErr, 'ENOTCONN'],
  [WCStatus.remAccessErr, 'EACCES'],
  [WCStatus.locProtErr, 'EFAULT'],
  [WCStatus.locAccessErr, 'EFAULT'],
  [WCStatus.locLenErr, 'EMSGSIZE'],
]);
