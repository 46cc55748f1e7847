import { describe, expect, it } from 'vitest';
import { CHUNK_MIN_BYTES, ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { fpduSizeBytes } from '#daemon/iwarp/wire/fpdu';
import { markedSizeBytes } from '#daemon/iwarp/wire/marker';

/** Maximum of ULPDU_Length, a field of 16 bits. */
const ULPDU_ANNOUNCED_MAX_BYTES = 0xffff;

describe('chunk pool', () => {
  it('its smallest chunk holds the largest FPDU that a peer can announce [MPA-3-08]', () => {
    const spans: number[] = [];
    for (let phase = 0; phase < 512; phase += 4) {
      spans.push(markedSizeBytes(phase, fpduSizeBytes(ULPDU_ANNOUNCED_MAX_BYTES)));
    }
    expect(Math.max(...spans)).toBe(CHUNK_MIN_BYTES);
    expect(new ChunkPool({ chunkBytes: CHUNK_MIN_BYTES }).acquire()).toHaveLength(CHUNK_MIN_BYTES);
    expect(() => new ChunkPool({ chunkBytes: CHUNK_MIN_BYTES - 1 })).toThrow(RangeError);
  });

  it('reuses what it keeps, keeps no more than its limit, and counts chunks in use', () => {
    const made: number[] = [];
    const allocate = (bytes: number) => {
      made.push(bytes);
      return new Uint8Array(bytes);
    };
    const pool = new ChunkPool({ chunkBytes: 70_000, keptMax: 2, allocate });
    const first = [pool.acquire(), pool.acquire(), pool.acquire()];
    expect([made, pool.inUseCount]).toEqual([[70_000, 70_000, 70_000], 3]);
    for (const chunk of first) pool.release(chunk);
    expect(pool.inUseCount).toBe(0);
    const second = [pool.acquire(), pool.acquire(), pool.acquire()];
    expect(made).toHaveLength(4);
    expect(new Set(second).size).toBe(3);
    expect(second.filter((chunk) => first.includes(chunk))).toHaveLength(2);
  });
});
