/** How an awaitable operation of a connection becomes a work request, and its completion a result. */
import { isTransferred } from '#contract/verbs/arguments';
import type { WC } from '#contract/verbs/completion';
import { SendFlag, WROpcode } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { parseRemoteMemory, type RemoteMemory } from '#contract/verbs/remote-memory';
import type { SendWR, SGE } from '#contract/verbs/work-request';
import { HEADER_BYTES, putHeader } from './message-framing.ts';
import type { MessageWindow } from './message-window.ts';
import type { Stage } from './staging-memory.ts';

const WORD_BYTES = 8;
const U64_END = 1n << 64n;

/** Outcome of a request: its completion, and its staging memory. */
export interface Done {
  readonly wc: WC;
  readonly stage: Stage | undefined;
}

/** A request to make, once it is its turn. */
export interface Plan<T> {
  readonly what: string;
  readonly spends?: boolean;
  /** Bytes of staging memory; undefined: none. */
  readonly stageBytes: number | undefined;
  /** Fills the staging memory. */
  readonly fill?: (bytes: Uint8Array) => void;
  readonly request: (stage: Stage | undefined) => SendWR;
  readonly finish: (done: Done) => T;
}

/** An atomic operation without its target. */
type AtomicOperation =
  | { readonly opcode: typeof WROpcode.atomicFetchAndAdd; readonly compareAdd: bigint }
  | {
      readonly opcode: typeof WROpcode.atomicCmpAndSwap;
      readonly compareAdd: bigint;
      readonly swap: bigint;
    };

/** A message; with credits, its header spends one. */
export function sendPlan(
  data: Uint8Array | SGE | string,
  window: MessageWindow | undefined,
  maxInlineData: number,
): Plan<void> | VerbsError {
  const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
  if (bytes instanceof Uint8Array && isTransferred(bytes)) return transferred('send: data');
  const { length } = bytes;
  const what = `send of ${length} bytes`;
  const most = window?.peerBytes ?? Number.POSITIVE_INFINITY;
  if (length > most) {
    return new VerbsError('EMSGSIZE', `${what}: the peer takes messages of ${most} bytes at most`);
  }
  const header = window?.credited === true ? HEADER_BYTES : 0;
  const spend = (target: Uint8Array): void => putHeader(target, true, window?.spend() ?? 0);
  const opcode = WROpcode.send;
  const flags = SendFlag.signaled;
  const base = { what, spends: header > 0, finish: (): void => undefined };
  if (!(bytes instanceof Uint8Array)) {
    return {
      ...base,
      stageBytes: header > 0 ? header : undefined,
      request: (stage) => {
        if (stage === undefined) return { opcode, flags, sgList: [bytes] };
        spend(stage.mr.buffer);
        return { opcode, flags, sgList: [stage.mr.sge(0, header), bytes] };
      },
    };
  }
  if (header + length <= maxInlineData) {
    const inlineData = new Uint8Array(header + length);
    inlineData.set(bytes, header);
    return {
      ...base,
      stageBytes: undefined,
      request: () => {
        if (header > 0) spend(inlineData);
        return { opcode, flags, inlineData };
      },
    };
  }
  return {
    ...base,
    stageBytes: header + length,
    fill: (target) => target.set(bytes, header),
    request: (stage) => {
      if (header > 0 && stage !== undefined) spend(stage.mr.buffer);
      return { opcode, flags, sgList: sgListOf(stage, header + length) };
    },
  };
}

/** A Write of `data`; its bytes are copied here. */
export function writePlan(
  remote: RemoteMemory,
  data: Uint8Array | SGE,
  offset: number | undefined,
  maxInlineData: number,
): Plan<void> | VerbsError {
  if (data instanceof Uint8Array && isTransferred(data)) return transferred('write: data');
  const { length } = data;
  const what = `write of ${length} bytes`;
  const target = targetOf(remote, offset, length, what);
  if (target instanceof VerbsError) return target;
  const base = { opcode: WROpcode.rdmaWrite, flags: SendFlag.signaled, ...target } as const;
  const finish = (): void => undefined;
  if (!(data instanceof Uint8Array)) {
    const request = (): SendWR => ({ ...base, sgList: [data] });
    return { what, stageBytes: undefined, request, finish };
  }
  if (length <= maxInlineData) {
    const inlineData = data.slice();
    const request = (): SendWR => ({ ...base, inlineData });
    return { what, stageBytes: undefined, request, finish };
  }
  return {
    what,
    stageBytes: length,
    fill: (bytes) => bytes.set(data),
    request: (stage) => ({ ...base, sgList: sgListOf(stage, length) }),
    finish,
  };
}

