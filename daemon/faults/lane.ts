/**
 * One direction of a connection that faults hold up: a queue of octets, each piece with the time at
 * which it may go on, and of ends behind them. Octets never overtake each other.
 */
import { type Micros, NEVER } from '../engine/stream-api.ts';
import type { Fault } from './fault.ts';

/** What a lane lets out, in order. */
export type LaneOutput =
  | { readonly type: 'octets'; readonly octets: Uint8Array }
  /** So many octets are lost behind an end. */
  | { readonly type: 'lost'; readonly bytes: number }
  | { readonly type: 'reset' }
  | { readonly type: 'close' };

/** Holds a piece until `due`, or until the fault is removed. */
export interface Hold {
  readonly fault: Fault;
  readonly due: Micros;
}

interface Entry {
  readonly output: LaneOutput;
  holds: readonly Hold[];
}

const NO_HOLDS: readonly Hold[] = [];

/** See the module's comment. */
export class Lane {
  #entries: Entry[] = [];
  #heldBytes = 0;
  #ended = false;
  /** When a fault of limited bandwidth lets the next octet pass. */
  readonly #freeAt = new Map<Fault, Micros>();
  /** Octets that have passed towards a fault's `afterBytes`; Infinity once it was decided. */
  readonly #passed = new Map<Fault, number>();

  /** Nothing waits. */
  get empty(): boolean {
    return this.#entries.length === 0;
  }

  /** Octets that wait. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** An end was queued: what follows is lost. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The hold of a fault of limited bandwidth on `bytes` more octets. */
  paced(fault: Fault, bytes: number, bytesPerSecond: number, now: Micros): Hold {
    const due =
      Math.max(now, this.#freeAt.get(fault) ?? now) + (bytes * 1_000_000) / bytesPerSecond;
    this.#freeAt.set(fault, due);
    return { fault, due };
  }

  /**
   * How many of `bytes` more octets pass before the end that `fault` brings; undefined when there is
   * no end among them. An end that does not strike is not asked for again.
   */
  cutBy(fault: Fault, bytes: number, afterBytes: number): number | undefined {
    const passed = this.#passed.get(fault) ?? 0;
    if (passed + bytes < afterBytes) {
      this.#passed.set(fault, passed + bytes);
      return undefined;
    }
    if (passed === Number.POSITIVE_INFINITY) return undefined;
    this.#passed.set(fault, Number.POSITIVE_INFINITY);
    return fault.strikes() ? afterBytes - passed : undefined;
  }

  /** Queues octets, which stay borrowed until they come out, in pieces of at most `pieceBytes`. */
  push(octets: Uint8Array, holds: readonly Hold[], pieceBytes: number): void {
    if (this.#ended) {
      this.#entries.push({ output: { type: 'lost', bytes: octets.length }, holds: NO_HOLDS });
      return;
    }
    for (let at = 0; at < octets.length; at += pieceBytes) {
      const piece = octets.subarray(at, at + pieceBytes);
      this.#entries.push({ output: { type: 'octets', octets: piece }, holds });
    }
    this.#heldBytes += octets.length;
  }

  /** Queues an end. What follows it is lost. */
  end(how: 'reset' | 'close'): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#entries.push({ output: { type: how }, holds: NO_HOLDS });
  }

  /** The next thing that may go on now. */
  poll(now: Micros): LaneOutput | undefined {
    const head = this.#entries[0];
    if (head === undefined || dueOf(head) > now) return undefined;
    this.#entries.shift();
    if (head.output.type === 'octets') this.#heldBytes -= head.output.octets.length;
    return head.output;
  }

  /** When `poll` has something next; NEVER when nothing waits, or nobody knows. */
  nextDeadline(): Micros {
    const head = this.#entries[0];
    return head === undefined ? NEVER : dueOf(head);
  }

  /** Faults that are not among `faults` any more hold nothing back. */
  keepHoldsOf(faults: readonly Fault[]): void {
    for (const entry of this.#entries) {
      if (entry.holds.length === 0) continue;
      entry.holds = entry.holds.filter(({ fault }) => faults.includes(fault));
    }
  }

  /** `before` and the octets that wait behind them. */
  heldBehind(before: Uint8Array): Uint8Array {
    if (this.#heldBytes === 0) return before;
    const all = new Uint8Array(before.length + this.#heldBytes);
    all.set(before);
    let at = before.length;
    for (const { output } of this.#entries) {
      if (output.type !== 'octets') continue;
      all.set(output.octets, at);
      at += output.octets.length;
    }
    return all;
  }

  /** Forgets what waits. */
  clear(): void {
    this.#entries = [];
    this.#heldBytes = 0;
  }
}

function dueOf({ holds }: Entry): Micros {
  let due = 0;
  for (const hold of holds) due = Math.max(due, hold.due);
  return due;
}
