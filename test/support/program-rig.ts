/** A device whose programs connect queue pairs, and attributes for each step. */
import { type AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import type { ProgramWire } from '#daemon/rnic/ib-port';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import { Nic } from '#daemon/rnic/nic';
import type { AddressVector, QPModification, QPPath } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { QPInit } from '#daemon/rnic/queue-pair-init';
import { ALL_ACCESS, MEMORY_ADDRESS, ScriptedStream } from './nic-rig.ts';
import { queueSizes } from './queue-sizes.ts';

/** A wire that records its modifications. */
class ScriptedWire extends ScriptedStream implements ProgramWire {
  sqPsn = 0;
  rqPsn = 0;
  readonly states: QPState[] = [];
  path: QPPath | undefined = undefined;

  modified(path: QPPath, state: QPState): void {
    if (this.states.length === 0) this.rqPsn = path.rqPsn;
    if (state === QPState.RTS && this.states.at(-1) === QPState.RTR) this.sqPsn = path.sqPsn;
    this.states.push(state);
    this.path = path;
  }
}

/** A GID of an IPv4 address. */
export function mappedGid(...address: readonly number[]): Uint8Array {
  return Uint8Array.from([...new Array<number>(10).fill(0), 0xff, 0xff, ...address]);
}

const LINK_LOCAL = Uint8Array.from([0xfe, 0x80, ...new Array<number>(13).fill(0), 1]);
const GIDS = [LINK_LOCAL, mappedGid(10, 0, 2, 15)];

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

/** Fields that are no attribute of a mask. */
type Unnamed = 'mask' | 'state' | 'curState' | 'resolvedMtu';

/** Every attribute, with a value that is taken. */
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

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

/** One device with memory and a way to make queue pairs. */
export class ProgramRig {
  readonly wires: ScriptedWire[] = [];
  readonly nic: Nic;
  readonly pd: PD;
  readonly memory = new Uint8Array(4096);
  readonly mr: MR;

  /** `makeWire`: a real wire in place of the scripted ones. */
  constructor(makeWire?: (qp: QP) => ProgramWire) {
    this.nic = new Nic({
      name: 'roce0',
      seed: 1,
      ib: {
        addresses: { gid: (index) => GIDS[index], routeMtu: (dgid) => (dgid[12] === 192 ? 0 : 5) },
        makeWire: (qp) => {
          if (makeWire !== undefined) return makeWire(qp);
          const wire = new ScriptedWire(qp);
          this.wires.push(wire);
          return wire;
        },
      },
    });
    this.pd = this.nic.allocPD();
    this.mr = this.nic.regMR(this.pd, {
      backing: new ViewBacking(this.memory),
      backingOffset: 0,
      lengthBytes: this.memory.length,
      address: MEMORY_ADDRESS,
      iova: MEMORY_ADDRESS,
      access: ALL_ACCESS,
      key: undefined,
    });
  }

  createQP(type: QPType, init: Partial<QPInit> = {}): QP {
    const cq = (): QPInit['sendCQ'] => this.nic.createCQ({ cqe: 64, ring, tag: undefined });
    return this.nic.createQP(this.pd, {
      type,
      sendCQ: cq(),
      recvCQ: cq(),
      srq: undefined,
      capabilities: queueSizes(16, 16, 2, 32),
      sqSigAll: false,
      ring,
      tag: undefined,
      ...init,
    });
  }

  /** The QP's wire. */
  get wire(): ScriptedWire {
    const wire = this.wires.at(-1);
    if (wire === undefined) throw new Error('no queue pair has entered RTR');
    return wire;
  }

  /** Types of the pending asynchronous events. */
  asyncEvents(): AsyncEventType[] {
    const events: AsyncEventType[] = [];
    for (let effect = this.nic.pollEffect(); effect !== undefined; ) {
      if (effect.type === 'async') events.push(effect.event);
      effect = this.nic.pollEffect();
    }
    return events;
  }
}

/** Modifies with the default values, or with `values` instead. */
export function modify(
  qp: QP,
  state: QPState,
  mask: number = QPAttribute.state,
  values: Partial<QPModification> = {},
): void {
  qp.modifyPath({ ...VALUES, state, curState: qp.state, ...values, mask }, 0);
}

/** Takes a QP in RESET to `state` the usual way, with the default values, or with `values` instead. */
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
