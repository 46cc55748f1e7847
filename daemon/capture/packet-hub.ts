/**
 * Passes packets between queue pairs to watchers. Without a watcher, a packet costs one check of
 * `watched`.
 */
import type { TappedPacket } from '#contract/protocol/packet-records';
import type { PacketTap } from './capture-tap.ts';

/** Receives packets. They are borrowed for the call, which must not call the host. */
export interface PacketWatcher {
  packet(packet: TappedPacket): void;
}

export class PacketHub implements PacketTap {
  /** Replaced, never mutated: a watcher may leave while packets are being reported. */
  #watchers: readonly PacketWatcher[] = [];
  watched = false;

  packet(packet: TappedPacket): void {
    for (const watcher of this.#watchers) watcher.packet(packet);
  }

  /** Reports every packet until the returned function is called. */
  watch(watcher: PacketWatcher): () => void {
    this.#watchers = [...this.#watchers, watcher];
    this.watched = true;
    return () => {
      this.#watchers = this.#watchers.filter((each) => each !== watcher);
      this.watched = this.#watchers.length > 0;
    };
  }
}
