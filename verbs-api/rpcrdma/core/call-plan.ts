/**
 * How a call travels: what goes inline, what as read chunks, and what memory its reply needs (RFC
 * 8166 §3.5, §4.3).
 */
import type { InlineThresholds } from './private-data.ts';
import type { CallRequest, Region } from './requester-types.ts';
import { HEADER_MIN_BYTES } from './transport-header.ts';
import { type OpaquePadding, roundup } from './xdr-reader.ts';
import type { BulkItem, Payload } from './xdr-writer.ts';

/** The plan for one call; its memory is requested next. */
export interface CallPlan {
  readonly type: 'msg' | 'nomsg' | 'msgp';
  /** Sources first, in the order of the read list. */
  readonly regions: readonly Region[];
  /** The message to send; its stream is empty for a long call. */
  readonly payload: Payload;
  /** Items that travel as read chunks. */
  readonly moved: readonly BulkItem[];
  readonly padding: OpaquePadding | undefined;
}

type SinkRegion = Region & { readonly lengthBytes: number };

const NO_ITEMS: readonly BulkItem[] = [];
const NO_SINKS: readonly SinkRegion[] = [];
const NOTHING: Payload = { stream: new Uint8Array(0), items: NO_ITEMS, lengthBytes: 0 };

/** Bytes of a segment in a write or reply chunk, and in a read list. */
const WRITE_SEGMENT_BYTES = 16;
const READ_SEGMENT_BYTES = 24;

/** RPCR2-3.5.3-01 Inline if it fits, else with chunks, else as a long call. */
export function planCall(
  request: CallRequest,
  thresholds: InlineThresholds,
  segmentBytesMax: number,
): CallPlan {
  if (isSmall(request, thresholds)) {
    const { payload } = request;
    return { type: 'msg', regions: NO_SINKS, moved: NO_ITEMS, payload, padding: undefined };
  }
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
  // An empty item has no bytes to move.
  const moved = payload.items.filter((item) => item.bytes.length > 0);
  let reducedBytes = headerBytes + payload.stream.length;
  const regions: Region[] = [];
  for (const item of moved) {
    reducedBytes += segmentCount(item.bytes.length) * READ_SEGMENT_BYTES;
    regions.push({ kind: 'source', bytes: item.bytes });
  }
  regions.push(...sinks);
  if (reducedBytes <= thresholds.callBytes) {
    const { stream } = payload;
    const reduced = { stream, items: NO_ITEMS, lengthBytes: stream.length };
    return { type: 'msg', regions, moved, payload: reduced, padding: undefined };
  }
  // RPCR2-3.5.3-04 The stream unchanged, including the roundup of items that remain in it.
  regions.unshift({ kind: 'source', bytes: payload.stream });
  return { type: 'nomsg', regions, moved, payload: NOTHING, padding: undefined };
}

/** Whether call and largest reply fit inline as they are: most calls do. */
function isSmall(request: CallRequest, { callBytes, replyBytes }: InlineThresholds): boolean {
  if (request.resultBytes.length > 0 || request.padded !== undefined) return false;
  const { lengthBytes } = request.payload;
  const replyMaxBytes = HEADER_MIN_BYTES + request.replyMaxBytes;
  return HEADER_MIN_BYTES + lengthBytes <= callBytes && replyMaxBytes <= replyBytes;
}

/** Memory for the parts of the largest reply that exceed the threshold. */
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
  // RPCR2-4.3.3-01 A reply chunk only if the largest reply would not fit inline.
  if (reducedBytes > replyBytes) {
    regions.push({ kind: 'reply', lengthBytes: roundup(request.replyMaxBytes) });
  }
  return regions;
}
