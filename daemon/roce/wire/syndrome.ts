/**
 * The syndrome of an ACK extended header, and the times that queue pairs have codes for.
 *
 * ```
 *  7   6 5     4 3 2 1 0
 *  0   0 0     credit count      ACK: receive credits, or 31 for "not counted"
 *  0   0 1     timer             RNR NAK: how long the requester waits
 *  0   1 0     -                 reserved
 *  0   1 1     code              NAK
 * ```
 *
 * A responder writes `ACK_WITHOUT_CREDITS`, `nakSyndrome` and `rnrSyndrome`. A requester reads `syndromeKind`
 * and `syndromeValue`, and waits for `ackTimeoutMicros` or `rnrTimerMicros`.
 *
 * Specification: IBTA 9.7.5.1.1 (acknowledge header), 9.7.5.2.8 (RNR NAK, table 45), 9.9.2 (requester's
 * timeout).
 */

/** Kind of a syndrome, in its upper three bits. */
export const SyndromeKind = { ack: 0x00, rnrNak: 0x20, nak: 0x60 } as const;

const KIND_MASK = 0xe0;
const VALUE_MASK = 0x1f;

/** An ACK without end-to-end credits, for responders that have an SRQ or do not count. */
export const ACK_WITHOUT_CREDITS = SyndromeKind.ack | VALUE_MASK;

/** Codes of a NAK (IBTA table 46). Larger ones are reserved. */
export const NakCode = {
  psnSequence: 0,
  invalidRequest: 1,
  remoteAccess: 2,
  remoteOperation: 3,
  invalidRdRequest: 4,
} as const;
export type NakCode = (typeof NakCode)[keyof typeof NakCode];

/** `SyndromeKind` of a syndrome, or its reserved bits. */
export function syndromeKind(syndrome: number): number {
  return syndrome & KIND_MASK;
}

/** Credits of an ACK, timer code of an RNR NAK, `NakCode` of a NAK. */
export function syndromeValue(syndrome: number): number {
  return syndrome & VALUE_MASK;
}

export function nakSyndrome(code: NakCode): number {
  return SyndromeKind.nak | code;
}

/** The syndrome of an RNR NAK with this timer code (0 to 31). */
export function rnrSyndrome(timer: number): number {
  return SyndromeKind.rnrNak | (timer & VALUE_MASK);
}

/** True for syndromes that a responder may send: no reserved kind and no reserved NAK code. */
export function isSyndrome(syndrome: number): boolean {
  const kind = syndrome & KIND_MASK;
  if (kind === SyndromeKind.nak) return (syndrome & VALUE_MASK) <= NakCode.invalidRdRequest;
  return kind === SyndromeKind.ack || kind === SyndromeKind.rnrNak;
}

/** Waiting times by RNR timer code, in microseconds. Code 0 is the longest. */
const RNR_MICROS: readonly number[] = [
  655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
  5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760,
  327_680, 491_520,
];

/** How long a requester waits after an RNR NAK with this timer code (5 bits count). */
export function rnrTimerMicros(timer: number): number {
  return RNR_MICROS[timer & VALUE_MASK] ?? 0;
}

/** The unit of timeout codes. By the formula, code 0 is one unit, but it means "never". */
const TIMEOUT_UNIT_MICROS = 4.096;

/** ACK timeout of a requester: 4.096 µs times 2 to the power of `timeout` (5 bits count). Infinity for 0. */
export function ackTimeoutMicros(timeout: number): number {
  const code = timeout & VALUE_MASK;
  return code === 0 ? Number.POSITIVE_INFINITY : TIMEOUT_UNIT_MICROS * 2 ** code;
}
