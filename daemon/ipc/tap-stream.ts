/**
 * Streams connection traffic, device work and refusals to a watcher. A watcher that falls behind loses
 * records and receives their number; traffic never waits for it.
 */
import { z } from 'zod';
import type { IpcValue } from '#contract/protocol/ipc-value';
import { encodeText, encodeValue } from '#contract/protocol/ipc-value';
import { emitTappedPacket, type TappedPacket } from '#contract/protocol/packet-records';
import type { Refusal } from '#contract/protocol/refusals';
import {
  emitLostBytes,
  emitTapRecord,
  type LinkQueuePairs,
  putTapRecord,
  TAP_BODY_MAX_BYTES,
  TAP_TOPICS,
  type TapFilter,
  TapKind,
  type TapSide,
  type TapTopic,
  tapRecordBytes,
} from '#contract/protocol/tap-records';
import {
  type CompletedWork,
  emitCompletedWork,
  emitPostedWork,
  type PostedWork,
} from '#contract/protocol/work-records';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { LinkAddresses } from '../capture/capture-tap.ts';
import type { PacketWatcher } from '../capture/packet-hub.ts';
import type { TapHub, TapWatcher } from '../capture/tap-hub.ts';
import { TapSelection } from '../capture/tap-selection.ts';
import type { WorkHub, WorkWatcher } from '../capture/work-hub.ts';
import type { ProgramConnection } from '../clients/connection.ts';
import type { Refusals } from '../refusals/refusals.ts';

/** The parts of a connection that a watcher uses. */
type TapConnection = Pick<ProgramConnection, 'pendingBytes' | 'unreadMaxBytes' | 'gather' | 'lend'>;

/**
 * Bytes queued for a watcher beyond which records are dropped: covers a pause of a disk at full speed.
 */
export const BACKLOG_MAX_BYTES = 32 * 1024 * 1024;
/**
 * Bodies of at least this size are sent one by one from reused memory; shorter ones are batched.
 */
const LONG_BODY_BYTES = 8 * 1024;
/** A run of bytes, or the longest IP datagram with the names of its queue pairs. */
const BODY_MAX_BYTES = TAP_BODY_MAX_BYTES + 256;
/** Extra space for the few records that are never dropped, mostly ends of links. */
const BACKLOG_SLACK_BYTES = 16 * 1024 * 1024;
const FILTERED_LINKS_MAX = 1024;
const FILTERED_QPS_MAX = 1024;
const QP_NUMBER_MAX = 2 ** 24 - 1;
const DEVICE_NAME_MAX = 63;
/** For packets, work and refusals, which belong to no link. */
const NO_LINK = 0;
const NO_BYTES = new Uint8Array(0);

const port = z.int().min(1).max(65_535);
const ends = z.strictObject({
  localAddress: z.string(),
  localPort: port,
  remoteAddress: z.string(),
  remotePort: port,
});
const tapFilter = z.strictObject({
  topics: z.array(z.enum(TAP_TOPICS)).max(TAP_TOPICS.length).exactOptional(),
  device: z.string().min(1).max(DEVICE_NAME_MAX).exactOptional(),
  qps: z.array(z.int().positive().max(QP_NUMBER_MAX)).max(FILTERED_QPS_MAX).exactOptional(),
  address: z.string().exactOptional(),
  port: port.exactOptional(),
  links: z.array(ends).max(FILTERED_LINKS_MAX).exactOptional(),
});

/** Checks a watcher's filter. Throws `VerbsError` EINVAL that names the field. */
export function parseTapFilter(value: unknown): TapFilter {
  const parsed = tapFilter.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw invalid(`a watcher's request: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`);
}

export class TapStream implements TapWatcher, PacketWatcher, WorkWatcher {
  readonly #connection: TapConnection;
  readonly #topics: ReadonlySet<TapTopic>;
  readonly #selection: TapSelection;
  /** Device names in their encoded form. */
  readonly #names = new Map<string, Uint8Array>();
  /** Bytes dropped since the last `lost` record, by link and side. */
  readonly #lost = new Map<string, number>();
  /** Buffers for long records, each as large as the longest record; at most a backlog of them. */
  readonly #room: Uint8Array[] = [];
  /** Packets, work requests, completions and refusals dropped since the last `lost` record. */
  #lostRecords = 0;

  constructor(connection: TapConnection, filter: TapFilter) {
    this.#connection = connection;
    this.#topics = new Set(filter.topics ?? ['links']);
    this.#selection = new TapSelection(filter);
    connection.unreadMaxBytes = BACKLOG_MAX_BYTES + BACKLOG_SLACK_BYTES;
  }

