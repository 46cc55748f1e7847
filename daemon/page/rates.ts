/**
 * What devices move, from counters that only grow: rates between two looks, and their history. A
 * look at a daemon that was started anew, or reset, begins anew.
 */
import type { DeviceStatus } from '../../verbs-api/contract/ipc-admin.ts';

/** Looks that a history keeps: two minutes, at one a second. */
export const HISTORY_LENGTH = 120;

/** Looks that follow each other faster than this tell no rate: the second one is left out. */
const STEP_MIN_SECONDS = 0.5;

/** Names of what is plotted. */
export type RateName = 'bytesOut' | 'bytesIn' | 'messagesOut' | 'messagesIn';

/** Counters whose sum grows with each rate. Native devices count work requests alone. */
const RATE_COUNTERS: Readonly<Record<RateName, readonly string[]>> = {
  bytesOut: ['gatheredBytes'],
  bytesIn: ['placedBytes'],
  messagesOut: ['outSends', 'outWrites', 'outReads', 'outAtomics', 'outImmediates'],
  messagesIn: ['inSends', 'inWrites', 'inReads', 'inImmediates', 'atomics'],
};
const NATIVE_COUNTERS: Readonly<Partial<Record<RateName, readonly string[]>>> = {
  messagesOut: ['sendsTaken'],
  messagesIn: ['receivesTaken'],
};

/** A point of a history; undefined where a rate is not known. */
export interface RatePoint {
  /** Seconds, of the reader's clock. */
  readonly at: number;
  readonly rates: Readonly<Record<RateName, number | undefined>>;
}

/** What is known of one device's past. */
export interface DeviceRates {
  /** Oldest first. */
  readonly points: readonly RatePoint[];
  /** By the counter's name, in a second, between the last two looks. */
  readonly counters: Readonly<Record<string, number>>;
}

interface Look {
  readonly at: number;
  readonly counters: Readonly<Record<string, number>>;
}

/** Which of the rates a device has. */
export function ratesOf({ device }: DeviceStatus): readonly RateName[] {
  return device.backend === 'native'
    ? ['messagesOut', 'messagesIn']
    : ['bytesOut', 'bytesIn', 'messagesOut', 'messagesIn'];
}

/** Rates of all devices of a daemon. */
export class RateHistory {
  readonly #last = new Map<string, Look>();
  readonly #rates = new Map<string, DeviceRates>();
  #epoch: unknown;

  /**
   * A look at `at` seconds. `epoch` differs once the daemon is another one, whose counters are not
   * to be compared with those before.
   */
  look(at: number, devices: readonly DeviceStatus[], epoch: unknown): void {
    if (epoch !== this.#epoch) this.#last.clear();
    this.#epoch = epoch;
    for (const status of devices) this.#lookAt(at, status);
    const names = new Set(devices.map(({ device }) => device.name));
    for (const name of this.#rates.keys()) if (!names.has(name)) this.#forget(name);
  }

  /** Nothing was seen for a while: what comes next is not joined to what was. */
  interrupt(): void {
    this.#last.clear();
  }

  /** Of a device, empty when there was no look at it. */
  of(name: string): DeviceRates {
    return this.#rates.get(name) ?? { points: [], counters: {} };
  }

  #lookAt(at: number, status: DeviceStatus): void {
    const { name } = status.device;
    const last = this.#last.get(name);
    if (last !== undefined && at - last.at < STEP_MIN_SECONDS) return;
    const { counters } = status;
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
