/** A device's counters: plain numbers; readers compute differences. */
import { CQEStatus } from '#contract/protocol/queue-layout';
import { OutboundKind } from './wire-port.ts';

export class NicCounters {
  /** Work requests taken from send queues. */
  sendsTaken = 0;
  /** Receives taken from receive queues and shared ones. */
  receivesTaken = 0;
  /** All completions, flushed ones, and those with another error. */
  completions = 0;
  flushes = 0;
  failures = 0;
  /** Bytes placed for peers (Sends, Writes, Read Responses). */
  placedBytes = 0;
  /** Bytes gathered for peers (Sends, Writes, read sources). */
  gatheredBytes = 0;
  /** Refused accesses of peers: wrong key, address, right or alignment. */
  accessErrors = 0;
  /** Messages that found no receive posted. Normal on RoCE: the peer retries. */
  missingReceives = 0;
  /** Messages longer than the receive that they took. */
  tooLongMessages = 0;
  invalidations = 0;
  binds = 0;
  /** Atomics performed for peers. */
  atomics = 0;
  /** RDMAP messages sent, by kind; Sends include all four kinds. */
  outSends = 0;
  outWrites = 0;
  outReads = 0;
  outAtomics = 0;
  outImmediates = 0;
  /** RDMAP messages received; writes and reads of 0 bytes do not count. */
  inSends = 0;
  inWrites = 0;
  inReads = 0;
  inImmediates = 0;
}

/** Counts a message about to be sent. */
export function countOutbound(counters: NicCounters, kind: OutboundKind): void {
  switch (kind) {
    case OutboundKind.none:
      return;
    case OutboundKind.send:
    case OutboundKind.sendWithInvalidate:
    case OutboundKind.sendWithImmediate:
      counters.outSends += 1;
      return;
    case OutboundKind.write:
    case OutboundKind.writeWithImmediate:
      counters.outWrites += 1;
      return;
    case OutboundKind.readRequest:
      counters.outReads += 1;
      return;
    case OutboundKind.atomic:
      counters.outAtomics += 1;
      return;
    case OutboundKind.immediate:
      counters.outImmediates += 1;
      return;
    default:
      kind satisfies never;
  }
}

/** Counts a completion of this status. */
export function countCompletion(
  counters: Pick<NicCounters, 'completions' | 'flushes' | 'failures'>,
  status: CQEStatus,
): void {
  counters.completions += 1;
  if (status === CQEStatus.wrFlushErr) counters.flushes += 1;
  else if (status !== CQEStatus.success) counters.failures += 1;
}
