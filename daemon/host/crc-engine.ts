/**
 * Chooses the CRC32C implementation for this machine.
 *
 * fast-crc32c silently falls back to JavaScript, an order of magnitude slower, if its addon was not
 * built; the choice is therefore made here, once, and has a name that doctor, status and bench
 * show. Short ranges never get here (`CRC32C_TABLE_MAX_BYTES` of the wire: measured, a native call
 * costs as much as the table takes for 150 to 200 bytes).
 */
import { createRequire } from 'node:module';
import { type Crc32c, crc32c } from '../iwarp/wire/crc32c.ts';

/** The chosen engine. */
export interface CrcEngine {
  /**
   * For people: 'fast-crc32c', '@node-rs/crc32', both with the size at which they change, or
   * 'table'.
   */
  readonly name: string;
  /** False for the table: CRCs then take several times as long. */
  readonly accelerated: boolean;
  /** Computes CRC32C. */
  readonly crc32c: Crc32c;
}

/**
 * From this size on, the engine that is fastest at `LARGE_PROBE_BYTES` may replace the first
 * choice.
 */
const LARGE_MIN_BYTES = 16_384;
const LARGE_PROBE_BYTES = 65_536;
const PROBE_ROUNDS = 15;
/** A second engine must be this much faster; less is within the noise of the probe. */
const WORTHWHILE = 1.15;

const load = createRequire(import.meta.url);

/**
 * Finds, checks and compares the installed implementations: takes about a millisecond, so call it
 * once.
 */
export function chooseCrcEngine(): CrcEngine {
  const fast = checked(() => nativeFunction(load('fast-crc32c/impls/sse4_crc32c'), 'calculate'));
  const rust = checked(() => nativeFunction(load('@node-rs/crc32'), 'crc32c'));
  if (fast === undefined && rust === undefined) {
    return { name: 'table', accelerated: false, crc32c };
  }
  if (rust === undefined || fast === undefined) {
    const only = fast ?? rust ?? crc32c;
    return {
      name: fast === undefined ? '@node-rs/crc32' : 'fast-crc32c',
      accelerated: true,
      crc32c: only,
    };
  }
  if (probeNanos(fast) < probeNanos(rust) * WORTHWHILE) {
    return { name: 'fast-crc32c', accelerated: true, crc32c: fast };
  }
  return {
    name: `fast-crc32c, @node-rs/crc32 from ${LARGE_MIN_BYTES} bytes`,
    accelerated: true,
    crc32c: (bytes, initial = 0) =>
      bytes.length < LARGE_MIN_BYTES ? fast(bytes, initial) : rust(bytes, initial),
  };
}

function nativeFunction(exported: unknown, name: string): Crc32c {
  if (typeof exported !== 'object' || exported === null) throw new TypeError('no exports');
  const found: unknown = Reflect.get(exported, name);
  if (typeof found !== 'function') throw new TypeError(`no function ${name}`);
  return (bytes, initial = 0) => Number(found(bytes, initial));
}

/**
 * The implementation, if it loads and agrees with the table on views at odd offsets and in parts.
 */
function checked(find: () => Crc32c): Crc32c | undefined {
  try {
    const candidate = find();
    const bytes = Uint8Array.from({ length: 1000 }, (_, index) => (index * 31) & 0xff);
    const view = bytes.subarray(3, 990);
    const parts = candidate(view.subarray(501), candidate(view.subarray(0, 501)));
    const expected = crc32c(view);
    return candidate(view) === expected && parts === expected ? candidate : undefined;
  } catch {
    // Not installed, or not built for this machine.
    return undefined;
  }
}

/** The best of several rounds, in nanoseconds. */
function probeNanos(candidate: Crc32c): number {
  const bytes = new Uint8Array(LARGE_PROBE_BYTES);
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < PROBE_ROUNDS; round++) {
    const start = performance.now();
    candidate(bytes);
    best = Math.min(best, (performance.now() - start) * 1e6);
  }
  return best;
}
