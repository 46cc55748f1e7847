/**
 * Memory that two processes map: an anonymous file (memfd_create(2)), sealed against changes of its
 * size, so no client can truncate it and kill the daemon with SIGBUS; or a part of a file that grows.
 *
 * JavaScript views of a mapping may outlive its release. Therefore `release` does not unmap: it maps
 * anonymous memory over the same addresses, which frees the shared pages at once and keeps a late
 * access harmless. The addresses are unmapped when the last view has been collected.
 */
import { constants } from 'node:buffer';
import { readFileSync } from 'node:fs';
import koffi from 'koffi';
import { closeDescriptor } from './descriptor.ts';
import { unreserved } from './descriptor-limit.ts';
import { checked, lastErrno, libc, type NumberCall, SystemCallError } from './libc.ts';

const memfdCreate = libc.func('int memfd_create(const char *name, uint32_t flags)') as (
  name: string,
  flags: number,
) => number;
const ftruncate = libc.func('int ftruncate(int fd, int64_t length)') as NumberCall;
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)') as NumberCall;
const addSeals = libc.func('int fcntl(int fd, int command, int seals)') as NumberCall;
const mmap = libc.func(
  'void *mmap(void *address, uint64_t length, int protection, int flags, int fd, int64_t offset)',
) as (
  address: bigint | null,
  length: number,
  protection: number,
  flags: number,
  fd: number,
  offset: number,
) => bigint | null;
const munmap = libc.func('int munmap(void *address, uint64_t length)') as (
  address: bigint,
  length: number,
) => number;

const getpagesize = libc.func('int getpagesize()') as () => number;

const fallocate = libc.func(
  'int posix_fallocate(int fd, int64_t offset, int64_t length)',
) as NumberCall;
const fallocateMode = libc.func(
  'int fallocate(int fd, int mode, int64_t offset, int64_t length)',
) as NumberCall;
const madvise = libc.func('int madvise(void *address, uint64_t length, int advice)') as (
  address: bigint,
  length: number,
  advice: number,
) => number;

const FALLOC_FL_KEEP_SIZE = 1;
const FALLOC_FL_PUNCH_HOLE = 2;
const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
const F_SEAL_SEAL = 1;
const F_SEAL_SHRINK = 2;
const F_SEAL_GROW = 4;
const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;
const MAP_PRIVATE_FIXED_ANONYMOUS_NORESERVE = 0x4032;
const MADV_REMOVE = 9;
const SEEK_END = 2;
/** MAP_FAILED as an unsigned 64-bit number. */
const MAP_FAILED = 0xffffffffffffffffn;

const ENOMEM = 12;

/** Bytes of a page on this machine: the unit of mmap(2) offsets. */
export const SYSTEM_PAGE_BYTES = getpagesize();

/**
 * The smallest page. Each mapping has one, and the garbage collector must count as much: it starts once
 * such memory has grown by 64 MiB, and mappings of single bytes would reach vm.max_map_count before.
 */
const PAGE_BYTES = 4096;

/**
 * Largest mapping: it is viewed through one typed array, and koffi aborts the process if V8 cannot
 * make one of that length. Node 20 stops at 4 GiB; later versions allow more.
 */
export const SHARED_MEMORY_MAX_BYTES = Math.min(constants.MAX_LENGTH, 2 ** 32);

/** Mappings to unmap in one turn: some three milliseconds of work. */
const UNMAPPED_PER_TURN = 1024;

/** Addresses whose last view was collected. The collector finds thousands at once. */
const unviewed: { address: bigint; lengthBytes: number }[] = [];
const collectedViews = new FinalizationRegistry<{ address: bigint; lengthBytes: number }>(
  (mapping) => {
    if (unviewed.length === 0) setImmediate(unmapSome);
    unviewed.push(mapping);
  },
);

function unmapSome(): void {
  for (const { address, lengthBytes } of unviewed.splice(-UNMAPPED_PER_TURN)) {
    mappings -= 1;
    // May fail at vm.max_map_count if it would split a mapping: only addresses are lost.
    munmap(address, lengthBytes);
  }
  if (unviewed.length > 0) setImmediate(unmapSome);
}

