/**
 * Draws the layout of `timeline-layout.ts`. A mark under the pointer, or selected by the arrow
 * keys, shows its text and all events of its work request.
 */
import { byId, el, setText, svg } from './dom.ts';
import { programText } from './objects-view.ts';
import type { PageState, PageStore } from './page-state.ts';
import { type Fold, layOut, type Mark, type Row, type TimelineLayout } from './timeline-layout.ts';
import { interval, sinceText, timeOfDay } from './units.ts';
import { laneOf } from './work-groups.ts';

const AXIS_HEIGHT = 22;
const LANE_HEIGHT = 92;
const MARK_HEIGHT = 18;
/** Top of a row within its lane. */
const ROWS: Readonly<Record<Row, number>> = { wqe: 8, wire: 36, cqe: 64 };
const ROW_NAMES: Readonly<Record<Row, string>> = { wqe: 'WQE', wire: 'Wire', cqe: 'CQE' };

const SCALE_DEFAULT = 0.4;
const SCALE_MIN = 0.01;
const SCALE_MAX = 25;

const HELP =
  'Lanes are QPs: work requests (WQE), the wire (FPDUs, packets), completions (CQE). ' +
  'In order; pauses are folded.';

/** Shows the time line and keeps it up to date. */
export function showTimeline(store: PageStore): void {
  const view = new TimelineView(store);
  byId('timeline').append(...view.elements);
}

