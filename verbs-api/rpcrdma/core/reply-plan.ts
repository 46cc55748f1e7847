/** How a reply travels: in write chunks, inline, or in the reply chunk (RFC 8166 §3.5.3, §4.3). */
import { fillChunk, type SegmentWrite, unusedChunk } from './chunks.ts';
import {
  type ChunkLists,
  FIXED_BYTES,
  HEADER_MIN_BYTES,
  listsSizeBytes,
  type WriteChunk,
} from './transport-header.ts';
import { roundup } from './xdr-reader.ts';
import type { BulkItem, Payload } from './xdr-writer.ts';

/** Bytes to write to the peer's memory. */
interface Push {
  readonly bytes: Uint8Array | Payload;
  readonly lengthBytes: number;
  readonly writes: readonly SegmentWrite[];
}

interface ReplyPlan {
  readonly type: 'msg' | 'nomsg';
  readonly lists: ChunkLists;
  readonly pushes: readonly Push[];
  /** The inline part. */
  readonly payload: Payload;
}

const NO_LISTS: ChunkLists = { readList: [], writeList: [], replyChunk: undefined };
const NOTHING: Payload = { stream: new Uint8Array(0), items: [], lengthBytes: 0 };

/**
 * Lays out `payload` over the chunks that the call offered. Returns undefined if a write chunk is
 * too small or the rest does not fit.
 */
export function replyPlan(
  payload: Payload,
  offered: ChunkLists,
  replyBytes: number,
): ReplyPlan | undefined {
  const empty = payload.items.length === 0 && offered.writeList.length === 0;
  if (empty && offered.replyChunk === undefined) {
    const fits = HEADER_MIN_BYTES + payload.lengthBytes <= replyBytes;
    return fits ? { type: 'msg', lists: NO_LISTS, pushes: [], payload } : undefined;
  }
  const pushes: Push[] = [];
  const writeList: WriteChunk[] = [];
  const inline: BulkItem[] = [];
  let reducedBytes = payload.lengthBytes;
  for (const [i, item] of payload.items.entries()) {
    const chunk = offered.writeList[i];
    // RPCR2-4.3.2.3-01 A chunk without segments requests its result inline.
    if (chunk === undefined || chunk.length === 0) {
      if (chunk !== undefined) writeList.push(chunk);
      inline.push(item);
      continue;
    }
    // NFSR-5667.3-02 Never write past the end of a chunk.
    const filled = fillChunk(chunk, item.bytes.length);
    if (filled === undefined) return undefined;
    writeList.push(filled.returned);
    // RPCR2-3.4.6.2-01 Only the item, without roundup.
    const { writes } = filled;
    if (writes.length > 0) {
      pushes.push({ bytes: item.bytes, lengthBytes: item.bytes.length, writes });
    }
    reducedBytes -= roundup(item.bytes.length);
  }
  // RPCR2-4.3.2.2-01 Chunks without a result are returned with length 0.
  for (const chunk of offered.writeList.slice(payload.items.length)) {
    writeList.push(unusedChunk(chunk));
  }
  const reduced: Payload = { stream: payload.stream, items: inline, lengthBytes: reducedBytes };
  const lists: ChunkLists = {
    // RPCR2-4.3.1-01 The responder exposes no memory.
    readList: [],
    writeList,
    replyChunk: offered.replyChunk && unusedChunk(offered.replyChunk),
  };
  const headerBytes = FIXED_BYTES + listsSizeBytes(lists);
  if (headerBytes + reducedBytes <= replyBytes) {
    return { type: 'msg', lists, pushes, payload: reduced };
  }
  const filled = offered.replyChunk && fillChunk(offered.replyChunk, reducedBytes);
  if (filled === undefined || headerBytes > replyBytes) return undefined;
  pushes.push({ bytes: reduced, lengthBytes: reducedBytes, writes: filled.writes });
  return {
    type: 'nomsg',
    lists: { ...lists, replyChunk: filled.returned },
    pushes,
    payload: NOTHING,
  };
}
