/**
 * MULPDU: the largest ULPDU that DDP should post (RFC 5044 §3, §4.5, §5.1).
 *
 * This value is for the next full segment; `FpduSender.ulpduRoomBytes` lowers it for FPDUs that are
 * packed already.
 */
import { MULPDU_MIN_BYTES, ULPDU_SEND_MAX_BYTES } from '../wire/fpdu.ts';
import { MARKER_BYTES, MARKER_INTERVAL_BYTES } from '../wire/marker.ts';
import type { FpduSizePolicy } from './stream-api.ts';

/** Length field and CRC. */
const FPDU_OVERHEAD_BYTES = 6;

// MPA-3-02: a function of everything that can change, so calling it again follows a change.
/**
 * MULPDU in bytes, 128..64768. `emssBytes` is TCP's current effective maximum segment size.
 * `markers` is true when we send them, which the peer decides (MPA-4.5-04).
 */
export function mulpduBytes(policy: FpduSizePolicy, emssBytes: number, markers: boolean): number {
  if (policy.kind === 'large') return ULPDU_SEND_MAX_BYTES;
  if (policy.kind === 'fixed') return clampMulpdu(policy.mulpduBytes);
  // MPA-4.5-01, MPA-4.5-02, MPA-5.1-01
  const markerBytes = markers ? MARKER_BYTES * Math.ceil(emssBytes / MARKER_INTERVAL_BYTES) : 0;
  return clampMulpdu(emssBytes - (FPDU_OVERHEAD_BYTES + markerBytes + (emssBytes % 4)));
}

// MPA-3-03, MPA-4.5-03, MPA-4.5-06: within these bounds for any segment size.
function clampMulpdu(bytes: number): number {
  return Math.min(Math.max(bytes, MULPDU_MIN_BYTES), ULPDU_SEND_MAX_BYTES);
}
