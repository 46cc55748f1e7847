/**
 * Negotiates from two startup frames: CRC, markers, read depths and the RTR kind. Pure functions of
 * both sides' options.
 *
 * Read before changing: RFC 5044 §7.1.1 (M, C); RFC 6581 §9 (IRD, ORD, RTR).
 */
import {
  DEPTH_MAX,
  DEPTH_UNNEGOTIATED,
  type EnhancedParameters,
  type RtrFlags,
} from '../wire/enhanced-word.ts';
import { MPA_ERRORS, type ProtocolError } from '../wire/protocol-error.ts';
import type { RtrKinds, StreamOptions } from './stream-api.ts';

/** The options that read depths and RTR depend on. */
export type DepthOptions = Pick<
  StreamOptions,
  'ird' | 'ord' | 'irdMax' | 'ordMax' | 'peerToPeer' | 'rtrKinds'
>;

/** An RTR indication (RFC 6581 §9.2). */
export type RtrKind = 'write' | 'read' | 'send';

/** Read depths: IRD, the inbound reads we serve; ORD, the outbound reads we may have outstanding. */
export interface Depths {
  readonly ird: number;
  readonly ord: number;
}

/** Outcome of a Reply for an initiator: its depths, and how it must begin. */
interface InitiatorOutcome extends Depths {
  /** The RTR to send first; undefined in the client-server model. */
  readonly rtr: RtrKind | undefined;
  /** Set when the first FPDU must be a Terminate with this error. */
  readonly error: ProtocolError | undefined;
}

const NO_RTR: RtrFlags = { send: false, write: false, read: false };

/** True when both ends generate and check CRCs. */
// MPA-7.1.1-09, MPA-7.1.1-10, MPA-4.4-05, MPA-4.4-06: one end's request enables them both ways.
export function crcInUse(ours: boolean, peers: boolean): boolean {
  return ours || peers;
}

// EMPA-9.1-12: a depth must not become the value that means "not negotiated".
/** The wire field for a depth: clamped to 0..0x3FFE. */
export function depthField(depth: number): number {
  return Math.min(Math.max(depth, 0), DEPTH_MAX);
}

/** Our depths before negotiation: requested values, capped by the limits. */
function localDepths(
  consumerDepths: { readonly ird: number; readonly ord: number },
  options: DepthOptions,
): Depths {
  return {
    ird: depthField(Math.min(consumerDepths.ird, options.irdMax)),
    ord: depthField(Math.min(consumerDepths.ord, options.ordMax)),
  };
}

/** The enhanced word of our Request (RFC 6581 §9.1, §9.2). */
export function requestParameters(options: DepthOptions): EnhancedParameters {
  // EMPA-9.2-02, EMPA-9.2-03: A requests the peer-to-peer model, with every RTR kind we can send.
  const depths = localDepths(options, options);
  const rtr = options.peerToPeer ? supportedRtr(options.rtrKinds, depths.ord) : NO_RTR;
  return { peerToPeer: options.peerToPeer, rtr, ...depths };
}

/**
 * A responder's answer to a Request: the word of an accepting Reply, and the resulting depths, which it
 * carries (EMPA-9.1-01). The Reply is enhanced if the Request is. `consumerDepths` are those that the
 * consumer passed to accept.
 */
export function answerRequest<Word extends EnhancedParameters | undefined>(
  request: Word,
  consumerDepths: { readonly ird: number; readonly ord: number },
  options: DepthOptions,
): { readonly reply: Word; readonly depths: Depths } {
  let { ird, ord } = localDepths(consumerDepths, options);
  if (request === undefined) return { reply: request, depths: { ird, ord } };
  // EMPA-9.1-15: left unnegotiated; else EMPA-9.1-04, no more reads outstanding than the initiator
  // can take.
  const ordNegotiated = request.ird !== DEPTH_UNNEGOTIATED;
  if (ordNegotiated) ord = Math.min(ord, request.ird);
  // EMPA-9.1-13: the IRD stays unchanged, so with an IRD of 0 a Read RTR is not accepted.
  const irdNegotiated = request.ord !== DEPTH_UNNEGOTIATED;
  const rtr = answerRtr(request, options, irdNegotiated ? options.irdMax : ird);
  // EMPA-9.1-05: a Read RTR needs room for one read.
  if (irdNegotiated && rtr.read && ird === 0) ird = 1;
  return {
    reply: {
      // EMPA-9.2-05
      peerToPeer: request.peerToPeer,
      rtr,
      ird: irdNegotiated ? ird : DEPTH_UNNEGOTIATED,
      ord: ordNegotiated ? ord : DEPTH_UNNEGOTIATED,
    } as Word,
    depths: { ird, ord },
  };
}

