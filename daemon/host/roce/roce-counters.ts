/** Counters of a RoCE port, as in rxe's `hw_counters`. The network counts the packets that pass it. */
import type { NicCounters } from '#daemon/rnic/nic-counters';
import type { WireFailure } from '#daemon/rnic/wire-port';
import { BTH_BYTES, opcodeTraits, Trait } from '#daemon/roce/wire/opcode';
import type { Packet } from '#daemon/roce/wire/packet';
import { psnDistance } from '#daemon/roce/wire/psn';
import { NakCode, SyndromeKind, syndromeKind, syndromeValue } from '#daemon/roce/wire/syndrome';

/** Counts since the port was made. */
export class RoceCounters {
  sentPackets = 0;
  receivedPackets = 0;
  /** Packets without a receiver, dropped. */
  undeliverable = 0;
  /** Packets with a wrong ICRC, and malformed ones, dropped by their receiver. */
  icrcErrors = 0;
  malformed = 0;
  /** Packets above the share of their sender, see `SourceShares`. */
  overShare = 0;
  /** Packets whose IPv4 identification was another than expected, recovered from their ICRC. */
  identified = 0;
  /** Datagrams with a wrong Q_Key, including those of this host. They count as received. */
  badQkeys = 0;
  /** Packets with a wrong P_Key, or from an unexpected sender. */
  badPkeys = 0;
  unexpected = 0;
  /** Repeated requests, and those that arrived too early. */
  duplicateRequests = 0;
  earlyRequests = 0;
  /** Retransmissions after a timeout, and queue pairs that gave up. */
  timeouts = 0;
  retriesExceeded = 0;
  rnrRetriesExceeded = 0;
  /** Times that the port lost its carrier. */
  linkDowned = 0;
  /** RNR NAKs: sent, and received. */
  sentRnr = 0;
  receivedRnr = 0;
  /** NAKs for a sequence error: sent, and received. */
  sentSequenceNaks = 0;
  receivedSequenceNaks = 0;
}

/** Counts a packet of a reliable connection at a responder that expects `rqPsn` next. */
export function countRequest(packet: Readonly<Packet>, rqPsn: number, to: RoceCounters): void {
  if ((opcodeTraits(packet.opcode) & Trait.request) === 0) return;
  const ahead = psnDistance(packet.psn, rqPsn);
  if (ahead < 0) to.duplicateRequests += packet.span;
  else if (ahead > 0) to.earlyRequests += packet.span;
}

/** Counts the failure of a queue pair of the port. */
export function countFailure({ kind }: WireFailure, counters: RoceCounters): void {
  if (kind === 'timeout') counters.retriesExceeded += 1;
  else if (kind === 'receiver-not-ready') counters.rnrRetriesExceeded += 1;
}

/** Counts a packet between two ports; undefined for a port of another host. */
export function countPacket(
  packet: Readonly<Packet>,
  from: RoceCounters | undefined,
  to: RoceCounters | undefined,
): void {
  if (to !== undefined) to.receivedPackets += packet.span;
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

/** Counts the packet at `start`, which leaves the host. */
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
 * The counters under the names of rxe's `hw_counters`. Events that cannot happen here are 0: packets are not
 * queued, so no acknowledgment is deferred.
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

/** InfiniBand counts data in units of four bytes. */
const DATA_UNIT_BYTES = 4;

/** The counters of `counters` of an adapter. The data are payload; queued packets do not wait. */
export function portCounters(
  counters: Readonly<RoceCounters>,
  nic: Readonly<Pick<NicCounters, 'gatheredBytes' | 'placedBytes'>>,
): Readonly<Record<string, number>> {
  return {
    link_downed: counters.linkDowned,
    port_rcv_data: Math.floor(nic.placedBytes / DATA_UNIT_BYTES),
    port_rcv_errors: counters.icrcErrors + counters.malformed,
    port_rcv_packets: counters.receivedPackets,
    port_xmit_data: Math.floor(nic.gatheredBytes / DATA_UNIT_BYTES),
    port_xmit_discards: counters.undeliverable,
    port_xmit_packets: counters.sentPackets,
    port_xmit_wait: 0,
    symbol_error: 0,
  };
}

/** Counters that rxe lacks, of packets of other hosts; the first has mlx5's name. */
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
