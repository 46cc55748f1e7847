/**
 * `ProtocolError`: the peer broke a rule, or a layer below failed.
 *
 * It is a value, not an exception. Parsers and checks return it, only the first one of a stream
 * counts, and one place turns it into a Terminate, a failed queue pair and a flush (RFC 5040 §7.1).
 * It is built from the tables of `terminate.ts`, so it cannot carry a code that no RFC defines.
 */
import { TERMINATE_ERRORS, type TerminateErrorName, type TerminateLayer } from './terminate.ts';

/** A broken rule as data. Frozen. */
export class ProtocolError {
  /** Key into `TERMINATE_ERRORS`. */
  readonly name: TerminateErrorName;
  readonly layer: TerminateLayer;
  readonly etype: number;
  readonly code: number;
  /** One line: the RFC's words, then the actual value. */
  readonly text: string;
  /** False when this error forbids a Terminate (lost connection, failed startup). */
  readonly sendable: boolean;
  /** The known peer's quirk that explains the error, if any. */
  readonly quirk: string | undefined;

  /** `detail` describes the actual value in a few words. */
  constructor(name: TerminateErrorName, detail?: string, quirk?: string) {
    const entry = TERMINATE_ERRORS[name];
    this.name = name;
    this.layer = entry.layer;
    this.etype = entry.etype;
    this.code = entry.code;
    this.text = detail === undefined ? entry.text : `${entry.text}: ${detail}`;
    this.sendable = entry.sendable;
    this.quirk = quirk;
    Object.freeze(this);
  }
}

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
