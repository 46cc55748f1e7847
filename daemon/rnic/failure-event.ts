/** The asynchronous event and the completion status for a failed stream. */

import { CQEStatus } from '../../verbs-api/contract/protocol/queue-layout.ts';
import { AsyncEventType } from '../../verbs-api/contract/verbs/enums.ts';
import type { WireFailure } from './wire-port.ts';

/** Layers and error types of a Terminate (RFC 5040 §4.8). */
const Layer = { rdmap: 0, ddp: 1 } as const;
const RDMAPType = { protection: 1, operation: 2 } as const;
const DDPType = { tagged: 1 } as const;

/**
 * The event for a fault that we found in the peer's messages. As in siw: a bad access to tagged
 * memory is an access error, a bad request (Read, atomic, unknown operation) a request error,
 * anything else fatal.
 */
export function faultEvent(failure: WireFailure): AsyncEventType {
  if (failure.layer === Layer.ddp && failure.etype === DDPType.tagged) {
    return AsyncEventType.qpAccessErr;
  }
  if (failure.layer === Layer.rdmap) {
    if (failure.etype === RDMAPType.protection || failure.etype === RDMAPType.operation) {
      return AsyncEventType.qpReqErr;
    }
  }
  return AsyncEventType.qpFatal;
}

/**
 * The status of our oldest outstanding read or atomic after the peer's Terminate. Requests are
 * answered in order, so the failed one is the oldest. Others are flushed.
 */
export function refusedRequestStatus(failure: WireFailure): CQEStatus {
  if (failure.layer !== Layer.rdmap) return CQEStatus.wrFlushErr;
  if (failure.etype === RDMAPType.protection) return CQEStatus.remAccessErr;
  if (failure.etype === RDMAPType.operation) return CQEStatus.remInvReqErr;
  return CQEStatus.wrFlushErr;
}

/** One line for the event's text: the failure, with the peer's quirk if known. */
export function failureText(by: 'us' | 'peer', failure: WireFailure): string {
  const triple =
    failure.layer === undefined
      ? ''
      : ` (layer ${failure.layer}, type ${failure.etype ?? 0}, code ${failure.code ?? 0})`;
  // The text of a peer's Terminate names the peer.
  const who = by === 'us' ? 'sent a Terminate: ' : '';
  return `${who}${failure.text}${triple}${quirkText(failure)}`;
}

/** The same for a stream that ended without a Terminate. */
export function lossText(failure: WireFailure): string {
  return failure.text + quirkText(failure);
}

function quirkText({ quirk }: WireFailure): string {
  return quirk === undefined ? '' : `; known peculiarity: ${quirk}`;
}
