/** The two layouts of work requests in a ring; a queue uses one for life. */
import { type CQEStatus, INLINE_MAX, RQE, SGE_MAX, SQE } from '#contract/protocol/queue-layout';
import type { PD } from '../memory/protection-domain.ts';
import type { WorkWatch } from '../queues/work-watch.ts';
import { indexedOpcodeAt } from './indexed-fields.ts';
import { INDEXED_INLINE_MAX, INDEXED_SGE_MAX, ReceiveElement } from './indexed-layout.ts';
import { readIndexedSend } from './indexed-send.ts';
import type { RingKind, WorkRing } from './ring.ts';
import { completionOpcode, type SendWqe } from './send-wqe.ts';

export interface ReceiveFormat {
  /** Byte position of the number of SGEs: a byte, or 32 bits if `wide`. */
  readonly numSge: number;
  readonly wide: boolean;
  /** Byte position of the first SGE. */
  readonly sge: number;
  readonly sgeMax: number;
}

/** The layout of a send work request. */
export interface SendFormat {
  readonly sgeMax: number;
  readonly inlineMax: number;
  readonly infiniband: boolean;
  /** Reads the ring's next element into `wqe`, checks it, and returns its status. */
  read(wqe: SendWqe, ring: WorkRing, pd: PD): CQEStatus;
  /** Operation of the ring's next element, an `SQOpcode`. */
  opcodeAt(ring: WorkRing): number;
  /** Reports the ring's next element to `watch`. */
  report(watch: WorkWatch, qpn: number, ring: WorkRing, signalsAll: boolean): void;
}

const SLOT_RECEIVE: ReceiveFormat = {
  numSge: RQE.numSge,
  wide: false,
  sge: RQE.sge,
  sgeMax: SGE_MAX,
};

const INDEXED_RECEIVE: ReceiveFormat = {
  numSge: ReceiveElement.numSge,
  wide: true,
  sge: ReceiveElement.sge,
  sgeMax: INDEXED_SGE_MAX,
};

const SLOT_SEND: SendFormat = {
  sgeMax: SGE_MAX,
  inlineMax: INLINE_MAX,
  infiniband: false,
  read: (wqe, ring, pd) => wqe.read(ring, pd),
  opcodeAt: ({ view, position }) => completionOpcode(view.getUint8(position + SQE.opcode)),
  report: (watch, qpn, ring, signalsAll) => watch.reportSend(qpn, ring, signalsAll),
};

const INFINIBAND_SLOT_SEND: SendFormat = { ...SLOT_SEND, infiniband: true };

const INDEXED_SEND: SendFormat = {
  sgeMax: INDEXED_SGE_MAX,
  inlineMax: INDEXED_INLINE_MAX,
  infiniband: true,
  read: readIndexedSend,
  opcodeAt: indexedOpcodeAt,
  report: (watch, qpn, ring, signalsAll) => watch.reportIndexedSend(qpn, ring, signalsAll),
};

/** The layout of receives in rings of this kind. */
export function receiveFormat(kind: RingKind): ReceiveFormat {
  return kind === 'flags' ? SLOT_RECEIVE : INDEXED_RECEIVE;
}

/** The layout of sends in rings of this kind, with InfiniBand's operations or iWARP's. */
export function sendFormat(kind: RingKind, infiniband: boolean): SendFormat {
  if (kind === 'indices') return INDEXED_SEND;
  return infiniband ? INFINIBAND_SLOT_SEND : SLOT_SEND;
}
