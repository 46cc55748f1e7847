/** The records in which a stream and the connection that carries it exchange bytes. */

const NO_BYTES = new Uint8Array(0);

/** Payload that stays in the sender's memory: parts of some output stand for it until they are delivered. */
export interface LentBytes {
  /** The output may not be delivered yet: what was sent before is still being copied. */
  readonly waits: boolean;
  /** Some payload is gone: the output may never be delivered. */
  readonly failed: boolean;
  /** Fetches all payload into the output, where it is needed now. */
  recall(): void;
  /** Calls back, once, when `waits` has become false. */
  whenCopied(run: () => void): void;
}

/** Passed with received bytes. Borrowed for the call, like the bytes. */
export interface Delivery {
  /** Payload protocol of an SCTP message; 0 on TCP. */
  readonly payloadProtocol: number;
  /** The bytes cannot have changed on the way: checksums may be missing, and are not checked. */
  readonly unsealed: boolean;
  /** Parts of the bytes may stand for this. */
  readonly lent: LentBytes | undefined;
}

/** The properties of bytes from TCP. */
export const PLAIN: Delivery = { payloadProtocol: 0, unsealed: false, lent: undefined };

/** Bytes to send. Its owner reuses the record: it is valid until the next poll of any stream. */
export interface Transmit {
  /** Valid until flushed. */
  bytes: Uint8Array;
  /** Payload protocol of an SCTP message; 0 on TCP. */
  payloadProtocol: number;
  /** Another message follows at once, so this one may wait to share a packet with it. */
  followed: boolean;
  /** Checksums may be missing; a link that fills them in clears this. */
  unsealed: boolean;
  /** Parts of the bytes may stand for this. Only a link that lends accepts such bytes. */
  lent: LentBytes | undefined;
}

export function transmitOf(bytes: Uint8Array = NO_BYTES, payloadProtocol = 0): Transmit {
  return { bytes, payloadProtocol, followed: false, unsealed: false, lent: undefined };
}
