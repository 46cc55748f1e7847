/**
 * Computes the layout of the time line: one lane per queue pair, with one row each for WQEs, wire
 * traffic and CQEs; time runs to the right.
 *
 * A burst takes microseconds and the pause after it milliseconds, so no single scale shows both.
 * Here the order is always exact; distances are to scale, but wider where marks would overlap; and
 * pauses are folded and labelled with their duration.
 */
import type { TraceRecord } from '#contract/protocol/trace-sample';
import {
  groupWork,
  isLast,
  messageOf,
  type Sighting,
  sightingsOf,
  type WorkGroup,
} from './work-groups.ts';

/** Rows of a lane, top to bottom. */
export type Row = 'wqe' | 'wire' | 'cqe';

/** A record in a lane. */
export interface Mark {
  /** Index among all marks, in order of time. */
  readonly index: number;
  readonly record: TraceRecord;
  readonly lane: number;
  readonly row: Row;
  readonly direction: 'in' | 'out' | undefined;
  readonly x: number;
  readonly width: number;
  /** The label; '' for the FPDUs or packets of a message after its first. */
  readonly label: string;
  /** It reports an error. */
  readonly bad: boolean;
  /**
   * Its work request, as an index of `TimelineLayout.groups`. At an end that posted nothing for it
   * (the target of an RDMA Write or Read Request), the other end's work request.
   */
  readonly group: number | undefined;
}

export interface Fold {
  readonly x: number;
  readonly width: number;
  readonly micros: number;
  /** True between two samples, where no traffic was recorded. */
  readonly unseen: boolean;
}

/** A point of the axis. */
interface Tick {
  readonly x: number;
  /** Microseconds since the first record of its sample. */
  readonly micros: number;
}

/** The marks of one work request at both ends, in order of time. */
interface MarkGroup {
  readonly marks: readonly number[];
}

/** All lengths are in pixels. */
export interface TimelineLayout {
  readonly lanes: readonly string[];
  readonly marks: readonly Mark[];
  readonly groups: readonly MarkGroup[];
  readonly folds: readonly Fold[];
  readonly ticks: readonly Tick[];
  readonly width: number;
}

/** Records of one sample of the daemon, in order of time. */
export type Sample = readonly TraceRecord[];

const CHARACTER_WIDTH = 6.2;
const LABEL_PADDING = 10;
/** An FPDU that continues a message. */
const CONTINUED_WIDTH = 6;
const GAP = 3;
/** A later event is always further to the right, by at least this much. */
const STEP = 2;
const FOLD_WIDTH = 56;
/** Longer distances are folded. */
const DISTANCE_MAX = 120;
const TICK_DISTANCE = 110;
const MARGIN = 12;

/** Lays out the records of some samples. `pixelsPerMicro`: the scale, where marks do not overlap. */
export function layOut(samples: readonly Sample[], pixelsPerMicro: number): TimelineLayout {
  const sightings = samples.map((sample) => sample.flatMap(sightingsOf));
  const lanes = [...new Set(sightings.flat().map(({ lane }) => lane))].sort(byNumber);
  const placer = new Placer(lanes, pixelsPerMicro);
  for (const sample of sightings) placer.place(sample);
  return placer.layout();
}

const byNumber = new Intl.Collator('en', { numeric: true }).compare;

class Placer {
  readonly #lanes: readonly string[];
  readonly #scale: number;
  readonly #marks: Mark[] = [];
  readonly #groups: MarkGroup[] = [];
  readonly #folds: Fold[] = [];
  readonly #ticks: Tick[] = [];
  /** Right edge of the last mark of each row of a lane. */
  readonly #ends = new Map<string, number>();
  /** The last FPDU of a lane and direction. */
  readonly #passing = new Map<string, Sighting>();
  #x = MARGIN;
  #lastMicros: number | undefined;

  constructor(lanes: readonly string[], scale: number) {
    this.#lanes = lanes;
    this.#scale = scale;
  }

