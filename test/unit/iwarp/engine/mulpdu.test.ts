import { describe, expect, it } from 'vitest';
import { mulpduBytes } from '#daemon/iwarp/engine/mpa-layer';
import { fpduSizeBytes } from '#daemon/iwarp/wire/fpdu';
import { markedSizeBytes } from '#daemon/iwarp/wire/marker';

const emss = { kind: 'emss' } as const;

describe('MULPDU', () => {
  it.each([
    [536, 522],
    [1220, 1202],
    [1448, 1430],
    [1460, 1442],
    [1461, 1442],
    [8948, 8870],
    [8960, 8882],
  ])('EMSS %i with markers gives %i [MPA-4.5-01]', (segment, expected) => {
    expect(mulpduBytes(emss, segment, true)).toBe(expected);
  });

  it.each([
    [536, 530],
    [1220, 1214],
    [1448, 1442],
    [1460, 1454],
    [1461, 1454],
    [8948, 8942],
    [8960, 8954],
  ])('EMSS %i without markers gives %i [MPA-4.5-02, MPA-5.1-01]', (segment, expected) => {
    expect(mulpduBytes(emss, segment, false)).toBe(expected);
  });

  it('the formula follows the markers that are sent [MPA-4.5-04]', () => {
    expect([mulpduBytes(emss, 1460, false), mulpduBytes(emss, 1460, true)]).toEqual([1454, 1442]);
  });

  it('it follows a change of EMSS [MPA-3-02, MPA-4.5-05]', () => {
    expect([mulpduBytes(emss, 1460, false), mulpduBytes(emss, 1220, false)]).toEqual([1454, 1214]);
  });

  it.each([65483, 65495])('loopback, EMSS %i, gives the limit [MPA-4.5-03]', (segment) => {
    expect(mulpduBytes(emss, segment, true)).toBe(64768);
    expect(mulpduBytes(emss, segment, false)).toBe(64768);
  });

  it('never below 128 [MPA-4.5-06, MPA-4.5-07]', () => {
    expect(mulpduBytes(emss, 100, true)).toBe(128);
    expect(mulpduBytes(emss, 100, false)).toBe(128);
  });

  it('always within 128..64768, whatever the policy [MPA-3-03]', () => {
    for (let segment = 0; segment <= 65535; segment += 7) {
      for (const markers of [false, true]) {
        const bytes = mulpduBytes(emss, segment, markers);
        if (bytes < 128 || bytes > 64768) expect.fail(`EMSS ${segment} gives ${bytes}`);
      }
    }
    expect(mulpduBytes({ kind: 'large' }, 1460, true)).toBe(64768);
    expect(mulpduBytes({ kind: 'fixed', mulpduBytes: 1000 }, 1460, true)).toBe(1000);
    expect(mulpduBytes({ kind: 'fixed', mulpduBytes: 1 }, 1460, true)).toBe(128);
    expect(mulpduBytes({ kind: 'fixed', mulpduBytes: 65535 }, 1460, true)).toBe(64768);
  });

  it('with markers, an FPDU of MULPDU fits its segment wherever the markers fall', () => {
    for (const segment of [536, 1448, 1460, 8948]) {
      const size = fpduSizeBytes(mulpduBytes(emss, segment, true));
      for (let phase = 0; phase < 512; phase += 4) {
        expect(markedSizeBytes(phase, size)).toBeLessThanOrEqual(segment);
      }
    }
  });
});
