/** Length limits of DDP segments on an SCTP path (RFC 5043 §9). */
import type { FpduSizePolicy } from '../engine/stream-api.ts';
import { MULPDU_MIN_BYTES } from '../wire/fpdu.ts';
import { SSN_BYTES } from './session-message.ts';

/** Room for a SACK beside the message in its packet (SCTP-9-03). */
const SACK_BYTES = 16;
/** Minimum on any path: a control message with 512 bytes of data needs it, too. */
const SEGMENT_MAX_FLOOR_BYTES = 516;
/** Maximum: peers of our kind assemble messages of up to 65,537 bytes. */
const SEGMENT_CEILING_BYTES = 65_535;

// SCTP-9-01
/** The longest segment that SCTP need not fragment, for messages of at most `messageMaxBytes`. */
export function segmentMaxBytes(messageMaxBytes: number): number {
  const bytes = messageMaxBytes - SSN_BYTES - SACK_BYTES;
  return Math.min(Math.max(bytes, SEGMENT_MAX_FLOOR_BYTES), SEGMENT_CEILING_BYTES);
}

// SCTP-9-02: no policy goes beyond the path.
/** The longest segment that DDP should post. */
export function segmentBytes(policy: FpduSizePolicy, messageMaxBytes: number): number {
  const most = segmentMaxBytes(messageMaxBytes);
  if (policy.kind !== 'fixed') return most;
  return Math.min(Math.max(policy.mulpduBytes, MULPDU_MIN_BYTES), most);
}
