/**
 * Chooses the CRC32C implementation for this machine.
 *
 * fast-crc32c silently falls back to JavaScript, an order of magnitude slower, if its addon was not built.
 * Therefore the choice is made here, once, and has a name that doctor, status and bench show. Short ranges
 * never get here (`CRC32C_TABLE_MAX_BYTES`): as measured, a native call costs as much as the
 * table takes for 150 to 200 bytes.
 */
import { createRequire } from 'node:module';
import { agrees } from '#base/crc';
import { openIsalCrc32c } from '#native-bridge/isal/crc32c';
import { type Crc32c, crc32c } from '../iwarp/wire/crc32c.ts';

/** The chosen engine. */
export interface CrcEngine {
  /** For people: the implementations, and from which size each is used; 'table' if none is native. */
  readonly name: string;
  /** False for the table: CRCs then take several times as long. */
  readonly accelerated: boolean;
  /** Computes CRC32C. */
  readonly crc32c: Crc32c;
}

/** Nanoseconds that an implementation takes for `sizeBytes`. */
type Probe = (candidate: Crc32c, sizeBytes: number) => number;

/** An installed implementation that computes correct results. */
interface Candidate {
  readonly name: string;
  readonly crc32c: Crc32c;
}

/**
 * From this size on, the fastest at `LARGE_PROBE_BYTES` computes; below, the fastest at `SMALL_PROBE_BYTES`.
 */
const LARGE_MIN_BYTES = 16_384;
const LARGE_PROBE_BYTES = 65_536;
/** A full segment of an Ethernet. */
const SMALL_PROBE_BYTES = 1460;
const PROBE_ROUNDS = 8;
/** The clock is too coarse for one small CRC. */
const PROBE_CALLS = 8;
/** Another implementation must be this much faster; less is within the noise of the probe. */
const WORTHWHILE = 1.15;

const load = createRequire(import.meta.url);

/** Name of the engine of Intel's library, which few machines have installed. */
export const ISAL = 'ISA-L';

/** Implementations that may be installed. The first is the default: a dependency of this package. */
const IMPLEMENTATIONS: readonly (readonly [name: string, find: () => Crc32c])[] = [
  ['fast-crc32c', () => nativeFunction(load('fast-crc32c/impls/sse4_crc32c'), 'calculate')],
  [ISAL, () => openIsalCrc32c()],
  ['@node-rs/crc32', () => nativeFunction(load('@node-rs/crc32'), 'crc32c')],
];

/** Finds, checks and compares the installed implementations. Takes about a millisecond, so call it once. */
export function chooseCrcEngine(
  implementations = IMPLEMENTATIONS,
  nanosOf: Probe = probeNanos,
): CrcEngine {
  const candidates: Candidate[] = [];
  for (const [name, find] of implementations) {
    const found = checked(find);
    if (found === undefined) continue;
    candidates.push({ name, crc32c: found });
    // ISA-L is the fastest: the others need not be loaded.
    if (name === ISAL) break;
  }
  const small = fastest(candidates, SMALL_PROBE_BYTES, nanosOf);
  const large = fastest(candidates, LARGE_PROBE_BYTES, nanosOf);
  if (small === undefined || large === undefined) {
    return { name: 'table', accelerated: false, crc32c };
  }
  if (small === large) return { ...small, accelerated: true };
  return {
    name: `${small.name}, ${large.name} from ${LARGE_MIN_BYTES} bytes`,
    accelerated: true,
    crc32c: (bytes, initial = 0) =>
      bytes.length < LARGE_MIN_BYTES ? small.crc32c(bytes, initial) : large.crc32c(bytes, initial),
  };
}

/** The first candidate, unless another is worthwhile; undefined if there is none. */
function fastest(
  candidates: readonly Candidate[],
  sizeBytes: number,
  nanosOf: Probe,
): Candidate | undefined {
  let chosen: Candidate | undefined;
  let limit = Number.POSITIVE_INFINITY;
  for (const candidate of candidates) {
    const nanos = nanosOf(candidate.crc32c, sizeBytes);
    if (nanos >= limit) continue;
    chosen = candidate;
    limit = nanos / WORTHWHILE;
  }
  return chosen;
}

function nativeFunction(exported: unknown, name: string): Crc32c {
  if (typeof exported !== 'object' || exported === null) throw new TypeError('no exports');
  const found: unknown = Reflect.get(exported, name);
  if (typeof found !== 'function') throw new TypeError(`no function ${name}`);
  return (bytes, initial = 0) => Number(found(bytes, initial));
}

/** The implementation, if it loads and is correct. */
function checked(find: () => Crc32c): Crc32c | undefined {
  try {
    const candidate = find();
    return agrees(candidate, crc32c) ? candidate : undefined;
  } catch {
    // Not installed, or not built for this machine.
    return undefined;
  }
}

/** The best of several rounds. */
function probeNanos(candidate: Crc32c, sizeBytes: number): number {
  const bytes = new Uint8Array(sizeBytes);
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < PROBE_ROUNDS; round++) {
    const start = performance.now();
    for (let call = 0; call < PROBE_CALLS; call++) candidate(bytes);
    best = Math.min(best, performance.now() - start);
  }
  return (best * 1e6) / PROBE_CALLS;
}
