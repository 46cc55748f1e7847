/**
 * Explains in words why a work request was refused. Called only after a refusal, never on the hot path.
 */
import { listed } from '#base/listed';
import { described, isTransferred } from './arguments.ts';
import { SendFlag, WROpcode } from './enums.ts';
import type { ErrnoCode } from './errors.ts';
import { SEND_FLAGS, unknownReceiveField, unknownSendField } from './request-fields.ts';
import type { RecvWR, SendFields, SGE } from './work-request.ts';

/** Limits of a queue for its requests. */
interface RequestLimits {
  /** Scatter/gather elements of a request. */
  readonly maxSge: number;
  /** Elements of an RDMA Read: 1 on an emulated device (RFC 5040 §4.4). */
  readonly maxReadSge: number;
  /** Bytes. */
  readonly maxInline: number;
  /** The device speaks RoCE. Default: iWARP. */
  readonly roce?: boolean;
  /** The queue pair sends datagrams. */
  readonly datagrams?: boolean;
}

/** Immediate Data occupies the place of the sixth element, and of the end of inline payload. */
const SGE_MAX_WITH_IMMEDIATE = 5;
const INLINE_MAX_WITH_IMMEDIATE = 64;

/** Work of a queue pair that is not connected waits: polling frees nothing then. */
const SEND_QUEUE_FULL =
  'the send queue is full: connect the queue pair if it is not in RTS; otherwise poll completions first';
const RECEIVE_QUEUE_FULL =
  'the receive queue is full: all receives still wait for messages; poll completions first';

const ATOMIC_BYTES = 8;
const UINT32_MAX = 0xffff_ffffn;
const OPCODE_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(WROpcode).map(([name, opcode]) => [opcode, name]),
);
const CARRIES_PAYLOAD: ReadonlySet<number> = new Set<number>([
  WROpcode.send,
  WROpcode.sendWithImm,
  WROpcode.sendWithInv,
  WROpcode.rdmaWrite,
  WROpcode.rdmaWriteWithImm,
]);

/** Required fields by opcode. */
const NEEDS: ReadonlyMap<number, readonly (keyof SendFields)[]> = new Map<
  number,
  readonly (keyof SendFields)[]
>([
  [WROpcode.sendWithImm, ['immData']],
  [WROpcode.sendWithInv, ['invalidateRkey']],
  [WROpcode.rdmaWrite, ['rkey', 'remoteAddr']],
  [WROpcode.rdmaWriteWithImm, ['rkey', 'remoteAddr', 'immData']],
  [WROpcode.rdmaRead, ['rkey', 'remoteAddr']],
  [WROpcode.atomicFetchAndAdd, ['rkey', 'remoteAddr', 'compareAdd']],
  [WROpcode.atomicCmpAndSwap, ['rkey', 'remoteAddr', 'compareAdd', 'swap']],
  [WROpcode.immediate, ['immData']],
  [WROpcode.localInv, ['invalidateRkey']],
  [WROpcode.bindMW, ['bind']],
]);

/** The request at `index` of a list, in words: `request 0 (rdmaWrite)`. */
export function requestName(index: number, wr: SendFields | RecvWR | undefined): string {
  if (!isObject(wr) || !('opcode' in wr)) return `request ${index}`;
  const name = OPCODE_NAMES.get(wr.opcode);
  return name === undefined ? `request ${index}` : `request ${index} (${name})`;
}

/** Explains why a queue with these limits refused a send request with `code`. */
export function sendRefusal(
  wr: SendFields | undefined,
  code: ErrnoCode,
  limits: RequestLimits,
): string {
  if (code === 'ENOMEM') return SEND_QUEUE_FULL;
  if (!isObject(wr)) return `${described(wr)} instead of a request`;
  if (!OPCODE_NAMES.has(wr.opcode)) return wrongOpcode(wr.opcode);
  if (code === 'EOPNOTSUPP') {
    const transport = limits.roce === true ? 'a RoCE' : 'an iWARP';
    return `${transport} device does not support this operation`;
  }
  const flags = wr.flags ?? SendFlag.none;
  if (!isUint32(flags)) return `flags is ${described(flags)}, not bits of SendFlag`;
  if ((flags & ~SEND_FLAGS) !== 0) return `flags ${flags} has bits that SendFlag lacks`;
  const missing = missingFields(wr);
  if (missing !== undefined) return unknownSendField(wr) ?? missing;
  return (
    badNumber('wrId', wr.wrId, isLong) ??
    payloadRefusal(wr, limits) ??
    badOperand(wr, limits.roce === true) ??
    (hasPayload(wr) ? undefined : unknownSendField(wr)) ??
    (limits.datagrams === true ? badDestination(wr) : undefined) ??
    `refused (${code})`
  );
}

