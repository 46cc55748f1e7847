/** The message of a call whose memory is open to the peer: its chunk lists and header. */
import type { CallPlan } from './call-plan.ts';
import { segmentsOf } from './chunks.ts';
import type { ExposedRegion } from './requester-types.ts';
import type { MessageHeader, PaddedHeader, ReadSegment, WriteChunk } from './transport-header.ts';

/** Memory opened to the peer for a reply. */
export interface Exposed {
  readonly writeList: readonly WriteChunk[];
  readonly replyChunk: WriteChunk | undefined;
  /** Memory of each write chunk and of the reply chunk. */
  readonly results: readonly (Uint8Array | undefined)[];
  readonly reply: Uint8Array | undefined;
}

/** A call about to be sent. */
interface ReadyCall {
  readonly xid: number;
  readonly credits: number;
  readonly plan: CallPlan;
  /** The regions of the plan, in its order. */
  readonly memory: readonly ExposedRegion[];
  readonly segmentBytesMax: number;
}

const NO_SEGMENTS: readonly ReadSegment[] = [];
const NO_CHUNKS: readonly WriteChunk[] = [];
const NOTHING_EXPOSED: Exposed = {
  writeList: [],
  replyChunk: undefined,
  results: [],
  reply: undefined,
};

export function callMessage({ xid, credits, plan, memory, segmentBytesMax }: ReadyCall): {
  readonly header: MessageHeader | PaddedHeader;
  readonly exposed: Exposed;
} {
  if (plan.type === 'msg' && plan.regions.length === 0) {
    const header: MessageHeader = {
      type: 'msg',
      xid,
      credits,
      readList: NO_SEGMENTS,
      writeList: NO_CHUNKS,
      replyChunk: undefined,
    };
    return { header, exposed: NOTHING_EXPOSED };
  }
  const readList: ReadSegment[] = [];
  const writeList: WriteChunk[] = [];
  const results: (Uint8Array | undefined)[] = [];
  let replyChunk: WriteChunk | undefined;
  let reply: Uint8Array | undefined;
  // RPCR2-3.5.3-02 Segments of the call itself have position 0.
  const positions = plan.moved.map((item) => item.position);
  if (plan.type === 'nomsg') positions.unshift(0);
  for (const [i, region] of plan.regions.entries()) {
    const place = memory[i];
    if (place === undefined) throw new RangeError('memory for fewer regions than asked for');
    const { handle, offset, bytes } = place;
    const segments = segmentsOf({ handle, lengthBytes: bytes.length, offset }, segmentBytesMax);
    if (region.kind === 'source') {
      const position = positions.shift() ?? 0;
      for (const segment of segments) readList.push({ position, ...segment });
    } else if (region.kind === 'result') {
      writeList.push(segments);
      results.push(segments.length === 0 ? undefined : bytes);
    } else {
      replyChunk = segments;
      reply = bytes;
    }
  }
  const lists = { readList, writeList, replyChunk };
  const words = { xid, credits };
  const header: MessageHeader | PaddedHeader =
    plan.padding !== undefined
      ? { type: 'msgp', ...words, ...plan.padding, ...lists }
      : { type: plan.type === 'nomsg' ? 'nomsg' : 'msg', ...words, ...lists };
  const exposed =
    plan.regions.length === 0 ? NOTHING_EXPOSED : { writeList, replyChunk, results, reply };
  return { header, exposed };
}
