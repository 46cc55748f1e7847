/** Measures the memory of a process, to detect growth from batch to batch. */
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Heap growth to tolerate: caches fill and code is compiled. */
const HEAP_SLACK_BYTES = 48 * 2 ** 20;
/** Growth outside the heap to tolerate: chunks, rings and mappings that wait for a collection. */
const OUTSIDE_SLACK_BYTES = 192 * 2 ** 20;
const DESCRIPTOR_SLACK = 8;
/** Measurements in a row that must show growth: a single one may see uncollected garbage. */
const LOOKS = 3;

/** Memory of a process after a garbage collection. */
interface Holdings {
  readonly heapBytes: number;
  /** ArrayBuffers, among them views of shared memory. */
  readonly outsideBytes: number;
  readonly descriptors: number;
}

let collect: (() => void) | undefined;

/** Collects garbage, then measures. */
export async function holdings(): Promise<Holdings> {
  if (collect === undefined) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
  // Finalizers run in a later turn and release more.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  await new Promise((resolve) => setImmediate(resolve));
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  const descriptors = readdirSync('/proc/self/fd').length;
  return { heapBytes: heapUsed, outsideBytes: arrayBuffers, descriptors };
}

/** Judges one target's measurements, each taken when all of its objects should be gone. */
export class GrowthWatch {
  #least: Holdings | undefined;
  #above = 0;

  /** Why the target seems to leak; undefined if it does not. */
  judge(now: Holdings): string | undefined {
    const least = this.#least ?? now;
    this.#least = {
      heapBytes: Math.min(least.heapBytes, now.heapBytes),
      outsideBytes: Math.min(least.outsideBytes, now.outsideBytes),
      descriptors: Math.min(least.descriptors, now.descriptors),
    };
    const grown =
      now.heapBytes > least.heapBytes + HEAP_SLACK_BYTES ||
      now.outsideBytes > least.outsideBytes + OUTSIDE_SLACK_BYTES ||
      now.descriptors > least.descriptors + DESCRIPTOR_SLACK;
    this.#above = grown ? this.#above + 1 : 0;
    if (this.#above < LOOKS) return undefined;
    return `memory grows: from ${describe(least)} to ${describe(now)}`;
  }
}

function describe({ heapBytes, outsideBytes, descriptors }: Holdings): string {
  const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  return `${mib(heapBytes)} of heap, ${mib(outsideBytes)} outside, ${descriptors} descriptors`;
}
