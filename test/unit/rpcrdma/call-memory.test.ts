import { expect, it } from 'vitest';
import { VerbsError } from '#contract/verbs/errors';
import type { MR } from '#contract/verbs/provider';
import { CallMemory } from '#verbs-api/rpcrdma/call-memory';
import type { MemoryPool, PoolBuffer } from '#verbs-api/rpcrdma/memory-pool';

const BUFFER: PoolBuffer = { mr: {} as MR, bytes: new Uint8Array(8) };

/** The memory of a call whose buffers come from `take`. */
function memoryFrom(take: MemoryPool['take']): CallMemory {
  const pool = { take, giveBack: () => undefined } as unknown as MemoryPool;
  return new CallMemory({ pool, exposer: {} as never, regionOf: () => undefined });
}

it('of a call is not empty while a buffer is on its way, nor before it is given back', async () => {
  let allocated: (buffer: PoolBuffer) => void = () => undefined;
  const memory = memoryFrom(() => new Promise((resolve) => (allocated = resolve)));
  expect(memory.empty).toBe(true);
  const taken = memory.take(8);
  expect(memory.empty).toBe(false);
  allocated(BUFFER);
  expect(await taken).toBe(BUFFER);
  expect(memory.empty).toBe(false);
  memory.giveBack();
  expect(memory.empty).toBe(true);
});

it.each([
  [
    'at once',
    () => {
      throw new VerbsError('ENOMEM');
    },
  ],
  ['later', () => Promise.reject(new VerbsError('ENOMEM'))],
])('of a call stays empty if no buffer can be had, and %s says so', async (_when, take) => {
  const memory = memoryFrom(take);
  await expect(async () => await memory.take(8)).rejects.toMatchObject({ code: 'ENOMEM' });
  expect(memory.empty).toBe(true);
});
