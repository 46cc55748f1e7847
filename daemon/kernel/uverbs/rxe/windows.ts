/** Allocates and frees memory windows. Binding is a work request. */
import { MWType } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { newStruct } from '#daemon/kernel/struct-fields';
import { AllocMW, PlainDestroy } from '../layouts.ts';
import { destroyMW } from '../memory.ts';
import type { CommandCall } from '../open-device.ts';

/** ALLOC_MW: EINVAL for an unknown type. */
export function allocMW({ file, fields }: CommandCall): KernelReply {
  const { request, response } = AllocMW;
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  const asked = fields.getUint8(request.type);
  const type = Object.values(MWType).find((known) => known === asked);
  if (type === undefined)
    throw invalid(`type must be 1 (IBV_MW_TYPE_1) or 2 (IBV_MW_TYPE_2), not ${asked}`);
  const { handle, mw } = file.table.add('mw', (next) => ({
    kind: 'mw',
    handle: next,
    mw: file.device.nic.allocMW(pd.pd, type),
  }));
  const { bytes, fields: reply } = newStruct(response.bytes);
  reply.setUint32(response.handle, handle, true);
  reply.setUint32(response.rkey, mw.rkey, true);
  return { status: 0, response: bytes };
}

/** DEALLOC_MW: frees the window, bound or not. */
export function deallocMW({ file, fields }: CommandCall): KernelReply {
  destroyMW(file, file.table.expect('mw', fields.getUint32(PlainDestroy.request.handle, true)));
  return DONE;
}
