/** Memory of a client's process, accessed with process_vm_readv and process_vm_writev. */
import { assert } from '#base/assert';
import type { CopyParties, MemoryBacking } from '#daemon/rnic/memory/memory-backing';
import type { ProcessMemory } from '#native-bridge/libc/process-vm';
import type { DirectCopies } from './direct-copies.ts';
import { type CopyMaker, IncomingCopies } from './incoming-copies.ts';

/** The smallest page size of Linux. */
const PAGE_BYTES = 4096;

/** The program that has the memory. */
interface CopyingProgram {
  /** Copies that its agent can make out of its memory. */
  readonly copies: DirectCopies | undefined;
  /** Copies into its memory. */
  readonly incoming: IncomingCopies;
  /** It may get some: what would end them waits for those that have begun. */
  readonly takesCopies: boolean;
}

const scratchByte = new Uint8Array(1);

function copyless(): CopyingProgram {
  return { copies: undefined, incoming: new IncomingCopies(), takesCopies: false };
}

export class ProcessBacking implements MemoryBacking {
  readonly tier = 'process_vm';
  readonly view = undefined;
  readonly pendingWrites = 0;
  /** Copies from other processes that are not over. */
  #arriving = 0;
  onReady: (() => void) | undefined = undefined;
  readonly #process: ProcessMemory;
  #address: number;
  readonly #lengthBytes: number;
  #released = false;
  readonly #owner: CopyingProgram;

  /** `owner`: the program whose memory this is. */
  constructor(
    process: ProcessMemory,
    address: number,
    lengthBytes: number,
    owner: CopyingProgram = copyless(),
  ) {
    this.#owner = owner;
    this.#process = process;
    this.#address = address;
    this.#lengthBytes = lengthBytes;
  }

  get lender(): DirectCopies | undefined {
    const { copies } = this.#owner;
    return copies?.usable === true ? copies : undefined;
  }

  /** Copies into memory of the same process. */
  get incoming(): IncomingCopies {
    return this.#owner.incoming;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Where the process has the byte at `offset`. */
  addressOf(offset: number): number {
    return this.#address + offset;
  }

  get takesCopies(): boolean {
    return this.#owner.takesCopies;
  }

  copyFrom(
    offset: number,
    source: MemoryBacking,
    sourceOffset: number,
    length: number,
    { lender, message, taker }: CopyParties,
  ): boolean {
    assert(source instanceof ProcessBacking, 'lent by memory of another kind');
    const { copies } = source.#owner;
    // Later, its number may be another process's.
    if (!this.#process.open) return false;
    if (copies === undefined || !this.#covers(offset, length)) return false;
    copies.add({
      source,
      sourceOffset,
      target: this,
      targetOffset: offset,
      length,
      lender,
      message,
      taker,
    });
    return true;
  }

  touch(address: number, length: number): boolean {
    const last = address + length - 1;
    let whole = this.#process.read(last, scratchByte, 0, 1);
    for (let at = address; at < last; at += PAGE_BYTES) {
      whole = this.#process.read(at, scratchByte, 0, 1) && whole;
    }
    return whole;
  }

  endProcess(): void {
    this.#process.end();
  }

  /** `maker` will copy something into this memory. */
  copyOrdered(maker: CopyMaker): void {
    this.#arriving += 1;
    this.incoming.note(maker);
  }

  /** One such copy is over. */
  copyDone(): void {
    this.#arriving -= 1;
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
    this.#owner.copies?.follow(this);
    if (this.#arriving > 0) for (const maker of this.incoming.makers) maker.follow(this);
  }

  /** Fails every later access. */
  release(): void {
    this.#released = true;
    if (this.#arriving > 0) for (const maker of this.incoming.makers) maker.dropInto(this);
  }

  #covers(offset: number, length: number): boolean {
    return !this.#released && offset >= 0 && offset + length <= this.#lengthBytes;
  }
}
