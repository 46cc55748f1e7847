/** Memory of a client's process, accessed with process_vm_readv and process_vm_writev. */
import type { MemoryBacking } from '#daemon/rnic/memory/memory-backing';
import type { ProcessMemory } from '#native-bridge/libc/process-vm';

/** The smallest page size of Linux. */
const PAGE_BYTES = 4096;

export class ProcessBacking implements MemoryBacking {
  readonly tier = 'process_vm';
  readonly view = undefined;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;
  readonly #process: ProcessMemory;
  #address: number;
  readonly #lengthBytes: number;
  #released = false;

  constructor(process: ProcessMemory, address: number, lengthBytes: number) {
    this.#process = process;
    this.#address = address;
    this.#lengthBytes = lengthBytes;
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    if (!this.#covers(offset, length)) return false;
    return this.#process.read(this.#address + offset, target, targetStart, length);
  }

  readLater(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    if (!this.#covers(offset, length)) return false;
    return this.#process.readLater(this.#address + offset, target, targetStart, length);
  }

  /** Up to the end of the page: the kernel looks up each page of a transfer. */
  bytesAhead(offset: number): number {
    if (!this.#covers(offset, 0)) return 0;
    const ofPage = PAGE_BYTES - ((this.#address + offset) % PAGE_BYTES);
    return Math.min(ofPage, this.#lengthBytes - offset);
  }

  flushReads(): boolean {
    return this.#process.flushReads();
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    if (!this.#covers(offset, length)) return false;
    return this.#process.write(this.#address + offset, bytes, start, length);
  }

  writeLater(
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    owner: object,
  ): boolean {
    if (!this.#covers(offset, length)) return false;
    return this.#process.writeLater(this.#address + offset, bytes, start, length, owner);
  }

  flush(owner: object): boolean {
    return this.#process.flush(owner);
  }

  get ownerGone(): boolean {
    return this.#process.lastError === 'ESRCH';
  }

  /** The process moved the memory. */
  move(address: number): void {
    this.#address = address;
  }

  /** Fails every later access. */
  release(): void {
    this.#released = true;
  }

  #covers(offset: number, length: number): boolean {
    return !this.#released && offset >= 0 && offset + length <= this.#lengthBytes;
  }
}