let mappings = 0;

export class SharedMemory {
  /** All bytes of the mapping; meaningless zeros after `release`. */
  readonly view: Uint8Array;
  readonly lengthBytes: number;
  /** The file to send to the other side; undefined once closed. */
  #descriptor: number | undefined;
  readonly #address: bigint;
  #released = false;

  /** `lengthBytes` has been checked: see `assertViewable`. */
  private constructor(descriptor: number, lengthBytes: number, offset = 0) {
    const address = mmap(null, lengthBytes, PROT_READ_WRITE, MAP_SHARED, descriptor, offset);
    if (address === null || address === MAP_FAILED) throw new SystemCallError('mmap', lastErrno());
    this.#address = address;
    this.#descriptor = descriptor;
    this.lengthBytes = lengthBytes;
    const bytes = koffi.view(address, Math.max(lengthBytes, PAGE_BYTES));
    mappings += 1;
    collectedViews.register(bytes, { address, lengthBytes });
    this.view = new Uint8Array(bytes, 0, lengthBytes);
  }

  /**
   * New shared memory of `lengthBytes` (at least 1) zero bytes. `name` shows up in /proc/<pid>/maps.
   * With `strict`, by default the system's setting, its pages are allocated at once. Throws
   * `SystemCallError` (ENOMEM, EMFILE, ENFILE).
   */
  static create(name: string, lengthBytes: number, strict = commitIsStrict()): SharedMemory {
    assertViewable(lengthBytes);
    const descriptor = createFile(name);
    try {
      checked('ftruncate', ftruncate(descriptor, lengthBytes));
      const seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
      if (strict) reservePages(descriptor, 0, lengthBytes);
      checked('fcntl F_ADD_SEALS', addSeals(descriptor, F_ADD_SEALS, seals));
      return new SharedMemory(descriptor, lengthBytes);
    } catch (error) {
      closeDescriptor(descriptor);
      throw error;
    }
  }

  /**
   * Maps memory made by the other side. Takes ownership of the descriptor, even if it throws: EINVAL
   * if the file is smaller than `lengthBytes`, since touching the missing part would raise SIGBUS.
   */
  static map(descriptor: number, lengthBytes: number): SharedMemory {
    try {
      return SharedMemory.mapPart(descriptor, 0, lengthBytes);
    } finally {
      closeDescriptor(descriptor);
    }
  }

  /**
   * Maps `lengthBytes` of a file that the caller owns, from `offset` on, a multiple of a page. Throws
   * `SystemCallError`: EINVAL if the file is too short.
   */
  static mapPart(descriptor: number, offset: number, lengthBytes: number): SharedMemory {
    assertViewable(lengthBytes);
    const actualBytes = fileBytes(descriptor);
    if (actualBytes < offset + lengthBytes) {
      const needed = offset + lengthBytes;
      throw new SystemCallError('mmap', 22, `file of ${actualBytes} bytes, not ${needed}`);
    }
    const memory = new SharedMemory(descriptor, lengthBytes, offset);
    memory.#descriptor = undefined;
    return memory;
  }

  /** Mappings of this process whose addresses are still in use. */
  static get mappings(): number {
    return mappings;
  }

  /** The file to send to the other side; undefined once closed. */
  get descriptor(): number | undefined {
    return this.#descriptor;
  }

