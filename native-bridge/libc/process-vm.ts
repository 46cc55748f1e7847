/**
 * Another process's memory: process_vm_readv(2) and process_vm_writev(2), and whether the kernel
 * allows them.
 */
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { copyGuard } from './copy-guard.ts';
import { closeDescriptor, duplicateDescriptor } from './descriptor.ts';
import { addressOf, checked, errnoName, lastErrno, libc, type NumberCall } from './libc.ts';
import { processClock } from './process-clock.ts';

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
) as NumberCall;
const syscall = libc.func(
  'int64_t syscall(int64_t number, int64_t a, int64_t b, int64_t c, int64_t d)',
) as NumberCall;

const poll = libc.func('int poll(uint64_t entries, uint64_t count, int timeoutMs)') as (
  entries: bigint,
  count: number,
  timeoutMs: number,
) => number;

const POLLIN = 1;
const PR_SET_PTRACER = 0x59616d61;
const EPERM = 1;
// Newer system calls have the same number on every architecture.
const SYS_PIDFD_SEND_SIGNAL = 424;
const SYS_PIDFD_OPEN = 434;
const SIGKILL = 9;
/** Kernel functions in which frozen threads sleep. */
const FREEZERS: ReadonlySet<string> = new Set(['__refrigerator', 'get_signal', 'do_freezer_trap']);
const SYS_PROCESS_VM_WRITEV = process.arch === 'arm64' ? 271 : 311;

const IOVEC_BYTES = 16;
/** Pieces per transfer: enough for the segments of one read of a stream, unless they are short. */
const BATCH_MAX = 128;
/** Interval between two checks whether the process is still the same one. */
const LOOK_INTERVAL_MS = 1;

/** Pieces of one deferred transfer, as struct iovecs. */
class Batch {
  /** Addresses of the vectors. */
  readonly local: bigint;
  readonly remote: bigint;
  localCount = 0;
  remoteCount = 0;
  bytes = 0;
  /** The owner of each local piece, if it is deferred. */
  readonly owners: (object | undefined)[] = new Array<undefined>(BATCH_MAX);
  readonly #targets = new Float64Array(BATCH_MAX);
  /** The last remote piece. */
  #remoteStart = 0;
  #remoteBytes = 0;
  /** Space for the local struct iovecs, then for as many remote ones. */
  readonly #vectors = new Uint8Array(2 * BATCH_MAX * IOVEC_BYTES);
  readonly #fields = new DataView(this.#vectors.buffer);