/** Explains why a queue of at most `maxSge` elements refused a receive with `code`. */
export function receiveRefusal(wr: RecvWR | undefined, code: ErrnoCode, maxSge: number): string {
  if (code === 'ENOMEM') return RECEIVE_QUEUE_FULL;
  if (!isObject(wr)) return `${described(wr)} instead of a request`;
  return (
    badNumber('wrId', wr.wrId, isLong) ??
    (hasPayload(wr) ? undefined : unknownReceiveField(wr)) ??
    elementRefusal(wr.sgList, maxSge, 'queue') ??
    `refused (${code})`
  );
}

function wrongOpcode(opcode: unknown): string {
  const named = typeof opcode === 'string' && Object.hasOwn(WROpcode, opcode);
  const advice = named ? `: use WROpcode.${opcode}` : '';
  return opcode === undefined
    ? 'opcode is required: one of WROpcode'
    : `opcode is ${described(opcode)}, not one of WROpcode${advice}`;
}

function hasPayload({ sgList, inlineData }: Partial<SendFields>): boolean {
  return (sgList?.length ?? 0) > 0 || (inlineData?.length ?? 0) > 0;
}

function missingFields(wr: SendFields): string | undefined {
  const needed = NEEDS.get(wr.opcode) ?? [];
  if (needed.every((field) => wr[field] !== undefined)) return undefined;
  return `${listed(needed, 'and')} ${needed.length === 1 ? 'is' : 'are'} required`;
}

function payloadRefusal(wr: SendFields, limits: RequestLimits): string | undefined {
  const inlineBytes = wr.inlineData?.length ?? 0;
  const inline = ((wr.flags ?? SendFlag.none) & SendFlag.inline) !== 0 || inlineBytes > 0;
  const { inlineData } = wr;
  if (inlineData !== undefined && !ArrayBuffer.isView(inlineData)) {
    return `inlineData is ${described(inlineData)}, not a Uint8Array`;
  }
  if (inlineData !== undefined && isTransferred(inlineData)) {
    return 'inlineData no longer has memory: its ArrayBuffer was transferred';
  }
  const list = wr.sgList ?? [];
  const withImmediate =
    wr.opcode === WROpcode.rdmaWriteWithImm || wr.opcode === WROpcode.sendWithImm;
  if (inline) {
    if (!CARRIES_PAYLOAD.has(wr.opcode)) return 'this opcode takes no inline data';
    if (list.length > 0) return 'inline data comes from inlineData; sgList must be empty';
    const room = withImmediate
      ? Math.min(limits.maxInline, INLINE_MAX_WITH_IMMEDIATE)
      : limits.maxInline;
    return inlineBytes > room
      ? `${inlineBytes} inline bytes, but this QP allows ${room}`
      : undefined;
  }
  switch (wr.opcode) {
    case WROpcode.atomicFetchAndAdd:
    case WROpcode.atomicCmpAndSwap:
      if (list.length !== 1 || list[0]?.length !== ATOMIC_BYTES) {
        return 'sgList must be 1 SGE of 8 bytes, for the result';
      }
      return elementRefusal(list, 1, 'QP');
    case WROpcode.rdmaRead:
      if (list.length > limits.maxReadSge) {
        return `${sges(list.length)}, but an RDMA Read allows ${limits.maxReadSge}`;
      }
      return elementRefusal(list, limits.maxSge, 'QP');
    default:
  }
  if (withImmediate && list.length > SGE_MAX_WITH_IMMEDIATE && limits.maxSge > list.length - 1) {
    return `${sges(list.length)}, but Immediate Data leaves room for ${SGE_MAX_WITH_IMMEDIATE}`;
  }
  return elementRefusal(list, limits.maxSge, 'QP');
}

