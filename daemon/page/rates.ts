/**
 * Rates of devices, from monotonic counters: rates between two polls, and their history. Starts
 * over when the daemon was restarted or reset.
 */
import type { DeviceStatus } from '#contract/protocol/ipc-admin';

/** Polls in a history: two minutes, at one per second. */
export const HISTORY_LENGTH = 120;

/** Minimum interval between two polls of a rate; earlier polls are skipped. */
const STEP_MIN_SECONDS = 0.5;

export type RateName = 'bytesOut' | 'bytesIn' | 'messagesOut' | 'messagesIn';

/** Counters whose sum each rate is based on. Native devices only count work requests. */
const RATE_COUNTERS: Readonly<Record<RateName, readonly string[]>> = {
  bytesOut: ['gathered_bytes'],
  bytesIn: ['placed_bytes'],
  messagesOut: ['out_sends', 'out_writes', 'out_reads', 'out_atomics', 'out_immediates'],
  messagesIn: ['in_sends', 'in_writes', 'in_reads', 'in_immediates', 'atomics'],
};
const NATIVE_COUNTERS: Readonly<Partial<Record<RateName, readonly string[]>>> = {
  messagesOut: ['sends_taken'],
  messagesIn: ['receives_taken'],
};

/** A point of a history; undefined if a rate is unknown. */
export interface RatePoint {
  /** Seconds on the browser's clock. */
  readonly at: number;
  readonly rates: Readonly<Record<RateName, number | undefined>>;
}

interface DeviceRates {
  /** Oldest first. */
  readonly points: readonly RatePoint[];
  /** Per second, by counter name, between the last two polls. */
  readonly counters: Readonly<Record<string, number>>;
}

interface Look {
  readonly at: number;
  readonly counters: Readonly<Record<string, number>>;
}

/** All counters of a device and of its port. */
export function countersOf({
  counters,
  hwCounters,
}: DeviceStatus): Readonly<Record<string, number>> {
  return { ...counters, ...hwCounters };
}

export function ratesOf({ device }: DeviceStatus): readonly RateName[] {
  return device.backend === 'native'
    ? ['messagesOut', 'messagesIn']
    : ['bytesOut', 'bytesIn', 'messagesOut', 'messagesIn'];
}

export class RateHistory {
  readonly #last = new Map<string, Look>();
  readonly #rates = new Map<string, DeviceRates>();
  #epoch: unknown;

  /**
   * Adds a poll at `at` seconds. `epoch` differs for another run of the daemon, whose counters
   * cannot be compared with earlier ones.
   */
  look(at: number, devices: readonly DeviceStatus[], epoch: unknown): void {
    if (epoch !== this.#epoch) this.#last.clear();
    this.#epoch = epoch;
    for (const status of devices) this.#lookAt(at, status);
    const names = new Set(devices.map(({ device }) => device.name));
    for (const name of this.#rates.keys()) if (!names.has(name)) this.#forget(name);
  }

  /** Polling paused: do not connect the next point to the last. */
  interrupt(): void {
    this.#last.clear();
  }

  /** The rates of a device; empty if it was never polled. */
  of(name: string): DeviceRates {
    return this.#rates.get(name) ?? { points: [], counters: {} };
  }

  #lookAt(at: number, status: DeviceStatus): void {
    const { name } = status.device;
    const last = this.#last.get(name);
    if (last !== undefined && at - last.at < STEP_MIN_SECONDS) return;
    const counters = countersOf(status);
    this.#last.set(name, { at, counters });
    const points = this.of(name).points.slice(1 - HISTORY_LENGTH);
    const seconds = last === undefined ? 0 : at - last.at;
    const isStep = last !== undefined && hasGrown(last.counters, counters);
    const growth = (names: readonly string[]): number | undefined => {
      if (!isStep) return undefined;
      return (sum(counters, names) - sum(last.counters, names)) / seconds;
    };
    const table = status.device.backend === 'native' ? NATIVE_COUNTERS : RATE_COUNTERS;
    const rateOf = (rate: RateName) => growth(table[rate] ?? []);
    const rates = {
      bytesOut: rateOf('bytesOut'),
      bytesIn: rateOf('bytesIn'),
      messagesOut: rateOf('messagesOut'),
      messagesIn: rateOf('messagesIn'),
    };
    this.#rates.set(name, {
      points: [...points, { at, rates }],
      counters: Object.fromEntries(Object.keys(counters).map((own) => [own, growth([own]) ?? 0])),
    });
  }

  #forget(name: string): void {
    this.#rates.delete(name);
    this.#last.delete(name);
  }
}

/** False after a reset of the counters. */
function hasGrown(before: Look['counters'], after: Look['counters']): boolean {
  return Object.entries(before).every(([name, value]) => (after[name] ?? 0) >= value);
}

function sum(counters: Look['counters'], names: readonly string[]): number {
  return names.reduce((total, name) => total + (counters[name] ?? 0), 0);
}
