import { expect, it } from 'vitest';
import { TRACE_SAMPLES_MAX } from '#contract/protocol/trace-sample';
import { TapHub } from '#daemon/capture/tap-hub';
import type { WorkHub } from '#daemon/capture/work-hub';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { TraceSamples } from '#daemon/main/trace-samples';
import { crc32 } from '#daemon/roce/wire/crc32';

it('a sample that cannot begin makes room for the next', async () => {
  const work = {
    watch: () => {
      throw new Error('nothing to watch');
    },
  };
  const samples = new TraceSamples(new TapHub(), work as unknown as WorkHub, crc32c, crc32);
  for (let sample = 0; sample <= TRACE_SAMPLES_MAX; sample++) {
    await expect(samples.record({ ms: 1 })).rejects.toThrow('nothing to watch');
  }
});
