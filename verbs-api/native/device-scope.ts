/** Shared by the objects of one opened device. */
import type { PD } from '#contract/verbs/provider';
import type { NativeDevice } from '#native-bridge/rdma/device';
import { MemberScope, Presence } from '../client/lifetime.ts';
import type { OwnedObject } from './owned-object.ts';

/** A queue pair, as completions and events know it. */
export interface FlushingQueuePair {
  /** A request failed: the queue pair flushes. */
  noteFlushing(): void;
}

/** One opened device and the members made from it. */
export class DeviceScope extends MemberScope<OwnedObject> {
  readonly native: NativeDevice;
  readonly presence = new Presence();
  /** By number: a completion in error means that its queue pair flushes. */
  readonly queuePairs = new Map<number, FlushingQueuePair>();

  constructor(native: NativeDevice) {
    super();
    this.native = native;
  }

  /**
   * Closes everything created from the device, dependants first, and drops the rest. With `pd`,
   * only that domain and the objects created from it.
   */
  async closeAll(pd?: PD): Promise<void> {
    for (const members of this.byRank(pd)) {
      await Promise.allSettled(members.map((member) => member.close()));
    }
    if (pd !== undefined) return;
    for (const member of this.members.keys()) member.abandon();
    this.members.clear();
  }
}
