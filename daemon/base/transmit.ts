/** The records in which a stream and the connection that carries it exchange bytes. */

const NO_BYTES = new Uint8Array(0);

/** Passed with received bytes. Borrowed for the call, like the bytes. */
export interface Delivery {
  /** Payload protocol of an SCTP message; 0 on TCP. */
  readonly payloadProtocol: number;
  /** The bytes cannot have changed on the way: checksums may be missing, and are not checked. */
  readonly unsealed: boolean;
}

/** The properties of bytes from TCP. */
export const PLAIN: Delivery = { payloadProtocol: 0, unsealed: false };

/** Bytes to send. Its owner reuses the record: it is valid until the next poll. */
export interface Transmit {
  /** Valid until flushed. */
  bytes: Uint8Array;
  /** Payload protocol of an SCTP message; 0 on TCP. */
  payloadProtocol: number;
  /** Another message follows at once, so this one may wait to share a packet with it. */
  followed: boolean;
  /** Checksums may be missing; a link that fills them in clears this. */
  unsealed: boolean;
}

export function transmitOf(bytes: Uint8Array = NO_BYTES, payloadProtocol = 0): Transmit {
  return { bytes, payloadProtocol, followed: false, unsealed: false };
}
