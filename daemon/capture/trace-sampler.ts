/**
 * Takes one sample of traffic: records until it has the requested number. The owner attaches it to both
 * hubs, and ends it when the time is up.
 */
import type { TappedPacket } from '#contract/protocol/packet-records';
import type { LinkQueuePairs, TapSide } from '#contract/protocol/tap-records';
import {
  TRACE_LIMIT_DEFAULT,
  TRACE_TEXT_MAX,
  type TraceRecord,
  type TraceRequest,
  type TraceSample,
} from '#contract/protocol/trace-sample';
import type { CompletedWork, PostedWork } from '#contract/protocol/work-records';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { Crc32 } from '../roce/wire/crc32.ts';
import type { LinkAddresses } from './capture-tap.ts';
import type { PacketWatcher } from './packet-hub.ts';
import type { TapHub, TapWatcher } from './tap-hub.ts';
import { TapSelection } from './tap-selection.ts';
import { TraceReader } from './trace-reader.ts';
import type { WorkHub, WorkWatcher } from './work-hub.ts';

interface TraceSamplerOptions {
  readonly request: TraceRequest;
  readonly crc32c: Crc32c;
  readonly crc32: Crc32;
  /** Microseconds since 1970. */
  readonly nowMicros: () => number;
  /** Called when the requested number of records is reached. */
  readonly onFull: () => void;
}

export class TraceSampler implements TapWatcher, PacketWatcher, WorkWatcher {
  readonly #options: TraceSamplerOptions;
  readonly #limit: number;
  readonly #selection: TapSelection;
  readonly #reader: TraceReader;
  readonly #records: TraceRecord[] = [];
  #lost = 0;
  /** False while the hub replays the beginning of a link that was open before. */
  #begun = false;
  #stops: readonly (() => void)[] = [];

  constructor(options: TraceSamplerOptions) {
    const { device, qp, limit } = options.request;
    this.#options = options;
    this.#limit = limit ?? TRACE_LIMIT_DEFAULT;
    this.#selection = new TapSelection({
      ...(device === undefined ? {} : { device }),
      ...(qp === undefined ? {} : { qps: [qp] }),
    });
    this.#reader = new TraceReader({
      crc32c: options.crc32c,
      crc32: options.crc32,
      record: (record) => this.#take(record),
    });
  }

  begin(links: TapHub, work: WorkHub): void {
    this.#stops = [links.watch(this), links.packets.watch(this), work.watch(this)];
    this.#begun = true;
  }

  /** Stops watching and returns the sample. */
  end(): TraceSample {
    for (const stop of this.#stops) stop();
    this.#stops = [];
    return { records: this.#records, lost: this.#lost };
  }

  wants(addresses: LinkAddresses, pairs: LinkQueuePairs): boolean | undefined {
    return this.#selection.wantsLink(addresses, pairs);
  }

  opened(link: number, addresses: LinkAddresses): void {
    this.#reader.opened(link, addresses);
  }

  joined(link: number, pairs: LinkQueuePairs): void {
    this.#reader.joined(link, pairs);
  }

  bytes(link: number, by: TapSide, bytes: Uint8Array): void {
    this.#timed().bytes(link, by, bytes);
  }

  finished(link: number, by: TapSide): void {
    this.#timed().finished(link, by);
  }

  closed(link: number, reset: boolean): void {
    this.#timed().closed(link, reset);
  }

  skipped(link: number): void {
    const text = 'left out: open before, and with markers';
    this.#keep({ micros: this.#options.nowMicros(), kind: 'error', link, by: 'us', text });
  }

  packet(packet: TappedPacket): void {
    if (this.#selection.wantsPacket(packet)) this.#timed().packet(packet);
  }

  posted(device: string, work: PostedWork): void {
    if (this.#selection.wantsWork(device, work.qpn)) this.#timed().posted(device, work);
  }

  completed(device: string, work: CompletedWork): void {
    if (this.#selection.wantsWork(device, work.qpn)) this.#timed().completed(device, work);
  }

  #timed(): TraceReader {
    this.#reader.micros = this.#options.nowMicros();
    return this.#reader;
  }

  #take(record: TraceRecord): void {
    if (this.#begun) this.#keep(record);
  }

  #keep(record: TraceRecord): void {
    if (this.#records.length >= this.#limit) {
      this.#lost += 1;
      return;
    }
    const { text } = record;
    const cut = text.length > TRACE_TEXT_MAX;
    this.#records.push(cut ? { ...record, text: `${text.slice(0, TRACE_TEXT_MAX - 1)}…` } : record);
    if (this.#records.length === this.#limit) this.#options.onFull();
  }
}
