/** Records of a trace, as a daemon sends them, for tests of the time line. */
import type { TraceRecord } from '#contract/protocol/trace-sample';

let clock = 1_795_283_465_000_000;

/** Advances the time of the next record. */
export function pass(micros: number): void {
  clock += micros;
}

/** A work request of queue pair `qpn`. */
export function wqe(qpn: number, opcode: string, wrId: string): TraceRecord {
  return record('wqe', { qpn, opcode, wrId, text: `WQE ${opcode} wr_id ${wrId}` });
}

/** The completion of such a request. */
export function cqe(
  qpn: number,
  opcode: string,
  wrId: string,
  status = 'IBV_WC_SUCCESS',
): TraceRecord {
  return record('cqe', { qpn, opcode, wrId, status, text: `CQE ${opcode} ${status}` });
}

/** An FPDU that queue pair `qpn` sent to `peerQpn` of the same daemon. */
export function fpdu(qpn: number, peerQpn: number, opcode: string, last = true): TraceRecord {
  const text = `${opcode} QN 0 MSN 1 MO 0, 64 bytes${last ? ', last' : ''}`;
  const peer = { peerDevice: 'iwarp0', peerQpn };
  return record('fpdu', { qpn, ...peer, link: 1, by: 'us', opcode, bytes: 64, text });
}

/** A RoCE packet that queue pair `qpn` sent to `peerQpn` of the same device. */
export function packet(
  qpn: number,
  peerQpn: number,
  opcode: string,
  rest = '64 bytes',
): TraceRecord {
  const text = `${opcode} to QP ${peerQpn}, PSN 7, ${rest}`;
  return record('packet', {
    qpn,
    peerDevice: 'iwarp0',
    peerQpn,
    by: 'us',
    opcode,
    bytes: 64,
    text,
  });
}

/** A record of this kind, 5 µs after the last one, with these fields. */
export function record(
  kind: TraceRecord['kind'],
  fields: Omit<TraceRecord, 'kind' | 'micros'>,
): TraceRecord {
  clock += 5;
  return { micros: clock, kind, device: 'iwarp0', ...fields };
}
