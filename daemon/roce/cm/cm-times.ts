/**
 * Times of connection management. Most travel as exponents of 4.096 microseconds (IBTA 12.7); what a
 * peer asks for is bounded here.
 */
import type { Micros } from '../../rnic/wire-port.ts';

/** How long we may take to answer a message, and what we grant the peer: 4.3 s, as rdma_cm says. */
export const RESPONSE_TIMEOUT = 20;
/** How often a message is repeated, as rdma_cm says. */
export const CM_RETRIES = 15;
/** What an MRA asks for while a program has not answered: 69 s, as rdma_cm does. */
export const SERVICE_TIMEOUT = 24;
/** How long this host takes to acknowledge a packet, as rxe says: 134 ms. */
export const ACK_DELAY = 15;

/** What a peer may ask for: at least 0.27 s, so that it gets no burst, and at most 69 s. */
const EXPONENT_MIN = 16;
const EXPONENT_MAX = 24;
/**
 * The longest timeout that a peer may give our queue pair: with 7 retries, a peer that vanished is
 * noticed after 137 s, as on iWARP. rdma_cm's peers ask for 19 or 20.
 */
export const PEER_ACK_TIMEOUT_MAX = 22;
/** Timewait: no shorter than rxe's by default would be, were packets ever that slow. */
const TIMEWAIT_MAX = 24;
const ACK_TIMEOUT_MAX = 31;
const UNIT_MICROS = 4.096;

/** The time that an exponent stands for. */
export function exponentMicros(exponent: number): Micros {
  return UNIT_MICROS * 2 ** exponent;
}

/**
 * From the first REP to the RTU: 69 s, the 16 times 4.3 s that rdma_cm's peers ask for. One MRA asks for
 * as much, and TCP allows a SYN about as much. A request costs its sender one datagram, which may be
 * forged, and occupies a queue pair of the program.
 */
export const CONFIRM_MAX_MICROS: Micros = exponentMicros(24);
/**
 * The longest time between two messages after an MRA: 34 s, half of what rdma_cm asks for, since a lost
 * REJ is repeated only in answer to a repeated request, and is not kept for ever. We give up a request
 * after 16 of them, which is 9 minutes.
 */
export const MRA_MAX_MICROS: Micros = exponentMicros(23);
/** Between two DREQs that ask whether a peer still has a connection: its time to answer. */
export const PROBE_PAUSE_MICROS: Micros = exponentMicros(RESPONSE_TIMEOUT);

/** The time that a peer asks for by an exponent, within bounds. */
export function boundedMicros(exponent: number): Micros {
  return exponentMicros(Math.min(Math.max(exponent, EXPONENT_MIN), EXPONENT_MAX));
}

/** How long packets of a connection with this timeout may still be on their way. */
export function timewaitMicros(ackTimeout: number): Micros {
  return exponentMicros(Math.min(ackTimeout, TIMEWAIT_MAX));
}

/** Until a message is repeated: the peer's time to answer, and the way there and back. */
export function resendMicros(responseTimeout: number, packetLifeTime: number): Micros {
  return exponentMicros(responseTimeout) + 2 * exponentMicros(packetLifeTime);
}

/**
 * The timeout of a queue pair whose peer takes `ackDelay` to answer: an exponent for the sum of that
 * and of twice the packet's life time, rounded as the kernel does.
 */
export function ackTimeout(ackDelay: number, packetLifeTime: number): number {
  const bothWays = packetLifeTime + 1;
  const larger = Math.max(bothWays, ackDelay);
  const smaller = Math.min(bothWays, ackDelay);
  return Math.min(larger + (smaller >= larger - 1 ? 1 : 0), ACK_TIMEOUT_MAX);
}

/** The packet life time from which a peer computed its timeout. */
export function lifeTimeOf(timeout: number): number {
  return Math.max(timeout - 1, 0);
}
