/** Shared by the objects of one opened device. */
import type { PD } from '#contract/verbs/provider';
import type { NativeDevice } from '#native-bridge/rdma/device';
import { type OwnedObject, Presence } from './owned-object.ts';

/** Order in which a context destroys its objects: dependants first. */
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
  /** By number: a completion in error means that its queue pair flushes. */
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

  /**
   * Closes everything created from the device, dependants first, and drops the rest. With `pd`,
   * only that domain and the objects created from it.
   */
  async closeAll(pd?: PD): Promise<void> {
    for (const rank of Object.values(TeardownRank)) {
      const members = [...this.#members].filter(
        ([member, memberRank]) => memberRank === rank && (pd === undefined || madeFrom(member, pd)),
      );
      await Promise.allSettled(members.map(([member]) => member.close()));
    }
    if (pd !== undefined) return;
    for (const member of this.#members.keys()) member.abandon();
    this.#members.clear();
  }
}

/** True if `member` is the protection domain or was created from it. */
function madeFrom(member: object, pd: PD): boolean {
  return member === pd || ('pd' in member && member.pd === pd);
}
