/**
 * Line charts as SVG, for README files. A chart has its own background, and colours for light and dark
 * mode, so its text is readable on any page. It depends only on its arguments: the same figures give the
 * same file.
 */

/** One line of a panel. */
interface ChartLine {
  readonly label: string;
  /** A value for each column of the panel; undefined where there is none. */
  readonly values: readonly (number | undefined)[];
  /** A limit, drawn dashed and without marks. */
  readonly limit?: true;
}

/** One pair of axes. */
export interface Panel {
  /** `TITLE_LENGTH_MAX` characters fit. */
  readonly title: string;
  /** Labels of the horizontal axis; columns are equally far apart. */
  readonly columns: readonly string[];
  /** How the vertical axis grows: from 0, or by powers of ten. */
  readonly scale: 'linear' | 'log';
  readonly lines: readonly ChartLine[];
}

/** A colour on a light and on a dark background. */
interface Colour {
  readonly light: string;
  readonly dark: string;
}

/** All colours of a chart: background, text, grid, and the lines in order. */
export const PALETTE: {
  readonly background: Colour;
  readonly text: Colour;
  readonly quiet: Colour;
  readonly grid: Colour;
  readonly lines: readonly Colour[];
} = {
  background: { light: '#ffffff', dark: '#0d1117' },
  text: { light: '#1f2328', dark: '#e6edf3' },
  quiet: { light: '#59636e', dark: '#9198a1' },
  grid: { light: '#d0d7de', dark: '#30363d' },
  lines: [
    { light: '#0550ae', dark: '#58a6ff' },
    { light: '#bc4c00', dark: '#f0883e' },
    { light: '#1a7f37', dark: '#56d364' },
    { light: '#8250df', dark: '#d2a8ff' },
    { light: '#a40e26', dark: '#ff7b72' },
  ],
};

const PANEL_WIDTH = 430;
const PANEL_HEIGHT = 250;
const PANELS_A_ROW = 2;
/** Space around the axes; the title and the legend are in the top margin. */
const MARGIN = { left: 62, right: 16, top: 60, bottom: 34 };
/** Estimated width of a character in the legend, whose font is proportional. */
const CHARACTER_WIDTH = 6.8;
const COLUMN_LABELS_MAX = 8;
/** Maximum characters of a panel's title, so that it is no wider than its axes. */
export const TITLE_LENGTH_MAX = 44;
const TICKS = 5;

