/**
 * Memory that two processes map: an anonymous file (memfd_create(2)), sealed against any change of
 * its size, so that no client can truncate it and kill the daemon with SIGBUS.
 *
 * JavaScript views of a mapping may outlive its release. Therefore `release` does not unmap: it
 * puts anonymous memory at the same addresses, which gives the shared pages back at once and keeps
 * a late access harmless; the addresses are unmapped when the last view has been collected.
 */
import koffi from 'koffi';
import { closeDescriptor } from './descriptor.ts';
import { checked, lastErrno, libc, SystemCallError } from './libc.ts';

const memfdCreate = libc.func('int memfd_create(const char *name, uint32_t flags)') as (
  name: string,
  flags: number,
) => number;
const ftruncate = libc.func('int ftruncate(int fd, int64_t length)') as (
  fd: number,
  length: number,
) => number;
const lseek = libc.func('int64_t lseek(int fd, int64_t offset, int whence)') as (
  fd: number,
  offset: number,
  whence: number,
) => number;
const addSeals = libc.func('int fcntl(int fd, int command, int seals)') as (
  fd: number,
  command: number,
  seals: number,
) => number;
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

const madvise = libc.func('int madvise(void *address, uint64_t length, int advice)') as (
  address: bigint,
  length: number,
  advice: number,
) => number;

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

/** Unmaps addresses whose last view was collected. */
const collectedViews = new FinalizationRegistry<{ address: bigint; lengthBytes: number }>(
  ({ address, lengthBytes }) => munmap(address, lengthBytes),
);

/** Shared memory mapped into this process. */
export class SharedMemory {
  /** All octets of the mapping; zeros of no meaning after `release`. */
  readonly view: Uint8Array;
  readonly lengthBytes: number;
  /** The file behind it, to be sent to the other side; undefined once closed or not kept. */
  #descriptor: number | undefined;
  readonly #address: bigint;
  #released = false;

  private constructor(descriptor: number, lengthBytes: number) {
    const address = mmap(null, lengthBytes, PROT_READ_WRITE, MAP_SHARED, descriptor, 0);
    if (address === null || address === MAP_FAILED) throw new SystemCallError('mmap', lastErrno());
    this.#address = address;
    this.#descriptor = descriptor;
    this.lengthBytes = lengthBytes;
    const octets = koffi.view(address, lengthBytes);
    collectedViews.register(octets, { address, lengthBytes });
    this.view = new Uint8Array(octets);
  }

  /**
   * New shared memory of `lengthBytes` (at least 1) zero octets. `name` shows up in
   * /proc/<pid>/maps. Throws `SystemCallError` (ENOMEM, EMFILE, ENFILE).
   */
  static create(name: string, lengthBytes: number): SharedMemory {
    const descriptor = checked('memfd_create', memfdCreate(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    try {
      checked('ftruncate', ftruncate(descriptor, lengthBytes));
      const seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
      checked('fcntl F_ADD_SEALS', addSeals(descriptor, F_ADD_SEALS, seals));
      return new SharedMemory(descriptor, lengthBytes);
    } catch (error) {
      closeDescriptor(descriptor);
      throw error;
    }
  }

  /**
   * Maps memory that the other side made and takes the descriptor over, also when it throws:
   * EINVAL when the file is smaller than `lengthBytes`, since touching what is missing would be a
   * SIGBUS.
   */
  static map(descriptor: number, lengthBytes: number): SharedMemory {
    try {
      const actualBytes = checked('lseek', lseek(descriptor, 0, SEEK_END));
      if (actualBytes < lengthBytes) {
        throw new SystemCallError('mmap', 22, `file of ${actualBytes} octets, not ${lengthBytes}`);
      }
      const memory = new SharedMemory(descriptor, lengthBytes);
      memory.closeDescriptor();
      return memory;
    } catch (error) {
      closeDescriptor(descriptor);
      throw error;
    }
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
   * Takes the pages from every side that maps them; they read as zeros from then on. For memory
   * that the other side has freed but maps until its garbage collector comes round.
   */
  clear(): void {
    if (!this.#released) madvise(this.#address, this.lengthBytes, MADV_REMOVE);
  }

  /** Gives this side's mapping back at once. Views stay harmless. A second call does nothing. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.closeDescriptor();
    const flags = MAP_PRIVATE_FIXED_ANONYMOUS_NORESERVE;
    const address = mmap(this.#address, this.lengthBytes, PROT_READ_WRITE, flags, -1, 0);
    if (address !== this.#address) throw new SystemCallError('mmap', lastErrno());
  }
}
