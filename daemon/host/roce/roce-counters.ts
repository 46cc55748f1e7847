/**
 * Counters of a RoCE port, those that the kernel's rxe has in `hw_counters`. The network counts what
 * it sees pass.
 */
import type { NicCounters } from '#daemon/rnic/nic-counters';
import type { WireFailure } from '#daemon/rnic/wire-port';
import { BTH_BYTES, opcodeTraits, Trait } from '#daemon/roce/wire/opcode';
import type { Packet } from '#daemon/roce/wire/packet';
import { psnDistance } from '#daemon/roce/wire/psn';
import { NakCode, SyndromeKind, syndromeKind, syndromeValue } from '#daemon/roce/wire/syndrome';

/** Counts since the port was made. */
export interface RoceCounters {
  sentPackets: number;
  receivedPackets: number;
  /** Packets for which there is no receiver. A network may lose packets: so does this one. */
  undeliverable: number;
  /** Packets with a wrong ICRC, and those that are no packets: their receiver dropped them. */
  icrcErrors: number;
  malformed: number;
  /** Packets beyond the share of their sender, see `SourceShares`. */
  overShare: number;
  /** Packets with an IPv4 identification other than 0, which was found from their ICRC. */
  identified: number;
  /** Datagrams with a wrong Q_Key: of this host, too. They count as received. */
  badQkeys: number;
  /** Packets with a wrong P_Key, and ones that no queue pair here expects from their sender. */
  badPkeys: number;
  unexpected: number;
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
    malformed: 0,
    overShare: 0,
    identified: 0,
    badQkeys: 0,
    badPkeys: 0,
    unexpected: 0,
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

/** A packet went from one port to another; undefined for one of another host. */
export function countPacket(
  packet: Readonly<Packet>,
  from: RoceCounters | undefined,
  to: RoceCounters | undefined,
): void {
  if (to !== undefined) to.receivedPackets += 1;
  if ((opcodeTraits(packet.opcode) & Trait.aeth) === 0) return;
  const kind = syndromeKind(packet.syndrome);
  if (kind === SyndromeKind.rnrNak) {
    if (from !== undefined) from.sentRnr += 1;
    if (to !== undefined) to.receivedRnr += 1;
  } else if (kind === SyndromeKind.nak && syndromeValue(packet.syndrome) === NakCode.psnSequence) {
    if (from !== undefined) from.sentSequenceNaks += 1;
    if (to !== undefined) to.receivedSequenceNaks += 1;
  }
}

/** The packet at `start` leaves the host. */
export function countSent(bytes: Uint8Array, start: number, from: RoceCounters): void {
  from.sentPackets += 1;
  if ((opcodeTraits(bytes[start] as number) & Trait.aeth) === 0) return;
  const syndrome = bytes[start + BTH_BYTES] as number;
  const kind = syndromeKind(syndrome);
  if (kind === SyndromeKind.rnrNak) from.sentRnr += 1;
  else if (kind === SyndromeKind.nak && syndromeValue(syndrome) === NakCode.psnSequence) {
    from.sentSequenceNaks += 1;
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

/** What rxe does not count, of packets of other hosts; the first by the name that mlx5 gives it. */
export function linkCounters(counters: Readonly<RoceCounters>): Readonly<Record<string, number>> {
  return {
    rx_icrc_encapsulated: counters.icrcErrors,
    rx_malformed: counters.malformed,
    rx_bad_pkey: counters.badPkeys,
    rx_bad_qkey: counters.badQkeys,
    rx_unexpected: counters.unexpected,
    rx_over_share: counters.overShare,
    rx_identified: counters.identified,
  };
}
