import { describe, expect, it } from 'vitest';
import {
  chartSvg,
  decadeTicks,
  linearTicks,
  PALETTE,
  type Panel,
  shortNumber,
  TITLE_LENGTH_MAX,
} from '#test/bench/chart';

const PANEL: Panel = {
  title: 'Rate',
  columns: ['1', '2', '3', '4', '5'],
  scale: 'linear',
  lines: [{ label: 'a & b', values: [1, 2, undefined, 4, 5] }],
};

/** Relative luminance of sRGB, as WCAG 2 defines it. */
function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5]
    .map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(left: string, right: string): number {
  const [dark = 0, light = 0] = [luminance(left), luminance(right)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** All numbers of the attribute `name` of elements `tag`. */
function numbersOf(svg: string, tag: string, name: string): number[] {
  return [...svg.matchAll(new RegExp(`<${tag} [^>]*\\b${name}="([^"]+)"`, 'g'))].map(([, value]) =>
    Number(value),
  );
}

describe('a chart', () => {
  it('is readable in light and in dark mode', () => {
    const { background, text, quiet, lines } = PALETTE;
    for (const mode of ['light', 'dark'] as const) {
      for (const colour of [text, quiet]) {
        expect(contrast(colour[mode], background[mode])).toBeGreaterThanOrEqual(4.5);
      }
      for (const colour of lines) {
        expect(contrast(colour[mode], background[mode])).toBeGreaterThanOrEqual(4.5);
      }
    }
    const svg = chartSvg('t', 'd', [PANEL]);
    const [light = '', dark = ''] = svg.split('@media (prefers-color-scheme: dark)');
    expect(light).toContain(`.background { fill: ${background.light} }`);
    expect(dark).toContain(`.background { fill: ${background.dark} }`);
    expect(dark).toContain(`text { fill: ${text.dark} }`);
    // Only these rules colour text, which is drawn on the background.
    expect(svg).not.toMatch(/<text[^>]*(?:fill|style)=/);
    expect(svg).toMatch(/<rect class="background" width="860" height="250"\/>/);
  });

  it('draws no line over a missing value, and a mark for each present value', () => {
    const svg = chartSvg('t', 'd', [PANEL]);
    expect(svg.match(/<circle/g)).toHaveLength(4);
    // Two lines around the gap, and one in the legend.
    expect(svg.match(/<polyline/g)).toHaveLength(3);
  });

  it('draws everything inside its frame', () => {
    const lines = [
      { label: 'small', values: [0, 1e-3, 0, 0, 0] },
      { label: 'large', values: [1e9, 7, 8, 9, 1e9] },
    ];
    for (const scale of ['linear', 'log'] as const) {
      const svg = chartSvg('t', 'd', [{ ...PANEL, scale, lines }]);
      for (const y of [...numbersOf(svg, 'circle', 'cy'), ...numbersOf(svg, 'text', 'y')]) {
        expect(y).toBeGreaterThan(0);
        expect(y).toBeLessThan(250);
      }
      for (const x of numbersOf(svg, 'circle', 'cx')) {
        expect(x).toBeGreaterThan(62);
        expect(x).toBeLessThan(430);
      }
      expect(svg).not.toMatch(/NaN|Infinity/);
    }
  });

  it('places larger values higher, and columns from left to right', () => {
    const svg = chartSvg('t', 'd', [PANEL]);
    const [x, y] = [numbersOf(svg, 'circle', 'cx'), numbersOf(svg, 'circle', 'cy')];
    expect(x).toEqual([...x].sort((left, right) => left - right));
    expect(y).toEqual([...y].sort((left, right) => right - left));
  });

  it('labels every second column when not all labels fit', () => {
    const columns = Array.from({ length: 10 }, (_, index) => `c${index}`);
    const svg = chartSvg('t', 'd', [{ ...PANEL, columns }]);
    expect(svg).toContain('>c0<');
    expect(svg).not.toContain('>c1<');
    expect(svg).toContain('>c8<');
  });

  it('refuses a title that would run into the next panel', () => {
    const title = 'x'.repeat(TITLE_LENGTH_MAX);
    expect(chartSvg('t', 'd', [{ ...PANEL, title }])).toContain(`>${title}<`);
    expect(() => chartSvg('t', 'd', [{ ...PANEL, title: `${title}x` }])).toThrow(RangeError);
  });

  it('is the same for the same figures, escapes its input, and may be empty', () => {
    const svg = chartSvg('<t>', '"d"', [PANEL]);
    expect(svg).toBe(chartSvg('<t>', '"d"', [PANEL]));
    expect(svg).toContain('<title>&lt;t&gt;</title>');
    expect(svg).toContain('>a &amp; b<');
    const empty = { ...PANEL, columns: [], lines: [{ label: 'none', values: [] }] };
    for (const scale of ['linear', 'log'] as const) {
      expect(chartSvg('t', 'd', [{ ...empty, scale }])).not.toMatch(/NaN|Infinity/);
    }
    expect(chartSvg('t', 'd', [])).toMatch(/^<svg .*<\/svg>\n$/s);
  });
});

describe('ticks', () => {
  it('go from 0 past the highest value in round steps', () => {
    expect(linearTicks(0.83)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(linearTicks(5)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(linearTicks(1_861_000)).toEqual([0, 500_000, 1_000_000, 1_500_000, 2_000_000]);
    expect(linearTicks(0)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  });

  it('are powers of ten on a logarithmic axis', () => {
    expect(decadeTicks([3, 2000])).toEqual([1, 10, 100, 1000, 10_000]);
    expect(decadeTicks([10])).toEqual([10, 100]);
    expect(decadeTicks([])).toEqual([1, 10]);
  });

  it('are abbreviated', () => {
    expect([0, 0.2, 999, 1500, 2e6, 3e9].map(shortNumber)).toEqual([
      '0',
      '0.2',
      '999',
      '1.5k',
      '2M',
      '3G',
    ]);
  });
});
