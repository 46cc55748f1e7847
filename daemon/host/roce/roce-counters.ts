/**
 * Counters of a RoCE port, those that the kernel's rxe has in `hw_counters`. The network counts what
 * it sees pass.
 */
import type { NicCounters } from '../../rnic/nic-counters.ts';
import type { WireFailure } from '../../rnic/wire-port.ts';
import { opcodeTraits, Trait } from '../../roce/wire/opcode.ts';
import type { Packet } from '../../roce/wire/packet.ts';
import { psnDistance } from '../../roce/wire/psn.ts';
import { NakCode, SyndromeKind, syndromeKind, syndromeValue } from '../../roce/wire/syndrome.ts';

/** Counts since the port was made. */
export interface RoceCounters {
  sentPackets: number;
  receivedPackets: number;
  /** Packets for which there is no receiver. A network may lose packets: so does this one. */
  undeliverable: number;
  /** Packets with a wrong ICRC, which their receiver dropped. Only faults make them. */
  icrcErrors: number;
  /** Requests that came again, and those that came too early. */
  duplicateRequests: number;
  earlyRequests: number;
  /** Times that a requester sent again since no answer came, and queue pairs that gave up. */
  timeouts: number;
  retriesExceeded: number;
  rnrRetriesExceeded: number;
  /** Times that the port lost its carrier. */
  linkDowned: number;
  /** NAKs that no receive was posted: sent, and received. */
  sentRnr: number;
  receivedRnr: number;
  /** NAKs for a gap in the sequence: sent, and received. */
  sentSequenceNaks: number;
  receivedSequenceNaks: number;
}

/** Counters at zero. */
export function makeRoceCounters(): RoceCounters {
  return {
    sentPackets: 0,
    receivedPackets: 0,
    undeliverable: 0,
    icrcErrors: 0,
    duplicateRequests: 0,
    earlyRequests: 0,
    timeouts: 0,
    retriesExceeded: 0,
    rnrRetriesExceeded: 0,
    linkDowned: 0,
    sentRnr: 0,
    receivedRnr: 0,
    sentSequenceNaks: 0,
    receivedSequenceNaks: 0,
  };
}

/** A packet of a reliable connection came to a responder that expects `rqPsn` next. */
export function countRequest(packet: Readonly<Packet>, rqPsn: number, to: RoceCounters): void {
  if ((opcodeTraits(packet.opcode) & Trait.request) === 0) return;
  const ahead = psnDistance(packet.psn, rqPsn);
  if (ahead < 0) to.duplicateRequests += 1;
  else if (ahead > 0) to.earlyRequests += 1;
}

/** A queue pair of the port failed. */
export function countFailure({ kind }: WireFailure, counters: RoceCounters): void {
  if (kind === 'timeout') counters.retriesExceeded += 1;
  else if (kind === 'receiver-not-ready') counters.rnrRetriesExceeded += 1;
}

/** A packet went from one port to another. */
export function countPacket(packet: Readonly<Packet>, from: RoceCounters, to: RoceCounters): void {
  to.receivedPackets += 1;
  if ((opcodeTraits(packet.opcode) & Trait.aeth) === 0) return;
  const kind = syndromeKind(packet.syndrome);
  if (kind === SyndromeKind.rnrNak) {
    from.sentRnr += 1;
    to.receivedRnr += 1;
  } else if (kind === SyndromeKind.nak && syndromeValue(packet.syndrome) === NakCode.psnSequence) {
    from.sentSequenceNaks += 1;
    to.receivedSequenceNaks += 1;
  }
}

/**
 * The counters by the names of rxe's `hw_counters`. What cannot happen here is 0: packets wait for no
 * queue, so no acknowledgment is deferred.
 */
export function hwCounters(
  counters: Readonly<RoceCounters>,
  nic: Readonly<Pick<NicCounters, 'outSends' | 'inSends'>>,
): Readonly<Record<string, number>> {
  return {
    ack_deferred: 0,
    completer_retry_err: counters.timeouts,
    duplicate_request: counters.duplicateRequests,
    link_downed: counters.linkDowned,
    out_of_seq_request: counters.earlyRequests,
    rcvd_pkts: counters.receivedPackets,
    rcvd_rnr_err: counters.receivedRnr,
    rcvd_seq_err: counters.receivedSequenceNaks,
    rdma_recvs: nic.inSends,
    rdma_sends: nic.outSends,
    retry_exceeded_err: counters.retriesExceeded,
    retry_rnr_exceeded_err: counters.rnrRetriesExceeded,
    send_err: counters.undeliverable,
    send_rnr_err: counters.sentRnr,
    sent_pkts: counters.sentPackets,
  };
}
