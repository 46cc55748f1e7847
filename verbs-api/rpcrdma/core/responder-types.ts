/** What goes into a responder and what comes out of it: see `responder.ts`. */
import type { ChunkLimits, ReadChunk, SegmentWrite } from './chunks.ts';
import type { TransportHeader } from './transport-header.ts';
import type { XdrReader } from './xdr-reader.ts';
import type { Payload } from './xdr-writer.ts';

/** Options of a responder. */
export interface ResponderOptions {
  /** Credits that every reply grants: as many receives are posted. Default 32. */
  readonly credits?: number;
  /** What one call may ask for. Default: 64 segments a chunk, 4 MiB to read. */
  readonly limits?: ChunkLimits;
  /** Octets of read chunks that are here at once; calls beyond wait. Default 32 MiB. */
  readonly pulledBytesMax?: number;
  /** Limit for the Reads of a call, and for its reply to leave. Default 30 000. */
  readonly stallTimeoutMs?: number;
  /**
   * As RFC 5666 has it: takes RDMA_MSGP, and gives a reply for which the call has no room in a read
   * list, until RDMA_DONE comes. Default false: RFC 8166. Needs at least 2 credits (RPCR-3.8-05).
   */
  readonly readListReplies?: boolean;
  /** Limit for RDMA_DONE; then the reply's memory is closed to the peer. Default 5000. */
  readonly doneTimeoutMs?: number;
  /** Octets of replies that wait for RDMA_DONE at most. Default 16 MiB. */
  readonly undoneBytesMax?: number;
}

/** What the caller of a responder has to do. Calls are numbered by the responder. */
export type ResponderEffect =
  /** RDMA Read these chunks, each into memory of its own; then `pulled`. */
  | { readonly type: 'pull'; readonly call: number; readonly chunks: readonly ReadChunk[] }
  /** Carry the call out; then `reply`, or `refuse` when it is no call. */
  | {
      readonly type: 'dispatch';
      readonly call: number;
      /** Views of the receive buffer and of what was pulled: valid until the call's reply. */
      readonly reader: XdrReader;
      readonly xid: number;
    }
  /** RDMA Write `octets`, piece by piece. */
  | {
      readonly type: 'push';
      readonly call: number;
      readonly octets: Uint8Array | Payload;
      readonly writes: readonly SegmentWrite[];
    }
  /** Register the payload for reading; then `exposed`. */
  | { readonly type: 'expose'; readonly call: number; readonly payload: Payload }
  /**
   * Put header and payload together, then post the receive again, then send: the peer may use the
   * credit as soon as it has the reply. Then `sent`, once nothing of the call's memory is needed.
   */
  | {
      readonly type: 'transmit';
      readonly call: number;
      readonly header: TransportHeader;
      readonly payload: Payload;
      readonly receive: number;
    }
  /** Nothing of the message is needed any more: post the receive again. */
  | { readonly type: 'repost'; readonly receive: number }
  /** The call's memory is free; a registration for reading ends before. */
  | { readonly type: 'release'; readonly call: number }
  /** End the connection. */
  | { readonly type: 'disconnect'; readonly text: string };

/** What a responder counted. */
export interface ResponderCounters {
  calls: number;
  /** RDMA_ERRORs sent. */
  errors: number;
  /** Messages that were no call. */
  discarded: number;
  pulledBytes: number;
  pushedBytes: number;
}
