import { crc32 as zlibCrc32 } from 'node:zlib';
import { expect, it } from 'vitest';
import { chooseCrcEngine } from '#daemon/host/crc-engine';
import { crc32c } from '#daemon/iwarp/wire/crc32c';
import { openIsalCrc32 } from '#native-bridge/isal/crc32';
import { openIsalCrc32c } from '#native-bridge/isal/crc32c';
import { describeWith } from '../support/prerequisites.ts';

describeWith(['isal'], 'CRC32C by ISA-L', () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => (index * 131) & 0xff);

  it('agrees with the table for every size up to 300 bytes and around larger ones, and in parts', () => {
    const isal = openIsalCrc32c();
    const sizes = Array.from({ length: 301 }, (_, size) => size);
    for (const size of [...sizes, 1460, 16_383, 16_384, 65_535, 65_536, 65_537]) {
      const view = bytes.subarray(5, 5 + size);
      const expected = crc32c(view);
      expect(isal(view), `${size} bytes`).toBe(expected);
      const cut = (size * 2) / 3;
      expect(isal(view.subarray(cut), isal(view.subarray(0, cut))), `${size} parts`).toBe(expected);
    }
  });

  it('agrees with the value in RFC 3720, B.4', () => {
    const ascending = Uint8Array.from({ length: 32 }, (_, index) => index);
    expect(openIsalCrc32c()(ascending)).toBe(0x46_dd_79_4e);
  });

  it('is one of the candidates for the engine', () => {
    let compared = 0;
    chooseCrcEngine(undefined, (_, sizeBytes) => {
      if (sizeBytes === 65_536) compared++;
      return 1;
    });
    expect(compared).toBeGreaterThanOrEqual(2);
  });
});

describeWith(['isal'], 'CRC-32 by ISA-L', () => {
  it("agrees with zlib's for every size, and in parts", () => {
    const isal = openIsalCrc32();
    const bytes = Uint8Array.from({ length: 5000 }, (_, index) => (index * 131) & 0xff);
    for (let size = 0; size < 5000; size += size < 300 ? 1 : 997) {
      const view = bytes.subarray(5, 5 + size);
      expect(isal(view), `${size} bytes`).toBe(zlibCrc32(view));
      const cut = size >> 1;
      expect(isal(view.subarray(cut), isal(view.subarray(0, cut)))).toBe(zlibCrc32(view));
    }
  });
});
