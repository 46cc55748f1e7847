/** INIT_QP_ATTR: how librdmacm must move the queue pair of an id, for iWARP. */
import { QPState } from '../../../../verbs-api/contract/verbs/enums.ts';
import { VerbsError } from '../../../../verbs-api/contract/verbs/errors.ts';
import type { KernelReply } from '../kernel-file.ts';
import { type CmRequest, expectRoom } from './abi.ts';
import type { OpenChannel } from './open-channel.ts';

const RESPONSE_BYTES = 144;
const MASK_STATE = 0x01;
const MASK_ACCESS = 0x08;
const MASK_PORT = 0x20;
const ACCESS_REMOTE_WRITE_READ = 6;
const PORT = 1;

/** See the module's comment. */
export function initQpAttr(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, RESPONSE_BYTES);
  const state = request.fields.getUint32(20, true);
  if (state > QPState.ERR) throw new VerbsError('EINVAL', 'no such state');
  const { context } = file.expectDevice(request.fields.getUint32(16, true));
  const { state: of } = context.id;
  const { mask, access } = attributes(state, of === 'connection' || of === 'closed');
  const response = new Uint8Array(RESPONSE_BYTES);
  const fields = new DataView(response.buffer);
  fields.setUint32(0, mask, true);
  fields.setUint32(4, state, true);
  fields.setUint32(36, access, true);
  fields.setUint8(133, PORT);
  return { status: 0, response };
}

/** Once there is a connection, the connection moves the queue pair to RTS, not the program. */
function attributes(
  state: number,
  connected: boolean,
): { readonly mask: number; readonly access: number } {
  const all = MASK_STATE | MASK_ACCESS | MASK_PORT;
  if (!connected) return { mask: all, access: 0 };
  if (state === QPState.RTS) return { mask: MASK_PORT, access: 0 };
  if (state !== QPState.INIT && state !== QPState.RTR) {
    throw new VerbsError('EINVAL', 'the connection sets this state');
  }
  return { mask: all, access: ACCESS_REMOTE_WRITE_READ };
}
