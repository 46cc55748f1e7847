/** Raw TCP between two Node processes: the baseline of most measurements. */
import type { Baseline } from './measurement.ts';
import type { Rig } from './rig.ts';

export interface WriteLoad {
  readonly writeBytes: number;
  readonly totalBytes: number;
  readonly batch: number;
}

const PING_BYTES = 64;

/** Raw TCP with the same writes as `load`. */
export function rawWrites(load: WriteLoad, aim?: number): Baseline {
  return {
    title: 'raw TCP, one write each',
    run: (rig, scale) => rawStream(rig, load, 1, scale),
    ...(aim === undefined ? {} : { aim }),
  };
}

/** A round trip of 64 bytes over raw TCP. */
export function rawRoundTrip(aim?: number): Baseline {
  return {
    title: 'raw TCP round trip',
    run: rawPingPong,
    ...(aim === undefined ? {} : { aim }),
  };
}

/** Half of a round trip, the convention of perftest and others. */
export const RAW_ONE_WAY: Baseline = {
  title: 'raw TCP, half a round trip',
  run: async (rig, scale) => (await rawPingPong(rig, scale)) / 2,
};

/** The load's number of writes, scaled to whole batches. */
export function writeCount(load: WriteLoad, scale: number): number {
  const batches = Math.round((load.totalBytes * scale) / load.writeBytes / load.batch);
  return Math.max(1, batches) * load.batch;
}

/** MB/s of raw TCP; gathers each `cork` writes into one. */
export async function rawStream(
  rig: Rig,
  load: WriteLoad,
  cork: number,
  scale: number,
): Promise<number> {
  const { active, passive } = rig.raw();
  const { writeBytes } = load;
  const totalBytes = writeCount(load, scale) * writeBytes;
  const port = await passive.call('sink', { totalBytes });
  const seconds = await active.call('stream', { port, writeBytes, totalBytes, cork });
  await passive.call('stop', undefined);
  return totalBytes / seconds / 1e6;
}

async function rawPingPong(rig: Rig, scale: number): Promise<number> {
  const { active, passive } = rig.raw();
  const count = Math.ceil(10_000 * scale);
  const port = await passive.call('echo', undefined);
  const seconds = await active.call('pingPong', { port, sizeBytes: PING_BYTES, count });
  await passive.call('stop', undefined);
  return seconds * 1e6;
}
