/**
 * The bytes of one direction that faults hold back: pieces with release times, followed by any ends. Bytes
 * never overtake each other.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { type Transmit, transmitOf } from '#base/transmit';
import type { Fault } from '#daemon/faults/fault';

/** Output of the queue, in order. */
export type HoldOutput =
  | (Transmit & { readonly type: 'bytes' })
  /** This many bytes are lost after an end. */
  | { readonly type: 'lost'; readonly bytes: number }
  | { readonly type: 'reset' }
  | { readonly type: 'close' };

/** Holds a piece until `due`, or until the fault is removed. */
export interface Hold {
  readonly fault: Fault;
  readonly due: Micros;
}

interface Entry {
  readonly output: HoldOutput;
  holds: readonly Hold[];
  /** Not the first piece of the bytes that were queued with it. */
  readonly continues: boolean;
}

const NO_HOLDS: readonly Hold[] = [];
/**
 * Sent entries are removed together, once there are this many and at least as many as waiting ones. Input cut
 * into single bytes can have a hundred thousand entries, and `shift` would move all of them each time.
 */
const GONE_MIN = 1024;

export class HoldQueue {
  #entries: Entry[] = [];
  /** Sent entries at the front. */
  #gone = 0;
  #heldBytes = 0;
  #ended = false;
  /** When a bandwidth fault allows the next byte. */
  readonly #freeAt = new Map<Fault, Micros>();
  /** Bytes counted towards a fault's `afterBytes`; Infinity once the fault has been evaluated. */
  readonly #passed = new Map<Fault, number>();

  /** True if no bytes and ends are waiting. */
  get empty(): boolean {
    return this.#entries.length === this.#gone;
  }

  /** Number of waiting bytes. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** True if an end was queued: later bytes are lost. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The hold of a bandwidth fault for `bytes` more bytes. */
  paced(fault: Fault, bytes: number, bytesPerSecond: number, now: Micros): Hold {
    const due =
      Math.max(now, this.#freeAt.get(fault) ?? now) + (bytes * 1_000_000) / bytesPerSecond;
    this.#freeAt.set(fault, due);
    return { fault, due };
  }

  /**
   * How many of `bytes` more bytes pass before the end that `fault` causes; undefined if there is no end
   * among them. An end that does not fire is not evaluated again.
   */
  cutBy(fault: Fault, bytes: number, afterBytes: number): number | undefined {
    const passed = this.#passed.get(fault) ?? 0;
    if (passed + bytes < afterBytes) {
      this.#passed.set(fault, passed + bytes);
      return undefined;
    }
    if (passed === Number.POSITIVE_INFINITY) return undefined;
    this.#passed.set(fault, Number.POSITIVE_INFINITY);
    return fault.fires() ? afterBytes - passed : undefined;
  }

  /** Queues bytes in pieces of at most `pieceBytes`. They stay borrowed until they are polled. */
  push(bytes: Uint8Array, holds: readonly Hold[], pieceBytes: number, payloadProtocol = 0): void {
    if (this.#ended) {
      this.#pushEnd({ type: 'lost', bytes: bytes.length });
      return;
    }
    for (let at = 0; at < bytes.length; at += pieceBytes) {
      const piece = bytes.subarray(at, at + pieceBytes);
      const output = { ...transmitOf(piece, payloadProtocol), type: 'bytes' } as const;
      this.#entries.push({ output, holds, continues: at > 0 });
    }
    this.#heldBytes += bytes.length;
  }

  /** Queues an end. Later bytes are lost. */
  end(how: 'reset' | 'close'): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pushEnd({ type: how });
  }

  /** The next output that is due; undefined if there is none. */
  poll(now: Micros): HoldOutput | undefined {
    const head = this.#entries[this.#gone];
    if (head === undefined || dueOf(head) > now) return undefined;
    if (head.output.type === 'bytes') this.#heldBytes -= head.output.bytes.length;
    this.#gone += 1;
    if (this.empty) this.clear();
    else if (this.#gone >= GONE_MIN && this.#gone * 2 >= this.#entries.length) {
      this.#entries.splice(0, this.#gone);
      this.#gone = 0;
    }
    return head.output;
  }

  /** When `poll` has output next; NEVER if nothing is waiting, or only removal of a fault releases it. */
  nextDeadline(): Micros {
    const head = this.#entries[this.#gone];
    return head === undefined ? NEVER : dueOf(head);
  }

  /** Releases bytes that faults other than `faults` hold. */
  keepHoldsOf(faults: readonly Fault[]): void {
    for (const entry of this.#waiting()) {
      if (entry.holds.length === 0) continue;
      entry.holds = entry.holds.filter(({ fault }) => faults.includes(fault));
    }
  }

  /** Waiting bytes whose first pieces were already sent. */
  get cutBytes(): number {
    let bytes = 0;
    for (const { output, continues } of this.#waiting()) {
      if (!continues || output.type !== 'bytes') break;
      bytes += output.bytes.length;
    }
    return bytes;
  }

  /** `before`, followed by the waiting bytes. */
  withHeld(before: Uint8Array): Uint8Array {
    if (this.#heldBytes === 0) return before;
    const all = new Uint8Array(before.length + this.#heldBytes);
    all.set(before);
    let at = before.length;
    for (const { output } of this.#waiting()) {
      if (output.type !== 'bytes') continue;
      all.set(output.bytes, at);
      at += output.bytes.length;
    }
    return all;
  }

  /** Recounts, for tests. Throws `InvariantError`. */
  assertInvariants(): void {
    let bytes = 0;
    const waiting = this.#waiting();
    for (const { output } of waiting) {
      if (output.type === 'bytes') bytes += output.bytes.length;
    }
    assert(bytes === this.#heldBytes, 'held bytes miscounted');
    assert(
      this.#ended || !waiting.some(({ output }) => output.type === 'lost'),
      'lost bytes without an end',
    );
  }

  clear(): void {
    this.#entries = [];
    this.#gone = 0;
    this.#heldBytes = 0;
  }

  #pushEnd(output: HoldOutput): void {
    this.#entries.push({ output, holds: NO_HOLDS, continues: false });
  }

  #waiting(): readonly Entry[] {
    return this.#gone === 0 ? this.#entries : this.#entries.slice(this.#gone);
  }
}

function dueOf({ holds }: Entry): Micros {
  let due = 0;
  for (const hold of holds) due = Math.max(due, hold.due);
  return due;
}
