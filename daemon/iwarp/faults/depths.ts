/** IRD and ORD in startup frames: where they are, and how a fault lowers them. */
import { readUint8, readUint32, writeUint32 } from '#base/checked-bytes';
import { ENHANCED_BYTES } from '../wire/enhanced-word.ts';
import { STARTUP_HEADER_BYTES } from '../wire/startup-frame.ts';

const FLAGS_AT = 16;
const REVISION_AT = 17;
const FLAG_S = 0x10;
const DEPTH_MASK = 0x3fff;
const IRD_SHIFT = 16;

/** Offset of the depths in an MPA startup frame (RFC 6581 §9); undefined if it has none. */
export function depthsAt(frame: Uint8Array): number | undefined {
  if (frame.length < STARTUP_HEADER_BYTES + ENHANCED_BYTES) return undefined;
  const has = readUint8(frame, REVISION_AT) >= 2 && (readUint8(frame, FLAGS_AT) & FLAG_S) !== 0;
  return has ? STARTUP_HEADER_BYTES : undefined;
}

/** Lowers the depths at `at`, in place. */
export function lowerDepths(
  frame: Uint8Array,
  at: number,
  ird: number | undefined,
  ord: number | undefined,
): void {
  const word = readUint32(frame, at);
  const depths = { ird: (word >>> IRD_SHIFT) & DEPTH_MASK, ord: word & DEPTH_MASK };
  const lowered = {
    ird: Math.min(depths.ird, ird ?? DEPTH_MASK),
    ord: Math.min(depths.ord, ord ?? DEPTH_MASK),
  };
  const others = word & ~((DEPTH_MASK << IRD_SHIFT) | DEPTH_MASK);
  writeUint32(frame, at, (others | (lowered.ird << IRD_SHIFT) | lowered.ord) >>> 0);
}