/** The panels, in two columns. `title` and `description` are for screen readers. */
export function chartSvg(title: string, description: string, panels: readonly Panel[]): string {
  const rows = Math.max(1, Math.ceil(panels.length / PANELS_A_ROW));
  const [width, height] = [PANEL_WIDTH * PANELS_A_ROW, PANEL_HEIGHT * rows];
  const drawn = panels.flatMap((panel, index) => {
    const x = (index % PANELS_A_ROW) * PANEL_WIDTH;
    const y = Math.floor(index / PANELS_A_ROW) * PANEL_HEIGHT;
    return [`<g transform="translate(${x} ${y})">`, ...panelParts(panel), '</g>'];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${escaped(title)}</title>`,
    `<desc>${escaped(description)}</desc>`,
    ...styleLines(),
    `<rect class="background" width="${width}" height="${height}"/>`,
    ...drawn,
    '</svg>',
    '',
  ].join('\n');
}

function styleLines(): string[] {
  return [
    '<style>',
    'text { font: 11px system-ui, sans-serif }',
    '.title { font-weight: 600; font-size: 13px }',
    'polyline { fill: none; stroke-width: 2 }',
    '.limit { stroke-dasharray: 5 4 }',
    ...colourRules('light'),
    '@media (prefers-color-scheme: dark) {',
    ...colourRules('dark'),
    '}',
    '</style>',
  ];
}

function colourRules(mode: keyof Colour): string[] {
  const { background, text, quiet, grid, lines } = PALETTE;
  return [
    `.background { fill: ${background[mode]} }`,
    `text { fill: ${text[mode]} }`,
    `.quiet { fill: ${quiet[mode]} }`,
    `.grid { stroke: ${grid[mode]} }`,
    ...lines.flatMap((colour, index) => [
      `.line${index} { stroke: ${colour[mode]} }`,
      `.mark${index} { fill: ${colour[mode]} }`,
    ]),
  ];
}

function panelParts(panel: Panel): string[] {
  if (panel.title.length > TITLE_LENGTH_MAX) throw new RangeError(`${panel.title} does not fit`);
  const axis = axisOf(panel);
  return [
    `<text class="title" x="${MARGIN.left}" y="20">${escaped(panel.title)}</text>`,
    ...legendParts(panel.lines),
    ...axis.ticks.flatMap((tick) => tickParts(tick, axis.y(tick))),
    ...columnParts(panel.columns),
    ...panel.lines.flatMap((line, index) => lineParts(line, index, panel.columns.length, axis.y)),
  ];
}

/** Maps a panel's values to positions, and lists the values that have labels. */
interface Axis {
  readonly ticks: readonly number[];
  readonly y: (value: number) => number;
}

function axisOf({ lines, scale }: Panel): Axis {
  const values = lines.flatMap((line) => line.values.filter((each) => each !== undefined));
  const drawable = values.filter(
    (each) => Number.isFinite(each) && (scale === 'linear' || each > 0),
  );
  const ticks = scale === 'linear' ? linearTicks(Math.max(0, ...drawable)) : decadeTicks(drawable);
  const place = scale === 'linear' ? (value: number) => value : Math.log10;
  const [low, high] = [place(ticks[0] ?? 0), place(ticks.at(-1) ?? 1)];
  const height = PANEL_HEIGHT - MARGIN.top - MARGIN.bottom;
  return { ticks, y: (value) => MARGIN.top + height * (1 - (place(value) - low) / (high - low)) };
}

/** From 0 to at least `highest`, in steps of 1, 2 or 5 times a power of ten. */
export function linearTicks(highest: number): number[] {
  const target = highest > 0 ? highest : 1;
  const power = 10 ** Math.floor(Math.log10(target / TICKS));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each * TICKS >= target);
  const width = step ?? 10 * power;
  return Array.from({ length: Math.ceil(target / width - 1e-9) + 1 }, (_, index) =>
    Number((index * width).toPrecision(12)),
  );
}

/** Powers of ten around all values, at least two. */
export function decadeTicks(values: readonly number[]): number[] {
  const low = Math.floor(Math.log10(Math.min(...(values.length === 0 ? [1] : values))));
  const high = Math.ceil(Math.log10(Math.max(...(values.length === 0 ? [10] : values))));
  const count = Math.max(low + 1, high) - low + 1;
  return Array.from({ length: count }, (_, index) => Number((10 ** (low + index)).toPrecision(6)));
}

function tickParts(value: number, y: number): string[] {
  const [left, right] = [MARGIN.left, PANEL_WIDTH - MARGIN.right];
  return [
    `<line class="grid" x1="${left}" x2="${right}" y1="${rounded(y)}" y2="${rounded(y)}"/>`,
    `<text class="quiet" x="${left - 6}" y="${rounded(y + 4)}" text-anchor="end">${shortNumber(value)}</text>`,
  ];
}

/** A number for an axis: 1.5M, 20k, 0.2. */
export function shortNumber(value: number): string {
  const units = [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ] as const;
  const [size, unit] = units.find(([least]) => Math.abs(value) >= least) ?? [1, ''];
  return `${Number((value / size).toPrecision(3))}${unit}`;
}

function columnParts(columns: readonly string[]): string[] {
  const every = Math.ceil(columns.length / COLUMN_LABELS_MAX);
  return columns.flatMap((label, index) => {
    if (index % every !== 0) return [];
    const x = rounded(columnX(index, columns.length));
    const y = PANEL_HEIGHT - MARGIN.bottom + 18;
    return [`<text class="quiet" x="${x}" y="${y}" text-anchor="middle">${escaped(label)}</text>`];
  });
}

function columnX(index: number, count: number): number {
  const width = PANEL_WIDTH - MARGIN.left - MARGIN.right;
  // Half a column stays free on either side, for the labels.
  return MARGIN.left + (width * (index + 0.5)) / Math.max(1, count);
}

/** The legend, in at most two rows, in the order of the lines. */
function legendParts(lines: readonly ChartLine[]): string[] {
  let [x, y] = [MARGIN.left, 36];
  return lines.flatMap((line, index) => {
    const width = 24 + line.label.length * CHARACTER_WIDTH;
    if (x > MARGIN.left && x + width > PANEL_WIDTH - MARGIN.right) [x, y] = [MARGIN.left, y + 15];
    const colour = index % PALETTE.lines.length;
    const swatch = `<polyline class="line${colour}${line.limit ? ' limit' : ''}" points="${rounded(x)},${y - 4} ${rounded(x + 14)},${y - 4}"/>`;
    const text = `<text x="${rounded(x + 18)}" y="${y}">${escaped(line.label)}</text>`;
    x += width;
    return [swatch, text];
  });
}

function lineParts(
  { values, limit }: ChartLine,
  index: number,
  columns: number,
  y: (value: number) => number,
): string[] {
  const colour = index % PALETTE.lines.length;
  const points = values.map((value, column) => {
    if (value === undefined) return undefined;
    const place = y(value);
    return Number.isFinite(place)
      ? { x: rounded(columnX(column, columns)), y: rounded(place) }
      : undefined;
  });
  const runs = runsOf(points).map((run) => {
    const text = run.map((point) => `${point.x},${point.y}`).join(' ');
    return `<polyline class="line${colour}${limit ? ' limit' : ''}" points="${text}"/>`;
  });
  if (limit) return runs;
  const marks = points.flatMap((point) =>
    point === undefined
      ? []
      : [`<circle class="mark${colour}" cx="${point.x}" cy="${point.y}" r="3"/>`],
  );
  return [...runs, ...marks];
}

/** Runs of two or more points without gaps: a line must not hide that a value is missing. */
function runsOf<T>(points: readonly (T | undefined)[]): T[][] {
  const runs: T[][] = [[]];
  for (const point of points) {
    if (point === undefined) runs.push([]);
    else runs.at(-1)?.push(point);
  }
  return runs.filter((run) => run.length > 1);
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
