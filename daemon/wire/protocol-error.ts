/**
 * The peer broke a rule of a protocol. A value, not an exception: it has no stack, is frozen, and
 * says what a Terminate message would say about it (RFC 5040 §4.8, RFC 5044 §8).
 */
export class ProtocolError {
  /** 0 RDMAP, 1 DDP, 2 LLP. */
  readonly layer: number;
  /** Error type, 4 bits. */
  readonly etype: number;
  /** Error code, 8 bits. */
  readonly code: number;
  /** What happened, for people. */
  readonly text: string;

  constructor(layer: number, etype: number, code: number, text: string) {
    this.layer = layer;
    this.etype = etype;
    this.code = code;
    this.text = text;
    Object.freeze(this);
  }
}
