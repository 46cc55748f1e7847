/** Connections that two clients establish and hold. */
import type { VerbsPair } from './rig.ts';

/** Connections in progress at a time. */
export const CONNECTIONS_AT_ONCE = 100;

/** Establishes `count` connections; returns seconds. */
export async function hold(pair: VerbsPair, count: number): Promise<number> {
  const accepted = pair.passive.call('acceptMany', { count });
  const width = CONNECTIONS_AT_ONCE;
  const seconds = await pair.active.call('connectMany', { ...pair.meeting, count, width });
  await accepted;
  return seconds;
}

export async function release({ active, passive }: VerbsPair): Promise<void> {
  await active.call('closeMany', undefined);
  await passive.call('closeMany', undefined);
}
