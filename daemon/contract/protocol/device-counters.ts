/**
 * Names and texts of a device's counters. All are spelled as the kernel spells those that it has; a unit,
 * where it is not one, is the end of the name.
 */

/** For each device counter its metric, without `iwarpd_` and `_total`, and its HELP text. */
export const DEVICE_COUNTERS: Readonly<Record<string, readonly [name: string, help: string]>> = {
  out_sends: ['iw_out_rdma_sends', 'RDMA Send messages sent'],
  out_writes: ['iw_out_rdma_writes', 'RDMA Write messages sent'],
  out_reads: ['iw_out_rdma_reads', 'RDMA Read Requests sent'],
  out_atomics: ['iw_out_rdma_atomics', 'Atomic Requests sent'],
  out_immediates: ['iw_out_rdma_immediates', 'Immediate Data messages sent'],
  in_sends: ['iw_in_rdma_sends', 'RDMA Send messages received'],
  in_writes: ['iw_in_rdma_writes', 'RDMA Write messages received'],
  in_reads: ['iw_in_rdma_reads', 'RDMA Read Requests received and allowed'],
  in_immediates: ['iw_in_rdma_immediates', 'Immediate Data messages received'],
  atomics: ['iw_in_rdma_atomics', 'Atomic operations performed for peers'],
  binds: ['iw_rdma_bnd', 'Memory windows bound'],
  invalidations: ['iw_rdma_inv', 'STags invalidated'],
  gathered_bytes: ['port_xmit_data_bytes', 'Payload bytes read from local memory for transmission'],
  placed_bytes: ['port_rcv_data_bytes', 'Payload bytes received and written to local memory'],
  sends_taken: ['send_wqes', 'Work requests consumed from send queues'],
  receives_taken: ['recv_wqes', 'Work requests consumed from receive queues'],
  completions: ['cqes', 'Completions, successful or not'],
  failures: ['cqes_failed', 'Completions with an error other than a flush'],
  flushes: ['cqes_flushed', 'Completions with a flush error'],
  access_errors: ['resp_remote_access_errors', 'Accesses of peers refused'],
  missing_receives: ['out_of_buffer', 'Messages of peers that found no receive'],
  too_long_messages: ['resp_local_length_errors', 'Messages of peers longer than their receive'],
  async_events: ['async_events', 'Asynchronous events raised'],
};

/**
 * HELP texts of a RoCE port's counters, by their names in the kernel's `hw_counters` of rxe, and of
 * its link's.
 */
export const PORT_COUNTERS: Readonly<Record<string, string>> = {
  ack_deferred: 'Acknowledgments deferred',
  completer_retry_err: 'Requests sent again for want of an answer',
  duplicate_request: 'Requests received again',
  link_downed: 'Times that the port lost its carrier',
  out_of_seq_request: 'Requests received ahead of the sequence',
  rcvd_pkts: 'Packets received',
  rcvd_rnr_err: 'RNR NAKs received',
  rcvd_seq_err: 'NAKs for a gap in the sequence received',
  rdma_recvs: 'RDMA Send messages received',
  rdma_sends: 'RDMA Send messages sent',
  retry_exceeded_err: 'Queue pairs that failed since no answer came',
  retry_rnr_exceeded_err: 'Queue pairs that failed since no receive was posted',
  send_err: 'Packets without a receiver',
  send_rnr_err: 'RNR NAKs sent',
  sent_pkts: 'Packets sent',
  rx_icrc_encapsulated: 'Packets dropped for a wrong ICRC',
  rx_malformed: 'Packets dropped since they are none',
  rx_bad_pkey: 'Packets dropped for a wrong P_Key',
  rx_bad_qkey: 'Datagrams dropped for a wrong Q_Key',
  rx_unexpected: 'Packets of other hosts dropped since no queue pair expects them',
  rx_over_share: 'Packets dropped since their sender took the turn of others',
  rx_identified: 'Packets with an IPv4 identification other than 0, found from their ICRC',
};

/** The HELP text of a counter; '' for one that this version does not know. */
export function counterHelp(name: string): string {
  return DEVICE_COUNTERS[name]?.[1] ?? PORT_COUNTERS[name] ?? '';
}

/** A device's own counters by the names that users see: `out_sends` for `outSends`. */
export function reportedCounters(
  counters: Readonly<Record<string, number>>,
): Readonly<Record<string, number>> {
  return Object.fromEntries(
    Object.entries(counters).map(([name, value]) => [snakeCase(name), value]),
  );
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