  /** Starts sending; call the result to stop. Throws EBUSY if too many watch refusals. */
  watch(links: TapHub, work: WorkHub, refusals: Refusals): () => void {
    const stops: (() => void)[] = [];
    const topics = this.#topics;
    const works = topics.has('posted') || topics.has('completed');
    if (topics.has('refusals')) {
      const stop = refusals.watch((refusal) => this.#refused(refusal));
      if (stop === undefined) throw new VerbsError('EBUSY', 'too many requests wait for refusals');
      stops.push(stop);
    }
    // Objects selected by their link can be matched only while links are watched.
    const linked = (works || topics.has('refusals')) && this.#selection.byEnds;
    if (topics.has('links') || linked) stops.push(links.watch(this));
    if (topics.has('packets') || linked) stops.push(links.packets.watch(this));
    if (works) stops.push(work.watch(this));
    return () => {
      for (const stop of stops) stop();
    };
  }

  wants(addresses: LinkAddresses, pairs: LinkQueuePairs): boolean | undefined {
    return this.#selection.wantsLink(addresses, pairs);
  }

  opened(link: number, addresses: LinkAddresses): void {
    this.#sendOfLink(TapKind.opened, 'us', link, encodeValue(addresses as unknown as IpcValue));
  }

  joined(link: number, pairs: LinkQueuePairs): void {
    this.#selection.noteLink(pairs);
    this.#sendOfLink(TapKind.joined, 'us', link, encodeValue(pairs as unknown as IpcValue));
  }

  bytes(link: number, by: TapSide, bytes: Uint8Array): void {
    if (!this.#topics.has('links')) return;
    if (this.#connection.pendingBytes > BACKLOG_MAX_BYTES) {
      const key = `${link} ${by}`;
      this.#lost.set(key, (this.#lost.get(key) ?? 0) + bytes.length);
      return;
    }
    if (this.#lost.size > 0) this.#sendLost(link, by);
    for (let at = 0; at < bytes.length; at += TAP_BODY_MAX_BYTES) {
      this.#send(TapKind.bytes, by, link, bytes.subarray(at, at + TAP_BODY_MAX_BYTES));
    }
  }

  finished(link: number, by: TapSide): void {
    if (this.#lost.size > 0) this.#sendLost(link, by);
    this.#sendOfLink(TapKind.finished, by, link, NO_BYTES);
  }

  closed(link: number, reset: boolean): void {
    for (const by of ['us', 'peer'] as const) if (this.#lost.size > 0) this.#sendLost(link, by);
    this.#sendOfLink(reset ? TapKind.reset : TapKind.closed, 'us', link, NO_BYTES);
  }

  skipped(link: number, addresses: LinkAddresses): void {
    this.#sendOfLink(TapKind.skipped, 'us', link, encodeValue(addresses as unknown as IpcValue));
  }

  packet(packet: TappedPacket): void {
    if (!this.#selection.wantsPacket(packet)) return;
    const { sender, receiver } = packet;
    this.#selection.noteLink({
      ...(sender === undefined ? {} : { us: sender }),
      ...(receiver === undefined ? {} : { peer: receiver }),
    });
    if (!this.#topics.has('packets') || !this.#hasRoom()) return;
    const [name, peerName] = [sender, receiver].map((pair) => {
      return pair === undefined ? NO_BYTES : this.#nameOf(pair.device);
    });
    const body = emitTappedPacket(packet, name ?? NO_BYTES, peerName ?? NO_BYTES);
    this.#send(TapKind.packet, 'us', NO_LINK, body);
  }

  posted(device: string, work: PostedWork): void {
    if (!this.#topics.has('posted') || !this.#takesWork(device, work.qpn)) return;
    const body = emitPostedWork(work, this.#nameOf(device));
    this.#send(TapKind.posted, 'us', NO_LINK, body);
  }

  completed(device: string, work: CompletedWork): void {
    if (!this.#topics.has('completed') || !this.#takesWork(device, work.qpn)) return;
    const body = emitCompletedWork(work, this.#nameOf(device));
    this.#send(TapKind.completed, 'us', NO_LINK, body);
  }

  #refused(refusal: Refusal): void {
    if (!this.#selection.wantsRefusal(refusal) || !this.#hasRoom()) return;
    this.#send(TapKind.refusal, 'us', NO_LINK, encodeValue(refusal as unknown as IpcValue));
  }

  /** True for work that the watcher asked for and has room for. */
  #takesWork(device: string, qpn: number): boolean {
    return this.#selection.wantsWork(device, qpn) && this.#hasRoom();
  }

  /** Returns false, and counts the loss, if the watcher lags. */
  #hasRoom(): boolean {
    if (this.#connection.pendingBytes > BACKLOG_MAX_BYTES) {
      this.#lostRecords += 1;
      return false;
    }
    if (this.#lostRecords > 0) {
      this.#send(TapKind.lost, 'us', NO_LINK, emitLostBytes(this.#lostRecords));
      this.#lostRecords = 0;
    }
    return true;
  }

  #nameOf(device: string): Uint8Array {
    const known = this.#names.get(device);
    if (known !== undefined) return known;
    const name = encodeText(device);
    this.#names.set(device, name);
    return name;
  }

  #sendLost(link: number, by: TapSide): void {
    const key = `${link} ${by}`;
    const bytes = this.#lost.get(key);
    if (bytes === undefined) return;
    this.#lost.delete(key);
    this.#send(TapKind.lost, by, link, emitLostBytes(bytes));
  }

  #sendOfLink(kind: TapKind, by: TapSide, link: number, body: Uint8Array): void {
    if (this.#topics.has('links')) this.#send(kind, by, link, body);
  }

  #send(kind: TapKind, by: TapSide, link: number, body: Uint8Array): void {
    const micros = Math.round((performance.timeOrigin + performance.now()) * 1000);
    if (body.length < LONG_BODY_BYTES) {
      this.#connection.gather(emitTapRecord(kind, by, link, micros, body));
      return;
    }
    const room = this.#room.pop() ?? new Uint8Array(tapRecordBytes(BODY_MAX_BYTES));
    const record = room.subarray(0, tapRecordBytes(body.length));
    putTapRecord(record, kind, by, link, micros, body);
    this.#connection.lend(record, () => this.#room.push(room));
  }
}
