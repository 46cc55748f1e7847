/**
 * Why work of a queue pair fails, as data.
 *
 * The code that finds an error knows most about it: the memory check, the receive queue, the wire. It
 * records a cause, only on failure, so the path of a message pays nothing. `failure-sentence.ts` turns
 * causes into sentences.
 */
import { Access } from '#contract/verbs/enums';
import type { PD } from './memory/protection-domain.ts';
import type { StagEntry, StagTable } from './memory/stag-table.ts';
import type { AccessRefusal, NamedRange, WireFailure } from './wire-port.ts';

/** Memory of the program whose queue pair refused it. Never shown to other users. */
interface OwnMemory extends NamedRange {
  readonly window: boolean;
  /** Bits of `Access`. */
  readonly access: number;
  /** True if peers may use it, with these rights. */
  readonly open: boolean;
  /** The only queue pair whose peer may use it; 0: all of its protection domain. */
  readonly qpn: number;
}

type PeerOperation = 'RDMA Write' | 'RDMA Read' | 'atomic' | 'Send with Invalidate';

/** A request of the peer that was refused by the memory it names. */
export interface RefusedAccess {
  readonly kind: 'access';
  readonly operation: PeerOperation;
  readonly refusal: AccessRefusal;
  readonly range: NamedRange;
  /** The memory of this key, if it belongs to the protection domain of the queue pair. */
  readonly memory: OwnMemory | undefined;
}

/** A piece of a scatter/gather list that its queue may not use. */
export interface RefusedPiece {
  readonly index: number;
  readonly refusal: AccessRefusal;
  readonly range: NamedRange;
}

/** Our own work request names memory that its queue pair may not use. */
interface RefusedSGE extends RefusedPiece {
  readonly kind: 'sge';
  readonly write: boolean;
  readonly memory: OwnMemory | undefined;
}

export type Cause =
  | RefusedAccess
  | RefusedSGE
  /** A message is longer than its receive; `messageBytes` is a lower bound. */
  | { readonly kind: 'too-long'; readonly messageBytes: number; readonly receiveBytes: number }
  /** The peer's message found no receive. */
  | { readonly kind: 'no-receive'; readonly shared: boolean }
  /** A work request is malformed, or its queue pair does not support it. */
  | { readonly kind: 'request'; readonly text: string }
  /** Another failure on this side. */
  | { readonly kind: 'local'; readonly text: string }
  /** The program ended the work, or the connection closed regularly. */
  | { readonly kind: 'ended'; readonly text: string }
  /** The connection failed. `found`: the cause that this queue pair reported to its wire. */
  | {
      readonly kind: 'wire';
      readonly by: 'us' | 'peer';
      readonly failure: WireFailure;
      readonly found: Cause | undefined;
    };

/** Kept by each queue pair: the last error that one of its parts found. */
export interface CauseHolder {
  readonly pd: PD;
  found: Cause | undefined;
}

/** For messages without a receive; a constant, since a peer may retry without end. */
export const NO_RECEIVE: Cause = { kind: 'no-receive', shared: false };
export const NO_SHARED_RECEIVE: Cause = { kind: 'no-receive', shared: true };
/** The memory of a work request was unmapped, or its process ended. */
export const MEMORY_GONE: Cause = {
  kind: 'local',
  text: 'registered memory of the work request is gone: its pages were unmapped, or its process ended',
};

export interface FailedWork {
  readonly queue: 'send' | 'receive';
  readonly wrId: bigint;
  /** An `SQOpcode`. */
  readonly opcode: number;
  /** A `CQEStatus`: never success; a flush only if there is no other. */
  readonly status: number;
  readonly cause: Cause | undefined;
}

/** Work that was flushed because its queue pair failed. */
export interface FlushedWork {
  readonly sends: number;
  readonly receives: number;
  readonly cause: Cause | undefined;
}

/** Failures that a queue pair reports. */
export type FailureEffect<Q> =
  | { readonly type: 'failed'; readonly qp: Q; readonly work: FailedWork }
  | { readonly type: 'flushed'; readonly qp: Q; readonly work: FlushedWork };

/** The cause for a refused access of the peer; `right` is one bit of `Access`. */
export function refusedAccess(
  table: StagTable,
  user: CauseHolder,
  range: NamedRange,
  right: number,
  refusal: AccessRefusal,
): RefusedAccess {
  const operation = OPERATIONS.get(right) ?? 'Send with Invalidate';
  return {
    kind: 'access',
    operation,
    refusal,
    range,
    memory: ownMemory(table, user.pd, range.key),
  };
}

/** The cause for a refused piece of our own work request; `write`: it receives data. */
export function refusedSGE(
  table: StagTable,
  pd: PD,
  piece: RefusedPiece | undefined,
  write: boolean,
): Cause {
  if (piece === undefined) return MEMORY_GONE;
  return { ...piece, kind: 'sge', write, memory: ownMemory(table, pd, piece.range.key) };
}

/** A range by the halves of its address. */
export function namedRange(
  key: number,
  addressHi: number,
  addressLo: number,
  lengthBytes: number,
): NamedRange {
  return { key, address: joined(addressHi, addressLo), lengthBytes };
}

const OPERATIONS: ReadonlyMap<number, PeerOperation> = new Map([
  [Access.remoteWrite, 'RDMA Write'],
  [Access.remoteRead, 'RDMA Read'],
  [Access.remoteAtomic, 'atomic'],
]);

// SEC-6.1.1-02: never name memory of another protection domain.
function ownMemory(table: StagTable, pd: PD, key: number): OwnMemory | undefined {
  const entry = table.find(key);
  return entry === undefined || entry.pd !== pd ? undefined : memoryOf(entry);
}

function memoryOf(entry: StagEntry): OwnMemory {
  const { stag, isWindow, access, remoteValid, qpn, lengthBytes, toHi, toLo } = entry;
  const address = joined(toHi, toLo);
  return { key: stag, address, lengthBytes, window: isWindow, access, open: remoteValid, qpn };
}

function joined(hi: number, lo: number): bigint {
  return (BigInt(hi) << 32n) | BigInt(lo);
}