class TimelineView {
  readonly elements: readonly HTMLElement[];
  readonly #store: PageStore;
  readonly #record = el('input', {
    id: 'record',
    attributes: { type: 'checkbox', role: 'switch' },
  });
  readonly #problem = el('p', { class: 'error', attributes: { role: 'alert' } });
  readonly #empty = el('p', { class: 'empty' });
  readonly #lanes = el('div', { class: 'lanes', attributes: { 'aria-hidden': 'true' } });
  readonly #scroller = el('div', { class: 'scroller' });
  readonly #board = el('div', { class: 'board' }, [this.#lanes, this.#scroller]);
  readonly #detail = el('div', { class: 'detail', attributes: { 'aria-live': 'polite' } });
  #layout: TimelineLayout = layOut([], SCALE_DEFAULT);
  #scale = SCALE_DEFAULT;
  #marks: SVGGElement[] = [];
  #chosen: Mark | undefined;
  /** The details stay when the pointer leaves. */
  #pinned = false;

  constructor(store: PageStore) {
    this.#store = store;
    const label = el('label', { class: 'switch' }, [this.#record, el('span', { text: 'Record' })]);
    const button = (text: string, title: string, onClick: () => void) =>
      el('button', { text, title, attributes: { type: 'button', 'aria-label': title }, onClick });
    this.elements = [
      el('div', { class: 'title' }, [
        el('h2', { id: 'timeline-title', text: 'Time line' }),
        label,
        el('p', { class: 'hint grow', text: HELP }),
        button('−', 'Zoom out', () => this.#zoom(0.5)),
        button('+', 'Zoom in', () => this.#zoom(2)),
        button('Clear', 'Clear the time line', () => this.#clear()),
      ]),
      this.#problem,
      this.#empty,
      this.#board,
      this.#detail,
    ];
    this.#record.addEventListener('change', () => {
      store.update({ recording: this.#record.checked, recordingError: undefined });
    });
    this.#listen();
    store.watch(
      ({ samples }) => samples,
      () => this.#draw(),
    );
    store.watch(
      ({ recording, recordingError }) => recordingError ?? (recording ? 'on' : 'off'),
      () => this.#showState(),
    );
    store.watch(
      ({ qps }) => qps,
      () => this.#drawLanes(),
    );
  }

  #listen(): void {
    const attributes = {
      tabindex: '0',
      role: 'listbox',
      'aria-label': 'Time line: arrow keys move between records',
    };
    for (const [name, value] of Object.entries(attributes)) {
      this.#scroller.setAttribute(name, value);
    }
    this.#scroller.addEventListener('pointermove', ({ target }) => {
      if (this.#pinned) return;
      const mark = this.#markAt(target);
      if (mark !== undefined) this.#choose(mark);
    });
    this.#scroller.addEventListener('click', ({ target }) => {
      const mark = this.#markAt(target);
      this.#pinned = mark !== undefined;
      this.#choose(mark);
    });
    this.#scroller.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        this.#pinned = false;
        this.#choose(undefined);
        return;
      }
      const next = this.#neighbour(event.key);
      if (next === undefined) return;
      event.preventDefault();
      this.#pinned = true;
      this.#choose(next);
      this.#marks[next.index]?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    });
  }

  #showState(): void {
    const { recording, recordingError, samples } = this.#store.state;
    this.#record.checked = recording;
    setText(this.#problem, recordingError === undefined ? '' : `Not recorded: ${recordingError}`);
    this.#board.hidden = samples.length === 0;
    this.#detail.hidden = samples.length === 0;
    this.#empty.hidden = samples.length > 0;
    const waiting = 'Recording half of every second. No traffic yet.';
    const off = 'Switch “Record” on to see work requests, their FPDUs or packets, and completions.';
    setText(this.#empty, recording ? waiting : off);
  }

  #clear(): void {
    this.#choose(undefined);
    this.#store.update({ samples: [] });
  }

  #zoom(factor: number): void {
    this.#scale = Math.min(SCALE_MAX, Math.max(SCALE_MIN, this.#scale * factor));
    this.#draw();
  }

  #draw(): void {
    const { samples } = this.#store.state;
    const scroller = this.#scroller;
    const atEnd = scroller.scrollLeft + scroller.clientWidth >= scroller.scrollWidth - 4;
    // Records still stored are the same objects in the next drawing.
    const { record, lane } = this.#chosen ?? {};
    const laneName = this.#layout.lanes[lane ?? -1];
    this.#layout = layOut(samples, this.#scale);
    const { lanes, marks, folds, ticks, width } = this.#layout;
    const height = AXIS_HEIGHT + lanes.length * LANE_HEIGHT;
    this.#marks = marks.map(drawMark);
    const drawing = svg('svg', { width, height, class: 'timeline', role: 'presentation' }, [
      ...lanes.map((_, index) => drawLane(index, width)),
      ...folds.map((fold) => drawFold(fold, height)),
      ...ticks.map(({ x, micros }) => drawTick(x, `+${sinceText(micros)}`, height)),
      ...this.#layout.groups.map(({ marks: of }) => drawThread(of.flatMap((i) => marks[i] ?? []))),
      ...this.#marks,
    ]);
    scroller.replaceChildren(drawing);
    this.#drawLanes();
    this.#showState();
    const again = marks.find((mark) => mark.record === record && lanes[mark.lane] === laneName);
    if (again === undefined) this.#pinned = false;
    this.#choose(again);
    if (atEnd && !this.#pinned) scroller.scrollLeft = scroller.scrollWidth;
  }

  #drawLanes(): void {
    const programs = programsOf(this.#store.state);
    const labels = this.#layout.lanes.map((lane) => {
      const [device = '', qp] = lane.split(/ (?=QP [0-9]+$)/);
      return el('div', { class: 'lane', title: lane }, [
        el('strong', { text: qp ?? device }),
        el('span', { class: 'hint', text: qp === undefined ? '' : device }),
        el('span', { class: 'hint', text: programs.get(lane) ?? '' }),
        ...(Object.keys(ROWS) as Row[]).map((row) =>
          el('span', { class: `row-name ${row}`, text: ROW_NAMES[row] }),
        ),
      ]);
    });
    this.#lanes.replaceChildren(...labels);
  }

  #markAt(target: EventTarget | null): Mark | undefined {
    const element = target instanceof Element ? target.closest('[data-mark]') : null;
    const index = element?.getAttribute('data-mark');
    return index == null ? undefined : this.#layout.marks[Number(index)];
  }

  #neighbour(key: string): Mark | undefined {
    const { marks, lanes } = this.#layout;
    const at = this.#chosen ?? marks.at(-1);
    if (at === undefined) return undefined;
    if (this.#chosen === undefined) return /^(?:Arrow.*|Home|End)$/.test(key) ? at : undefined;
    const inLane = marks.filter(({ lane }) => lane === at.lane);
    switch (key) {
      case 'ArrowRight':
        return inLane.find(({ index }) => index > at.index);
      case 'ArrowLeft':
        return inLane.findLast(({ index }) => index < at.index);
      case 'ArrowUp':
        return nearest(marks, at, at.lane - 1);
      case 'ArrowDown':
        return at.lane + 1 < lanes.length ? nearest(marks, at, at.lane + 1) : undefined;
      case 'Home':
        return inLane[0];
      case 'End':
        return inLane.at(-1);
      default:
        return undefined;
    }
  }

  #choose(mark: Mark | undefined): void {
    const { groups } = this.#layout;
    this.#chosen = mark;
    const group = mark?.group === undefined ? undefined : groups[mark.group];
    const related = new Set(group?.marks ?? (mark === undefined ? [] : [mark.index]));
    this.#scroller.classList.toggle('choosing', mark !== undefined);
    for (const [index, element] of this.#marks.entries()) {
      element.classList.toggle('related', related.has(index));
      element.classList.toggle('chosen', index === mark?.index);
    }
    if (mark === undefined) this.#scroller.removeAttribute('aria-activedescendant');
    else this.#scroller.setAttribute('aria-activedescendant', `mark-${mark.index}`);
    this.#showDetail(mark, [...related]);
  }

  #showDetail(mark: Mark | undefined, related: readonly number[]): void {
    if (mark === undefined) {
      const text = 'Point at a mark, or use the arrow keys, to read it and its work request.';
      this.#detail.replaceChildren(el('p', { class: 'hint', text }));
      return;
    }
    const { marks, lanes } = this.#layout;
    const seen = related.flatMap((index) => marks[index] ?? []);
    // Show traffic between two lanes once, from the side that posted the work request.
    const { lane } = seen.find(({ row }) => row === 'wqe') ?? mark;
    const story = seen.filter((each) => {
      const twins = seen.filter(({ record }) => record === each.record);
      return each === (twins.find((twin) => twin.lane === lane) ?? twins[0]);
    });
    const began = story[0]?.record.micros ?? mark.record.micros;
    const ended = story.at(-1)?.record.micros ?? began;
    const lines = story.map((each) => {
      const { record } = each;
      return el('li', { class: record === mark.record ? 'chosen' : '' }, [
        el('span', { class: 'time', text: `+${interval(record.micros - began)}` }),
        el('span', { class: `tag ${each.row}`, text: tagOf(each) }),
        el('span', { class: each.bad ? 'mono bad' : 'mono', text: record.text }),
      ]);
    });
    const whole = story.length > 1 ? `, ${interval(ended - began)} in all` : '';
    const head = `${lanes[lane]}, ${timeOfDay(began)}${whole}`;
    this.#detail.replaceChildren(el('p', { class: 'head', text: head }), el('ol', {}, lines));
  }
}

