import { expect, it } from 'vitest';
import { TapHub } from '../../../daemon/capture/tap-hub.ts';
import type { WorkHub } from '../../../daemon/capture/work-hub.ts';
import { crc32c } from '../../../daemon/iwarp/wire/crc32c.ts';
import { TraceSamples } from '../../../daemon/main/trace-samples.ts';
import { crc32 } from '../../../daemon/roce/wire/crc32.ts';
import { TRACE_SAMPLES_MAX } from '../../../verbs-api/contract/protocol/trace-sample.ts';

it('a sample that cannot begin leaves room for the next', async () => {
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
