/** One open of a uverbs device: executes requests, and destroys its objects at the last close. */
import { IpcFormatError } from '../../../../verbs-api/contract/protocol/ipc-value.ts';
import type { DeviceTransport } from '../../../../verbs-api/contract/verbs/attributes.ts';
import { QPState } from '../../../../verbs-api/contract/verbs/enums.ts';
import {
  DONE,
  type KernelCaller,
  type KernelFile,
  type KernelReply,
  refusal,
} from '../kernel-file.ts';
import { armRequest, ShimOp, type ShimRequest } from '../shim-protocol.ts';
import type { CommandSet } from './command-set.ts';
import { executeWrite } from './commands.ts';
import { destroyMR, destroyMW, destroyPD, moveMR } from './memory.ts';
import { OpenDevice } from './open-device.ts';
import { destroyQP, ringDoorbell } from './queue-pairs.ts';
import { destroyCQ, destroySRQ } from './queues.ts';
import { destroyAH } from './rxe/address-handles.ts';
import { RXE_COMMANDS } from './rxe/commands.ts';
import { SIW_COMMANDS } from './siw/commands.ts';

/** The commands by the protocol of the device that was opened. */
const COMMANDS: Readonly<Record<DeviceTransport, CommandSet>> = {
  iwarp: SIW_COMMANDS,
  roce: RXE_COMMANDS,
};

/** See the module's comment. */
export class UverbsFile extends OpenDevice implements KernelFile {
  readonly kind = 'uverbs';
  readonly ownQueue = undefined;

  /** See `KernelFile`. */
  execute(request: ShimRequest, caller: KernelCaller): KernelReply {
    switch (request.op) {
      case ShimOp.doorbell:
        if (!caller.isOpener) return refusal('EACCES');
        return ringDoorbell(this, request.argument);
      case ShimOp.arm:
        return this.#arm(request.argument);
      case ShimOp.write:
        try {
          return executeWrite(this, COMMANDS[this.device.transport], request.payload, caller);
        } finally {
          this.services.host.drain();
        }
      case ShimOp.pop:
        return this.pop(request.argument);
      case ShimOp.rings:
        return this.mappings.send();
      case ShimOp.move:
        return moveMR(this, request.argument, request.payload);
      case ShimOp.child:
        return DONE;
      default:
        throw new IpcFormatError(`operation ${request.op} on a uverbs file`);
    }
  }

  #arm(argument: number): KernelReply {
    const { handle, solicitedOnly, seen } = armRequest(argument);
    this.table.expect('cq', handle).cq.arm(solicitedOnly, seen);
    this.services.host.drain();
    return DONE;
  }

  /**
   * The program is about to be cut off and will not know, except by its rings: they keep what they
   * hold, and outstanding work is flushed into them.
   */
  cutOff(): void {
    const { host } = this.services;
    this.mappings.leave();
    for (const { qp } of this.table.ofKind('qp')) {
      if (qp.state !== QPState.RESET) qp.modify(QPState.ERR, host.now());
    }
    host.drain();
  }

  /** A process that shared the file has closed it. */
  processLeft(): void {
    for (const object of this.table.ofKind('qp')) this.watch.distrust(object);
  }

  /** Last close: dependants before what they depend on. */
  close(): void {
    this.services.events.remove(this);
    this.endQueues();
    for (const object of this.table.ofKind('qp')) destroyQP(this, object);
    for (const object of this.table.ofKind('srq')) destroySRQ(this, object);
    for (const object of this.table.ofKind('cq')) destroyCQ(this, object);
    for (const object of this.table.ofKind('ah')) destroyAH(this, object);
    for (const object of this.table.ofKind('mw')) destroyMW(this, object);
    for (const object of this.table.ofKind('mr')) destroyMR(this, object);
    for (const object of this.table.ofKind('pd')) destroyPD(this, object);
    this.release();
  }
}
