/** One open of a uverbs device: executes requests, and destroys its objects at the last close. */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import type { DeviceTransport } from '#contract/verbs/attributes';
import { QPState } from '#contract/verbs/enums';
import { COMPLETIONS_OF_OBJECT } from '#daemon/clients/objects/ending-owners';
import { unacknowledgedEvents } from '#daemon/lint/advice';
import {
  DONE,
  type KernelCaller,
  type KernelFile,
  type KernelReply,
  type RefusedCall,
  refusal,
} from '../kernel-file.ts';
import { armRequest, ShimOp, type ShimRequest } from '../shim-protocol.ts';
import type { CommandSet } from './command-set.ts';
import { executeWrite } from './commands.ts';
import { destroyMR, destroyMW, destroyPD, moveMR, sendCopies } from './memory.ts';
import type { UverbsObject } from './objects.ts';
import { OpenDevice } from './open-device.ts';
import { destroyQP, OTHER_PROCESS, ringDoorbell } from './queue-pairs.ts';
import { destroyCQ, destroySRQ } from './queues.ts';
import { refusedCall } from './refused-call.ts';
import { destroyAH } from './rxe/address-handles.ts';
import { RXE_COMMANDS } from './rxe/commands.ts';
import { SIW_COMMANDS } from './siw/commands.ts';

/** The commands by the protocol of the opened device. */
const COMMANDS: Readonly<Record<DeviceTransport, CommandSet>> = {
  iwarp: SIW_COMMANDS,
  roce: RXE_COMMANDS,
};

type Destroyers = {
  readonly [K in UverbsObject['kind']]: (
    file: OpenDevice,
    object: Extract<UverbsObject, { readonly kind: K }>,
  ) => unknown;
};

/** By kind, in order of destruction: dependants first. */
const DESTROYERS: Destroyers = {
  qp: destroyQP,
  srq: destroySRQ,
  cq: destroyCQ,
  ah: destroyAH,
  mw: destroyMW,
  mr: destroyMR,
  pd: destroyPD,
};
const KINDS_LEAVING = Object.keys(DESTROYERS) as readonly UverbsObject['kind'][];

export class UverbsFile extends OpenDevice implements KernelFile {
  readonly kind = 'uverbs';
  readonly ownQueue = undefined;
  /** Objects left to destroy after the last close; the next one is last. */
  #leaving: UverbsObject[] | undefined;
  /** The program was disconnected and does not know. */
  #isCut = false;

  execute(request: ShimRequest, caller: KernelCaller): KernelReply {
    switch (request.op) {
      case ShimOp.doorbell:
        if (!caller.isOpener) return refusal('EACCES', OTHER_PROCESS);
        return ringDoorbell(this, request.argument);
      case ShimOp.arm:
        return this.#arm(request.argument);
      case ShimOp.write:
        this.eventsOfDestroyed = 0;
        try {
          return executeWrite(this, COMMANDS[this.device.transport], request.payload, caller);
        } finally {
          this.services.host.drain();
        }
      case ShimOp.pop:
        return this.pop(request.argument);
      case ShimOp.rings:
        return this.mappings.send();
      case ShimOp.copies:
        return sendCopies(this, caller);
      case ShimOp.move:
        return moveMR(this, request.argument, request.payload);
      case ShimOp.child:
        return DONE;
      default:
        throw new IpcFormatError(`operation ${request.op} on a uverbs file`);
    }
  }

  describe(request: ShimRequest): RefusedCall {
    return refusedCall(this, request);
  }

  #arm(argument: number): KernelReply {
    const { handle, seen } = armRequest(argument);
    this.table.expect('cq', handle).cq.checkArmed(seen);
    this.services.host.drain();
    return DONE;
  }

  /**
   * The program is disconnected with the last close and will notice it only from its rings: these keep
   * their contents, and outstanding work is flushed into them.
   */
  cutOff(): void {
    this.#isCut = true;
    this.mappings.leave();
  }

  /** A process that shared the file has closed it. */
  processLeft(): void {
    for (const object of this.table.ofKind('qp')) this.watch.distrust(object);
  }

  /** Last close: destroys dependants first. See `KernelFile`. */
  close(costMax = Number.POSITIVE_INFINITY): number {
    this.#leaving ??= this.#leave();
    let cost = 0;
    while (cost < costMax) {
      const object = this.#leaving.pop();
      if (object === undefined) {
        this.release();
        break;
      }
      const { completions } = this.device.nic.counters;
      this.#destroy(object);
      cost += 1 + (this.device.nic.counters.completions - completions) / COMPLETIONS_OF_OBJECT;
    }
    return cost;
  }

  /** All objects; those to destroy first are last. */
  #leave(): UverbsObject[] {
    // A program that kept running would have destroyed its protection domain as well.
    if (this.eventsOfDestroyed > 0 && this.table.size > 0) {
      this.client.advise(unacknowledgedEvents(this.eventsOfDestroyed), this.device.name);
    }
    this.services.events.remove(this);
    this.endQueues();
    this.mappings.end();
    return KINDS_LEAVING.flatMap((kind) => this.table.ofKind(kind)).reverse();
  }

  #destroy(object: UverbsObject): void {
    if (object.kind === 'qp' && this.#isCut && object.qp.state !== QPState.RESET) {
      object.qp.modify(QPState.ERR, this.services.host.now());
    }
    const destroy: (file: OpenDevice, object: never) => unknown = DESTROYERS[object.kind];
    destroy(this, object as never);
  }
}
