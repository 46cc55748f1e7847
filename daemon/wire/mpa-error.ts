/**
 * The MPA errors: layer 2, error type 0, and the codes of RFC 5044 §8, RFC 6581 §8 and the IANA
 * registry "MPA Errors" (RFC 6580 §3.3). All other values of layer 2 are unassigned.
 */
import { ProtocolError } from './protocol-error.ts';

/** Layer number of the LLP, which MPA is (RFC 5040 §4.8). */
export const LAYER_LLP = 2;
/** The one error type of MPA. */
export const ETYPE_MPA = 0;

// IANA-3.3-01: these seven and no other code exist at layer 2, so they are made here and only here.
// EMPA-8-01, EMPA-8-02: the codes 5 to 7 are those of enhanced connection establishment.
/** Every MPA error, one shared frozen value each, so that reporting one allocates nothing. */
export const MPA_ERRORS = {
  /** MPA-8-02: closed, terminated or lost, by RST, FIN, timeout or retries. */
  connectionLost: new ProtocolError('mpaConnectionLost'),
  /** MPA-8-03 */
  crc: new ProtocolError('mpaCrc'),
  /** MPA-8-04 */
  markerMismatch: new ProtocolError('mpaMarker'),
  /** MPA-8-06 */
  invalidStartupFrame: new ProtocolError('mpaInvalidFrame'),
  localCatastrophic: new ProtocolError('mpaLocalCatastrophic'),
  insufficientIrd: new ProtocolError('mpaInsufficientIrd'),
  noMatchingRtr: new ProtocolError('mpaNoMatchingRtr'),
} as const;
