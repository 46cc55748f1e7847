/**
 * Lets watchers see the octets of links, also of links that were open before they came. While
 * nobody watches, a link costs two small frames of memory and a look at a flag for each write.
 */
import type { TapSide } from '../../verbs-api/contract/tap-records.ts';
import {
  parseStartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
} from '../wire/startup-frame.ts';
import type { CaptureTap, LinkAddresses, LinkPosition, LinkTap } from './capture-tap.ts';

/** Takes what passes. Octets are borrowed for the call; nothing here may call the host. */
export interface TapWatcher {
  /** True for a link that is to be told of. */
  wants(addresses: LinkAddresses): boolean;
  opened(link: number, addresses: LinkAddresses): void;
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
    if (this.#links.has(`${far} ${near}`)) return UNWATCHED;
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

  /** Begins to tell a watcher, if it wants this link. */
  follow(watcher: TapWatcher): void {
    if (!watcher.wants(this.#addresses)) return;
    const { us, peer } = this.#startup;
    if (us.markers || peer.markers) {
      // Their places count from the first FPDU on.
      watcher.skipped(this.#id, this.#addresses);
      return;
    }
    watcher.opened(this.#id, this.#addresses);
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
  }

  outbound(octets: Uint8Array): void {
    const { us } = this.#startup;
    if (!us.whole) us.take(octets);
    for (const following of this.#following) {
      if (following.skipsWrite) following.skipsWrite = false;
      else following.watcher.octets(this.#id, 'us', octets);
    }
  }

  inbound(octets: Uint8Array): void {
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
    this.#onClosed();
  }
}
