/** Commands of connections. Their effect depends on the id's transport: see `CmPersona`. */
import { QPState } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import { DONE, type KernelReply } from '../kernel-file.ts';
import { type CmRequest, expectRoom, parseConnParam } from './abi.ts';
import type { CmContext } from './context.ts';
import { emitQpAttr, QP_ATTR_BYTES } from './ib-layouts.ts';
import type { OpenChannel } from './open-channel.ts';
import type { CmCall, CmPersona } from './persona.ts';
import { CM_PERSONAS } from './personas.ts';

/** CONNECT: the result is an event. */
export function connect(file: OpenChannel, request: CmRequest): KernelReply {
  const { persona, call, context } = callOn(file, request, 280);
  const parameters = parseConnParam(request, 8);
  if (!parameters.valid) throw invalid('conn_param is missing: a connection needs it');
  persona.connect(call, parameters);
  context.qpn = parameters.qpn;
  return DONE;
}

/** ACCEPT: accepts a request, or on some transports confirms the peer's reply. */
export function accept(file: OpenChannel, request: CmRequest): KernelReply {
  const { persona, call, context } = callOn(file, request, 288);
  const parameters = parseConnParam(request, 16);
  const { uid } = context;
  // The connection may be established before `accept` returns, and its event needs the program's
  // identifier.
  if (parameters.valid) context.uid = request.fields.getBigUint64(8, true);
  try {
    persona.accept(call, parameters);
  } catch (error) {
    context.uid = uid;
    throw error;
  }
  if (parameters.valid) context.qpn = parameters.qpn;
  return DONE;
}

/** Reasons that a program may give: none, consumer-defined, and unsupported option. */
const REJECT_REASONS: readonly number[] = [0, 28, 35];

export function reject(file: OpenChannel, request: CmRequest): KernelReply {
  const { fields, bytes } = request;
  const privateData = bytes.slice(16, 16 + fields.getUint8(12));
  const reason = fields.getUint8(13);
  if (!REJECT_REASONS.includes(reason)) {
    throw invalid(`reason ${reason} is none that a program may give: ${REJECT_REASONS.join(', ')}`);
  }
  const { persona, call } = callOn(file, request, 8);
  persona.reject(call, privateData, reason);
  return DONE;
}

export function disconnect(file: OpenChannel, request: CmRequest): KernelReply {
  const { persona, call } = callOn(file, request, 8);
  persona.disconnect(call);
  return DONE;
}

/** NOTIFY: the program has seen an event of the queue pair. */
export function notify(file: OpenChannel, request: CmRequest): KernelReply {
  const { persona, call } = callOn(file, request, 8);
  persona.notify(call, request.fields.getUint32(12, true));
  return DONE;
}

/** INIT_QP_ATTR: how librdmacm must move the queue pair of the id. */
export function initQpAttr(file: OpenChannel, request: CmRequest): KernelReply {
  expectRoom(request, QP_ATTR_BYTES);
  const state = request.fields.getUint32(20, true);
  if (state > QPState.ERR) {
    throw invalid(`qp_attr has qp_state ${state}; there are 0 (RESET) to 6 (ERR)`);
  }
  const { persona, call } = callOn(file, request, 16);
  file.client.usesCm = true;
  const response = emitQpAttr(persona.qpAttributes(call, state as QPState));
  return { status: 0, response };
}

function callOn(
  file: OpenChannel,
  { fields }: CmRequest,
  idAt: number,
): { readonly context: CmContext; readonly persona: CmPersona; readonly call: CmCall } {
  const { context, device } = file.expectDevice(fields.getUint32(idAt, true));
  const call = file.callOn(context, device);
  return { context, persona: CM_PERSONAS[device.transport], call };
}
