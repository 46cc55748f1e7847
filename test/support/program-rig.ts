/** A device whose programs connect queue pairs. */
import { type AsyncEventType, QPState, type QPType } from '#contract/verbs/enums';
import type { ProgramWire } from '#daemon/rnic/ib-port';
import { LentPayload } from '#daemon/rnic/memory/lent-payload';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import { Nic } from '#daemon/rnic/nic';
import type { QPPath } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { QPInit } from '#daemon/rnic/queue-pair-init';
import { ScriptedStream } from './nic-rig.ts';
import { mappedGid } from './program-steps.ts';
import { queueSizes } from './queue-sizes.ts';
import { ALL_ACCESS, MEMORY_ADDRESS } from './test-memory.ts';

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

const LINK_LOCAL = Uint8Array.from([0xfe, 0x80, ...new Array<number>(13).fill(0), 1]);
const GIDS = [LINK_LOCAL, mappedGid(10, 0, 2, 15)];

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
        lentPayload: new LentPayload(),
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