/** The word of a rejecting Reply: what we would have needed (EMPA-9.1-06), not a compromise. */
export function rejectParameters(
  request: EnhancedParameters | undefined,
  options: DepthOptions,
): EnhancedParameters | undefined {
  if (request === undefined) return undefined;
  return {
    peerToPeer: request.peerToPeer,
    rtr: answerRtr(request, options, options.irdMax),
    ...localDepths(options, options),
  };
}

/** Negotiates from an accepting Reply, if both are enhanced. `request` is what we sent. */
export function concludeReply(
  request: EnhancedParameters | undefined,
  reply: EnhancedParameters | undefined,
  options: DepthOptions,
): InitiatorOutcome {
  if (request === undefined || reply === undefined) {
    return { ...localDepths(options, options), rtr: undefined, error: undefined };
  }
  // EMPA-9.1-14, EMPA-9.1-16: an unnegotiated value leaves ours unchanged. EMPA-9.1-09: no more
  // reads outstanding than the responder can take.
  const ord = reply.ird === DEPTH_UNNEGOTIATED ? request.ord : Math.min(request.ord, reply.ird);
  // EMPA-9.1-08: room for all the reads that the responder may send.
  const ird = reply.ord === DEPTH_UNNEGOTIATED ? request.ird : Math.max(request.ird, reply.ord);
  // EMPA-9.1-10, EMPA-9.1-07
  if (ird > options.irdMax) {
    return { ird: request.ird, ord, rtr: undefined, error: MPA_ERRORS.insufficientIrd };
  }
  // EMPA-12-01: when A differs between Reply and Request, the two ends disagree on who begins, so
  // no RTR option matches.
  if (reply.peerToPeer !== request.peerToPeer) {
    return { ird, ord, rtr: undefined, error: MPA_ERRORS.noMatchingRtr };
  }
  if (!request.peerToPeer) return { ird, ord, rtr: undefined, error: undefined };
  const rtr = chooseRtr(request.rtr, reply.rtr, ord);
  // EMPA-9.2-13
  const error = rtr === undefined ? MPA_ERRORS.noMatchingRtr : undefined;
  return { ird, ord, rtr, error };
}

// EMPA-9.2-10, EMPA-9.2-07: a kind that both support; flags that we did not offer are ignored.
/** Cheapest first: a Write needs no answer, a Read does, a Send takes a receive of the peer. */
function chooseRtr(offered: RtrFlags, answered: RtrFlags, ord: number): RtrKind | undefined {
  if (offered.write && answered.write) return 'write';
  // EMPA-9.3-01: a Read RTR is a Read Request, so the depths must leave room for it.
  if (offered.read && answered.read && ord >= 1) return 'read';
  if (offered.send && answered.send) return 'send';
  return undefined;
}

/** The flags of a Reply. `irdCeiling` is the most that our IRD may become. */
function answerRtr(
  request: EnhancedParameters,
  options: DepthOptions,
  irdCeiling: number,
): RtrFlags {
  if (!request.peerToPeer) return NO_RTR;
  const supported = supportedRtr(options.rtrKinds, irdCeiling);
  const common = {
    send: request.rtr.send && supported.send,
    write: request.rtr.write && supported.write,
    read: request.rtr.read && supported.read,
  };
  // EMPA-9.2-06, EMPA-9.2-08: every offered kind that we support. EMPA-9.2-09: if we support none
  // of them, the Reply lists the kinds we do support.
  return common.send || common.write || common.read ? common : supported;
}

// EMPA-9.2-04: at least one kind; a zero-length Write costs nothing and is always possible.
/** The kinds that we support; a Read needs a depth of at least one. */
function supportedRtr(kinds: RtrKinds, readDepth: number): RtrFlags {
  const read = kinds.read && readDepth >= 1;
  return { send: kinds.send, write: kinds.write || !(kinds.send || read), read };
}
