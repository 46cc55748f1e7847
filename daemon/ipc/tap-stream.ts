/**
 * A watcher of the daemon: tells it what passes on connections, and the work of devices. A watcher
 * that is slow loses some of it, and is told how much; nobody waits for it.
 */
import { z } from 'zod';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { IpcValue } from '../../verbs-api/contract/ipc-value.ts';
import { encodeText, encodeValue } from '../../verbs-api/contract/ipc-value.ts';
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
} from '../../verbs-api/contract/tap-records.ts';
import {
  type CompletedWork,
  emitCompletedWork,
  emitPostedWork,
  type PostedWork,
} from '../../verbs-api/contract/work-records.ts';
import type { LinkAddresses } from '../capture/capture-tap.ts';
import type { TapHub, TapWatcher } from '../capture/tap-hub.ts';
import { TapSelection } from '../capture/tap-selection.ts';
import type { WorkHub, WorkWatcher } from '../capture/work-hub.ts';
import type { Connection } from './connection.ts';

/** What a watcher's connection has to do. */
export type TapConnection = Pick<Connection, 'pendingBytes' | 'unreadMaxBytes' | 'gather' | 'lend'>;

/** Octets that wait for a watcher before further ones are left out: a disk's pause at full speed. */
export const BACKLOG_MAX_BYTES = 32 * 1024 * 1024;
/** Records with as much go one by one from memory that is used again; shorter ones go together. */
const LONG_BODY_BYTES = 8 * 1024;
/** The little that is always told, the ends of links above all, may come on top. */
const BACKLOG_SLACK_BYTES = 16 * 1024 * 1024;
const FILTERED_LINKS_MAX = 1024;
const FILTERED_QPS_MAX = 1024;
const QP_NUMBER_MAX = 2 ** 24 - 1;
const DEVICE_NAME_MAX = 63;
/** Work is of no link. */
const NO_LINK = 0;
const NO_OCTETS = new Uint8Array(0);

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

/** Checks what a watcher asks for. Throws `VerbsError` EINVAL that names the field. */
export function parseTapFilter(value: unknown): TapFilter {
  const parsed = tapFilter.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new VerbsError('EINVAL', `${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`);
}

/** See the module's comment. */
export class TapStream implements TapWatcher, WorkWatcher {
  readonly #connection: TapConnection;
  readonly #topics: ReadonlySet<TapTopic>;
  readonly #selection: TapSelection;
  /** Names of devices as records have them. */
  readonly #names = new Map<string, Uint8Array>();
  /** Octets left out since the last that were told, by link and side. */
  readonly #lost = new Map<string, number>();
  /** Room for long records, each as much as the longest takes; at most a backlog of them. */
  readonly #room: Uint8Array[] = [];
  /** Work requests and completions left out since the last that was told. */
  #lostWork = 0;

  constructor(connection: TapConnection, filter: TapFilter) {
    this.#connection = connection;
    this.#topics = new Set(filter.topics ?? ['links']);
    this.#selection = new TapSelection(filter);
    connection.unreadMaxBytes = BACKLOG_MAX_BYTES + BACKLOG_SLACK_BYTES;
  }

  /** Begins to tell; the result ends it. */
  watch(links: TapHub, work: WorkHub): () => void {
    const stops: (() => void)[] = [];
    const topics = this.#topics;
    const works = topics.has('posted') || topics.has('completed');
    // Whose work is selected by a link can be seen there alone.
    if (topics.has('links') || (works && this.#selection.byEnds)) stops.push(links.watch(this));
    if (works) stops.push(work.watch(this));
    return () => {
      for (const stop of stops) stop();
    };
  }

  wants(addresses: LinkAddresses, pairs: LinkQueuePairs): boolean | undefined {
    return this.#selection.wantsLink(addresses, pairs);
  }

  opened(link: number, addresses: LinkAddresses): void {
    this.#tellLink(TapKind.opened, 'us', link, encodeValue(addresses as unknown as IpcValue));
  }

  joined(link: number, pairs: LinkQueuePairs): void {
    this.#selection.noteLink(pairs);
    this.#tellLink(TapKind.joined, 'us', link, encodeValue(pairs as unknown as IpcValue));
  }

  octets(link: number, by: TapSide, octets: Uint8Array): void {
    if (!this.#topics.has('links')) return;
    if (this.#connection.pendingBytes > BACKLOG_MAX_BYTES) {
      const key = `${link} ${by}`;
      this.#lost.set(key, (this.#lost.get(key) ?? 0) + octets.length);
      return;
    }
    if (this.#lost.size > 0) this.#tellLost(link, by);
    for (let at = 0; at < octets.length; at += TAP_BODY_MAX_BYTES) {
      this.#tell(TapKind.octets, by, link, octets.subarray(at, at + TAP_BODY_MAX_BYTES));
    }
  }

  finished(link: number, by: TapSide): void {
    if (this.#lost.size > 0) this.#tellLost(link, by);
    this.#tellLink(TapKind.finished, by, link, NO_OCTETS);
  }

  closed(link: number, reset: boolean): void {
    for (const by of ['us', 'peer'] as const) if (this.#lost.size > 0) this.#tellLost(link, by);
    this.#tellLink(reset ? TapKind.reset : TapKind.closed, 'us', link, NO_OCTETS);
  }

  skipped(link: number, addresses: LinkAddresses): void {
    this.#tellLink(TapKind.skipped, 'us', link, encodeValue(addresses as unknown as IpcValue));
  }

  posted(device: string, work: PostedWork): void {
    if (!this.#topics.has('posted') || !this.#takesWork(device, work.qpn)) return;
    const body = emitPostedWork(work, this.#nameOf(device));
    this.#tell(TapKind.posted, 'us', NO_LINK, body);
  }

  completed(device: string, work: CompletedWork): void {
    if (!this.#topics.has('completed') || !this.#takesWork(device, work.qpn)) return;
    const body = emitCompletedWork(work, this.#nameOf(device));
    this.#tell(TapKind.completed, 'us', NO_LINK, body);
  }

  /** True for work that is wanted, and that the watcher has room for. */
  #takesWork(device: string, qpn: number): boolean {
    if (!this.#selection.wantsWork(device, qpn)) return false;
    if (this.#connection.pendingBytes > BACKLOG_MAX_BYTES) {
      this.#lostWork += 1;
      return false;
    }
    if (this.#lostWork > 0) {
      this.#tell(TapKind.lost, 'us', NO_LINK, emitLostBytes(this.#lostWork));
      this.#lostWork = 0;
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

  #tellLost(link: number, by: TapSide): void {
    const key = `${link} ${by}`;
    const bytes = this.#lost.get(key);
    if (bytes === undefined) return;
    this.#lost.delete(key);
    this.#tell(TapKind.lost, by, link, emitLostBytes(bytes));
  }

  #tellLink(kind: TapKind, by: TapSide, link: number, body: Uint8Array): void {
    if (this.#topics.has('links')) this.#tell(kind, by, link, body);
  }

  #tell(kind: TapKind, by: TapSide, link: number, body: Uint8Array): void {
    const micros = Math.round((performance.timeOrigin + performance.now()) * 1000);
    if (body.length < LONG_BODY_BYTES) {
      this.#connection.gather(emitTapRecord(kind, by, link, micros, body));
      return;
    }
    const room = this.#room.pop() ?? new Uint8Array(tapRecordBytes(TAP_BODY_MAX_BYTES));
    const record = room.subarray(0, tapRecordBytes(body.length));
    putTapRecord(record, kind, by, link, micros, body);
    this.#connection.lend(record, () => this.#room.push(room));
  }
}
