/**
 * The agents of simulated programs that copy straight into each other's memory: `CopyRing` and the program
 * that serves it. Copies take time, are reported late or not at all, and sometimes fail.
 */
import type { CopyRing } from '#daemon/clients/objects/copy-ring';
import { type CopyLoop, DirectCopies } from '#daemon/clients/objects/direct-copies';
import type { Prng } from '../support/prng.ts';
import type { VirtualTime } from '../support/virtual-time.ts';

const DELAY_MAX_MICROS = 400;
const SLOW_DELAY_MAX_MICROS = 15_000;
const EFAULT = 14;
const ECANCELED = 125;

/** Bytes of a simulated process; undefined where it has none. */
type Bytes = (address: number, length: number, write: boolean) => Uint8Array | undefined;

/** The memory of each program of a host, by process number. */
export type SimProcesses = Map<number, Bytes>;

interface Order {
  state: 'posted' | 'started' | 'cancelled' | 'done';
  error: number;
  readonly source: number;
  readonly pid: number;
  readonly target: number;
  readonly length: number;
}

/** The parts of a `CopyRing` that `DirectCopies` uses, and the program that serves it. */
class SimRing {
  readonly served = true;
  dead = false;
  onMessage: () => void = () => undefined;
  readonly #time: VirtualTime;
  readonly #prng: Prng;
  readonly #processes: SimProcesses;
  readonly #pid: number;
  readonly #orders = new Map<number, Order>();
  #next = 0;
  #idle = true;
  #awaited = false;

  constructor(time: VirtualTime, prng: Prng, processes: SimProcesses, pid: number) {
    this.#time = time;
    this.#prng = prng;
    this.#processes = processes;
    this.#pid = pid;
  }

  post(slot: number, source: number, pid: number, target: number, length: number): void {
    this.#orders.set(slot, { state: 'posted', error: 0, source, pid, target, length });
  }

  isDone(slot: number): boolean {
    return this.#orders.get(slot)?.state === 'done';
  }

  errorOf(slot: number): number {
    return this.#orders.get(slot)?.error ?? 0;
  }

  free(slot: number): void {
    this.#orders.delete(slot);
  }

  cancel(slot: number): boolean {
    const order = this.#orders.get(slot);
    if (order?.state !== 'posted') return false;
    order.state = 'cancelled';
    return true;
  }

  takeIdle(): boolean {
    const idle = this.#idle;
    this.#idle = false;
    return idle;
  }

  awaitNext(): void {
    this.#awaited = true;
  }

  awaitNone(): void {
    this.#awaited = false;
  }

  release(): void {}

  /** The program works until it has no order. */
  work(slots: number): void {
    this.#time.after(this.#prng.below(DELAY_MAX_MICROS), () => {
      const order = this.#orders.get(this.#next);
      if (order?.state === 'posted') {
        order.state = 'started';
        this.#copy(order, slots);
      } else if (order?.state === 'cancelled') {
        this.#end(order, ECANCELED, slots);
      } else {
        this.#idle = true;
      }
    });
  }

  #copy(order: Order, slots: number): void {
    const prng = this.#prng;
    const delay = prng.below(prng.oneIn(4) ? SLOW_DELAY_MAX_MICROS : DELAY_MAX_MICROS);
    this.#time.after(delay, () => {
      if (this.dead) return;
      const { source, pid, target, length } = order;
      const from = this.#processes.get(this.#pid)?.(source, length, false);
      const to = this.#processes.get(pid)?.(target, length, true);
      const fails = from === undefined || to === undefined || prng.oneIn(40);
      if (!fails) to.set(from);
      // The report comes later than the bytes.
      this.#time.after(prng.below(DELAY_MAX_MICROS), () =>
        this.#end(order, fails ? EFAULT : 0, slots),
      );
    });
  }

  #end(order: Order, error: number, slots: number): void {
    if (this.dead) return;
    order.error = error;
    order.state = 'done';
    const slot = this.#next;
    this.#next = (slot + 1) % slots;
    const tells = this.#awaited && !this.#prng.oneIn(30);
    this.#awaited = false;
    if (tells) this.onMessage();
    // After a failure it waits until the daemon has freed the slot.
    if (error === 0 || error === ECANCELED || !this.#orders.has(slot)) this.work(slots);
    else this.#idle = true;
  }
}

/** Copies of the program with this number, and how it ends. */
export function simCopies(
  loop: CopyLoop,
  time: VirtualTime,
  prng: Prng,
  processes: SimProcesses,
  pid: number,
  slots: number,
): { readonly copies: DirectCopies; readonly die: () => void } {
  const ring = new SimRing(time, prng, processes, pid);
  // Only the ring is simulated.
  const copies: DirectCopies = new DirectCopies(ring as unknown as CopyRing, loop, {
    get agentOpen() {
      return !ring.dead;
    },
    get ended() {
      return ring.dead;
    },
    asleep: false,
    wake: () => ring.work(slots),
    release: () => undefined,
  });
  ring.onMessage = () => copies.handleCopied();
  const die = (): void => {
    ring.dead = true;
    processes.delete(pid);
    copies.handleClosed();
    copies.close();
  };
  return { copies, die };
}
