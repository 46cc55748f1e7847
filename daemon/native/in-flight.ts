/** Work requests at the device, looked up by the number in their completion. */

/** Slots of one queue; a number consists of a slot and a count of how often the queue was cleared. */
const SLOTS = 2 ** 21;

/** Stores the client's own `wr_id`, which may be any value. */
export class InFlight {
  readonly #wrIdLo: number[] = [];
  readonly #wrIdHi: number[] = [];
  readonly #opcode: number[] = [];
  readonly #reported: boolean[] = [];
  readonly #taken: boolean[] = [];
  /** Sequence numbers, for the order. */
  readonly #entered: number[] = [];
  #entries = 0;
  #free: number[] = [];
  #generation = 0;
  #count = 0;
  #unreported = 0;
  /** Fields of the request that `take` found. */
  wrIdLo = 0;
  wrIdHi = 0;
  opcode = 0;
  /** True if its success is reported to the client. */
  reported = false;

  /** Requests that have not completed. */
  get count(): number {
    return this.#count;
  }

  /** Requests whose success is not reported to the client. */
  get unreported(): number {
    return this.#unreported;
  }

  add(wrIdLo: number, wrIdHi: number, opcode: number, reported: boolean): number {
    const slot = this.#free.pop() ?? this.#taken.length;
    this.#wrIdLo[slot] = wrIdLo;
    this.#wrIdHi[slot] = wrIdHi;
    this.#opcode[slot] = opcode;
    this.#reported[slot] = reported;
    this.#taken[slot] = true;
    this.#entered[slot] = this.#entries;
    this.#entries += 1;
    this.#count += 1;
    if (!reported) this.#unreported += 1;
    return this.#generation * SLOTS + slot;
  }

  /** Removes a request and sets its fields. Returns false for a number without a request. */
  take(number: number): boolean {
    const slot = number % SLOTS;
    if ((number - slot) / SLOTS !== this.#generation || this.#taken[slot] !== true) return false;
    this.#taken[slot] = false;
    this.#free.push(slot);
    this.#count -= 1;
    this.wrIdLo = this.#wrIdLo[slot] ?? 0;
    this.wrIdHi = this.#wrIdHi[slot] ?? 0;
    this.opcode = this.#opcode[slot] ?? 0;
    this.reported = this.#reported[slot] ?? false;
    if (!this.reported) this.#unreported -= 1;
    return true;
  }

  /** Removes all, the oldest first; sets the fields of each before calling `each`. */
  takeAll(each: () => void): void {
    const slots = this.#taken.flatMap((taken, slot) => (taken ? [slot] : []));
    slots.sort((one, other) => (this.#entered[one] ?? 0) - (this.#entered[other] ?? 0));
    for (const slot of slots) {
      this.take(this.#generation * SLOTS + slot);
      each();
    }
  }

  /** Removes all: their late completions match none. */
  clear(): void {
    this.#generation += 1;
    this.#taken.length = 0;
    this.#free = [];
    this.#count = 0;
    this.#unreported = 0;
  }
}
