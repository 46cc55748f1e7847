/**
 * Passes the bytes of links, and packets, to watchers, including links opened before the watcher joined.
 * Without a watcher, a link costs the memory of two small frames and a flag check per write.
 */
import type { LinkQueuePairs, TapSide } from '#contract/protocol/tap-records';
import { parseStartupFrame, startupFrameBytesNeeded } from '../iwarp/wire/startup-frame.ts';
import type { CaptureTap, LinkAddresses, LinkPosition, LinkTap } from './capture-tap.ts';
import { PacketHub } from './packet-hub.ts';

/** Receives link events. Bytes are borrowed for the call; must not call the host. */
export interface TapWatcher {
  /**
   * True to watch this link; undefined if that depends on queue pairs that the link does not have
   * yet: the hub then asks again later.
   */
  wants(addresses: LinkAddresses, pairs: LinkQueuePairs): boolean | undefined;
  opened(link: number, addresses: LinkAddresses): void;
  /** A watched link now has these queue pairs. */
  joined(link: number, pairs: LinkQueuePairs): void;
  bytes(link: number, by: TapSide, bytes: Uint8Array): void;
  finished(link: number, by: TapSide): void;
  closed(link: number, reset: boolean): void;
  /** Reports an open link that cannot be decoded from the middle, because it uses markers. */
  skipped(link: number, addresses: LinkAddresses): void;
}

interface Following {
  readonly watcher: TapWatcher;
  /** The current write began before the watcher joined; the rest of it is not reported. */
  skipsWrite: boolean;
  /** Bytes to skip: the rest of FPDUs that had already begun. */
  skipBytes: number;
}

export class TapHub implements CaptureTap {
  readonly packets = new PacketHub();
  /**
   * Links by their ends, near end first. A connection between two of the host's devices has one entry.
   */
  readonly #links = new Map<string, HubLink>();
  readonly #watchers = new Set<TapWatcher>();
  #lastLink = 0;

