/** What a device counts. Plain numbers; whoever shows them takes differences. */

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
  atomics: number;
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
  };
}
