/**
 * Names and help texts of a device's counters. A counter that the kernel has too has the kernel's name. A
 * name ends in its unit, unless that is a number.
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
  access_errors: ['resp_remote_access_errors', 'Accesses by peers refused'],
  missing_receives: ['out_of_buffer', 'Messages that found no receive'],
  too_long_messages: ['resp_local_length_errors', 'Messages longer than their receive'],
  async_events: ['async_events', 'Asynchronous events raised'],
};

/**
 * HELP texts of a RoCE port's counters and of its link's, by name. The kernel's rxe has the former in
 * `hw_counters`.
 */
export const PORT_COUNTERS: Readonly<Record<string, string>> = {
  ack_deferred: 'Acknowledgments deferred',
  completer_retry_err: 'Requests retransmitted after a timeout',
  duplicate_request: 'Duplicate requests received',
  link_downed: 'Times that the link went down',
  out_of_seq_request: 'Requests received out of sequence',
  rcvd_pkts: 'Packets received',
  rcvd_rnr_err: 'RNR NAKs received',
  rcvd_seq_err: 'Sequence error NAKs received',
  rdma_recvs: 'RDMA Send messages received',
  rdma_sends: 'RDMA Send messages sent',
  retry_exceeded_err: 'Queue pairs failed: retry count exceeded',
  retry_rnr_exceeded_err: 'Queue pairs failed: RNR retry count exceeded',
  send_err: 'Packets dropped: no receiver',
  send_rnr_err: 'RNR NAKs sent',
  sent_pkts: 'Packets sent',
  rx_icrc_encapsulated: 'Packets dropped: wrong ICRC',
  rx_malformed: 'Malformed packets dropped',
  rx_bad_pkey: 'Packets dropped: wrong P_Key',
  rx_bad_qkey: 'Datagrams dropped: wrong Q_Key',
  rx_unexpected: 'Packets from other hosts dropped: no matching queue pair',
  rx_over_share: 'Packets dropped: sender over its share',
  rx_identified: 'Packets whose IPv4 identification was recovered from the ICRC',
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
