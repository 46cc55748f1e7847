/**
 * The fields of work requests. A request whose list of SGEs has a misspelt name would be a message
 * without a payload, so requests without one are checked for unknown fields.
 */
import { isPlain, isTransferred, unknownField } from './arguments.ts';
import { SendFlag } from './enums.ts';
import type { RecvWR, SendFields } from './work-request.ts';

/** Every bit that `flags` may have. */
export const SEND_FLAGS = SendFlag.fence | SendFlag.signaled | SendFlag.solicited | SendFlag.inline;

const SEND_FIELDS: Readonly<Record<keyof SendFields, true>> = {
  opcode: true,
  sgList: true,
  inlineData: true,
  remoteAddr: true,
  rkey: true,
  wrId: true,
  flags: true,
  invalidateRkey: true,
  immData: true,
  compareAdd: true,
  swap: true,
  bind: true,
  ud: true,
};
const RECEIVE_FIELDS: Readonly<Record<keyof RecvWR, true>> = { sgList: true, wrId: true };

/**
 * True if a send request without a payload was meant to have one: it has an unknown field, or
 * inline data whose memory was transferred. Objects of classes may have any field.
 */
export function lostPayload(wr: SendFields): boolean {
  return (
    hasOther(wr, SEND_FIELDS) || (ArrayBuffer.isView(wr.inlineData) && isTransferred(wr.inlineData))
  );
}

/** True if a receive has an unknown field. */
export function hasUnknownReceiveField(wr: RecvWR): boolean {
  return hasOther(wr, RECEIVE_FIELDS);
}

/** The unknown field of a send request, in words; undefined if it has none. */
export function unknownSendField(wr: SendFields): string | undefined {
  return hasOther(wr, SEND_FIELDS) ? unknownField(wr, SEND_FIELDS, 'field') : undefined;
}

/** Like `unknownSendField`, for a receive. */
export function unknownReceiveField(wr: RecvWR): string | undefined {
  return hasUnknownReceiveField(wr) ? unknownField(wr, RECEIVE_FIELDS, 'field') : undefined;
}

function hasOther(wr: object, known: Readonly<Record<string, true>>): boolean {
  for (const name in wr) {
    if (known[name] !== true) return isPlain(wr) && Object.hasOwn(wr, name);
  }
  return false;
}