  place(sightings: readonly Sighting[]): void {
    const [first] = sightings;
    if (first === undefined) return;
    if (this.#lastMicros !== undefined) this.#fold(first.record.micros - this.#lastMicros, true);
    this.#lastMicros = first.record.micros;
    this.#passing.clear();
    const groupOf = this.#number(sightings, groupWork(sightings));
    const indices = new Map<number, number[]>();
    for (const sighting of sightings) {
      const group = groupOf.get(sighting);
      const mark = this.#mark(sighting, group);
      this.#tick(mark.x, sighting.record.micros - first.record.micros);
      if (group === undefined) continue;
      indices.set(group, [...(indices.get(group) ?? []), mark.index]);
    }
    for (const [group, marks] of indices) this.#groups[group] = { marks };
  }

  layout(): TimelineLayout {
    const ends = [...this.#ends.values()];
    return {
      lanes: this.#lanes,
      marks: this.#marks,
      groups: this.#groups,
      folds: this.#folds,
      ticks: this.#ticks,
      width: Math.max(0, ...ends) + MARGIN,
    };
  }

  /** Numbers work requests by their marks, including those at the other end. */
  #number(
    sightings: readonly Sighting[],
    groups: readonly WorkGroup[],
  ): ReadonlyMap<Sighting, number> {
    const numbers = new Map<Sighting, number>();
    for (const { wqe, fpdus, cqe } of groups) {
      const number = this.#groups.push({ marks: [] }) - 1;
      for (const each of [wqe, ...fpdus, ...(cqe === undefined ? [] : [cqe])]) {
        numbers.set(each, number);
      }
    }
    const byRecord = new Map([...numbers].map(([{ record }, number]) => [record, number]));
    for (const sighting of sightings) {
      const number = numbers.get(sighting) ?? byRecord.get(sighting.record);
      if (number !== undefined) numbers.set(sighting, number);
    }
    return numbers;
  }

  #mark(sighting: Sighting, group: number | undefined): Mark {
    const { record, direction } = sighting;
    const lane = this.#lanes.indexOf(sighting.lane);
    const row = rowOf(record);
    const last = this.#marks.at(-1);
    // An event that both ends recorded has one place.
    const step = last !== undefined && last.record === record ? 0 : this.#advance(record.micros);
    const place = `${lane} ${row}`;
    const free = (this.#ends.get(place) ?? 0) + GAP;
    this.#x = Math.max(this.#x + step, free);
    const label = this.#label(sighting);
    const width = label === '' ? CONTINUED_WIDTH : label.length * CHARACTER_WIDTH + LABEL_PADDING;
    const index = this.#marks.length;
    const bad = isBad(record);
    const mark = { index, record, lane, row, direction, x: this.#x, width, label, bad, group };
    this.#marks.push(mark);
    this.#ends.set(place, this.#x + width);
    return mark;
  }

  /** Advances by the time since the last event; folds a pause. */
  #advance(micros: number): number {
    const passed = Math.max(0, micros - (this.#lastMicros ?? micros));
    this.#lastMicros = micros;
    const distance = passed * this.#scale;
    if (distance <= DISTANCE_MAX) return Math.max(STEP, distance);
    this.#fold(passed, false);
    return STEP;
  }

  #fold(micros: number, unseen: boolean): void {
    const x = Math.max(this.#x, ...this.#ends.values()) + GAP;
    this.#folds.push({ x, width: FOLD_WIDTH, micros, unseen });
    this.#x = x + FOLD_WIDTH + GAP;
  }

  #tick(x: number, micros: number): void {
    const last = this.#ticks.at(-1);
    const fold = this.#folds.at(-1);
    const clear = fold === undefined || x >= fold.x + fold.width;
    const apart = last === undefined || (x - last.x >= TICK_DISTANCE && micros !== last.micros);
    if (clear && apart) this.#ticks.push({ x, micros });
  }

  #label(sighting: Sighting): string {
    const { record, lane, direction } = sighting;
    const text = labelOf(record);
    if (record.kind !== 'fpdu' && record.kind !== 'packet') return text;
    const arrow = direction === 'out' ? '→' : '←';
    const stream = `${lane} ${arrow}`;
    const before = this.#passing.get(stream);
    this.#passing.set(stream, sighting);
    const goesOn =
      before !== undefined &&
      messageOf(before.record.opcode) === messageOf(record.opcode) &&
      !isLast(before);
    return goesOn ? '' : `${arrow}${text}`;
  }
}

function rowOf({ kind }: TraceRecord): Row {
  return kind === 'wqe' || kind === 'cqe' ? kind : 'wire';
}

/** Short names of messages. */
const MESSAGE_LABELS = {
  send: 'Send',
  write: 'Write',
  readRequest: 'RReq',
  readResponse: 'RResp',
  atomicRequest: 'AReq',
  atomicResponse: 'AResp',
  immediate: 'Imm',
  acknowledge: 'ACK',
  terminate: 'Term',
  other: '?',
} as const;

function labelOf({ kind, opcode = '', status, text }: TraceRecord): string {
  switch (kind) {
    case 'fpdu':
      return MESSAGE_LABELS[messageOf(opcode)];
    case 'packet':
      return isNak(text) ? 'NAK' : MESSAGE_LABELS[messageOf(opcode)];
    case 'mpa':
      return /reply/i.test(opcode + text) ? 'MPA Rep' : 'MPA Req';
    case 'error':
      return 'error';
    case 'end':
      return /RST/.test(text) ? 'RST' : 'FIN';
    case 'wqe':
      return shortOpcode(opcode);
    case 'cqe':
      return isSuccess(status) ? 'ok' : shortStatus(status);
    default:
      return kind satisfies never;
  }
}

/** `RDMA_WRITE_WITH_IMM` as `WRITE IMM`. */
function shortOpcode(opcode: string): string {
  return opcode
    .replace(/^(?:IBV_)?(?:WR|WC)_/, '')
    .replace(/^RDMA_/, '')
    .replace('_WITH', '')
    .replaceAll('_', ' ');
}

/** `IBV_WC_REM_ACCESS_ERR` as `REM ACCESS`. */
function shortStatus(status = '?'): string {
  return status
    .replace(/^IBV_WC_/, '')
    .replace(/_ERR$/, '')
    .replaceAll('_', ' ');
}

function isSuccess(status: string | undefined): boolean {
  return status === undefined || status === 'IBV_WC_SUCCESS';
}

/** A packet that refuses a request, in the words of trace lines. */
function isNak(text: string): boolean {
  return / NAK /.test(text);
}

function isBad({ kind, opcode, status, text }: TraceRecord): boolean {
  if (kind === 'cqe') return !isSuccess(status);
  if (kind === 'fpdu') return messageOf(opcode) === 'terminate';
  if (kind === 'packet') return isNak(text);
  return kind === 'error' || (kind === 'end' && /RST|inside/.test(text));
}
