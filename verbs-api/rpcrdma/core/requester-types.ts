/** What goes into a requester and what comes out of it: see `requester.ts`. */
import type { ReadChunk } from './chunks.ts';
import type { TransportHeader } from './transport-header.ts';
import type { BulkSource, OpaquePadding } from './xdr-reader.ts';
import type { Payload } from './xdr-writer.ts';

/** Options of a requester. */
export interface RequesterOptions {
  /** Credits to ask for, at least 1: how many receives are posted for replies. Default 32. */
  readonly credits?: number;
  /** Octets of a segment at most; larger memory is told in several. Default: no bound. */
  readonly segmentBytesMax?: number;
  /** How often a call is sent at most, each time over a new connection. Default 3. */
  readonly sendsMax?: number;
  /** Connections tried in vain, one after the other, before waiting calls fail. Default 5. */
  readonly connectsMax?: number;
  /** Wait before the second of them, doubled each time. Default 100. */
  readonly reconnectDelayMs?: number;
  /**
   * Takes replies with a read list, pulls them and sends RDMA_DONE, as RFC 5666 has it. Default
   * false: RFC 8166, which knows no such replies.
   */
  readonly readListReplies?: boolean;
}

/** A call to make. */
export interface CallRequest {
  /** The RPC message; it stays as it is until the call completes. */
  readonly payload: Payload;
  /** Octets of each result that may come in a write chunk, at most. */
  readonly resultBytes: readonly number[];
  /** Octets of the largest reply, RPC header included, without the octets of these results. */
  readonly replyMaxBytes: number;
  /** May be carried out twice. */
  readonly idempotent: boolean;
  readonly deadlineMs: number;
  /** The same message with the padding that the server asked for: goes as RDMA_MSGP if it fits. */
  readonly padded?: { readonly padding: OpaquePadding; readonly payload: Payload };
}

/** Memory that the peer needs for a call. */
export type Region =
  /** To read from: an item of the arguments, or the call itself. */
  | { readonly kind: 'source'; readonly octets: Uint8Array }
  /** To write the `result`th bulk result to. */
  | { readonly kind: 'result'; readonly result: number; readonly lengthBytes: number }
  /** To write the reply to. */
  | { readonly kind: 'reply'; readonly lengthBytes: number };

/** A region in registered memory. */
export interface ExposedRegion {
  readonly handle: number;
  readonly offset: bigint;
  /** The memory itself, of the region's length. */
  readonly octets: Uint8Array;
}

/** Why a call has no reply. */
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
      /** The reply, XID first: a view of the message or of a region. */
      readonly octets: Uint8Array;
      /** The results that are not in it. */
      readonly bulk: BulkSource;
      readonly padding: OpaquePadding | undefined;
    }
  | {
      readonly type: 'failure';
      readonly failure: CallFailure;
      readonly text: string;
      /** The server may have carried it out. */
      readonly outcomeUnknown: boolean;
    };

/** What the caller of a requester has to do. */
export type RequesterEffect =
  /** Register these; then `exposed` or `exposeFailed`. */
  | { readonly type: 'expose'; readonly xid: number; readonly regions: readonly Region[] }
  /** Send the header and, behind it, the message: `emitPayload` puts it together. */
  | {
      readonly type: 'transmit';
      readonly xid: number;
      readonly header: TransportHeader;
      /** What goes inline; items that travel as chunks are not in it. */
      readonly payload: Payload;
    }
  /** RDMA Read these chunks of the peer; then `pulled` or the end of the connection. */
  | { readonly type: 'pull'; readonly xid: number; readonly chunks: readonly ReadChunk[] }
  /** End the peer's access to the call's regions; then `withdrawn` or `withdrawFailed`. */
  | { readonly type: 'withdraw'; readonly xid: number }
  | { readonly type: 'complete'; readonly xid: number; readonly outcome: CallOutcome }
  /** End the connection; then `disconnected`. */
  | { readonly type: 'disconnect'; readonly text: string }
  /** Make a connection; then `connected` or `disconnected`. */
  | { readonly type: 'connect' };

/** What a requester counted. */
export interface RequesterCounters {
  /** Calls sent, again ones included. */
  sent: number;
  replies: number;
  /** Messages that were no reply to a call. */
  discarded: number;
  /** Regions that the peer was let into. */
  exposed: number;
  connections: number;
}
