/**
 * Times of connection management. Most are exponents of 4.096 µs (IBTA 12.7). Times that a peer asks for are
 * bounded here.
 */
import type { Micros } from '#base/time';

/** Our time to answer a message, and the peer's: 4.3 s, the value of rdma_cm. */
export const RESPONSE_TIMEOUT = 20;
/** How often a message is repeated; the value of rdma_cm. */
export const CM_RETRIES = 15;
/** Time that an MRA asks for while a program has not answered: 69 s, the value of rdma_cm. */
export const SERVICE_TIMEOUT = 24;
/** Our time to acknowledge a packet: 134 ms, the value of rxe. */
export const ACK_DELAY = 15;

/**
 * Bounds for times that a peer asks for: at least 0.27 s, to prevent a burst of resends, and at most 69 s.
 */
const EXPONENT_MIN = 16;
const EXPONENT_MAX = 24;
/**
 * The longest ACK timeout that a peer may give our queue pair. With 7 retries, a lost peer is noticed after
 * 137 s, as on iWARP. Peers with rdma_cm ask for 19 or 20.
 */
export const PEER_ACK_TIMEOUT_MAX = 22;
/** Timewait: at least rxe's default. */
const TIMEWAIT_MAX = 24;
const ACK_TIMEOUT_MAX = 31;
const UNIT_MICROS = 4.096;

export function exponentMicros(exponent: number): Micros {
  return UNIT_MICROS * 2 ** exponent;
}

/**
 * Limit from the first REP to the RTU: 69 s, the 16 times 4.3 s that peers with rdma_cm ask for. One MRA asks
 * for as much, and TCP allows a SYN about as much. A request costs its sender one datagram, which may be
 * forged, and occupies a queue pair of the program.
 */
export const CONFIRM_MAX_MICROS: Micros = exponentMicros(24);
/**
 * The longest resend interval after an MRA: 34 s, half of what rdma_cm asks for. A lost REJ is sent again
 * only in answer to a repeated request, and is kept for a limited time. A request is given up after 16
 * intervals, 9 minutes.
 */
export const MRA_MAX_MICROS: Micros = exponentMicros(23);
/** Pause between two DREQs that probe a stale connection: the peer's time to answer. */
export const PROBE_PAUSE_MICROS: Micros = exponentMicros(RESPONSE_TIMEOUT);

/** The time of a peer's exponent, within bounds. */
export function boundedMicros(exponent: number): Micros {
  return exponentMicros(Math.min(Math.max(exponent, EXPONENT_MIN), EXPONENT_MAX));
}

/** How long packets of a connection with this timeout may be in flight. */
export function timewaitMicros(ackTimeout: number): Micros {
  return exponentMicros(Math.min(ackTimeout, TIMEWAIT_MAX));
}

/** Resend interval: the peer's time to answer, plus a round trip. */
export function resendMicros(responseTimeout: number, packetLifeTime: number): Micros {
  return exponentMicros(responseTimeout) + 2 * exponentMicros(packetLifeTime);
}

/**
 * ACK timeout of a queue pair whose peer takes `ackDelay` to answer: the exponent of `ackDelay` plus twice
 * the packet life time, rounded as the kernel does.
 */
export function ackTimeout(ackDelay: number, packetLifeTime: number): number {
  const bothWays = packetLifeTime + 1;
  const larger = Math.max(bothWays, ackDelay);
  const smaller = Math.min(bothWays, ackDelay);
  return Math.min(larger + (smaller >= larger - 1 ? 1 : 0), ACK_TIMEOUT_MAX);
}

/** The packet life time from which a peer computed its timeout, or that a program's timeout wants. */
export function lifeTimeOf(timeout: number): number {
  return Math.max(timeout - 1, 0);
}
