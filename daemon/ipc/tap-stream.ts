/**
 * A watcher of the daemon's connections: tells it what passes. A watcher that is slow loses octets,
 * and is told how many; nobody waits for it.
 */
import { z } from 'zod';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { IpcValue } from '../../verbs-api/contract/ipc-value.ts';
import { encodeValue } from '../../verbs-api/contract/ipc-value.ts';
import {
  emitLostBytes,
  emitTapRecord,
  TAP_BODY_MAX_BYTES,
  type TapFilter,
  TapKind,
  type TapLinkEnds,
  type TapSide,
} from '../../verbs-api/contract/tap-records.ts';
import type { LinkAddresses } from '../capture/capture-tap.ts';
import type { TapWatcher } from '../capture/tap-hub.ts';
import type { Connection } from './connection.ts';

/** What a watcher's connection has to do. */
export type TapConnection = Pick<Connection, 'pendingBytes' | 'unreadMaxBytes' | 'gather'>;

/** Octets that wait for a watcher before further ones are left out: a disk's pause at full speed. */
export const BACKLOG_MAX_BYTES = 64 * 1024 * 1024;
/** The little that is always told, the ends of links above all, may come on top. */
const BACKLOG_SLACK_BYTES = 16 * 1024 * 1024;
const FILTERED_LINKS_MAX = 1024;
const NO_OCTETS = new Uint8Array(0);

const port = z.int().min(1).max(65_535);
const ends = z.strictObject({
  localAddress: z.string(),
  localPort: port,
  remoteAddress: z.string(),
  remotePort: port,
});
const tapFilter = z.strictObject({
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
export class TapStream implements TapWatcher {
  readonly #connection: TapConnection;
  readonly #filter: TapFilter;
  readonly #wanted: ReadonlySet<string> | undefined;
  /** Octets left out since the last that were told, by link and side. */
  readonly #lost = new Map<string, number>();

  constructor(connection: TapConnection, filter: TapFilter) {
    this.#connection = connection;
    this.#filter = filter;
    // A connection between two devices of the daemon is told from either end.
    const wanted = filter.links?.flatMap((link) => [keyOf(link), keyOf(mirrored(link))]);
    this.#wanted = wanted === undefined ? undefined : new Set(wanted);
    connection.unreadMaxBytes = BACKLOG_MAX_BYTES + BACKLOG_SLACK_BYTES;
  }

  wants(addresses: LinkAddresses): boolean {
    const { localAddress, localPort, remoteAddress, remotePort } = addresses;
    const { address, port: wantedPort } = this.#filter;
    const ends = { localAddress: plain(localAddress), remoteAddress: plain(remoteAddress) };
    if (address !== undefined && !Object.values(ends).includes(plain(address))) return false;
    if (wantedPort !== undefined && wantedPort !== localPort && wantedPort !== remotePort) {
      return false;
    }
    return this.#wanted?.has(keyOf({ ...ends, localPort, remotePort })) ?? true;
  }

  opened(link: number, addresses: LinkAddresses): void {
    this.#tell(TapKind.opened, 'us', link, encodeValue(addresses as unknown as IpcValue));
  }

  octets(link: number, by: TapSide, octets: Uint8Array): void {
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
    this.#tell(TapKind.finished, by, link, NO_OCTETS);
  }

  closed(link: number, reset: boolean): void {
    for (const by of ['us', 'peer'] as const) if (this.#lost.size > 0) this.#tellLost(link, by);
    this.#tell(reset ? TapKind.reset : TapKind.closed, 'us', link, NO_OCTETS);
  }

  skipped(link: number, addresses: LinkAddresses): void {
    this.#tell(TapKind.skipped, 'us', link, encodeValue(addresses as unknown as IpcValue));
  }

  #tellLost(link: number, by: TapSide): void {
    const key = `${link} ${by}`;
    const bytes = this.#lost.get(key);
    if (bytes === undefined) return;
    this.#lost.delete(key);
    this.#tell(TapKind.lost, by, link, emitLostBytes(bytes));
  }

  #tell(kind: TapKind, by: TapSide, link: number, body: Uint8Array): void {
    const micros = Math.round((performance.timeOrigin + performance.now()) * 1000);
    this.#connection.gather(emitTapRecord(kind, by, link, micros, body));
  }
}

function mirrored(link: TapLinkEnds): TapLinkEnds {
  const { localAddress, localPort, remoteAddress, remotePort } = link;
  return {
    localAddress: remoteAddress,
    localPort: remotePort,
    remoteAddress: localAddress,
    remotePort: localPort,
  };
}

/** IPv4 addresses as such, also those of an IPv6 socket. */
function plain(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '').split('%')[0] ?? address;
}

function keyOf({ localAddress, localPort, remoteAddress, remotePort }: TapLinkEnds): string {
  return `${plain(localAddress)} ${localPort} ${plain(remoteAddress)} ${remotePort}`;
}
