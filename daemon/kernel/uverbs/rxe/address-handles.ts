/** Address handles: destinations of datagrams. Work requests name them by number. */
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { readAddressVector } from '../address-vector.ts';
import { CreateAH, UverbsCommandNumber as N, PlainDestroy } from '../layouts.ts';
import type { UverbsAh } from '../objects.ts';
import type { CommandCall, OpenDevice } from '../open-device.ts';

/**
 * CREATE_AH: EINVAL for an address without a GID or of another port, ENODATA for an empty entry of
 * the GID table, ETIMEDOUT for an unreachable destination. Replies at once, whereas the kernel
 * waits a second for a neighbour.
 */
export function createAH({ file, fields, bytes }: CommandCall): KernelReply {
  const { request, attributes, response } = CreateAH;
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  const vector = readAddressVector(fields, bytes, request.attributes, attributes);
  const { handle, ah } = file.table.add('ah', (next) => ({
    kind: 'ah',
    handle: next,
    ah: file.device.nic.createAH(pd.pd, vector),
  }));
  const reply = file.newReply(N.createAH, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.own.setUint32(0, ah.number, true);
  return { status: 0, response: reply.bytes };
}

export function destroyAHCommand({ file, fields }: CommandCall): KernelReply {
  destroyAH(file, file.table.expect('ah', fields.getUint32(PlainDestroy.request.handle, true)));
  return DONE;
}

/** DESTROY_AH. Datagrams that name the handle fail from now on. */
export function destroyAH(file: OpenDevice, object: UverbsAh): void {
  object.ah.close();
  file.table.remove(object);
}
