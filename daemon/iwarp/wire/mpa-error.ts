/**
 * The errors that MPA itself detects (RFC 5044 §8, RFC 6581 §8): shared frozen values, so reporting
 * one allocates nothing. Numbers and texts come from `terminate.ts`.
 */
import { ProtocolError } from './protocol-error.ts';

/** Every MPA error: layer 2, error type 0, codes 1 to 7. */
export const MPA_ERRORS = {
  /** MPA-8-02: closed, terminated or lost, by RST, FIN, timeout or too many retries. */
  connectionLost: new ProtocolError('mpaConnectionLost'),
  /** MPA-8-03 */
  crc: new ProtocolError('mpaCrc'),
  /** MPA-8-04 */
  markerMismatch: new ProtocolError('mpaMarker'),
  /** MPA-8-06 */
  invalidStartupFrame: new ProtocolError('mpaInvalidFrame'),
  /** EMPA-8-01, EMPA-8-02: these three go in an initiator's first FPDU. */
  localCatastrophic: new ProtocolError('mpaLocalCatastrophic'),
  insufficientIrd: new ProtocolError('mpaInsufficientIrd'),
  noMatchingRtr: new ProtocolError('mpaNoMatchingRtr'),
} as const;
