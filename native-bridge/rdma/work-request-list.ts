/**
 * Lists of work requests in the library's structs. One list of each kind serves all queues of the
 * process: a call fills it and the provider reads it before the next call. The elements are linked
 * once; a call only clears the last one's link.
 */
import { SendFlag, WROpcode } from '#contract/verbs/enums';
import type { ErrnoCode } from '#contract/verbs/errors';
import { hasUnknownReceiveField, lostPayload, SEND_FLAGS } from '#contract/verbs/request-fields';
import type { RecvWR, SendFields, SGE } from '#contract/verbs/work-request';
import { lastErrno } from '../libc/libc.ts';
import type { DeviceTraits } from './device-traits.ts';
import { fieldOf, type StructName, sizeOf } from './layouts.ts';
import { Block } from './struct-block.ts';

/** Maximum requests per call; longer lists take several calls. */
const LIST_MAX = 64;
/** Most SGEs of a request in our list. */
export const SGE_LIMIT = 32;
/** Maximum inline bytes of a request in our list. */
export const INLINE_LIMIT = 1024;

const SGE_WORDS = sizeOf('ibv_sge') / 4;
const SGE_LENGTH = fieldOf('ibv_sge', 'length')[0] / 4;
const SGE_LKEY = fieldOf('ibv_sge', 'lkey')[0] / 4;
const TWO_TO_32 = 2 ** 32;
const ATOMIC_BYTES = 8;
const NO_SGES: readonly SGE[] = [];

export interface PostLimits {
  readonly device: string;
  readonly traits: DeviceTraits;
  readonly atomics: boolean;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxSgeRead: number;
  /** Bytes. */
  readonly maxInline: number;
}

/** Elements linked in a block, each with space for its scatter/gather list. */
class RequestList {
  readonly #block: Block;
  readonly #sges: Block;
  readonly #struct: 'ibv_send_wr' | 'ibv_recv_wr';
  readonly words: Uint32Array;
  readonly sgeWords: Uint32Array;
  readonly elementWords: number;
  readonly #next: number;
  #cut = -1;

