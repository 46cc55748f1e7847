import { expect, it } from 'vitest';
import { chooseCrcEngine } from '../../../daemon/host/crc-engine.ts';
import { crc32c } from '../../../daemon/iwarp/wire/crc32c.ts';

it('the chosen CRC engine agrees with the table for every size and offset, and in parts', () => {
  const { crc32c: engine, name, accelerated } = chooseCrcEngine();
  expect(name).toMatch(/^(table|fast-crc32c.*|@node-rs\/crc32)$/);
  expect(accelerated).toBe(name !== 'table');
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => (index * 131) & 0xff);
  for (const length of [0, 1, 7, 8, 199, 200, 201, 1460, 16_383, 16_384, 16_385, 65_536]) {
    for (const start of [0, 1, 3, 8]) {
      const view = bytes.subarray(start, start + length);
      expect(engine(view)).toBe(crc32c(view));
      const cut = length >> 1;
      const first = engine(view.subarray(0, cut));
      expect(engine(view.subarray(cut), first)).toBe(crc32c(view));
    }
  }
});