  constructor() {
    this.local = addressOf(this.#vectors);
    this.remote = this.local + BigInt(BATCH_MAX * IOVEC_BYTES);
  }

  get full(): boolean {
    return this.localCount === BATCH_MAX;
  }

  add(local: number, remote: number, length: number, owner?: object): void {
    this.#setVector(this.localCount, local, length);
    this.owners[this.localCount] = owner;
    this.#targets[this.localCount] = remote;
    this.localCount += 1;
    // Segments of one message are adjacent, and the kernel looks up a page for each piece.
    if (this.remoteCount === 0 || remote !== this.#remoteStart + this.#remoteBytes) {
      this.remoteCount += 1;
      this.#remoteStart = remote;
      this.#remoteBytes = 0;
    }
    this.#remoteBytes += length;
    this.#setVector(BATCH_MAX + this.remoteCount - 1, this.#remoteStart, this.#remoteBytes);
    this.bytes += length;
  }

  /** One piece. */
  set(local: number, remote: number, length: number): void {
    this.#setVector(0, local, length);
    this.#setVector(BATCH_MAX, remote, length);
  }

  /** The address in the process after the first `moved` bytes of the last `count` pieces. */
  addressAfter(count: number, moved: number): number {
    let end = 0;
    for (let index = 0; index < count; index += 1) {
      const start = end;
      end += this.#fields.getUint32(index * IOVEC_BYTES + 8, true);
      if (end > moved) return (this.#targets[index] as number) + (moved - start);
    }
    return 0;
  }

  /** Copies the piece at `index` to `one`; returns its length. */
  copyPiece(index: number, one: Batch): number {
    const at = index * IOVEC_BYTES;
    const low = this.#fields.getUint32(at, true);
    const high = this.#fields.getUint32(at + 4, true);
    const length = this.#fields.getUint32(at + 8, true);
    one.set(high * 0x1_0000_0000 + low, this.#targets[index] as number, length);
    return length;
  }

  clear(): void {
    this.localCount = 0;
    this.remoteCount = 0;
    this.bytes = 0;
  }

  /** Writes an iovec; user-space addresses fit a number. */
  #setVector(index: number, address: number, length: number): void {
    const at = index * IOVEC_BYTES;
    this.#fields.setUint32(at, address >>> 0, true);
    this.#fields.setUint32(at + 4, Math.floor(address / 0x1_0000_0000), true);
    this.#fields.setUint32(at + 8, length >>> 0, true);
    this.#fields.setUint32(at + 12, Math.floor(length / 0x1_0000_0000), true);
  }
}

/**
 * The memory of one process, bound to the process instead of its pid: a later process with the same
 * pid is never touched.
 */
export class ProcessMemory {
  readonly pid: number;
  /** The errno name of the last failed transfer, for messages. */
  lastError = '';
  /** Called with an address at which a transfer failed because the process may not access it. */
  onFault: (address: number) => void = () => undefined;
  #probing = false;
  #processDescriptor: number | undefined;
  /** For immediate transfers. */
  readonly #direct = new Batch();
  /** Writes deferred by `writeLater`, and reads deferred by `readLater`. */
  readonly #writes = new Batch();
  readonly #reads = new Batch();
  /** Owners whose deferred writes failed since their last `flush`. */
  readonly #writesLost = new Set<object>();
  /** A deferred read has failed since the last `flushReads`. */
  #readsLost = false;
  /** The buffer used last, and the one before: a stream of messages mostly uses two in turns. */
  #lastBuffer: ArrayBufferLike | undefined;
  #lastBufferAddress = 0;
  #otherBuffer: ArrayBufferLike | undefined;
  #otherBufferAddress = 0;
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  /**
   * `descriptor` is a pidfd of the process; the object takes ownership. Default: a new one of the
   * process that has the pid now. Throws `SystemCallError`, see `openProcessDescriptor`.
   */
  constructor(pid: number, descriptor: number = openProcessDescriptor(pid)) {
    this.pid = pid;
    this.#processDescriptor = descriptor;
    copyGuard.start();
  }

  /** False once `close` was called. */
  get open(): boolean {
    return this.#processDescriptor !== undefined;
  }

  /** Another pidfd of the process, for the caller to close. Throws `SystemCallError`: EBADF after `close`. */
  duplicate(): number {
    return duplicateDescriptor(this.#processDescriptor ?? -1);
  }

  /** False once the process has ended or the object is closed. */
  get alive(): boolean {
    const descriptor = this.#processDescriptor;
    return descriptor !== undefined && isProcessAlive(descriptor);
  }

  /**
   * Copies `length` bytes at `address` of the process to `target` from `start`. Returns false if the
   * process or that memory is gone (`lastError`); `target` may then be partly written.
   */
  read(address: number, target: Uint8Array, start: number, length: number): boolean {
    if (this.#writes.localCount > 0) this.#carryOut();
    return this.#stillAlive() && this.#transfer(readv, address, target, start, length);
  }

  /** Copies `length` bytes of `source` from `start` to `address` of the process. See `read`. */
  write(address: number, source: Uint8Array, start: number, length: number): boolean {
    if (this.#writes.localCount > 0) this.#carryOut();
    return this.#stillAlive() && this.#transfer(writev, address, source, start, length);
  }

  /**
   * Like `write`, but performed by `flush`, or before any other access; `source` must stay unchanged
   * until then. `flush` reports the result to `owner`, who must call it.
   */
  writeLater(
    address: number,
    source: Uint8Array,
    start: number,
    length: number,
    owner: object = this,
  ): boolean {
    if (!this.#permits(source, start, length)) return false;
    if (this.#writes.full) this.#carryOut();
    this.#writes.add(this.#addressOf(source) + start, address, length, owner);
    return true;
  }

  /**
   * Performs the deferred writes of all owners, in order. Returns false if any that `owner` deferred
   * since its last call was lost because process or memory is gone (`lastError`), even in a call by another owner.
   */
  flush(owner: object = this): boolean {
    this.#carryOut();
    return this.#writesLost.size === 0 || !this.#writesLost.delete(owner);
  }

  /**
   * Like `read`, but performed by `flushReads`, or before others are deferred; `target` has the bytes
   * only then. `flushReads` reports the result.
   */
  readLater(address: number, target: Uint8Array, start: number, length: number): boolean {
    if (!this.#permits(target, start, length)) return false;
    if (this.#reads.full) this.#carryOutReads();
    this.#reads.add(this.#addressOf(target) + start, address, length);
    return true;
  }

  /** Performs the deferred reads. Returns false if any since the last call failed. */
  flushReads(): boolean {
    this.#carryOutReads();
    const lost = this.#readsLost;
    this.#readsLost = false;
    return !lost;
  }

  #permits(local: Uint8Array, start: number, length: number): boolean {
    if (this.#processDescriptor !== undefined && start + length <= local.length) return true;
    this.lastError = this.#processDescriptor === undefined ? 'EBADF' : 'EINVAL';
    return false;
  }

  #carryOut(): void {
    const writes = this.#writes;
    const { localCount, bytes } = writes;
    if (localCount === 0) return;
    const moved = this.#transferBatch(writev, writes);
    if (moved < bytes) this.#carryOutRest(localCount, moved);
    // The owners may be gone by the next write.
    for (let index = 0; index < localCount; index += 1) writes.owners[index] = undefined;
  }

  /**
   * Performs the part of the last `count` writes after the first `moved` bytes, one by one: a transfer
   * ends at the first byte that fails, and one owner's failure must not affect another's writes.
   */
  #carryOutRest(count: number, moved: number): void {
    let end = 0;
    for (let index = 0; index < count; index += 1) {
      const length = this.#writes.copyPiece(index, this.#direct);
      end += length;
      if (end <= moved || this.#transferDirect(writev) === length) continue;
      this.#noteFault(this.#writes.addressAfter(index + 1, end - length));
      this.#writesLost.add(this.#writes.owners[index] ?? this);
    }
  }

  #carryOutReads(): void {
    const reads = this.#reads;
    const { localCount, bytes } = reads;
    if (localCount === 0) return;
    this.#carryOut();
    const moved = this.#transferBatch(readv, reads);
    if (moved === bytes) return;
    this.#readsLost = true;
    this.#noteFault(reads.addressAfter(localCount, moved));
  }

  /** Performs and empties `batch`. Returns how many bytes were moved. */
  #transferBatch(call: Transfer, batch: Batch): number {
    const { localCount, remoteCount, bytes } = batch;
    batch.clear();
    if (!this.#stillAlive()) return 0;
    const moved = this.#call(call, batch, localCount, remoteCount);
    if (moved !== bytes) this.lastError = moved < 0 ? errnoName(lastErrno()) : 'EFAULT';
    return Math.max(0, moved);
  }

  /** Performs the immediate transfer. Returns how many bytes were moved. */
  #transferDirect(call: Transfer): number {
    return this.#stillAlive() ? this.#call(call, this.#direct, 1, 1) : 0;
  }

  #call(call: Transfer, batch: Batch, localCount: number, remoteCount: number): number {
    if (this.#processDescriptor === undefined) return 0;
    copyGuard.enter(this.#processDescriptor, this.pid);
    const moved = call(this.pid, batch.local, localCount, batch.remote, remoteCount, 0);
    copyGuard.leave();
    return moved;
  }

  /** Tries to read `address`: returns undefined if that works, otherwise the errno name. */
  probe(address: number, lengthBytes: number): string | undefined {
    const byte = new Uint8Array(1);
    this.#probing = true;
    const readable =
      this.read(address, byte, 0, 1) && this.read(address + lengthBytes - 1, byte, 0, 1);
    this.#probing = false;
    return readable ? undefined : this.lastError;
  }

  #noteFault(address: number): void {
    if (this.lastError === 'EFAULT' && !this.#probing) this.onFault(address);
  }

  /** True, once, if the process was killed because its memory did not respond. */
  takeStalled(): boolean {
    return copyGuard.takeKilled(this.pid);
  }

  /** Kills the process, because its memory does not respond to another one. */
  end(): void {
    const descriptor = this.#processDescriptor;
    if (descriptor === undefined) return;
    if (syscall(SYS_PIDFD_SEND_SIGNAL, descriptor, SIGKILL, 0, 0) === 0) {
      copyGuard.noteKilled(this.pid);
    }
  }

  /** Makes every later transfer fail. A second call does nothing. */
  close(): void {
    if (this.#processDescriptor === undefined) return;
    closeDescriptor(this.#processDescriptor);
    this.#processDescriptor = undefined;
  }

  /**
   * Checks at intervals, since a check costs as much as a small transfer. The kernel reuses a pid only
   * after going through all others, which takes seconds.
   */
  #stillAlive(): boolean {
    if (this.#processDescriptor === undefined) return false;
    const nowMs = processClock.recentMs;
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
    if (!this.#permits(local, start, length)) return false;
    const direct = this.#direct;
    const base = this.#addressOf(local) + start;
    let done = 0;
    while (done < length) {
      direct.set(base + done, address + done, length - done);
      const moved = this.#call(call, direct, 1, 1);
      if (moved <= 0) {
        this.lastError = moved < 0 ? errnoName(lastErrno()) : 'EFAULT';
        this.#noteFault(address + done);
        return false;
      }
      done += moved;
    }
    return true;
  }

  /** Streams reuse their buffers, so the last address is worth caching. */
  #addressOf(bytes: Uint8Array): number {
    const buffer = bytes.buffer;
    if (buffer !== this.#lastBuffer) {
      const known = buffer === this.#otherBuffer;
      const address = known ? this.#otherBufferAddress : Number(addressOf(new Uint8Array(buffer)));
      this.#otherBuffer = this.#lastBuffer;
      this.#otherBufferAddress = this.#lastBufferAddress;
      this.#lastBuffer = buffer;
      this.#lastBufferAddress = address;
    }
    return this.#lastBufferAddress + bytes.byteOffset;
  }
}

/**
 * A pidfd of the process that has this number now, for the caller to close. Throws
 * `SystemCallError`: ESRCH if there is no such process, ENOSYS before Linux 5.3.
 */
export function openProcessDescriptor(pid: number): number {
  return checked('pidfd_open', syscall(SYS_PIDFD_OPEN, pid, 0, 0, 0));
}

/** False once the process of a pidfd has ended. */
export function isProcessAlive(descriptor: number): boolean {
  if (syscall(SYS_PIDFD_SEND_SIGNAL, descriptor, 0, 0, 0) === 0) return true;
  // EPERM means that it exists but has changed its user.
  return lastErrno() === EPERM;
}

/** True once all threads of the process of a pidfd have ended, even if its parent has not noticed. */
export function hasProcessEnded(descriptor: number): boolean {
  const entry = new Int32Array([descriptor, POLLIN]);
  return poll(addressOf(new Uint8Array(entry.buffer)), 1, 0) === 1;
}

/**
 * True if this thread of the process sleeps in process_vm_writev(2): memory that it reads or writes does not
 * respond. False as well if that cannot be found out.
 */
export function sleepsInCopy(pid: number, thread: number): boolean {
  const folder = `/proc/${pid}/task/${thread}`;
  try {
    const stat = readFileSync(`${folder}/stat`, 'latin1');
    const state = stat.charAt(stat.lastIndexOf(')') + 2);
    // A stopped thread also shows the call that it has returned from.
    if (state !== 'S' && state !== 'D') return false;
    const [call] = readFileSync(`${folder}/syscall`, 'latin1').split(' ', 1);
    if (Number(call) !== SYS_PROCESS_VM_WRITEV) return false;
    // So does one that a freezer stops (docker pause).
    return !FREEZERS.has(readFileSync(`${folder}/wchan`, 'latin1'));
  } catch {
    return false;
  }
}

/** True if the process has a thread of this number. */
export function hasThread(pid: number, thread: number): boolean {
  return existsSync(`/proc/${pid}/task/${thread}`);
}

/** True if the process names processes by the same numbers as this one. */
export function sharesPidNamespace(pid: number): boolean {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`) === readlinkSync('/proc/self/ns/pid');
  } catch {
    return false;
  }
}

/** True if this process may signal the process of a pidfd: same user, or sufficient privilege. */
export function maySignal(descriptor: number): boolean {
  return syscall(SYS_PIDFD_SEND_SIGNAL, descriptor, 0, 0, 0) === 0;
}

/**
 * Permits process `pid` to access the memory of this one, if Yama requires that (PR_SET_PTRACER).
 * Returns false if the kernel has no Yama, when no permission is needed.
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
