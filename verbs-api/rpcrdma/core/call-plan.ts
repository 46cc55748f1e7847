/**
 * How a call travels: what of it goes inline, what by read chunks, and what memory its reply needs
 * (RFC 8166 §3.5, §4.3).
 */
import type { InlineThresholds } from './private-data.ts';
import type { CallRequest, Region } from './requester-types.ts';
import { HEADER_MIN_BYTES } from './transport-header.ts';
import { type OpaquePadding, roundup } from './xdr-reader.ts';
import type { BulkItem, Payload } from './xdr-writer.ts';

/** The choice for one call; its memory is asked for next. */
export interface CallPlan {
  readonly type: 'msg' | 'nomsg' | 'msgp';
  /** Sources first, in the order of the read list. */
  readonly regions: readonly Region[];
  /** What is sent; its stream is empty for a long call. */
  readonly payload: Payload;
  /** Items that travel as read chunks. */
  readonly moved: readonly BulkItem[];
  readonly padding: OpaquePadding | undefined;
}

type SinkRegion = Region & { readonly lengthBytes: number };

const NO_ITEMS: readonly BulkItem[] = [];
const NO_SINKS: readonly SinkRegion[] = [];
const NOTHING: Payload = { stream: new Uint8Array(0), items: NO_ITEMS, lengthBytes: 0 };

/** Octets that a segment takes up in a write or reply chunk, and in a read list. */
const WRITE_SEGMENT_BYTES = 16;
const READ_SEGMENT_BYTES = 24;

/** RPCR2-3.5.3-01 Inline if it fits, else reduced, else as a long call. */
export function planCall(
  request: CallRequest,
  thresholds: InlineThresholds,
  segmentBytesMax: number,
): CallPlan {
  const segmentCount = (lengthBytes: number): number => Math.ceil(lengthBytes / segmentBytesMax);
  const sinks = replyRegions(request, thresholds.replyBytes, segmentCount);
  let headerBytes = HEADER_MIN_BYTES;
  for (const sink of sinks) {
    headerBytes += segmentCount(sink.lengthBytes) * WRITE_SEGMENT_BYTES;
    headerBytes += sink.kind === 'reply' ? 4 : 8;
  }
  const { payload, padded } = request;
  const inline = { regions: sinks, moved: NO_ITEMS };
  if (
    padded !== undefined &&
    headerBytes + 8 + padded.payload.lengthBytes <= thresholds.callBytes
  ) {
    return { type: 'msgp', ...inline, payload: padded.payload, padding: padded.padding };
  }
  if (headerBytes + payload.lengthBytes <= thresholds.callBytes) {
    return { type: 'msg', ...inline, payload, padding: undefined };
  }
  // An item of no octets has nothing outside of the stream.
  const moved = payload.items.filter((item) => item.octets.length > 0);
  let reducedBytes = headerBytes + payload.stream.length;
  const regions: Region[] = [];
  for (const item of moved) {
    reducedBytes += segmentCount(item.octets.length) * READ_SEGMENT_BYTES;
    regions.push({ kind: 'source', octets: item.octets });
  }
  regions.push(...sinks);
  if (reducedBytes <= thresholds.callBytes) {
    const { stream } = payload;
    const reduced = { stream, items: NO_ITEMS, lengthBytes: stream.length };
    return { type: 'msg', regions, moved, payload: reduced, padding: undefined };
  }
  // RPCR2-3.5.3-04 The stream as it is, with all roundup of what is still in it.
  regions.unshift({ kind: 'source', octets: payload.stream });
  return { type: 'nomsg', regions, moved, payload: NOTHING, padding: undefined };
}

/** Memory for what the largest reply has beyond the threshold. */
function replyRegions(
  request: CallRequest,
  replyBytes: number,
  segmentCount: (lengthBytes: number) => number,
): readonly SinkRegion[] {
  let allBytes = HEADER_MIN_BYTES + request.replyMaxBytes;
  for (const lengthBytes of request.resultBytes) allBytes += roundup(lengthBytes);
  if (allBytes <= replyBytes) return NO_SINKS;
  const regions: SinkRegion[] = [];
  let reducedBytes = HEADER_MIN_BYTES + request.replyMaxBytes;
  for (const [result, lengthBytes] of request.resultBytes.entries()) {
    regions.push({ kind: 'result', result, lengthBytes });
    reducedBytes += 8 + segmentCount(lengthBytes) * WRITE_SEGMENT_BYTES;
  }
  // RPCR2-4.3.3-01 A reply chunk exactly where the largest reply would not fit inline.
  if (reducedBytes > replyBytes) {
    regions.push({ kind: 'reply', lengthBytes: roundup(request.replyMaxBytes) });
  }
  return regions;
}