  opened(addresses: LinkAddresses, position: LinkPosition): LinkTap {
    const { localAddress, localPort, remoteAddress, remotePort } = addresses;
    // `join` makes a flat string; a template would keep all of its parts.
    const ends = [localAddress, localPort, remoteAddress, remotePort].join(' ');
    const other = this.#links.get([remoteAddress, remotePort, localAddress, localPort].join(' '));
    if (other !== undefined) {
      other.attachFarEnd(position);
      return UNWATCHED;
    }
    this.#lastLink += 1;
    const link = new HubLink(this.#lastLink, addresses, position, ends, this.#links);
    this.#links.set(ends, link);
    for (const watcher of this.#watchers) link.follow(watcher);
    return link;
  }

  /** Reports every link that the watcher wants, until the returned function is called. */
  watch(watcher: TapWatcher): () => void {
    this.#watchers.add(watcher);
    for (const link of this.#links.values()) link.follow(watcher);
    return () => {
      this.#watchers.delete(watcher);
      for (const link of this.#links.values()) link.unfollow(watcher);
    };
  }
}

/** For the far end of a link within the host: the near end reports the traffic. */
const UNWATCHED: LinkTap = {
  watched: false,
  outbound: () => undefined,
  inbound: () => undefined,
  finished: () => undefined,
  closed: () => undefined,
};

/** The startup frames that both sides send before their FPDUs. One object: it is kept for each idle queue pair. */
class StartupFrames {
  readonly dialed: boolean;
  /** A character for each byte: a short text takes a third of the memory of an array. */
  #ours = '';
  #theirs = '';
  /** Our frame is whole: FPDUs follow. */
  oursWhole = false;
  /** The same for the peer's. */
  theirsWhole = false;
  /** A side announced that it uses markers, or asked for them. */
  markers = false;

  constructor(dialed: boolean) {
    this.dialed = dialed;
  }

  /** The part of its frame that this side has sent so far. */
  bytesOf(side: TapSide): Uint8Array {
    const text = side === 'us' ? this.#ours : this.#theirs;
    return Uint8Array.from(text, (character) => character.charCodeAt(0));
  }

  /** Stores the bytes that belong to this side's frame. */
  take(side: TapSide, bytes: Uint8Array): void {
    const begun = this.bytesOf(side);
    // A frame usually arrives at once.
    const all = begun.length === 0 ? bytes : joined(begun, bytes);
    const kind = (side === 'us') === this.dialed ? 'request' : 'reply';
    const needed = startupFrameBytesNeeded(all, all.length, kind);
    if (typeof needed === 'string') {
      // Not MPA: the link will close soon.
      this.#end(side);
      return;
    }
    const frameBytes = all.subarray(0, needed);
    const text = String.fromCharCode(...frameBytes);
    if (side === 'us') this.#ours = text;
    else this.#theirs = text;
    if (all.length < needed) return;
    this.#end(side);
    const frame = parseStartupFrame(frameBytes, kind);
    this.markers ||= typeof frame !== 'string' && frame.markers;
  }

  #end(side: TapSide): void {
    if (side === 'us') this.oursWhole = true;
    else this.theirsWhole = true;
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array {
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

const NO_BYTES = new Uint8Array(0);
const NO_SIDES: readonly TapSide[] = [];
const NO_FOLLOWING: readonly Following[] = [];
const NO_WATCHERS: readonly TapWatcher[] = [];
const NO_PAIRS: LinkQueuePairs = {};

class HubLink implements LinkTap {
  readonly #id: number;
  readonly #emssBytes: number;
  readonly #position: LinkPosition;
  readonly #ends: string;
  readonly #links: Map<string, HubLink>;
  readonly #startup: StartupFrames;
  #finished: readonly TapSide[] = NO_SIDES;
  /** Replaced, never mutated: it is read for each write. */
  #following: readonly Following[] = NO_FOLLOWING;
  /** Watchers that may want the link once its queue pairs are known. */
  #undecided: readonly TapWatcher[] = NO_WATCHERS;
  /** The position of the other end, if it belongs to this host, too. */
  #farPosition: LinkPosition | undefined;
  #pairs: LinkQueuePairs = NO_PAIRS;
  /** The queue pairs of both ends are known, for ends on this host. */
  #joined = false;

  /** `ends` is its key in `links`; it is removed when the link closes. */
  constructor(
    id: number,
    addresses: LinkAddresses,
    position: LinkPosition,
    ends: string,
    links: Map<string, HubLink>,
  ) {
    this.#id = id;
    this.#emssBytes = addresses.emssBytes;
    this.#position = position;
    this.#ends = ends;
    this.#links = links;
    this.#startup = new StartupFrames(addresses.dialed);
  }

  /** Startup frames are recorded even while this is false: they have no checksum. */
  get watched(): boolean {
    return this.#following.length > 0 || this.#undecided.length > 0;
  }

  /** The other end belongs to this host, too. */
  attachFarEnd(position: LinkPosition): void {
    this.#farPosition = position;
    this.#joined = false;
  }

  /** Starts reporting to a watcher, if it wants this link. */
  follow(watcher: TapWatcher): void {
    this.#lookForPairs();
    const wanted = watcher.wants(this.#addresses(), this.#pairs);
    if (wanted === undefined) this.#undecided = [...this.#undecided, watcher];
    if (wanted === true) this.#begin(watcher);
  }

  /** Made for each use: the object would cost each idle queue pair 70 bytes. */
  #addresses(): LinkAddresses {
    const [localAddress = '', localPort, remoteAddress = '', remotePort] = this.#ends.split(' ');
    return {
      localAddress,
      localPort: Number(localPort),
      remoteAddress,
      remotePort: Number(remotePort),
      dialed: this.#startup.dialed,
      emssBytes: this.#emssBytes,
    };
  }

  #begin(watcher: TapWatcher): void {
    const { oursWhole, theirsWhole, markers } = this.#startup;
    if (markers) {
      // Marker positions count from the first FPDU.
      watcher.skipped(this.#id, this.#addresses());
      return;
    }
    watcher.opened(this.#id, this.#addresses());
    const { us: near, peer: far } = this.#pairs;
    if (near !== undefined || far !== undefined) watcher.joined(this.#id, this.#pairs);
    const [first, second]: [TapSide, TapSide] = this.#startup.dialed
      ? ['us', 'peer']
      : ['peer', 'us'];
    for (const side of [first, second]) {
      const bytes = this.#startup.bytesOf(side);
      if (bytes.length > 0) watcher.bytes(this.#id, side, bytes);
    }
    const held = this.#position.heldInput ?? NO_BYTES;
    if (theirsWhole && held.length > 0) watcher.bytes(this.#id, 'peer', held);
    for (const side of this.#finished) watcher.finished(this.#id, side);
    const skipsWrite = oursWhole && this.#position.congested;
    const skipBytes = oursWhole ? (this.#position.cutOutputBytes ?? 0) : 0;
    this.#following = [...this.#following, { watcher, skipsWrite, skipBytes }];
  }

  unfollow(watcher: TapWatcher): void {
    this.#following = this.#following.filter((each) => each.watcher !== watcher);
    this.#undecided = this.#undecided.filter((each) => each !== watcher);
  }

  /** True if the link got a queue pair since the last check. */
  #lookForPairs(): boolean {
    const { us: near, peer: far } = this.#pairs;
    const us = near ?? this.#position.queuePair;
    const peer = far ?? this.#farPosition?.queuePair;
    this.#joined = us !== undefined && (this.#farPosition === undefined || peer !== undefined);
    if (us === near && peer === far) return false;
    this.#pairs = {
      ...(us === undefined ? {} : { us }),
      ...(peer === undefined ? {} : { peer }),
    };
    return true;
  }

  /** Reports new queue pairs of the link, and asks undecided watchers again. */
  #announcePairs(): void {
    if (this.#following.length === 0 && this.#undecided.length === 0) return;
    if (!this.#lookForPairs()) return;
    for (const { watcher } of this.#following) watcher.joined(this.#id, this.#pairs);
    const undecided = this.#undecided;
    this.#undecided = [];
    for (const watcher of undecided) this.follow(watcher);
  }

  outbound(bytes: Uint8Array): void {
    if (!this.#joined) this.#announcePairs();
    if (!this.#startup.oursWhole) this.#startup.take('us', bytes);
    for (const following of this.#following) {
      if (following.skipsWrite) following.skipsWrite = false;
      else if (following.skipBytes > 0) following.skipBytes -= bytes.length;
      else following.watcher.bytes(this.#id, 'us', bytes);
    }
  }

  inbound(bytes: Uint8Array): void {
    if (!this.#joined) this.#announcePairs();
    if (!this.#startup.theirsWhole) this.#startup.take('peer', bytes);
    for (const { watcher } of this.#following) watcher.bytes(this.#id, 'peer', bytes);
  }

  finished(by: TapSide): void {
    if (!this.#finished.includes(by)) this.#finished = [...this.#finished, by];
    for (const { watcher } of this.#following) watcher.finished(this.#id, by);
  }

  closed(reset: boolean): void {
    for (const { watcher } of this.#following) watcher.closed(this.#id, reset);
    this.#following = [];
    this.#undecided = [];
    // A new link with the same ends may have replaced this one.
    if (this.#links.get(this.#ends) === this) this.#links.delete(this.#ends);
  }
}
