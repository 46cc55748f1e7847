/**
 * Lets watchers see the octets of links, also of links that were open before they came. While
 * nobody watches, a link costs two small frames of memory and a look at a flag for each write.
 */
import type { LinkQueuePairs, TapSide } from '../../verbs-api/contract/tap-records.ts';
import {
  parseStartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
} from '../wire/startup-frame.ts';
import type { CaptureTap, LinkAddresses, LinkPosition, LinkTap } from './capture-tap.ts';

/** Takes what passes. Octets are borrowed for the call; nothing here may call the host. */
export interface TapWatcher {
  /**
   * True for a link that is to be told of. Undefined while that depends on queue pairs that it has
   * not got: the question comes again.
   */
  wants(addresses: LinkAddresses, pairs: LinkQueuePairs): boolean | undefined;
  opened(link: number, addresses: LinkAddresses): void;
  /** A link that is told of has these queue pairs now. */
  joined(link: number, pairs: LinkQueuePairs): void;
  octets(link: number, by: TapSide, octets: Uint8Array): void;
  finished(link: number, by: TapSide): void;
  closed(link: number, reset: boolean): void;
  /** A link that is open already and cannot be told from here on: it has markers. */
  skipped(link: number, addresses: LinkAddresses): void;
}

/** A watcher of one link. */
interface Following {
  readonly watcher: TapWatcher;
  /** What is being written began before the watcher came: its rest is not told. */
  skipsWrite: boolean;
}

/** See the module's comment. */
export class TapHub implements CaptureTap {
  /** Links by their ends, near end first. Of a connection between two devices here, one end only. */
  readonly #links = new Map<string, HubLink>();
  readonly #watchers = new Set<TapWatcher>();
  #lastLink = 0;

