/** A plot of two rates over the last two minutes. */
import uPlot from 'uplot';
import { el, setText } from './dom.ts';
import { HISTORY_LENGTH, type RateName, type RatePoint } from './rates.ts';
import { si } from './units.ts';

const HEIGHT = 150;
const FONT = '11px system-ui, sans-serif';

interface PlotOptions {
  readonly title: string;
  /** Explains what is counted. */
  readonly help: string;
  readonly outward: RateName;
  readonly inward: RateName;
  /** The unit after a prefix on the axis: 'B/s', '/s'. */
  readonly unit: string;
  readonly format: (rate: number) => string;
}

export class RatePlot {
  readonly element: HTMLElement;
  readonly #options: PlotOptions;
  readonly #canvas = el('div', { class: 'canvas', attributes: { 'aria-hidden': 'true' } });
  readonly #out = el('output');
  readonly #in = el('output');
  #plot: uPlot | undefined;
  #points: readonly RatePoint[] = [];

  constructor(options: PlotOptions) {
    this.#options = options;
    this.element = el('figure', { class: 'plot' }, [
      el('figcaption', {}, [
        el('h4', { text: options.title, title: options.help }),
        el('span', { class: 'key out' }, ['out ', this.#out]),
        el('span', { class: 'key in' }, ['in ', this.#in]),
      ]),
      this.#canvas,
    ]);
    new ResizeObserver(() => this.#resize()).observe(this.#canvas);
    // Colors are part of the drawing: redraw when the color scheme changes.
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#create());
  }

  update(points: readonly RatePoint[]): void {
    this.#points = points;
    const last = points.at(-1)?.rates;
    const { outward, inward, format } = this.#options;
    for (const [element, value] of [
      [this.#out, last?.[outward]],
      [this.#in, last?.[inward]],
    ] as const) {
      setText(element, value === undefined ? '–' : format(value));
    }
    this.#plot?.setData(this.#aligned());
  }

  #resize(): void {
    const width = this.#canvas.clientWidth;
    if (width === 0) return;
    if (this.#plot === undefined) this.#create();
    else if (this.#plot.width !== width) this.#plot.setSize({ width, height: HEIGHT });
  }

  #create(): void {
    const width = this.#canvas.clientWidth;
    if (width === 0) return;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#uplotOptions(width), this.#aligned(), this.#canvas);
  }

  /** Converts times to seconds before now. */
  #aligned(): uPlot.AlignedData {
    const points = this.#points;
    const now = points.at(-1)?.at ?? 0;
    const { outward, inward } = this.#options;
    const values = (name: RateName) => points.map(({ rates }) => rates[name] ?? null);
    return [points.map(({ at }) => at - now), values(outward), values(inward)];
  }

  #uplotOptions(width: number): uPlot.Options {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const grid = { stroke: colour('--grid'), width: 1 };
    const axis = { stroke: colour('--faint'), font: FONT, grid, ticks: { show: false } };
    const { unit } = this.#options;
    const line = (name: string): uPlot.Series => {
      return { stroke: colour(name), width: 2, points: { show: false } };
    };
    const fill = `color-mix(in srgb, ${colour('--out')} 14%, transparent)`;
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 12, 0, 0],
      scales: {
        x: { time: false, range: () => [-HISTORY_LENGTH, 0] },
        // Without traffic, show a line at the bottom of a scale rather than an empty plot.
        y: { range: (_, _low, high) => [0, Math.max(1, (high ?? 0) * 1.1)] },
      },
      axes: [
        {
          ...axis,
          size: 22,
          gap: 2,
          splits: () => [-120, -90, -60, -30, 0],
          values: () => ['', '−90 s', '−60 s', '−30 s', 'now'],
        },
        {
          ...axis,
          size: 66,
          gap: 4,
          space: 34,
          values: (_, splits) => splits.map((rate) => tickText(rate, unit)),
        },
      ],
      // Both rates are equal if both programs use one device: the dashed line keeps the other
      // visible.
      series: [{}, { ...line('--out'), fill }, { ...line('--in'), dash: [6, 6] }],
    };
  }
}

/** Axis steps are round numbers. */
function tickText(rate: number, unit: string): string {
  return `${si(rate).replace('.0 ', ' ')}${unit}`.replace(' /', '/');
}
