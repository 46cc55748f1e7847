/** The steps of a queue pair that its program connects, with attributes for each. */
import { QPState, QPType } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import type { AddressVector, QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';

/** A GID of an IPv4 address. */
export function mappedGid(...address: readonly number[]): Uint8Array {
  return Uint8Array.from([...new Array<number>(10).fill(0), 0xff, 0xff, ...address]);
}

/** An address of the peer that the port accepts. */
export const PEER: AddressVector = {
  dgid: mappedGid(10, 0, 2, 15),
  sgidIndex: 1,
  flowLabel: 0,
  hopLimit: 64,
  trafficClass: 0,
  dlid: 0,
  sl: 0,
  srcPathBits: 0,
  staticRate: 0,
  isGlobal: true,
  portNum: 1,
};

/** Fields without an attribute in the mask. */
type Unnamed = 'mask' | 'state' | 'curState' | 'resolvedMtu';

/** Every attribute, with a value that is accepted. */
export const VALUES: Required<Omit<QPModification, Unnamed>> = {
  accessFlags: 7,
  pkeyIndex: 0,
  portNum: 1,
  qkey: 0x11111111,
  ahAttr: PEER,
  pathMtu: 3,
  timeout: 12,
  retryCnt: 3,
  rnrRetry: 3,
  rqPsn: 0xffffff,
  sqPsn: 0xabcdef,
  maxRdAtomic: 3,
  maxDestRdAtomic: 5,
  minRnrTimer: 1,
  pathMigState: 0,
  destQpNum: 0x2a1,
};

/** The mask of each step, as programs give it. */
export const MASKS: Readonly<Record<QPType, readonly [init: number, rtr: number, rts: number]>> = {
  [QPType.rc]: [0x39, 0x129181, 0x12e01],
  [QPType.uc]: [0x39, 0x101181, 0x10001],
  [QPType.ud]: [0x71, 0x1, 0x10001],
};

/** Modifies with the default values, or with `values` instead. */
export function modify(
  qp: QP,
  state: QPState,
  mask: number = QPAttribute.state,
  values: Partial<QPModification> = {},
): void {
  qp.modifyPath({ ...VALUES, state, curState: qp.state, ...values, mask }, 0);
}

/** Moves a QP from RESET to `state` by the usual steps, with `values` in place of the defaults. */
export function bringTo(qp: QP, state: QPState, values: Partial<QPModification> = {}): QP {
  const [init, rtr, rts] = MASKS[qp.type];
  if (state === QPState.RESET) return qp;
  modify(qp, QPState.INIT, init, values);
  if (state === QPState.INIT) return qp;
  if (state === QPState.ERR) {
    modify(qp, QPState.ERR);
    return qp;
  }
  modify(qp, QPState.RTR, rtr, values);
  if (state === QPState.RTR) return qp;
  modify(qp, QPState.RTS, rts, values);
  if (state === QPState.SQD) modify(qp, QPState.SQD);
  return qp;
}