/** A Read into memory of the program, or into a copy. */
export function readPlan(
  remote: RemoteMemory,
  into: number | Uint8Array | SGE | undefined,
  offset: number | undefined,
): Plan<Uint8Array> | VerbsError {
  if (into instanceof Uint8Array && isTransferred(into)) return transferred('read: into');
  const rest = remote.length - (offset ?? 0);
  const length = into === undefined ? rest : typeof into === 'number' ? into : into.length;
  const what = `read of ${length} bytes`;
  const source = targetOf(remote, offset, length, what);
  if (source instanceof VerbsError) return source;
  const base = { opcode: WROpcode.rdmaRead, flags: SendFlag.signaled, ...source } as const;
  if (typeof into === 'object' && !(into instanceof Uint8Array)) {
    const request = (): SendWR => ({ ...base, sgList: [into] });
    const finish = (): Uint8Array => new Uint8Array(0);
    return { what, stageBytes: undefined, request, finish };
  }
  return {
    what,
    stageBytes: length,
    request: (stage) => ({ ...base, sgList: sgListOf(stage, length) }),
    finish: ({ stage }) => {
      const bytes = stage?.mr.buffer.subarray(0, length) ?? new Uint8Array(0);
      if (!(into instanceof Uint8Array)) return bytes.slice();
      into.set(bytes);
      return into;
    },
  };
}

/** An atomic; the result is the value before it. */
export function atomicPlan(
  remote: RemoteMemory,
  offset: number | undefined,
  what: string,
  operation: AtomicOperation,
): Plan<bigint> | VerbsError {
  const target = targetOf(remote, offset, WORD_BYTES, what);
  if (target instanceof VerbsError) return target;
  if (target.remoteAddr % BigInt(WORD_BYTES) !== 0n) {
    const at = `remote.addr ${remote.addr} plus options.offset ${offset ?? 0}`;
    const text = `${what}: ${at} must be a multiple of ${WORD_BYTES}`;
    return invalid(text);
  }
  return {
    what,
    stageBytes: WORD_BYTES,
    request: (stage) => ({
      ...operation,
      ...target,
      flags: SendFlag.signaled,
      sgList: sgListOf(stage, WORD_BYTES),
    }),
    finish: ({ stage }) => {
      if (stage === undefined) throw new VerbsError('EIO');
      const { buffer, byteOffset } = stage.mr.buffer;
      return new DataView(buffer, byteOffset, WORD_BYTES).getBigUint64(0, true);
    },
  };
}

function transferred(name: string): VerbsError {
  return invalid(`${name} no longer has memory: its ArrayBuffer was transferred`);
}

/** Address and key at the peer, or the error. */
function targetOf(
  remote: RemoteMemory,
  offset: number | undefined,
  length: number,
  what: string,
): { readonly remoteAddr: bigint; readonly rkey: number } | VerbsError {
  const start = offset ?? 0;
  try {
    const memory = parseRemoteMemory(remote);
    const whole = Number.isSafeInteger(start) && Number.isSafeInteger(length);
    if (!whole || start < 0 || length < 0 || start + length > memory.length) {
      const text = `${what} at ${start}: outside the peer's region of ${memory.length} bytes`;
      return invalid(text);
    }
    return { remoteAddr: (BigInt(memory.addr) + BigInt(start)) % U64_END, rkey: memory.rkey };
  } catch (error) {
    return invalid(`remote: ${error instanceof Error ? error.message : error}`);
  }
}

function sgListOf(stage: Stage | undefined, length: number): readonly SGE[] {
  return stage === undefined || length === 0 ? [] : [stage.mr.sge(0, length)];
}
