/**
 * One open of `/dev/infiniband/rdma_cm`. Commands execute at once; operations that take time end in
 * an event.
 */
import { IpcFormatError } from '../../../../verbs-api/contract/protocol/ipc-value.ts';
import { type KernelCaller, type KernelFile, type KernelReply, refusal } from '../kernel-file.ts';
import { ShimOp, type ShimRequest } from '../shim-protocol.ts';
import { parseCmRequest } from './abi.ts';
import { executeCmCommand } from './commands.ts';
import { OpenChannel } from './open-channel.ts';

/** See the module's comment. */
export class CmFile extends OpenChannel implements KernelFile {
  readonly kind = 'rdmaCm';

  /** See `KernelFile`. */
  execute(request: ShimRequest, caller: KernelCaller): KernelReply {
    // As the kernel refuses every write(2) to a file that another process opened.
    if (!caller.isOpener) return refusal('EACCES');
    if (request.op !== ShimOp.write) throw new IpcFormatError(`op ${request.op} on rdma_cm`);
    return executeCmCommand(this, parseCmRequest(request.payload));
  }
}
