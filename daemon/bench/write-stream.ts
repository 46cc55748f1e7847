/** Streams of RDMA Writes between two clients. */
import { type WriteLoad, writeCount } from './raw-baselines.ts';
import type { VerbsPair } from './rig.ts';
import { WRITE_WINDOW_BYTES } from './verbs-traffic.ts';

/** MB/s of RDMA Writes that arrive in the passive side's memory. */
export async function writeStream(
  { active, passive, remote }: VerbsPair,
  load: WriteLoad,
  scale: number,
): Promise<number> {
  const { writeBytes, batch } = load;
  const count = writeCount(load, scale);
  const answered = passive.call('answer', undefined);
  const seconds = await active.call('write', { remote, writeBytes, count, batch });
  await answered;
  await passive.call('verify', {
    lengthBytes: Math.min(batch * writeBytes, Math.max(writeBytes, WRITE_WINDOW_BYTES)),
  });
  return (count * writeBytes) / seconds / 1e6;
}