/** Program names of lanes, for queue pairs that the page lists. */
function programsOf({ qps }: PageState): ReadonlyMap<string, string> {
  return new Map(qps.map((qp) => [laneOf(qp.device, qp.qpNum), programText(qp)]));
}

function tagOf({ row, direction, record }: Mark): string {
  if (row !== 'wire') return ROW_NAMES[row];
  const what =
    record.kind === 'fpdu' || record.kind === 'mpa' ? record.kind.toUpperCase() : record.kind;
  return `${direction === 'out' ? '→' : '←'} ${what}`;
}

function nearest(marks: readonly Mark[], to: Mark, lane: number): Mark | undefined {
  const distance = (mark: Mark) => Math.abs(mark.x - to.x);
  return marks
    .filter((mark) => mark.lane === lane)
    .reduce<Mark | undefined>((best, mark) => {
      return best === undefined || distance(mark) < distance(best) ? mark : best;
    }, undefined);
}

function topOf({ lane, row }: Mark): number {
  return AXIS_HEIGHT + lane * LANE_HEIGHT + ROWS[row];
}

function drawMark(mark: Mark): SVGGElement {
  const { index, x, width, label, row, bad, record, direction } = mark;
  const y = topOf(mark);
  const shape = svg('rect', { x, y, width, height: MARK_HEIGHT, rx: 4 });
  const text = svg('text', { x: x + width / 2, y: y + 12.5 }, [label]);
  const way = direction === undefined ? '' : ` ${direction}`;
  return svg(
    'g',
    {
      id: `mark-${index}`,
      'data-mark': index,
      class: `mark ${row}${way}${bad ? ' bad' : ''}`,
      role: 'option',
      'aria-label': `${ROW_NAMES[row]} ${record.text}`,
    },
    label === '' ? [shape] : [shape, text],
  );
}

function drawLane(index: number, width: number): SVGGElement {
  const y = AXIS_HEIGHT + index * LANE_HEIGHT;
  const lines = Object.values(ROWS).map((row) => {
    const middle = y + row + MARK_HEIGHT / 2;
    return svg('line', { x1: 0, x2: width, y1: middle, y2: middle, class: 'rail' });
  });
  return svg('g', {}, [
    svg('line', { x1: 0, x2: width, y1: y + 0.5, y2: y + 0.5, class: 'border' }),
    ...lines,
  ]);
}

function drawTick(x: number, text: string, height: number): SVGGElement {
  return svg('g', { class: 'tick' }, [
    svg('line', { x1: x, x2: x, y1: AXIS_HEIGHT - 5, y2: height }),
    svg('text', { x: x + 3, y: AXIS_HEIGHT - 8 }, [text]),
  ]);
}

function drawFold({ x, width, micros, unseen }: Fold, height: number): SVGGElement {
  const middle = x + width / 2;
  return svg('g', { class: unseen ? 'fold unseen' : 'fold' }, [
    svg('title', {}, [unseen ? 'Not recorded' : 'No traffic']),
    svg('rect', { x, y: AXIS_HEIGHT, width, height: height - AXIS_HEIGHT }),
    svg('text', { x: middle, y: AXIS_HEIGHT + 15 }, [interval(micros)]),
  ]);
}

/** A line through all marks of one work request in its own lane. */
function drawThread(marks: readonly Mark[]): SVGElement {
  const own = marks.find(({ row }) => row === 'wqe')?.lane;
  const points = marks
    .filter(({ lane }) => lane === own)
    .map((mark) => `${mark.x + mark.width / 2},${topOf(mark) + MARK_HEIGHT / 2}`);
  return svg('polyline', { points: points.join(' '), class: 'thread' });
}
