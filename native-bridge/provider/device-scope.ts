/** What the objects of one opened device share. */
import type { NativeDevice } from '../rdma/device.ts';
import { type OwnedObject, Presence } from './owned-object.ts';

/** Order in which a context takes its objects down: dependants first. */
export const TeardownRank = {
  queuePair: 0,
  sharedReceiveQueue: 1,
  completionQueue: 2,
  memoryRegion: 3,
  protectionDomain: 4,
  completionChannel: 5,
} as const;
export type TeardownRank = (typeof TeardownRank)[keyof typeof TeardownRank];

/** A queue pair, as completions and events know it. */
export interface FlushingQueuePair {
  /** A request failed: the queue pair flushes. */
  noteFlushing(): void;
}

/** One opened device and the members made from it. */
export class DeviceScope {
  readonly native: NativeDevice;
  readonly presence = new Presence();
  /** By number: a completion in error tells that its queue pair flushes. */
  readonly queuePairs = new Map<number, FlushingQueuePair>();
  readonly #members = new Map<OwnedObject, TeardownRank>();

  constructor(native: NativeDevice) {
    this.native = native;
  }

  add(member: OwnedObject, rank: TeardownRank): void {
    this.#members.set(member, rank);
  }

  remove(member: OwnedObject): void {
    this.#members.delete(member);
  }

  /** Closes everything that was made from the device, dependants first, and forgets the rest. */
  async closeAll(): Promise<void> {
    for (const rank of Object.values(TeardownRank)) {
      const members = [...this.#members].filter(([, memberRank]) => memberRank === rank);
      await Promise.allSettled(members.map(([member]) => member.close()));
    }
    for (const member of this.#members.keys()) member.abandon();
    this.#members.clear();
  }
}
