/**
 * The cost of the native bridge to its program, compared with a C program. Both use an emulated device,
 * which every machine can have, through the preload library, so they differ only above libibverbs and
 * librdmacm.
 */
import { existsSync } from 'node:fs';
import { openLibraries } from '#native-bridge/rdma/libraries';
import { failureText } from '../console/failure.ts';
import { PRELOAD_FIX, preloadPath } from '../console/preload-library.ts';
import type { Measurement } from './measurement.ts';
import { NativeProbe } from './native-probe.ts';
import type { BatchTimes } from './native-worker.ts';
import type { Rig } from './rig.ts';

/** Work requests per batch, in both programs. */
const BATCH = 16;
const WARM_UP_BATCHES = 400;
const BATCHES = 4000;
const COMPLETIONS = 10_000;
/** Batches that completed in parts do not count; below this share of countable ones, the result is invalid. */
const COUNTED_SHARE_MIN = 0.2;

export const NATIVE_MEASUREMENTS: readonly Measurement[] = [
  {
    name: 'native-post-poll',
    title: `a signalled RDMA Write of 64 bytes, posted and polled by ${BATCH}, native bridge`,
    unit: 'µs',
    better: 'lower',
    target: { kind: 'difference', limit: 2 },
    baselines: [{ title: 'C program, same libraries and device', run: inC }],
    run: throughBridge,
    obstacle: () => bridgeObstacle() ?? NativeProbe.obstacle(),
  },
  {
    name: 'native-drain',
    title: `longest stall of the event loop while ${COMPLETIONS} completions drain, native bridge`,
    unit: 'ms',
    better: 'lower',
    target: { kind: 'value', limit: 5 },
    baselines: [],
    run: async (rig) => {
      const { active, meeting } = await rig.native();
      return await active.call('drain', { meeting, count: COMPLETIONS });
    },
    obstacle: bridgeObstacle,
    warmUps: 1,
  },
];

/** Why this machine cannot bridge to an emulated device; undefined if it can. */
function bridgeObstacle(): string | undefined {
  if (!existsSync(preloadPath())) return `the preload library was not built: ${PRELOAD_FIX}`;
  try {
    openLibraries();
    return undefined;
  } catch (error) {
    return `${failureText(error)}: apt-get install ibverbs-providers librdmacm1`;
  }
}

/** Microseconds per work request through the bridge. */
async function throughBridge(rig: Rig, scale: number): Promise<number> {
  const { active, meeting } = await rig.native();
  const batches = batchCount(scale);
  const times = await active.call('postPoll', { meeting, warmUps: WARM_UP_BATCHES, batches });
  return perRequest(times, batches);
}

/** Microseconds per work request in the C program. */
async function inC(rig: Rig, scale: number): Promise<number> {
  const { meeting, variables } = await rig.native();
  const batches = batchCount(scale);
  const times = await rig.probe().run(meeting, WARM_UP_BATCHES, batches, variables);
  return perRequest(times, batches);
}

function batchCount(scale: number): number {
  return Math.max(100, Math.round(BATCHES * scale));
}

function perRequest({ medianNs, counted }: BatchTimes, batches: number): number {
  if (counted < batches * COUNTED_SHARE_MIN) {
    throw new Error(`only ${counted} of ${batches} batches were complete when they were polled`);
  }
  return medianNs / BATCH / 1000;
}
