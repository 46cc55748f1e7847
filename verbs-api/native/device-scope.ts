/** Shared by the objects of one opened device. */
import type { PD } from '#contract/verbs/provider';
import type { NativeDevice } from '#native-bridge/rdma/device';
import type { NativePD } from '#native-bridge/rdma/protection-domain';
import { MemberScope, Presence } from '../client/lifetime.ts';
import { OwnedObject } from './owned-object.ts';

/** A queue pair as completions and events see it. */
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

/** An object made from an opened device, whose scope it leaves when it closes. */
export abstract class DeviceObject extends OwnedObject {
  /** The library's object. */
  abstract readonly native: { dispose(): void };
  readonly #scope: DeviceScope;

  constructor(scope: DeviceScope, noun: string) {
    super(scope.presence, noun);
    this.#scope = scope;
  }

  get scope(): DeviceScope {
    return this.#scope;
  }

  protected override destroy(): void {
    this.native.dispose();
  }

  protected override released(): void {
    this.#scope.remove(this);
  }
}

/** A protection domain for the objects in it. */
export interface NativeDomain extends PD {
  readonly scope: DeviceScope;
  readonly native: NativePD;
}
