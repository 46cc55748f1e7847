/**
 * MULPDU: the largest ULPDU that DDP should post (RFC 5044 §3, §4.5, §5.1).
 *
 * The value here is for the next full segment; `FpduSender.ulpduRoomBytes` lowers it for FPDUs that
 * are packed already.
 */
import { MULPDU_MIN_BYTES, ULPDU_SEND_MAX_BYTES } from '../wire/fpdu.ts';
import { MARKER_BYTES, MARKER_INTERVAL_BYTES } from '../wire/marker.ts';
import type { FpduSizePolicy } from './stream-api.ts';

/** Length field and CRC. */
const FPDU_OVERHEAD_BYTES = 6;

// MPA-3-02: a function of what can change, so that asking again is enough to follow a change.
/**
 * MULPDU in octets, 128..64768. `emssBytes` is TCP's effective maximum segment size now;
 * `markers` says whether we send them, which is the peer's wish and not ours (MPA-4.5-04).
 */
export function mulpduBytes(policy: FpduSizePolicy, emssBytes: number, markers: boolean): number {
  if (policy.kind === 'large') return ULPDU_SEND_MAX_BYTES;
  if (policy.kind === 'fixed') return clampMulpdu(policy.mulpduBytes);
  // MPA-4.5-01, MPA-4.5-02, MPA-5.1-01
  const markerBytes = markers ? MARKER_BYTES * Math.ceil(emssBytes / MARKER_INTERVAL_BYTES) : 0;
  return clampMulpdu(emssBytes - (FPDU_OVERHEAD_BYTES + markerBytes + (emssBytes % 4)));
}

// MPA-3-03, MPA-4.5-03, MPA-4.5-06: however small or large the segment, never outside these.
function clampMulpdu(bytes: number): number {
  return Math.min(Math.max(bytes, MULPDU_MIN_BYTES), ULPDU_SEND_MAX_BYTES);
}
