/**
 * Keeps one cause from filling the log: writes a burst of messages per kind, then a limited number
 * per second; a summary line reports how many were suppressed.
 */

/** Burst size per kind: enough for all steps of a test with a hundred programs. */
export const THROTTLE_BURST = 100;
/** Messages of one kind per second after the burst. */
const REFILL_PER_SECOND = 10;
const SUMMARY_MS = 5_000;
/** A bound for safety, as kinds are few: further ones share one bucket. */
const KINDS_MAX = 256;
const OTHERS = 'other';

interface Bucket {
  tokens: number;
  filledAtMs: number;
  left: number;
}

export class LogThrottle {
  readonly #buckets = new Map<string, Bucket>();
  readonly #summary: (kind: string, similar: number) => void;
  readonly #nowMs: () => number;
  #timer: NodeJS.Timeout | undefined;

  /** `summary` logs how many messages of a kind were suppressed. `nowMs` is monotonic. */
  constructor(
    summary: (kind: string, similar: number) => void,
    nowMs: () => number = () => performance.now(),
  ) {
    this.#summary = summary;
    this.#nowMs = nowMs;
  }

  /** Whether to write a message of this kind. */
  admit(kind: string): boolean {
    const bucket = this.#bucket(kind);
    const nowMs = this.#nowMs();
    const refilled = ((nowMs - bucket.filledAtMs) / 1000) * REFILL_PER_SECOND;
    bucket.tokens = Math.min(THROTTLE_BURST, bucket.tokens + refilled);
    bucket.filledAtMs = nowMs;
    if (bucket.tokens >= 1) {
      bucket.tokens -= 1;
      return true;
    }
    bucket.left += 1;
    this.#timer ??= setTimeout(() => this.flush(), SUMMARY_MS).unref();
    return false;
  }

  /** Reports suppressed messages now. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const [kind, bucket] of this.#buckets) {
      if (bucket.left > 0) this.#summary(kind, bucket.left);
      bucket.left = 0;
    }
  }

  #bucket(kind: string): Bucket {
    const key = this.#buckets.has(kind) || this.#buckets.size < KINDS_MAX ? kind : OTHERS;
    const known = this.#buckets.get(key);
    if (known !== undefined) return known;
    const bucket = { tokens: THROTTLE_BURST, filledAtMs: this.#nowMs(), left: 0 };
    this.#buckets.set(key, bucket);
    return bucket;
  }
}
