/**
 * The memory of another process: process_vm_readv(2) and process_vm_writev(2), and what decides
 * whether the kernel allows them.
 */
import { readFileSync } from 'node:fs';
import { closeDescriptor } from './descriptor.ts';
import { addressOf, checked, errnoName, lastErrno, libc } from './libc.ts';

type Transfer = (
  pid: number,
  local: bigint,
  localCount: number,
  remote: bigint,
  remoteCount: number,
  flags: number,
) => number;
const transferParameters =
  '(int pid, uint64_t local, uint64_t localCount, uint64_t remote, uint64_t remoteCount, uint64_t flags)';
const readv = libc.func(`int64_t process_vm_readv${transferParameters}`) as Transfer;
const writev = libc.func(`int64_t process_vm_writev${transferParameters}`) as Transfer;
const prctl = libc.func(
  'int prctl(int option, uint64_t a, uint64_t b, uint64_t c, uint64_t d)',
) as (option: number, a: number, b: number, c: number, d: number) => number;
const syscall = libc.func(
  'int64_t syscall(int64_t number, int64_t a, int64_t b, int64_t c, int64_t d)',
) as (number: number, a: number, b: number, c: number, d: number) => number;

const PR_SET_PTRACER = 0x59616d61;
const EPERM = 1;
// The same on every architecture, since they are newer than the common table.
const SYS_PIDFD_SEND_SIGNAL = 424;
const SYS_PIDFD_OPEN = 434;

const IOVEC_BYTES = 16;
/** Pieces of one transfer: as many segments as one read of a stream brings, and of short ones more. */
const BATCH_MAX = 64;
/** Between two looks whether a process is still the one that it was. */
const LOOK_INTERVAL_MS = 1;

/**
 * The memory of one process. It is bound to the process, not to its number: a later process with
 * the same pid is never touched.
 */
export class ProcessMemory {
  readonly pid: number;
  /** The errno name of the last refused transfer, for people. */
  lastError = '';
  #processDescriptor: number | undefined;
  /** Room for the local struct iovecs, then for as many remote ones. */
  readonly #vectors = new Uint8Array(2 * BATCH_MAX * IOVEC_BYTES);
  readonly #vectorFields = new DataView(this.#vectors.buffer);
  readonly #localAddress: bigint;
  readonly #remoteAddress: bigint;
  /** Writes that `writeLater` kept, in the vectors: local and remote pieces, octets. */
  #keptLocal = 0;
  #keptRemote = 0;
  #keptBytes = 0;
  /** The last remote piece. */
  #remoteStart = 0;
  #remoteBytes = 0;
  #lastBuffer: ArrayBufferLike | undefined;
  #lastBufferAddress = 0;
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  /** Throws `SystemCallError`: ESRCH without such a process, ENOSYS before Linux 5.3. */
  constructor(pid: number) {
    this.pid = pid;
    this.#processDescriptor = checked('pidfd_open', syscall(SYS_PIDFD_OPEN, pid, 0, 0, 0));
    this.#localAddress = addressOf(this.#vectors);
    this.#remoteAddress = this.#localAddress + BigInt(BATCH_MAX * IOVEC_BYTES);
  }

  /** False once the process has ended or the object is closed. */
  get alive(): boolean {
    const descriptor = this.#processDescriptor;
    if (descriptor === undefined) return false;
    if (syscall(SYS_PIDFD_SEND_SIGNAL, descriptor, 0, 0, 0) === 0) return true;
    // Not allowed to signal it (it changed its user) means that it is there.
    return lastErrno() === EPERM;
  }

