/** Facts passed with bytes between a stream and the connection that carries them. */

const NO_BYTES = new Uint8Array(0);

/** Facts about received bytes, from their connection. Borrowed for the call, like the bytes. */
export interface Delivery {
  /** Payload protocol of an SCTP message; 0 on TCP. */
  readonly payloadProtocol: number;
  /** They came unchanged, and may lack checksums, which are not checked. */
  readonly unsealed: boolean;
}

/** Bytes of TCP. */
export const PLAIN: Delivery = { payloadProtocol: 0, unsealed: false };

/** Bytes to send. Its owner reuses the record: it is valid until the next poll. */
export interface Transmit {
  /** Valid until they are flushed. */
  bytes: Uint8Array;
  /** Payload protocol of an SCTP message; 0 on TCP. */
  payloadProtocol: number;
  /** Another message follows at once: this one may wait to share its packet. */
  followed: boolean;
  /** Checksums may be missing. A link that completes them says so here. */
  unsealed: boolean;
}

export function transmitOf(bytes: Uint8Array = NO_BYTES, payloadProtocol = 0): Transmit {
  return { bytes, payloadProtocol, followed: false, unsealed: false };
}
