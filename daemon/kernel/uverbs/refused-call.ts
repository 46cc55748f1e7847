/** The libibverbs call and the objects of a refused request; computed only for refusals. */
import { QPState } from '#contract/verbs/enums';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import { qpStateName } from '#contract/verbs/qp-state';
import { readAttributes } from '../attribute-fields.ts';
import { EXTENDED_CALLS, UVERBS_CALLS } from '../call-names.ts';
import type { RefusedCall } from '../kernel-file.ts';
import { ShimOp, type ShimRequest } from '../shim-protocol.ts';
import {
  CommandBit,
  CommandHeader,
  CountedDestroy,
  ModifyQP,
  ModifySRQ,
  UverbsCommandNumber as N,
  PlainDestroy,
  PostSend,
  QueryQP,
  QuerySRQ,
  RequestNotify,
  ResizeCQ,
} from './layouts.ts';
import type { OpenDevice } from './open-device.ts';

/** Offset of the handle of a command's object. */
const HANDLE_AT: Readonly<Partial<Record<number, number>>> = {
  [N.deallocPD]: PlainDestroy.request.handle,
  [N.destroyAH]: PlainDestroy.request.handle,
  [N.deregMR]: PlainDestroy.request.handle,
  [N.deallocMW]: PlainDestroy.request.handle,
  [N.resizeCQ]: ResizeCQ.request.handle,
  [N.destroyCQ]: CountedDestroy.request.handle,
  [N.requestNotify]: RequestNotify.request.handle,
  [N.queryQP]: QueryQP.request.handle,
  [N.modifyQP]: ModifyQP.request.handle,
  [N.destroyQP]: CountedDestroy.request.handle,
  [N.postSend]: PostSend.request.handle,
  [N.modifySRQ]: ModifySRQ.request.handle,
  [N.querySRQ]: QuerySRQ.request.handle,
  [N.destroySRQ]: CountedDestroy.request.handle,
};

/** Calls that are operations of the preload library instead of commands. */
const OPERATIONS: Readonly<Partial<Record<number, string>>> = {
  [ShimOp.doorbell]: 'ibv_post_send',
  [ShimOp.arm]: 'ibv_req_notify_cq',
  [ShimOp.rings]: 'mmap of a queue',
  [ShimOp.pop]: 'ibv_get_cq_event',
  [ShimOp.move]: 'mremap of a memory region',
};

export function refusedCall(file: OpenDevice, { op, argument, payload }: ShimRequest): RefusedCall {
  const { name: device } = file.device;
  if (op !== ShimOp.write) {
    const verb = OPERATIONS[op] ?? `operation ${op}`;
    const isOnObject = op === ShimOp.doorbell || op === ShimOp.move;
    return {
      api: 'verbs',
      verb,
      device,
      objects: isOnObject ? objectsOf(file, argument) : undefined,
    };
  }
  const fields = new DataView(payload.buffer, payload.byteOffset, payload.length);
  if (fields.byteLength < CommandHeader.bytes) {
    return { api: 'verbs', verb: 'write to a device', device };
  }
  const word = fields.getUint32(CommandHeader.command, true);
  const number = word & CommandBit.number;
  if (word >= CommandBit.extended) {
    const verb = EXTENDED_CALLS[number] ?? `extended command ${number} of uverbs`;
    return { api: 'verbs', verb, device };
  }
  const verb = UVERBS_CALLS[number] ?? `command ${number} of uverbs`;
  const at = HANDLE_AT[number];
  if (at === undefined || fields.byteLength < at + 4) return { api: 'verbs', verb, device };
  const handle = fields.getUint32(at, true);
  const step = number === N.modifyQP ? stepOf(file, fields, handle) : undefined;
  return { api: 'verbs', verb, step, device, objects: objectsOf(file, handle) };
}

/** The requested transition of MODIFY_QP. */
function stepOf(file: OpenDevice, fields: DataView, handle: number): string | undefined {
  const object = file.table.find(handle);
  const { attrMask, attributes, bytes } = ModifyQP.request;
  if (object?.kind !== 'qp' || fields.byteLength < bytes) return undefined;
  if ((fields.getUint32(attrMask, true) & QPAttribute.state) === 0) return undefined;
  const wanted = readAttributes(fields, attributes).state;
  const next = Object.values(QPState).find((known) => known === wanted);
  const to = next === undefined ? `${wanted}` : qpStateName(next);
  return `${qpStateName(object.qp.state)} to ${to}`;
}

/** The numbers of an object that the program knows. */
function objectsOf(file: OpenDevice, handle: number): Readonly<Record<string, number>> | undefined {
  const object = file.table.find(handle);
  if (object === undefined) return undefined;
  if (object.kind === 'qp') return { qp: object.qp.qpn };
  if (object.kind === 'mr') return { lkey: object.mr.lkey };
  return { [object.kind]: handle };
}
