/**
 * Memory regions over buffers of this process, and memory allocated for them.
 *
 * Registered bytes must neither move nor be freed, since the device writes to their pages:
 *
 * - They do not move: the bytes of an ArrayBuffer are outside V8's heap. Only typed arrays of at most
 *   64 bytes start inside it; reading `buffer` moves those out, for good, before their address is
 *   taken.
 * - They are not collected: the open device holds the region and the region holds the buffer, whatever
 *   the program drops, until the region is disposed of or the device is closed.
 * - They are not taken away: a resizable buffer is rejected, and a registered one cannot be
 *   transferred to another thread later (`markAsUntransferable`: Node copies it instead, and throws
 *   from version 21 on). The exception is `ArrayBuffer.prototype.transfer` of newer versions: a
 *   program must not call it on registered bytes.
 */
import { readFileSync } from 'node:fs';
import * as threads from 'node:worker_threads';
import { ACCESS_MASK, Access } from '#contract/verbs/enums';
import { addressOf, lastErrno, SystemCallError } from '../libc/libc.ts';
import { SharedMemory } from '../libc/shared-memory.ts';
import { callFailure, invalid, NativeError, unsupported } from './errors.ts';
import { NativeDeviceObject } from './open-device.ts';
import { peek } from './struct-block.ts';

const ADDRESS_END = 1n << 64n;
const ENOMEM = 12;
const REMOTE_CHANGES = Access.remoteWrite | Access.remoteAtomic;

/** Memory of `allocatePages`, by its buffer; freed with the last region in it. */
const pageMemory = new WeakMap<ArrayBufferLike, { memory: SharedMemory; regions: number }>();

/** New zeroed, page-aligned memory; freed with the last region in it, or by `releasePages`. */
export function allocatePages(lengthBytes: number): Uint8Array {
  if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1) {
    throw invalid('region length must be at least 1 byte');
  }
  try {
    const memory = SharedMemory.create('iwarpd-native', lengthBytes);
    // No other process maps it, and one descriptor per region would soon be too many.
    memory.closeDescriptor();
    pageMemory.set(memory.view.buffer, { memory, regions: 0 });
    return memory.view;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    throw new NativeError('refused', 'ENOMEM', error.message);
  }
}

/** Frees memory of `allocatePages` that has no region. */
export function releasePages(bytes: Uint8Array): void {
  const pages = pageMemory.get(bytes.buffer);
  if (pages?.regions === 0) pages.memory.release();
}

export class NativeMR extends NativeDeviceObject {
  readonly buffer: Uint8Array;
  /** Address of the first byte, for elements of work requests. */
  readonly address: number;
  /** Address of the first byte for peers. */
  readonly iova: bigint;
  readonly lkey: number;
  readonly rkey: number;

  /** `iova` undefined: peers use this process's addresses. */
  constructor(
    pd: NativeDeviceObject,
    buffer: Uint8Array,
    access: number,
    iova: bigint | undefined,
  ) {
    assertRegistrable(pd, buffer, access, iova);
    const address = pinnedAddress(buffer);
    const first = iova ?? ((access & Access.zeroBased) === 0 ? BigInt(address) : 0n);
    const { verbs } = pd.device.libraries;
    const pointer = verbs.ibv_reg_mr_iova(pd.pointer, address, buffer.length, first, access);
    if (pointer === 0) throw registrationFailure(pd, buffer.length, lastErrno());
    super(pd.device, 'memory region', pointer, [pd]);
    this.buffer = buffer;
    this.address = address;
    this.iova = first;
    this.lkey = peek('ibv_mr', 'lkey', pointer);
    this.rkey = peek('ibv_mr', 'rkey', pointer);
    const pages = pageMemory.get(buffer.buffer);
    if (pages !== undefined) pages.regions += 1;
  }

  protected override destroy(pointer: number): void {
    this.call('ibv_dereg_mr', pointer);
    const pages = pageMemory.get(this.buffer.buffer);
    if (pages === undefined) return;
    pages.regions -= 1;
    releasePages(this.buffer);
  }
}

/** Why bytes were not registered: distinguishes a limit on locked memory from a lack of memory. */
function registrationFailure(
  pd: NativeDeviceObject,
  lengthBytes: number,
  errno: number,
): NativeError {
  const subject = `${lengthBytes} bytes at ${pd.device.info.name}`;
  const limit = statusNumber('/proc/self/limits', /^Max locked memory +(\d+)/m);
  const pinned = statusNumber('/proc/self/status', /^VmPin:\s+(\d+)/m) ?? 0;
  if (errno !== ENOMEM || limit === undefined || pinned * 1024 + lengthBytes <= limit) {
    return callFailure('ibv_reg_mr', subject, errno);
  }
  const text = `ibv_reg_mr on ${subject}: more than the ${limit} bytes that may be locked (ulimit -l)`;
  return new NativeError('lockedMemory', 'ENOMEM', text);
}

/** A number in a file of the kernel; undefined if the number or the file is missing. */
function statusNumber(path: string, pattern: RegExp): number | undefined {
  const value = pattern.exec(readFileSync(path, 'latin1'))?.[1];
  return value === undefined ? undefined : Number(value);
}

function assertRegistrable(
  pd: NativeDeviceObject,
  buffer: Uint8Array,
  access: number,
  iova: bigint | undefined,
): void {
  const { name } = pd.device.info;
  const { traits } = pd.device;
  // Also true for a detached buffer.
  if (buffer.length === 0) throw invalid('region length must be at least 1 byte');
  if (isResizable(buffer.buffer)) throw invalid('a resizable buffer cannot be registered');
  if ((access & ~ACCESS_MASK) !== 0) throw invalid('unknown access bits');
  if ((access & REMOTE_CHANGES) !== 0 && (access & Access.localWrite) === 0) {
    throw invalid('remote write and remote atomic need local write');
  }
  if (iova !== undefined && (iova < 0n || iova + BigInt(buffer.length) > ADDRESS_END)) {
    throw invalid(`${buffer.length} bytes at ${iova} exceed the 64-bit address space`);
  }
  if ((access & Access.zeroBased) !== 0 && !traits.zeroBased) {
    throw unsupported(name, 'zero-based regions');
  }
  if (iova !== undefined && !traits.iova) throw unsupported(name, 'regions at a chosen address');
}

/** The address of the bytes, from now on fixed. */
function pinnedAddress(buffer: Uint8Array): number {
  const bytes = buffer.buffer;
  if (bytes instanceof ArrayBuffer && !isUntransferable(bytes)) threads.markAsUntransferable(bytes);
  return Number(addressOf(buffer));
}

/**
 * True if Node reports that already, from version 21 on. Buffers made by an addon are untransferable,
 * and Node 24 aborts if a worker thread ends in which one was marked again.
 */
function isUntransferable(bytes: ArrayBuffer): boolean {
  const { isMarkedAsUntransferable } = threads as {
    isMarkedAsUntransferable?: (bytes: ArrayBuffer) => boolean;
  };
  return isMarkedAsUntransferable?.(bytes) === true;
}

function isResizable(bytes: ArrayBufferLike): boolean {
  // Both are newer than ES2023, the version of our types.
  const { resizable, growable } = bytes as { resizable?: boolean; growable?: boolean };
  return resizable === true || growable === true;
}
