/** Which asynchronous event and which completion status a failed stream asks for. */
import { AsyncEventType } from '../../verbs-api/contract/enums.ts';
import { CQEStatus } from '../../verbs-api/contract/queue-layout.ts';
import type { StreamFailure } from '../engine/stream-api.ts';

/** Layers and error types of a Terminate (RFC 5040 §4.8). */
const Layer = { rdmap: 0, ddp: 1 } as const;
const RDMAPType = { protection: 1, operation: 2 } as const;
const DDPType = { tagged: 1 } as const;

/**
 * The event for a fault that we found in what the peer did. As siw has it: a bad access to tagged
 * memory is an access error, a bad request (Read, atomic, unknown operation) a request error, all
 * else fatal.
 */
export function faultEvent(failure: StreamFailure): AsyncEventType {
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
 * The status of our oldest outstanding read or atomic after a Terminate of the peer: the requests
 * are answered in order, so a refused request is the oldest one. Others are flushed.
 */
export function refusedRequestStatus(failure: StreamFailure): CQEStatus {
  if (failure.layer !== Layer.rdmap) return CQEStatus.wrFlushErr;
  if (failure.etype === RDMAPType.protection) return CQEStatus.remAccessErr;
  if (failure.etype === RDMAPType.operation) return CQEStatus.remInvReqErr;
  return CQEStatus.wrFlushErr;
}

/** One line for the event's text: the failure, with the peer's quirk where one is known. */
export function failureText(by: 'us' | 'peer', failure: StreamFailure): string {
  const triple =
    failure.layer === undefined
      ? ''
      : ` (layer ${failure.layer}, type ${failure.etype ?? 0}, code ${failure.code ?? 0})`;
  const who = by === 'us' ? 'terminated the stream' : 'the peer terminated the stream';
  return `${who}: ${failure.text}${triple}${quirkText(failure)}`;
}

/** The same for a stream that ended without a Terminate. */
export function lossText(failure: StreamFailure): string {
  return failure.text + quirkText(failure);
}

function quirkText({ quirk }: StreamFailure): string {
  return quirk === undefined ? '' : `; known peculiarity: ${quirk}`;
}
