/** What a device counts. Plain numbers; whoever shows them takes differences. */
import { OutboundKind } from '../engine/placement.ts';

/** Counters of a device since it was made. */
export interface NicCounters {
  /** Work requests taken from send queues. */
  sendsTaken: number;
  /** Receives taken from receive queues and shared ones. */
  receivesTaken: number;
  /** Completions of all kinds, and those of work that was flushed or failed. */
  completions: number;
  flushes: number;
  failures: number;
  /** Octets placed for peers (Sends, Writes, Read Responses). */
  placedBytes: number;
  /** Octets gathered for peers (Sends, Writes, read sources). */
  gatheredBytes: number;
  /** Accesses of peers that were refused. */
  faults: number;
  invalidations: number;
  binds: number;
  /** Atomics done for peers. */
  atomics: number;
  /** RDMAP messages sent, by kind; Sends are those of all four kinds. */
  outSends: number;
  outWrites: number;
  outReads: number;
  outAtomics: number;
  outImmediates: number;
  /** RDMAP messages that came; writes and reads without those of no octets. */
  inSends: number;
  inWrites: number;
  inReads: number;
  inImmediates: number;
}

/** Counters at zero. */
export function newCounters(): NicCounters {
  return {
    sendsTaken: 0,
    receivesTaken: 0,
    completions: 0,
    flushes: 0,
    failures: 0,
    placedBytes: 0,
    gatheredBytes: 0,
    faults: 0,
    invalidations: 0,
    binds: 0,
    atomics: 0,
    outSends: 0,
    outWrites: 0,
    outReads: 0,
    outAtomics: 0,
    outImmediates: 0,
    inSends: 0,
    inWrites: 0,
    inReads: 0,
    inImmediates: 0,
  };
}

/** Counts a message that is about to be sent. */
export function countOutbound(counters: NicCounters, kind: OutboundKind): void {
  switch (kind) {
    case OutboundKind.none:
      return;
    case OutboundKind.send:
    case OutboundKind.sendWithInvalidate:
      counters.outSends += 1;
      return;
    case OutboundKind.write:
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