  constructor(struct: 'ibv_send_wr' | 'ibv_recv_wr') {
    const elementBytes = sizeOf(struct);
    this.#struct = struct;
    this.elementWords = elementBytes / 4;
    this.#block = new Block(LIST_MAX * elementBytes);
    this.#sges = new Block(LIST_MAX * SGE_LIMIT * sizeOf('ibv_sge'));
    this.words = new Uint32Array(this.#block.bytes.buffer);
    this.sgeWords = new Uint32Array(this.#sges.bytes.buffer);
    this.#next = wordOf(struct, 'next');
    const sgList = wordOf(struct, 'sg_list');
    for (let index = 0; index < LIST_MAX; index += 1) {
      const at = index * this.elementWords;
      putLong(this.words, at + this.#next, this.addressOf(index + 1));
      putLong(this.words, at + sgList, this.#sges.address + index * SGE_LIMIT * sizeOf('ibv_sge'));
    }
  }

  get address(): number {
    return this.#block.address;
  }

  addressOf(index: number): number {
    return this.#block.address + index * sizeOf(this.#struct);
  }

  /** Index of the element at an address, or -1. */
  indexOf(address: number): number {
    const offset = address - this.#block.address;
    return offset >= 0 && offset < this.words.byteLength ? offset / sizeOf(this.#struct) : -1;
  }

  /** Ends the list after `count` elements. */
  end(count: number): void {
    const last = count - 1;
    if (this.#cut === last) return;
    if (this.#cut >= 0) {
      const at = this.#cut * this.elementWords + this.#next;
      putLong(this.words, at, this.addressOf(this.#cut + 1));
    }
    putLong(this.words, last * this.elementWords + this.#next, 0);
    this.#cut = last;
  }

  /** Writes the SGEs of request `index`. Returns false if one is malformed. */
  putSges(index: number, list: readonly SGE[]): boolean {
    let at = index * SGE_LIMIT * SGE_WORDS;
    for (let entry = 0; entry < list.length; entry += 1) {
      const sge = list[entry];
      if (sge === undefined || !isUint32(sge.length) || !isUint32(sge.lkey)) return false;
      if (!putLong(this.sgeWords, at, sge.addr)) return false;
      this.sgeWords[at + SGE_LENGTH] = sge.length;
      this.sgeWords[at + SGE_LKEY] = sge.lkey;
      at += SGE_WORDS;
    }
    return true;
  }
}

const S_WR_ID = wordOf('ibv_send_wr', 'wr_id');
const S_NUM_SGE = wordOf('ibv_send_wr', 'num_sge');
const S_OPCODE = wordOf('ibv_send_wr', 'opcode');
const S_FLAGS = wordOf('ibv_send_wr', 'send_flags');
const S_INVALIDATE = wordOf('ibv_send_wr', 'imm_data');
const S_REMOTE = wordOf('ibv_send_wr', 'wr.rdma.remote_addr');
const S_RKEY = wordOf('ibv_send_wr', 'wr.rdma.rkey');
const S_COMPARE_ADD = wordOf('ibv_send_wr', 'wr.atomic.compare_add');
const S_SWAP = wordOf('ibv_send_wr', 'wr.atomic.swap');
const S_ATOMIC_RKEY = wordOf('ibv_send_wr', 'wr.atomic.rkey');
const R_WR_ID = wordOf('ibv_recv_wr', 'wr_id');
const R_NUM_SGE = wordOf('ibv_recv_wr', 'num_sge');

const sends = new RequestList('ibv_send_wr');
const receives = new RequestList('ibv_recv_wr');
/** Inline payload, referenced by the requests' SGEs. */
const payload = new Block(LIST_MAX * INLINE_LIMIT);
/** Where the library writes the address of the first bad request. */
const bad = new Block(8);

/** Calls the provider with queue, list, and the location for the first bad request. */
type Post = (queue: number, list: number, badAddress: number) => number;

/** Result of posting: how many were posted and, unless all, the errno number for the next. */
export interface PostOutcome {
  posted: number;
  /**
   * 0: all were posted. Otherwise an errno number, or one of our codes for a request that never reached
   * the provider.
   */
  errno: number;
  code: ErrnoCode | undefined;
  /** The missing feature, for EOPNOTSUPP. */
  lacking: string;
}

/** Reused: the result of the last call. */
const outcome: PostOutcome = { posted: 0, errno: 0, code: undefined, lacking: '' };

/** Posts send requests. The result is valid until the next call. */
export function postSends(
  requests: readonly SendFields[],
  limits: PostLimits,
  post: Post,
  queue: number,
): PostOutcome {
  return postAll(requests, sends, post, queue, (wr, index) => putSend(wr, index, limits));
}

/** Returns what `postSends` would, without posting, assuming there is room. */
export function checkSends(requests: readonly SendFields[], limits: PostLimits): PostOutcome {
  return postAll(
    requests,
    sends,
    () => 0,
    0,
    (wr, index) => putSend(wr, index, limits),
  );
}

/** Like `checkSends`, for receives. */
export function checkReceives(requests: readonly RecvWR[], limits: PostLimits): PostOutcome {
  return postAll(
    requests,
    receives,
    () => 0,
    0,
    (wr, index) => putReceive(wr, index, limits),
  );
}

/** Posts receives. The result is valid until the next call. */
export function postReceives(
  requests: readonly RecvWR[],
  limits: PostLimits,
  post: Post,
  queue: number,
): PostOutcome {
  return postAll(requests, receives, post, queue, (wr, index) => putReceive(wr, index, limits));
}

function postAll<T>(
  requests: readonly T[],
  list: RequestList,
  post: Post,
  queue: number,
  put: (request: T, index: number) => ErrnoCode | undefined,
): PostOutcome {
  outcome.posted = 0;
  outcome.errno = 0;
  outcome.code = undefined;
  while (outcome.posted < requests.length && outcome.code === undefined) {
    const first = outcome.posted;
    let count = 0;
    while (count < LIST_MAX && first + count < requests.length) {
      const request = requests[first + count];
      outcome.code = request === undefined ? 'EINVAL' : put(request, count);
      if (outcome.code !== undefined) break;
      count += 1;
    }
    if (count === 0) break;
    list.end(count);
    const result = post(queue, list.address, bad.address);
    if (result !== 0) {
      const index = list.indexOf(Number(bad.view.getBigUint64(0, true)));
      outcome.posted += Math.max(index, 0);
      // libsiw passes on the -1 of the system call that rings its doorbell.
      outcome.errno = result === -1 ? lastErrno() : Math.abs(result);
      outcome.code = undefined;
      break;
    }
    outcome.posted += count;
  }
  return outcome;
}

function putReceive(wr: RecvWR, index: number, limits: PostLimits): ErrnoCode | undefined {
  const list = wr.sgList;
  if (list === undefined || !(list.length <= limits.maxRecvSge)) return 'EINVAL';
  if (list.length === 0 && hasUnknownReceiveField(wr)) return 'EINVAL';
  if (!receives.putSges(index, list)) return 'EINVAL';
  const at = index * receives.elementWords;
  if (!putLong(receives.words, at + R_WR_ID, wr.wrId ?? 0)) return 'EINVAL';
  let count = list.length;
  if (count === 0 && limits.traits.needsElement) {
    putEmptySge(receives, index);
    count = 1;
  }
  receives.words[at + R_NUM_SGE] = count;
  return undefined;
}

function putSend(wr: SendFields, index: number, limits: PostLimits): ErrnoCode | undefined {
  const { words } = sends;
  const at = index * sends.elementWords;
  const flags = wr.flags ?? 0;
  if (flags !== (flags & SEND_FLAGS)) return 'EINVAL';
  if (!putLong(words, at + S_WR_ID, wr.wrId ?? 0)) return 'EINVAL';
  // A payload means inline, with or without the flag.
  const inline = (flags & SendFlag.inline) !== 0 || (wr.inlineData?.length ?? 0) > 0;
  words[at + S_FLAGS] = inline ? flags | SendFlag.inline : flags;
  words[at + S_OPCODE] = wr.opcode;
  switch (wr.opcode) {
    case WROpcode.send:
      return putPayload(wr, index, inline, limits);
    case WROpcode.sendWithInv:
      if (!putKey(at + S_INVALIDATE, wr.invalidateRkey)) return 'EINVAL';
      // libsiw up to rdma-core 44 reads it from here.
      words[at + S_RKEY] = wr.invalidateRkey ?? 0;
      return putPayload(wr, index, inline, limits);
    case WROpcode.rdmaWrite:
      return putRemote(wr, at) ? putPayload(wr, index, inline, limits) : 'EINVAL';
    case WROpcode.rdmaRead:
      if (inline || !putRemote(wr, at)) return 'EINVAL';
      return putRead(wr, index, limits);
    case WROpcode.atomicFetchAndAdd:
    case WROpcode.atomicCmpAndSwap:
      return inline ? 'EINVAL' : putAtomic(wr, index, limits);
    case WROpcode.localInv:
      if (inline || !putKey(at + S_INVALIDATE, wr.invalidateRkey)) return 'EINVAL';
      if (!limits.traits.localInvalidate) return lacks('invalidation of own STags by programs');
      words[at + S_NUM_SGE] = 0;
      return undefined;
    case WROpcode.sendWithImm:
    case WROpcode.rdmaWriteWithImm:
    case WROpcode.immediate:
      return lacks('Immediate Data of 8 bytes');
    case WROpcode.bindMW:
      return lacks('memory windows');
    default:
      return 'EINVAL';
  }
}

function putPayload(
  wr: SendFields,
  index: number,
  inline: boolean,
  limits: PostLimits,
): ErrnoCode | undefined {
  if (!inline) return putSgList(wr, index, limits.maxSendSge);
  const data = wr.inlineData;
  const lengthBytes = data?.length ?? 0;
  if (lengthBytes === 0 && lostPayload(wr)) return 'EINVAL';
  if (lengthBytes > limits.maxInline || (wr.sgList?.length ?? 0) > 0) return 'EINVAL';
  const offset = index * INLINE_LIMIT;
  if (data !== undefined) payload.bytes.set(data, offset);
  putEmptySge(sends, index);
  const sge = index * SGE_LIMIT * SGE_WORDS;
  putLong(sends.sgeWords, sge, payload.address + offset);
  sends.sgeWords[sge + SGE_LENGTH] = lengthBytes;
  sends.words[index * sends.elementWords + S_NUM_SGE] = 1;
  return undefined;
}

function putSgList(wr: SendFields, index: number, max: number): ErrnoCode | undefined {
  const list = wr.sgList ?? NO_SGES;
  if (list.length === 0 && lostPayload(wr)) return 'EINVAL';
  if (list.length > max || !sends.putSges(index, list)) return 'EINVAL';
  sends.words[index * sends.elementWords + S_NUM_SGE] = list.length;
  return undefined;
}

function putRead(wr: SendFields, index: number, limits: PostLimits): ErrnoCode | undefined {
  const refusal = putSgList(wr, index, limits.maxSgeRead);
  const words = index * sends.elementWords + S_NUM_SGE;
  if (refusal === undefined && limits.traits.needsElement && sends.words[words] === 0) {
    putEmptySge(sends, index);
    sends.words[words] = 1;
  }
  return refusal;
}

function putAtomic(wr: SendFields, index: number, limits: PostLimits): ErrnoCode | undefined {
  if (!limits.atomics) return lacks('atomics');
  const { words } = sends;
  const at = index * sends.elementWords;
  if (wr.sgList?.length !== 1 || wr.sgList[0]?.length !== ATOMIC_BYTES) return 'EINVAL';
  if (wr.remoteAddr === undefined || wr.compareAdd === undefined) return 'EINVAL';
  const swap = wr.opcode === WROpcode.atomicCmpAndSwap ? wr.swap : 0;
  if (swap === undefined || !putKey(at + S_ATOMIC_RKEY, wr.rkey)) return 'EINVAL';
  const fits =
    putLong(words, at + S_REMOTE, wr.remoteAddr) &&
    putLong(words, at + S_COMPARE_ADD, wr.compareAdd) &&
    putLong(words, at + S_SWAP, swap);
  return fits ? putSgList(wr, index, 1) : 'EINVAL';
}

function putRemote(wr: SendFields, at: number): boolean {
  if (wr.remoteAddr === undefined || !putKey(at + S_RKEY, wr.rkey)) return false;
  return putLong(sends.words, at + S_REMOTE, wr.remoteAddr);
}

function putKey(word: number, key: number | undefined): boolean {
  if (key === undefined || !isUint32(key)) return false;
  sends.words[word] = key;
  return true;
}

function putEmptySge(list: RequestList, index: number): void {
  const at = index * SGE_LIMIT * SGE_WORDS;
  list.sgeWords.fill(0, at, at + SGE_WORDS);
}

function lacks(what: string): ErrnoCode {
  outcome.lacking = what;
  return 'EOPNOTSUPP';
}

function isUint32(value: number): boolean {
  return value >>> 0 === value;
}

/** Writes 64 bits; a negative value wraps. Returns false if the number is not an integer. */
function putLong(words: Uint32Array, word: number, value: number | bigint): boolean {
  if (typeof value === 'bigint') {
    words[word] = Number(BigInt.asUintN(32, value));
    words[word + 1] = Number(BigInt.asUintN(32, value >> 32n));
    return true;
  }
  if (!Number.isSafeInteger(value)) return false;
  words[word] = value >>> 0;
  words[word + 1] = Math.floor(value / TWO_TO_32) >>> 0;
  return true;
}

function wordOf<S extends StructName>(struct: S, field: Parameters<typeof fieldOf<S>>[1]): number {
  return fieldOf(struct, field)[0] / 4;
}
