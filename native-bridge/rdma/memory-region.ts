/**
 * Memory regions over buffers of this process, and memory made for them.
 *
 * Registered octets must neither move nor be freed, for the device writes to their pages. How that
 * is guaranteed:
 *
 * - They do not move: the octets of an ArrayBuffer are outside of V8's heap. Only typed arrays of at
 *   most 64 octets start inside of it; asking for `buffer` moves those out, for good, before their
 *   address is taken.
 * - They are not collected: the open device holds the region and the region the buffer, whatever
 *   the program lets go of, until the region is disposed of or the device closed.
 * - They are not taken away: a buffer that may be resized is refused, and one that is registered
 *   is not transferred to another thread, also not later (`markAsUntransferable`: Node copies it
 *   instead, from version 21 on it throws). What cannot be kept from a program is
 *   `ArrayBuffer.prototype.transfer` of newer versions: it must not be called on registered octets.
 */
import { readFileSync } from 'node:fs';
import { markAsUntransferable } from 'node:worker_threads';
import { ACCESS_MASK, Access } from '../../verbs-api/contract/enums.ts';
import { addressOf, lastErrno, SystemCallError } from '../libc/libc.ts';
import { SharedMemory } from '../libc/shared-memory.ts';
import { callFailure, NativeError, unsupported } from './errors.ts';
import { checkResult } from './libraries.ts';
import { NativeObject } from './native-object.ts';
import type { NativePD } from './protection-domain.ts';
import { peek } from './struct-block.ts';

/** Addresses above have no exact number. */
const ADDRESS_MAX = 2 ** 53;
const ENOMEM = 12;
const REMOTE_CHANGES = Access.remoteWrite | Access.remoteAtomic;

/** Memory that `allocate` made, by its octets; it goes with the last region in it. */
const pageMemory = new WeakMap<ArrayBufferLike, { memory: SharedMemory; regions: number }>();

/** New zeroed, page-aligned memory; it goes with the last region in it, or by `releasePages`. */
export function allocatePages(lengthBytes: number): Uint8Array {
  if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
    throw new NativeError('refused', 'EINVAL', 'a region has at least one octet');
  }
  try {
    const memory = SharedMemory.create('iwarpd-native', lengthBytes);
    // Nobody else maps it, and a descriptor for each region would soon be too many.
    memory.closeDescriptor();
    pageMemory.set(memory.view.buffer, { memory, regions: 0 });
    return memory.view;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    throw new NativeError('refused', 'ENOMEM', error.message);
  }
}

/** Gives memory of `allocatePages` back in which no region is. */
export function releasePages(octets: Uint8Array): void {
  const pages = pageMemory.get(octets.buffer);
  if (pages?.regions === 0) pages.memory.release();
}

/** A registered buffer. */
export class NativeMR extends NativeObject {
  readonly buffer: Uint8Array;
  /** Address of the first octet, for elements of work requests. */
  readonly address: number;
  /** Address of the first octet for peers. */
  readonly iova: number;
  readonly lkey: number;
  readonly rkey: number;
  readonly #pd: NativePD;

  /** `iova` undefined: peers count as this process does. */
  constructor(pd: NativePD, buffer: Uint8Array, access: number, iova: number | undefined) {
    assertRegistrable(pd, buffer, access, iova);
    const address = pinnedAddress(buffer);
    const first = iova ?? ((access & Access.zeroBased) === 0 ? address : 0);
    const { verbs } = pd.device.libraries;
    const pointer = verbs.ibv_reg_mr_iova(pd.pointer, address, buffer.length, first, access);
    if (pointer === 0) throw registrationFailure(pd, buffer.length, lastErrno());
    super(`the memory region of ${pd.device.info.name}`, pointer, [pd]);
    this.#pd = pd;
    this.buffer = buffer;
    this.address = address;
    this.iova = first;
    this.lkey = peek('ibv_mr', 'lkey', pointer);
    this.rkey = peek('ibv_mr', 'rkey', pointer);
    const pages = pageMemory.get(buffer.buffer);
    if (pages !== undefined) pages.regions += 1;
  }

  protected override destroy(pointer: number): void {
    checkResult(
      'ibv_dereg_mr',
      this.subject,
      this.#pd.device.libraries.verbs.ibv_dereg_mr(pointer),
    );
    const pages = pageMemory.get(this.buffer.buffer);
    if (pages === undefined) return;
    pages.regions -= 1;
    releasePages(this.buffer);
  }
}

/** Why octets were not registered: a limit of locked memory is told apart from a lack of it. */
function registrationFailure(pd: NativePD, lengthBytes: number, errno: number): NativeError {
  const subject = `${lengthBytes} octets at ${pd.device.info.name}`;
  const limit = statusNumber('/proc/self/limits', /^Max locked memory +(\d+)/m);
  const pinned = statusNumber('/proc/self/status', /^VmPin:\s+(\d+)/m) ?? 0;
  if (errno !== ENOMEM || limit === undefined || pinned * 1024 + lengthBytes <= limit) {
    return callFailure('ibv_reg_mr', subject, errno);
  }
  const text = `ibv_reg_mr on ${subject}: more than the ${limit} octets that may be locked (ulimit -l)`;
  return new NativeError('lockedMemory', 'ENOMEM', text);
}

/** A number in a file of the kernel; undefined where it is none, or not told. */
function statusNumber(path: string, pattern: RegExp): number | undefined {
  const value = pattern.exec(readFileSync(path, 'latin1'))?.[1];
  return value === undefined ? undefined : Number(value);
}

function assertRegistrable(
  pd: NativePD,
  buffer: Uint8Array,
  access: number,
  iova: number | undefined,
): void {
  const refuse = (text: string): never => {
    throw new NativeError('refused', 'EINVAL', text);
  };
  const { name } = pd.device.info;
  const { traits } = pd.device;
  // A detached buffer has no octets left, either.
  if (buffer.length === 0) refuse('a region has at least one octet');
  if (isResizable(buffer.buffer)) refuse('a buffer that may be resized cannot be registered');
  if ((access & ~ACCESS_MASK) !== 0) refuse('unknown access bits');
  if ((access & REMOTE_CHANGES) !== 0 && (access & Access.localWrite) === 0) {
    refuse('what peers may change needs local write access');
  }
  if (iova !== undefined && (iova < 0 || iova > ADDRESS_MAX - buffer.length)) {
    refuse('the region leaves the addresses up to 2^53');
  }
  if ((access & Access.zeroBased) !== 0 && !traits.zeroBased) {
    throw unsupported(name, 'zero-based regions');
  }
  if (iova !== undefined && !traits.iova) throw unsupported(name, 'regions at a chosen address');
}

/** Where the octets are, and stay. */
function pinnedAddress(buffer: Uint8Array): number {
  const octets = buffer.buffer;
  if (octets instanceof ArrayBuffer) markAsUntransferable(octets);
  return Number(addressOf(buffer));
}

function isResizable(octets: ArrayBufferLike): boolean {
  // Both came after ES2023, which the types are of.
  const { resizable, growable } = octets as { resizable?: boolean; growable?: boolean };
  return resizable === true || growable === true;
}
