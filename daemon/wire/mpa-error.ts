/**
 * The errors that MPA itself finds (RFC 5044 §8, RFC 6581 §8): shared frozen values, so that
 * reporting one allocates nothing. Numbers and texts are those of `terminate.ts`.
 */
import { ProtocolError } from './protocol-error.ts';

/** Every MPA error: layer 2, error type 0, codes 1 to 7. */
export const MPA_ERRORS = {
  /** MPA-8-02: closed, terminated or lost, by RST, FIN, timeout or retries. */
  connectionLost: new ProtocolError('mpaConnectionLost'),
  /** MPA-8-03 */
  crc: new ProtocolError('mpaCrc'),
  /** MPA-8-04 */
  markerMismatch: new ProtocolError('mpaMarker'),
  /** MPA-8-06 */
  invalidStartupFrame: new ProtocolError('mpaInvalidFrame'),
  /** EMPA-8-01, EMPA-8-02: these three as the first FPDU of an initiator. */
  localCatastrophic: new ProtocolError('mpaLocalCatastrophic'),
  insufficientIrd: new ProtocolError('mpaInsufficientIrd'),
  noMatchingRtr: new ProtocolError('mpaNoMatchingRtr'),
} as const;
