/** The asynchronous event and the completion status for a failed connection. */
import { CQEStatus } from '#contract/protocol/queue-layout';
import { AsyncEventType } from '#contract/verbs/enums';
import { MessageFailure, type WireFailure } from './wire-port.ts';

const STATUSES: Readonly<Record<MessageFailure, CQEStatus>> = {
  [MessageFailure.remoteAccess]: CQEStatus.remAccessErr,
  [MessageFailure.remoteInvalidRequest]: CQEStatus.remInvReqErr,
  [MessageFailure.remoteOperation]: CQEStatus.remOpErr,
  [MessageFailure.retriesExceeded]: CQEStatus.retryExcErr,
  [MessageFailure.rnrRetriesExceeded]: CQEStatus.rnrRetryExcErr,
  [MessageFailure.badResponse]: CQEStatus.badRespErr,
};

/** The event for an error in the peer's messages. */
export function errorEvent({ event }: WireFailure): AsyncEventType {
  if (event === 'access') return AsyncEventType.qpAccessErr;
  return event === 'request' ? AsyncEventType.qpReqErr : AsyncEventType.qpFatal;
}

/**
 * The status of our oldest outstanding read or atomic after the peer refused it. Requests are
 * answered in order, so the oldest one failed. The others are flushed.
 */
export function refusedRequestStatus({ refusal }: WireFailure): CQEStatus {
  return refusal === undefined ? CQEStatus.wrFlushErr : STATUSES[refusal];
}

/** The status of a message that the wire gave up. */
export function failedMessageStatus(failure: MessageFailure): CQEStatus {
  return STATUSES[failure];
}

/** One line for the event's text: the failure, with the peer's quirk if known. */
export function failureText(by: 'us' | 'peer', failure: WireFailure): string {
  const { sent, text, detail } = failure;
  // The text of a refusal by the peer already names the peer.
  const who = by === 'us' && sent !== undefined ? `sent ${sent}: ` : '';
  return `${who}${text}${detail === undefined ? '' : ` (${detail})`}${quirkText(failure)}`;
}

/** One line for a connection that ended without a stated reason. */
export function lossText(failure: WireFailure): string {
  return failure.text + quirkText(failure);
}

/** The peer's known quirk, if one explains the failure. */
export function quirkText({ quirk }: WireFailure): string {
  return quirk === undefined ? '' : `; known quirk: ${quirk}`;
}
