/** Memory of a test: its address, its rights, and backings that are slow or may disappear. */
import { Access } from '#contract/verbs/enums';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';

/** Local rights and all remote ones. */
export const ALL_ACCESS =
  Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic | Access.mwBind;

/** Address of the first byte of a test's memory. */
export const MEMORY_ADDRESS = 0x10000;

/** A backing whose reads and writes take time, as the agent tier's do. */
export class SlowBacking implements MemoryBacking {
  readonly tier = 'agent';
  readonly view = undefined;
  pendingWrites = 0;
  writeLost = false;
  onReady: (() => void) | undefined = undefined;
  #fetched = false;
  readonly #bytes: Uint8Array;
  readonly #queue: (() => void)[] = [];

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  prepareRead(): boolean {
    return this.#fetched;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    target.set(this.#bytes.subarray(offset, offset + length), targetStart);
    return true;
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    const copy = bytes.slice(start, start + length);
    this.#queue.push(() => this.#bytes.set(copy, offset));
    this.pendingWrites += 1;
    return true;
  }

  /** Requested data have arrived. */
  fetch(): void {
    this.#fetched = true;
    this.onReady?.();
  }

  /** Written data have reached the owner's memory. */
  settle(): void {
    for (const write of this.#queue.splice(0)) write();
    this.pendingWrites = 0;
    this.onReady?.();
  }

  /** Written data did not reach the owner's memory. */
  lose(): void {
    this.#queue.length = 0;
    this.pendingWrites = 0;
    this.writeLost = true;
    this.onReady?.();
  }
}

/** A backing that keeps segments for one transfer, as that of another process does. */
export class KeepingBacking implements MemoryBacking {
  readonly tier = 'process_vm';
  readonly view = undefined;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;
  /** The kept segments; their bytes are read when flushed. */
  readonly kept: { offset: number; bytes: Uint8Array }[] = [];
  flushes = 0;
  gone = false;
  /** The first offset that is gone. */
  goneFrom = Number.POSITIVE_INFINITY;
  #lost = false;
  readonly #inner: ViewBacking;

  constructor(bytes: Uint8Array) {
    this.#inner = new ViewBacking(bytes);
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    this.#carryOut();
    return this.#has(offset, length) && this.#inner.read(offset, length, target, targetStart);
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.#carryOut();
    return this.#has(offset, length) && this.#inner.write(offset, bytes, start, length);
  }

  writeLater(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.kept.push({ offset, bytes: bytes.subarray(start, start + length) });
    return true;
  }

  /** Returns false if a piece was gone since the last call, whichever access wrote it. */
  flush(): boolean {
    this.#carryOut();
    const lost = this.#lost;
    this.#lost = false;
    return !lost;
  }

  /** A transfer ends at its first piece that is gone. */
  #carryOut(): void {
    if (this.kept.length === 0) return;
    this.flushes += 1;
    const whole = this.kept.splice(0).every(({ offset, bytes }) => {
      return this.#has(offset, bytes.length) && this.#inner.write(offset, bytes, 0, bytes.length);
    });
    this.#lost ||= !whole;
  }

  #has(offset: number, length: number): boolean {
    return !this.gone && offset + length <= this.goneFrom;
  }
}

/** Mapped memory that notifies a test whenever the device queries it. */
export class WatchedBacking implements MemoryBacking {
  readonly view = undefined;
  onReady: (() => void) | undefined = undefined;
  onAsked: () => void = () => undefined;
  pending = 0;
  readonly #inner: ViewBacking;

  constructor(bytes: Uint8Array) {
    this.#inner = new ViewBacking(bytes);
  }

  get tier(): 'local' {
    this.onAsked();
    return 'local';
  }

  get pendingWrites(): number {
    this.onAsked();
    return this.pending;
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    return this.#inner.read(offset, length, target, targetStart);
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    return this.#inner.write(offset, bytes, start, length);
  }
}
