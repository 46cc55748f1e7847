import { describe, expect, it } from 'vitest';
import { chooseCrcEngine } from '#daemon/host/crc-engine';
import { type Crc32c, crc32c } from '#daemon/iwarp/wire/crc32c';
import { openIsalCrc32c } from '#native-bridge/isal/crc32c';

const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => (index * 131) & 0xff);
const SIZES = [0, 1, 7, 8, 199, 200, 201, 1460, 16_383, 16_384, 16_385, 65_536];

function agreesWithTable(engine: Crc32c): void {
  for (const length of SIZES) {
    for (const start of [0, 1, 3, 8]) {
      const view = bytes.subarray(start, start + length);
      expect(engine(view)).toBe(crc32c(view));
      const cut = length >> 1;
      const first = engine(view.subarray(0, cut));
      expect(engine(view.subarray(cut), first)).toBe(crc32c(view));
    }
  }
}

type Implementations = Parameters<typeof chooseCrcEngine>[0];

/** Implementations by the nanoseconds that they take for [1460, 65536] bytes. */
function chosenOf(costs: Readonly<Record<string, readonly [small: number, large: number]>>) {
  const nanos = new Map<Crc32c, readonly [number, number]>();
  const implementations: Implementations = Object.entries(costs).map(([name, cost]) => {
    const own: Crc32c = (view, initial) => crc32c(view, initial);
    nanos.set(own, cost);
    return [name, () => own];
  });
  return chooseCrcEngine(implementations, (candidate, size) => {
    const [small, large] = nanos.get(candidate) ?? [0, 0];
    return size === 1460 ? small : large;
  });
}

describe('the chosen CRC engine', () => {
  it('agrees with the table for every size and offset, and in parts', () => {
    const { crc32c: engine, name, accelerated } = chooseCrcEngine();
    expect(name).toMatch(/^(table|(fast-crc32c|ISA-L|@node-rs\/crc32)(, .* from 16384 bytes)?)$/);
    expect(accelerated).toBe(name !== 'table');
    agreesWithTable(engine);
  });

  it.each([
    ['the default', 'a', { a: [100, 4000], b: [100, 4000] }],
    ['the default if another is a little faster', 'a', { a: [100, 4000], b: [90, 3600] }],
    ['one that is worth the change', 'b', { a: [100, 4000], b: [80, 3000] }],
    ['the fastest of several', 'c', { a: [100, 4000], b: [80, 3000], c: [50, 2000] }],
    ['one for each size', 'a, b from 16384 bytes', { a: [100, 4000], b: [110, 3000] }],
  ] as const)('is %s', (_, name, costs) => {
    const engine = chosenOf(costs);
    expect(engine).toMatchObject({ name, accelerated: true });
    agreesWithTable(engine.crc32c);
  });

  it('is never one that is missing or computes wrong results', () => {
    const wrong = chooseCrcEngine([
      ['missing', () => openIsalCrc32c('libnothing-of-this-name.so')],
      ['wrong', () => (view) => crc32c(view) ^ 1],
      ['restarts', () => (view) => crc32c(view)],
    ]);
    expect(wrong).toMatchObject({ name: 'table', accelerated: false });
  });
});
