/**
 * `iwarpd trace`: prints the work of a running daemon's devices, the traffic of their connections and
 * the refusals of programs, one line each.
 */

import { decodeValue, IpcFormatError } from '#contract/protocol/ipc-value';
import { parseTappedPacket } from '#contract/protocol/packet-records';
import { type Refusal, refusalLine } from '#contract/protocol/refusals';
import { parseLostBytes, TapKind, type TapRecord } from '#contract/protocol/tap-records';
import type { TraceRecord } from '#contract/protocol/trace-sample';
import { parseCompletedWork, parsePostedWork } from '#contract/protocol/work-records';
import { linkAddresses, linkQueuePairs } from '#daemon/capture/link-addresses';
import { type TracePlace, TraceReader } from '#daemon/capture/trace-reader';
import { jsonLine, type Output } from '#daemon/console/output';
import { chooseCrcEngine } from '#daemon/host/crc-engine';
import { chooseCrc32 } from '#daemon/host/roce/crc32-engine';
import { filterOf, type TrafficOptions, type TrafficUser, watchUntilDone } from './live-traffic.ts';
import { type ChosenKind, TRACE_KINDS, topicsOf } from './trace-kinds.ts';

/** The options as commander passes them. */
export interface TraceArguments extends TrafficOptions {
  /** Default: all. */
  readonly only?: readonly ChosenKind[];
  readonly json?: boolean;
}

/** Prints until Ctrl-C, the time limit, or the daemon's end. VerbsError if no daemon is running. */
export async function runTrace(
  given: TraceArguments,
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  const { qp, only = TRACE_KINDS, json } = given;
  const topics = topicsOf(only);
  const filter = { ...filterOf(given), topics, ...(qp === undefined ? {} : { qps: qp }) };
  await watchUntilDone(given, filter, signal, new Tracer(output, only, json === true));
}

class Tracer implements TrafficUser {
  readonly #output: Output;
  readonly #kinds: ReadonlySet<TraceRecord['kind'] | ChosenKind>;
  readonly #json: boolean;
  readonly #reader: TraceReader;

  constructor(output: Output, kinds: readonly ChosenKind[], json: boolean) {
    this.#output = output;
    this.#kinds = new Set([...kinds, 'error' as const]);
    this.#json = json;
    this.#reader = new TraceReader({
      crc32c: chooseCrcEngine().crc32c,
      crc32: chooseCrc32(),
      record: (record, place) => this.#print(record, place),
    });
  }

  onBegin(): void {
    this.#output.note('tracing; Ctrl-C ends it');
  }

  onRecord({ kind, by, link, micros, body }: TapRecord): void {
    const reader = this.#reader;
    reader.micros = micros;
    switch (kind) {
      case TapKind.posted: {
        const { device, work } = parsePostedWork(body);
        reader.posted(device, work);
        return;
      }
      case TapKind.completed: {
        const { device, work } = parseCompletedWork(body);
        reader.completed(device, work);
        return;
      }
      case TapKind.packet:
        reader.packet(parseTappedPacket(body));
        return;
      case TapKind.opened:
        reader.opened(link, linkAddresses(body));
        return;
      case TapKind.joined:
        reader.joined(link, linkQueuePairs(body));
        return;
      case TapKind.bytes:
        reader.bytes(link, by, body);
        return;
      case TapKind.finished:
        reader.finished(link, by);
        return;
      case TapKind.closed:
      case TapKind.reset:
        reader.closed(link, kind === TapKind.reset);
        return;
      case TapKind.refusal:
        this.#printRefusal(micros, refusalOf(body));
        return;
      case TapKind.lost:
        if (link === 0) this.#noteLost(parseLostBytes(body));
        else reader.lost(link, by, parseLostBytes(body));
        return;
      case TapKind.skipped:
        this.#noteSkipped(body);
        return;
      default:
      // A newer daemon may send other kinds of records.
    }
  }

  #noteLost(count: number): void {
    const what = 'packets, work requests, completions and refusals';
    this.#output.note(`left out: ${count} ${what}: the reader was too slow`);
  }

  #noteSkipped(body: Uint8Array): void {
    const { localAddress, localPort, remoteAddress, remotePort } = linkAddresses(body);
    const ends = `${localAddress}:${localPort} and ${remoteAddress}:${remotePort}`;
    this.#output.note(`left out: ${ends}: already open, with markers`);
  }

  #printRefusal(micros: number, refusal: Refusal): void {
    const time = new Date(micros / 1000).toISOString();
    const text = refusalText(refusal);
    if (this.#json) {
      const { at: _, number: __, device, objects, ...rest } = refusal;
      const place = { device, qpn: objects?.['qp'], objects };
      this.#output.line(jsonLine({ time, kind: 'refusal', ...place, ...rest, text }));
      return;
    }
    const parts = [time.slice(11, 23), refusalSource(refusal), text];
    this.#output.line(parts.filter((part) => part !== '').join('  '));
  }

  #print(record: TraceRecord, { source, destination }: TracePlace): void {
    if (!this.#kinds.has(record.kind)) return;
    const { micros, ...rest } = record;
    const time = new Date(micros / 1000).toISOString();
    if (this.#json) {
      const ends = destination === undefined ? {} : { source, destination };
      this.#output.line(jsonLine({ time, ...ends, ...rest }));
      return;
    }
    const place = destination === undefined ? source : `${source} > ${destination}`;
    this.#output.line(`${time.slice(11, 23)}  ${place}  ${record.text}`);
  }
}

/** Decodes the body of a `refusal` record. Throws `IpcFormatError`. */
export function refusalOf(body: Uint8Array): Refusal {
  const value: unknown = decodeValue(body);
  if (!isRefusal(value)) throw new IpcFormatError('the refusal lacks its program, verb or reason');
  return value;
}

function isRefusal(value: unknown): value is Refusal {
  if (typeof value !== 'object' || value === null) return false;
  const texts = ['program', 'verb', 'code', 'sentence'] as const;
  return (
    texts.every((name: keyof Refusal) => typeof Reflect.get(value, name) === 'string') &&
    typeof Reflect.get(value, 'pid') === 'number'
  );
}

/** The source in the style of other trace lines: `roce0 QP 17`, `roce0`, or ''. */
function refusalSource({ device, objects }: Refusal): string {
  const qpn = objects?.['qp'];
  if (device === undefined) return '';
  return qpn === undefined ? device : `${device} QP ${qpn}`;
}

/** `REFUSAL pp[4242] ibv_modify_qp INIT to RTR: EINVAL: …`. */
function refusalText(refusal: Refusal): string {
  const { program, pid } = refusal;
  return `REFUSAL ${program === '' ? '?' : program}[${pid}] ${refusalLine(refusal)}`;
}