function elementRefusal(list: readonly SGE[], max: number, queue: string): string | undefined {
  if (list === undefined) return 'sgList is required';
  const given: unknown = list;
  if (!Array.isArray(given)) return `sgList is ${described(given)}, not an array of SGEs`;
  if (list.length > max) return `${sges(list.length)}, but this ${queue} allows ${max}`;
  for (const [index, sge] of list.entries()) {
    const element: unknown = sge;
    if (!isObject(element)) return `SGE ${index} is ${described(element)}`;
    if ('sge' in element) return `SGE ${index} is a memory region: pass mr.sge()`;
    const refusal =
      wrongNumber('addr', sge.addr, isLong) ??
      wrongNumber('length', sge.length, isUint32) ??
      wrongNumber('lkey', sge.lkey, isUint32);
    if (refusal !== undefined) return `SGE ${index}: ${refusal}`;
  }
  return undefined;
}

function badDestination({ ud }: SendFields): string | undefined {
  if (ud === undefined) return 'ud is required on a queue pair of type UD';
  if (!isObject(ud)) return `ud is ${described(ud)}, not a destination`;
  return (
    badNumber('ud.ah.number', ud.ah?.number ?? Number.NaN, isUint32) ??
    badNumber('ud.remoteQpNum', ud.remoteQpNum ?? Number.NaN, isUint32) ??
    badNumber('ud.remoteQkey', ud.remoteQkey ?? Number.NaN, isUint32) ??
    'ud.ah belongs to another protection domain'
  );
}

function badOperand(wr: SendFields, roce: boolean): string | undefined {
  const { bind } = wr;
  if (bind !== undefined && !isObject(bind)) return `bind is ${described(bind)}, not an object`;
  return (
    badNumber('rkey', wr.rkey, isUint32) ??
    badNumber('remoteAddr', wr.remoteAddr, isLong) ??
    badNumber('invalidateRkey', wr.invalidateRkey, isUint32) ??
    badNumber('immData', wr.immData, roce ? isShort : isLong) ??
    badNumber('compareAdd', wr.compareAdd, isLong) ??
    badNumber('swap', wr.swap, isLong) ??
    (bind === undefined ? undefined : badBind(bind))
  );
}

function badBind(bind: NonNullable<SendFields['bind']>): string | undefined {
  const { rkey, lkey, access, addr, length } = bind;
  return (
    wrongNumber('bind.rkey', rkey, isUint32) ??
    wrongNumber('bind.lkey', lkey, isUint32) ??
    wrongNumber('bind.access', access, isUint32) ??
    wrongNumber('bind.addr', addr, isLong) ??
    wrongNumber('bind.length', length, isLong)
  );
}

function badNumber(
  field: string,
  value: unknown,
  fits: (value: unknown) => boolean,
): string | undefined {
  return value === undefined ? undefined : wrongNumber(field, value, fits);
}

/** Like `badNumber`, for a required field. */
function wrongNumber(
  field: string,
  value: unknown,
  fits: (value: unknown) => boolean,
): string | undefined {
  if (fits(value)) return undefined;
  const want =
    fits === isLong ? 'a safe integer from 0 on or a bigint' : 'an unsigned 32-bit number';
  return value === undefined
    ? `${field} is required: ${want}`
    : `${field} is ${described(value)}, not ${want}`;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function isUint32(value: unknown): boolean {
  return typeof value === 'number' && value >>> 0 === value;
}

/** As a number or as a bigint. */
function isShort(value: unknown): boolean {
  return isUint32(typeof value === 'bigint' && value <= UINT32_MAX ? Number(value) : value);
}

function isLong(value: unknown): boolean {
  return typeof value === 'bigint' || (Number.isSafeInteger(value) && Number(value) >= 0);
}

function sges(count: number): string {
  return count === 1 ? '1 SGE' : `${count} SGEs`;
}