  /**
   * Copies `length` octets at `address` of the process to `target` from `start`. False when the
   * process or that memory is gone (`lastError`); `target` may then be partly written.
   */
  read(address: number, target: Uint8Array, start: number, length: number): boolean {
    if (this.#keptLocal > 0 && !this.flush()) return false;
    return this.#stillAlive() && this.#transfer(readv, address, target, start, length);
  }

  /** Copies `length` octets of `source` from `start` to `address` of the process. See `read`. */
  write(address: number, source: Uint8Array, start: number, length: number): boolean {
    if (this.#keptLocal > 0 && !this.flush()) return false;
    return this.#stillAlive() && this.#transfer(writev, address, source, start, length);
  }

  /**
   * As `write`, but carried out by `flush`, or by any other access before it; `source` must stay as
   * it is until then. False when writes kept before could not be carried out.
   */
  writeLater(address: number, source: Uint8Array, start: number, length: number): boolean {
    if (this.#processDescriptor === undefined || start + length > source.length) {
      this.lastError = this.#processDescriptor === undefined ? 'EBADF' : 'EINVAL';
      return false;
    }
    if (this.#keptLocal === BATCH_MAX && !this.flush()) return false;
    this.#setVector(this.#keptLocal, this.#addressOf(source) + start, length);
    this.#keptLocal += 1;
    // Segments of one message lie side by side, and the kernel looks a page up once for each piece.
    if (this.#keptRemote === 0 || address !== this.#remoteStart + this.#remoteBytes) {
      this.#keptRemote += 1;
      this.#remoteStart = address;
      this.#remoteBytes = 0;
    }
    this.#remoteBytes += length;
    this.#setVector(BATCH_MAX + this.#keptRemote - 1, this.#remoteStart, this.#remoteBytes);
    this.#keptBytes += length;
    return true;
  }

  /** Carries out what was kept, in its order. False when process or memory is gone (`lastError`). */
  flush(): boolean {
    const [local, remote, bytes] = [this.#keptLocal, this.#keptRemote, this.#keptBytes];
    if (local === 0) return true;
    this.#keptLocal = 0;
    this.#keptRemote = 0;
    this.#keptBytes = 0;
    if (this.#processDescriptor === undefined || !this.#stillAlive()) return false;
    const moved = writev(this.pid, this.#localAddress, local, this.#remoteAddress, remote, 0);
    if (moved === bytes) return true;
    this.lastError = moved < 0 ? errnoName(lastErrno()) : 'EFAULT';
    return false;
  }

  /** Tries to read `address`: undefined when it can be read, else the errno name. */
  probe(address: number, lengthBytes: number): string | undefined {
    const octet = new Uint8Array(1);
    if (!this.read(address, octet, 0, 1)) return this.lastError;
    return this.read(address + lengthBytes - 1, octet, 0, 1) ? undefined : this.lastError;
  }

  /** Every later transfer is refused. A second call does nothing. */
  close(): void {
    if (this.#processDescriptor === undefined) return;
    closeDescriptor(this.#processDescriptor);
    this.#processDescriptor = undefined;
  }

  /**
   * Looks once in a while: a look costs as much as a small transfer. The kernel gives a pid out
   * again only after it went through all others, which takes it seconds.
   */
  #stillAlive(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#lookedAtMs < LOOK_INTERVAL_MS) return true;
    if (!this.alive) {
      this.lastError = 'ESRCH';
      return false;
    }
    this.#lookedAtMs = nowMs;
    return true;
  }

  #transfer(
    call: Transfer,
    address: number,
    local: Uint8Array,
    start: number,
    length: number,
  ): boolean {
    if (this.#processDescriptor === undefined || start + length > local.length) {
      this.lastError = this.#processDescriptor === undefined ? 'EBADF' : 'EINVAL';
      return false;
    }
    const base = this.#addressOf(local) + start;
    let done = 0;
    while (done < length) {
      this.#setVector(0, base + done, length - done);
      this.#setVector(BATCH_MAX, address + done, length - done);
      const moved = call(this.pid, this.#localAddress, 1, this.#remoteAddress, 1, 0);
      if (moved <= 0) {
        this.lastError = moved < 0 ? errnoName(lastErrno()) : 'EFAULT';
        return false;
      }
      done += moved;
    }
    return true;
  }

  /** Writes an iovec; addresses of user space fit a number. */
  #setVector(index: number, address: number, length: number): void {
    const at = index * IOVEC_BYTES;
    this.#vectorFields.setUint32(at, address >>> 0, true);
    this.#vectorFields.setUint32(at + 4, Math.floor(address / 0x1_0000_0000), true);
    this.#vectorFields.setUint32(at + 8, length >>> 0, true);
    this.#vectorFields.setUint32(at + 12, Math.floor(length / 0x1_0000_0000), true);
  }

  /** Streams reuse their buffers, so the last address is worth keeping. */
  #addressOf(octets: Uint8Array): number {
    const buffer = octets.buffer;
    if (buffer !== this.#lastBuffer) {
      this.#lastBufferAddress = Number(addressOf(new Uint8Array(buffer)));
      this.#lastBuffer = buffer;
    }
    return this.#lastBufferAddress + octets.byteOffset;
  }
}

/**
 * Allows the process `pid` to reach the memory of this one, where Yama asks for that
 * (PR_SET_PTRACER). Returns false where the kernel has no Yama, which then needs no permission.
 */
export function allowTracer(pid: number): boolean {
  return prctl(PR_SET_PTRACER, pid, 0, 0, 0) === 0;
}

/** Yama's ptrace_scope, or undefined without Yama. */
export function yamaScope(): number | undefined {
  try {
    const scope = Number.parseInt(readFileSync('/proc/sys/kernel/yama/ptrace_scope', 'latin1'), 10);
    return Number.isNaN(scope) ? undefined : scope;
  } catch {
    return undefined;
  }
}
