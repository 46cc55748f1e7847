/** Inputs and outputs of a responder: see `responder.ts`. */
import type { ChunkLimits, ReadChunk, SegmentWrite } from './chunks.ts';
import type { TransportHeader } from './transport-header.ts';
import type { XdrReader } from './xdr-reader.ts';
import type { Payload } from './xdr-writer.ts';

/** Options of a responder. */
export interface ResponderOptions {
  /** Credits that every reply grants, and the number of receives posted. Default 32. */
  readonly credits?: number;
  /** Limits of one call. Default: 64 segments per chunk, 4 MiB to read. */
  readonly limits?: ChunkLimits;
  /** Maximum bytes of pulled read chunks held at once; further calls wait. Default 32 MiB. */
  readonly pulledBytesMax?: number;
  /**
   * Timeout for the Reads of a call and for sending its reply, unless the caller reports a short reply as sent once
   * it is in a buffer. Default 30 000.
   */
  readonly stallTimeoutMs?: number;
  /**
   * RFC 5666 behaviour: accepts RDMA_MSGP; puts a reply for which the call has no room in a read
   * list until RDMA_DONE arrives. Default false: RFC 8166. Needs at least 2 credits (RPCR-3.8-05).
   */
  readonly readListReplies?: boolean;
  /** Timeout for RDMA_DONE; the reply's memory is then closed to the peer. Default 5000. */
  readonly doneTimeoutMs?: number;
  /** Maximum bytes of replies waiting for RDMA_DONE. Default 16 MiB. */
  readonly undoneBytesMax?: number;
}

/** Actions for the caller of a responder. The responder numbers the calls. */
export type ResponderEffect =
  /** RDMA Read these chunks, each into its own memory; then call `pulled`. */
  | { readonly type: 'pull'; readonly call: number; readonly chunks: readonly ReadChunk[] }
  /** Execute the call; then call `reply`, or `refuse` if it is not a call. */
  | {
      readonly type: 'dispatch';
      readonly call: number;
      /** Views of the receive buffer and of pulled chunks: valid until the call's reply. */
      readonly reader: XdrReader;
      readonly xid: number;
    }
  /** RDMA Write each piece of `bytes`. */
  | {
      readonly type: 'push';
      readonly call: number;
      readonly bytes: Uint8Array | Payload;
      readonly writes: readonly SegmentWrite[];
    }
  /** Register the payload for reading; then call `exposed`. */
  | { readonly type: 'expose'; readonly call: number; readonly payload: Payload }
  /**
   * Assemble header and payload, repost the receive, then send: the peer may use the credit as soon
   * as it has the reply. Call `sent` once the call's memory is no longer needed.
   */
  | {
      readonly type: 'transmit';
      readonly call: number;
      readonly header: TransportHeader;
      readonly payload: Payload;
      readonly receive: number;
    }
  /** The message is no longer needed: repost the receive. */
  | { readonly type: 'repost'; readonly receive: number }
  /** The call's memory is free; end any registration for reading first. */
  | { readonly type: 'release'; readonly call: number }
  /** End the connection. */
  | { readonly type: 'disconnect'; readonly text: string };

/** Counters of a responder. */
export class ResponderCounters {
  calls = 0;
  /** RDMA_ERRORs sent. */
  errors = 0;
  /** Messages that were not a call. */
  discarded = 0;
  pulledBytes = 0;
  pushedBytes = 0;
}
