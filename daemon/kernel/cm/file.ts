/**
 * One open of `/dev/infiniband/rdma_cm`. Commands execute at once; operations that take time end in
 * an event.
 */
import { IpcFormatError } from '#contract/protocol/ipc-value';
import { CM_CALLS } from '../call-names.ts';
import {
  type KernelCaller,
  type KernelFile,
  type KernelReply,
  type RefusedCall,
  refusal,
} from '../kernel-file.ts';
import { CM_VERBS } from '../kernel-verbs.ts';
import { ShimOp, type ShimRequest } from '../shim-protocol.ts';
import { parseCmRequest } from './abi.ts';
import { executeCmCommand } from './commands.ts';
import { OpenChannel } from './open-channel.ts';

const OTHER_CHANNEL =
  'the event channel was opened before fork by a parent process: create one in this process';

export class CmFile extends OpenChannel implements KernelFile {
  readonly kind = 'rdmaCm';

  execute(request: ShimRequest, caller: KernelCaller): KernelReply {
    // The kernel refuses every write(2) to a file that another process opened.
    if (!caller.isOpener) return refusal('EACCES', OTHER_CHANNEL);
    if (request.op !== ShimOp.write) throw new IpcFormatError(`op ${request.op} on rdma_cm`);
    return executeCmCommand(this, parseCmRequest(request.payload));
  }

  describe({ payload }: ShimRequest): RefusedCall {
    const fields = new DataView(payload.buffer, payload.byteOffset, payload.length);
    const command = fields.byteLength < 4 ? undefined : fields.getUint32(0, true);
    const verb = (command === undefined ? undefined : CM_CALLS[command]) ?? 'write to rdma_cm';
    const { idAt } = (command === undefined ? undefined : CM_VERBS[command]) ?? {};
    if (idAt === undefined || fields.byteLength < idAt + 4) return { api: 'cm', verb };
    const id = fields.getUint32(idAt, true);
    return { api: 'cm', verb, device: this.deviceNameOf(id), objects: { id } };
  }
}
