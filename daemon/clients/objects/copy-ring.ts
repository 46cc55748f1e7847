/**
 * Orders for the agent of a process: copy registered memory of this process into another one. The ring is in
 * memory that both map: `struct copy_ring` of the preload library. The agent carries out the orders one after the
 * other, and waits for a message after one that failed.
 *
 * The process can write anything there. So the daemon keeps its own record of each order and reads nothing
 * but a state and a result: a process that lies spoils only what it sends.
 */
import { SharedMemory } from '#native-bridge/libc/shared-memory';

/** Orders of the ring: enough to keep the agent busy while the daemon acknowledges and posts others. */
export const COPY_ORDERS = 64;
/** The longest copy: a packet that stands for several. It also bounds how long an end of memory waits. */
export const COPY_MAX_BYTES = 65_536;

export const CopyState = { free: 0, posted: 1, started: 2, cancelled: 3, done: 4 } as const;

/** Offsets of 32-bit words. */
const SERVED = 0;
const IDLE = 1;
const THREAD = 2;
const AWAITED = 16;
const FIRST_ORDER = 32;
const ORDER_WORDS = 16;
const STATE = 0;
const ERROR = 1;
const SOURCE = 2;
const TARGET = 4;
const LENGTH = 6;
const PROCESS = 7;

export const COPY_RING_BYTES = 4 * (FIRST_ORDER + COPY_ORDERS * ORDER_WORDS);

export class CopyRing {
  readonly #memory: SharedMemory;
  readonly #words: Int32Array;

  /** Throws `SystemCallError`. */
  constructor() {
    this.#memory = SharedMemory.create('iwarpd-copies', COPY_RING_BYTES);
    const { buffer, byteOffset } = this.#memory.view;
    this.#words = new Int32Array(buffer, byteOffset, COPY_RING_BYTES / 4);
  }

  /** To send to the process. */
  get descriptor(): number | undefined {
    return this.#memory.descriptor;
  }

  /** True once an agent serves the ring. */
  get served(): boolean {
    return this.#words[SERVED] === 1;
  }

  /** The number that the agent gives for its thread. */
  get thread(): number {
    return (this.#words[THREAD] ?? 0) >>> 0;
  }

  /** Posts an order in a free slot: `source` of the ring's process to `target` of process `pid`. */
  post(slot: number, source: number, pid: number, target: number, length: number): void {
    const words = this.#words;
    const at = FIRST_ORDER + slot * ORDER_WORDS;
    setAddress(words, at + SOURCE, source);
    setAddress(words, at + TARGET, target);
    words[at + LENGTH] = length;
    words[at + PROCESS] = pid;
    Atomics.store(words, at + STATE, CopyState.posted);
  }

  /** True if the order is done. */
  isDone(slot: number): boolean {
    return Atomics.load(this.#words, FIRST_ORDER + slot * ORDER_WORDS) === CopyState.done;
  }

  /** The errno of an order that is done; 0 if all bytes are in place. */
  errorOf(slot: number): number {
    return this.#words[FIRST_ORDER + slot * ORDER_WORDS + ERROR] ?? 0;
  }

  /** Frees the slot of an order that is done. */
  free(slot: number): void {
    Atomics.store(this.#words, FIRST_ORDER + slot * ORDER_WORDS, CopyState.free);
  }

  /** Cancels an order. False if the agent has started it, or says so. */
  cancel(slot: number): boolean {
    const at = FIRST_ORDER + slot * ORDER_WORDS;
    const { posted, cancelled } = CopyState;
    return Atomics.compareExchange(this.#words, at, posted, cancelled) === posted;
  }

  /** True, once, if the agent waits for a message. */
  takeIdle(): boolean {
    return Atomics.load(this.#words, IDLE) === 1 && Atomics.exchange(this.#words, IDLE, 0) === 1;
  }

  /** The agent sends a message when the next order is done. */
  awaitNext(): void {
    Atomics.store(this.#words, AWAITED, 1);
  }

  /** The agent sends no message. */
  awaitNone(): void {
    Atomics.store(this.#words, AWAITED, 0);
  }

  /** It has been sent. */
  closeDescriptor(): void {
    this.#memory.closeDescriptor();
  }

  release(): void {
    this.#memory.release();
  }
}

function setAddress(words: Int32Array, at: number, address: number): void {
  words[at] = address | 0;
  words[at + 1] = Math.floor(address / 0x1_0000_0000);
}
