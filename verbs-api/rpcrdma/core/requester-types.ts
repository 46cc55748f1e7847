/** Inputs and outputs of a requester: see `requester.ts`. */
import type { ReadChunk } from './chunks.ts';
import type { TransportHeader } from './transport-header.ts';
import type { BulkSource, OpaquePadding } from './xdr-reader.ts';
import type { Payload } from './xdr-writer.ts';

/** Options of a requester. */
export interface RequesterOptions {
  /** Credits to request, at least 1: the number of receives posted for replies. Default 32. */
  readonly credits?: number;
  /** Maximum bytes per segment; larger memory is split into several. Default: no limit. */
  readonly segmentBytesMax?: number;
  /** How often a call is sent at most, each time on a new connection. Default 3. */
  readonly sendsMax?: number;
  /** Consecutive failed connection attempts before waiting calls fail. Default 5. */
  readonly connectsMax?: number;
  /** Delay before the second attempt, doubled each time. Default 100. */
  readonly reconnectDelayMs?: number;
  /**
   * Accepts replies with a read list, pulls them and sends RDMA_DONE, as in RFC 5666. Default
   * false: RFC 8166 has no such replies.
   */
  readonly readListReplies?: boolean;
}

/** A call to make. */
export interface CallRequest {
  /** The RPC message; must not change until the call completes. */
  readonly payload: Payload;
  /** Maximum bytes of each result that may arrive in a write chunk. */
  readonly resultBytes: readonly number[];
  /** Bytes of the largest reply, including the RPC header, excluding these results. */
  readonly replyMaxBytes: number;
  /** May be executed twice. */
  readonly idempotent: boolean;
  readonly deadlineMs: number;
  /** The same message with the server's preferred padding: sent as RDMA_MSGP if it fits. */
  readonly padded?: { readonly padding: OpaquePadding; readonly payload: Payload } | undefined;
}

/** Memory that the peer accesses for a call. */
export type Region =
  /** Read by the peer: an item of the arguments, or the call itself. */
  | { readonly kind: 'source'; readonly bytes: Uint8Array }
  /** Written by the peer: the `result`th bulk result. */
  | { readonly kind: 'result'; readonly result: number; readonly lengthBytes: number }
  /** Written by the peer: the reply. */
  | { readonly kind: 'reply'; readonly lengthBytes: number };

/** A region in registered memory. */
export interface ExposedRegion {
  readonly handle: number;
  readonly offset: bigint;
  /** The memory itself, of the region's length. */
  readonly bytes: Uint8Array;
}

/** Why a call got no reply. */
export type CallFailure =
  | 'ERR_VERS'
  | 'ERR_CHUNK'
  | 'badReply'
  | 'unfit'
  | 'timeout'
  | 'connectionLost'
  | 'closed'
  | 'aborted';

/** How a call ended. */
export type CallOutcome =
  | {
      readonly type: 'reply';
      /** The reply, starting at the XID: a view of the message or of a region. */
      readonly bytes: Uint8Array;
      /** The results that are not in `bytes`. */
      readonly bulk: BulkSource;
      readonly padding: OpaquePadding | undefined;
    }
  | {
      readonly type: 'failure';
      readonly failure: CallFailure;
      readonly text: string;
      /** The server may have executed the call. */
      readonly outcomeUnknown: boolean;
    };

/** Actions for the caller of a requester. */
export type RequesterEffect =
  /** Register these; then call `exposed` or `exposeFailed`. */
  | { readonly type: 'expose'; readonly xid: number; readonly regions: readonly Region[] }
  /** Send the header followed by the message: `emitPayload` assembles it. */
  | {
      readonly type: 'transmit';
      readonly xid: number;
      readonly header: TransportHeader;
      /** The inline part; items that travel as chunks are not in it. */
      readonly payload: Payload;
    }
  /** RDMA Read these chunks of the peer; then call `pulled`, or end the connection. */
  | { readonly type: 'pull'; readonly xid: number; readonly chunks: readonly ReadChunk[] }
  /** End the peer's access to the call's regions; then call `withdrawn` or `withdrawFailed`. */
  | { readonly type: 'withdraw'; readonly xid: number }
  | { readonly type: 'complete'; readonly xid: number; readonly outcome: CallOutcome }
  /** End the connection; then call `disconnected`. */
  | { readonly type: 'disconnect'; readonly text: string }
  /** Connect; then call `connected` or `disconnected`. */
  | { readonly type: 'connect' };

/** Counters of a requester. */
export class RequesterCounters {
  /** Calls sent, including retries. */
  sent = 0;
  /** Replies received. */
  replies = 0;
  /** Messages that were not a reply to a call. */
  discarded = 0;
  /** Regions opened to the peer. */
  exposed = 0;
  /** Connections made. */
  connections = 0;
}