  /** Closes the file; the mapping stays. A second call does nothing. */
  closeDescriptor(): void {
    if (this.#descriptor === undefined) return;
    closeDescriptor(this.#descriptor);
    this.#descriptor = undefined;
  }

  /**
   * Frees the pages for every side that maps them; they then read as zeros. For memory that the other
   * side has freed but keeps mapped until its garbage collector runs.
   */
  clear(): void {
    this.clearPart(0, this.lengthBytes);
  }

  /** Clears a part, in whole pages. */
  clearPart(offset: number, lengthBytes: number): void {
    if (!this.#released) madvise(this.#address + BigInt(offset), lengthBytes, MADV_REMOVE);
  }

  /**
   * Releases this side's mapping at once. Views stay harmless. A second call does nothing. If the
   * process has reached its limit of mappings, this one stays until its last view is collected.
   */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.closeDescriptor();
    const flags = MAP_PRIVATE_FIXED_ANONYMOUS_NORESERVE;
    mmap(this.#address, this.lengthBytes, PROT_READ_WRITE, flags, -1, 0);
  }
}

/**
 * A growing anonymous file, parts of which two processes map. It is sealed against shrinking, so
 * the other side cannot truncate it and kill this one with SIGBUS.
 */
export class SharedFile {
  /** To send to the other side; open until `close`. */
  readonly descriptor: number;

  /** An empty file; `name` as in `SharedMemory.create`. Throws `SystemCallError` (EMFILE, ENFILE). */
  constructor(name: string) {
    this.descriptor = createFile(name);
    checked(
      'fcntl F_ADD_SEALS',
      addSeals(this.descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK),
    );
  }

  /**
   * Maps a part; the file grows if needed. Reserve pages before use. Throws `SystemCallError` (ENOMEM,
   * EFBIG, EPERM).
   */
  map(offset: number, lengthBytes: number): SharedMemory {
    assertViewable(lengthBytes);
    const end = offset + lengthBytes;
    // The other side may have made it grow.
    if (fileBytes(this.descriptor) < end) checked('ftruncate', ftruncate(this.descriptor, end));
    return SharedMemory.mapPart(this.descriptor, offset, lengthBytes);
  }

  /**
   * Reserves the pages of a mapped part, with `strict` as for `SharedMemory.create`. Throws
   * `SystemCallError` (ENOMEM, ENOSPC).
   */
  reserve(offset: number, lengthBytes: number, strict = commitIsStrict()): void {
    if (strict) reservePages(this.descriptor, offset, lengthBytes);
  }

  /** Frees all of its pages, for every side that maps them; they then read as zeros. */
  clear(): void {
    const mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    fallocateMode(this.descriptor, mode, 0, fileBytes(this.descriptor));
  }

  /** Closes the file; mappings stay. */
  close(): void {
    closeDescriptor(this.descriptor);
  }
}

function createFile(name: string): number {
  const made = checked('memfd_create', memfdCreate(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return unreserved('memfd_create', made);
}

function fileBytes(descriptor: number): number {
  return checked('lseek', lseek(descriptor, 0, SEEK_END));
}

/** Throws ENOMEM for a length that no view can have. */
function assertViewable(lengthBytes: number): void {
  if (Number.isSafeInteger(lengthBytes) && lengthBytes > 0) {
    if (lengthBytes <= SHARED_MEMORY_MAX_BYTES) return;
  }
  const limit = `one mapping holds 1 to ${SHARED_MEMORY_MAX_BYTES} bytes, not ${lengthBytes}`;
  throw new SystemCallError('mmap', ENOMEM, limit);
}

const OVERCOMMIT = '/proc/sys/vm/overcommit_memory';
let systemIsStrict: boolean | undefined;

/**
 * True if the system promises no more memory than it has (vm.overcommit_memory 2). The pages of a memfd
 * are not part of that promise: if none is left, the first access to one raises SIGBUS.
 */
function commitIsStrict(): boolean {
  systemIsStrict ??= readStrictCommit(OVERCOMMIT);
  return systemIsStrict;
}

/** Whether the setting in this file is 2; false if it cannot be read. */
export function readStrictCommit(path: string): boolean {
  try {
    return readFileSync(path, 'latin1').trim() === '2';
  } catch {
    return false;
  }
}

/** Allocates pages of a file. Throws `SystemCallError` ENOMEM or ENOSPC. */
export function reservePages(descriptor: number, offset: number, lengthBytes: number): void {
  const errno = fallocate(descriptor, offset, lengthBytes);
  if (errno !== 0) throw new SystemCallError('posix_fallocate', errno);
}