  opened(addresses: LinkAddresses, position: LinkPosition): LinkTap {
    const { localAddress, localPort, remoteAddress, remotePort } = addresses;
    const near = `${localAddress} ${localPort}`;
    const far = `${remoteAddress} ${remotePort}`;
    const other = this.#links.get(`${far} ${near}`);
    if (other !== undefined) {
      other.meet(position);
      return UNWATCHED;
    }
    const ends = `${near} ${far}`;
    this.#lastLink += 1;
    const link: HubLink = new HubLink(this.#lastLink, addresses, position, () => {
      // The same ends may have met again before this end was told of.
      if (this.#links.get(ends) === link) this.#links.delete(ends);
    });
    this.#links.set(ends, link);
    for (const watcher of this.#watchers) link.follow(watcher);
    return link;
  }

  /** Tells the watcher of every link that it wants, until the result is called. */
  watch(watcher: TapWatcher): () => void {
    this.#watchers.add(watcher);
    for (const link of this.#links.values()) link.follow(watcher);
    return () => {
      this.#watchers.delete(watcher);
      for (const link of this.#links.values()) link.unfollow(watcher);
    };
  }
}

/** The other end of a link that is watched tells all that passes. */
const UNWATCHED: LinkTap = {
  outbound: () => undefined,
  inbound: () => undefined,
  finished: () => undefined,
  closed: () => undefined,
};

/** What one side sent before its FPDUs. */
class StartupRecord {
  octets: Uint8Array = new Uint8Array(0);
  whole = false;
  markers = false;
  readonly #kind: StartupFrameKind;

  constructor(kind: StartupFrameKind) {
    this.#kind = kind;
  }

  /** Keeps what belongs to the frame. */
  take(octets: Uint8Array): void {
    const all = new Uint8Array(this.octets.length + octets.length);
    all.set(this.octets);
    all.set(octets, this.octets.length);
    const needed = startupFrameBytesNeeded(all, all.length, this.#kind);
    if (typeof needed === 'string') {
      // No MPA: the link will not live long.
      this.whole = true;
      return;
    }
    this.octets = all.slice(0, needed);
    if (all.length < needed) return;
    this.whole = true;
    const frame = parseStartupFrame(this.octets, this.#kind);
    this.markers = typeof frame !== 'string' && frame.markers;
  }
}

class HubLink implements LinkTap {
  readonly #id: number;
  readonly #addresses: LinkAddresses;
  readonly #position: LinkPosition;
  readonly #onClosed: () => void;
  readonly #startup: Readonly<Record<TapSide, StartupRecord>>;
  readonly #finished = new Set<TapSide>();
  /** Replaced, never changed: it is looked at for each write. */
  #following: readonly Following[] = [];
  /** Watchers that may want the link once its queue pairs are known. */
  #undecided: readonly TapWatcher[] = [];
  /** Where the other end stands, when it is one of this host's devices too. */
  #farPosition: LinkPosition | undefined;
  #pairs: LinkQueuePairs = {};
  /** Both ends' queue pairs are known, as far as they are here. */
  #joined = false;

  constructor(id: number, addresses: LinkAddresses, position: LinkPosition, onClosed: () => void) {
    const { dialed } = addresses;
    this.#id = id;
    this.#addresses = addresses;
    this.#position = position;
    this.#onClosed = onClosed;
    this.#startup = {
      us: new StartupRecord(dialed ? 'request' : 'reply'),
      peer: new StartupRecord(dialed ? 'reply' : 'request'),
    };
  }

  /** The other end is one of this host's devices, too. */
  meet(position: LinkPosition): void {
    this.#farPosition = position;
    this.#joined = false;
  }

  /** Begins to tell a watcher, if it wants this link. */
  follow(watcher: TapWatcher): void {
    this.#lookForPairs();
    const wanted = watcher.wants(this.#addresses, this.#pairs);
    if (wanted === undefined) this.#undecided = [...this.#undecided, watcher];
    if (wanted === true) this.#begin(watcher);
  }

  #begin(watcher: TapWatcher): void {
    const { us, peer } = this.#startup;
    if (us.markers || peer.markers) {
      // Their places count from the first FPDU on.
      watcher.skipped(this.#id, this.#addresses);
      return;
    }
    watcher.opened(this.#id, this.#addresses);
    const { us: near, peer: far } = this.#pairs;
    if (near !== undefined || far !== undefined) watcher.joined(this.#id, this.#pairs);
    const [first, second]: [TapSide, TapSide] = this.#addresses.dialed
      ? ['us', 'peer']
      : ['peer', 'us'];
    for (const side of [first, second]) {
      const { octets } = this.#startup[side];
      if (octets.length > 0) watcher.octets(this.#id, side, octets);
    }
    const held = this.#position.heldInput();
    if (peer.whole && held.length > 0) watcher.octets(this.#id, 'peer', held);
    for (const side of this.#finished) watcher.finished(this.#id, side);
    const skipsWrite = us.whole && this.#position.midOutput();
    this.#following = [...this.#following, { watcher, skipsWrite }];
  }

  unfollow(watcher: TapWatcher): void {
    this.#following = this.#following.filter((each) => each.watcher !== watcher);
    this.#undecided = this.#undecided.filter((each) => each !== watcher);
  }

  /** True when the link has got a queue pair since it was last looked for. */
  #lookForPairs(): boolean {
    const { us: near, peer: far } = this.#pairs;
    const us = near ?? this.#position.queuePair();
    const peer = far ?? this.#farPosition?.queuePair();
    this.#joined = us !== undefined && (this.#farPosition === undefined || peer !== undefined);
    if (us === near && peer === far) return false;
    this.#pairs = {
      ...(us === undefined ? {} : { us }),
      ...(peer === undefined ? {} : { peer }),
    };
    return true;
  }

  /** Tells watchers which queue pairs the link has got, and asks those who waited for them. */
  #tellPairs(): void {
    if (this.#following.length === 0 && this.#undecided.length === 0) return;
    if (!this.#lookForPairs()) return;
    for (const { watcher } of this.#following) watcher.joined(this.#id, this.#pairs);
    const undecided = this.#undecided;
    this.#undecided = [];
    for (const watcher of undecided) this.follow(watcher);
  }

  outbound(octets: Uint8Array): void {
    if (!this.#joined) this.#tellPairs();
    const { us } = this.#startup;
    if (!us.whole) us.take(octets);
    for (const following of this.#following) {
      if (following.skipsWrite) following.skipsWrite = false;
      else following.watcher.octets(this.#id, 'us', octets);
    }
  }

  inbound(octets: Uint8Array): void {
    if (!this.#joined) this.#tellPairs();
    const { peer } = this.#startup;
    if (!peer.whole) peer.take(octets);
    for (const { watcher } of this.#following) watcher.octets(this.#id, 'peer', octets);
  }

  finished(by: TapSide): void {
    this.#finished.add(by);
    for (const { watcher } of this.#following) watcher.finished(this.#id, by);
  }

  closed(reset: boolean): void {
    for (const { watcher } of this.#following) watcher.closed(this.#id, reset);
    this.#following = [];
    this.#undecided = [];
    this.#onClosed();
  }
}
