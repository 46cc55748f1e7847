/** Shared by all objects of one provider: the command channel, its loss, and object lifetime. */
import type {
  CommandChannel,
  CommandName,
  CommandReply,
  CommandRequest,
} from '#contract/protocol/commands';
import type { WROpcode } from '#contract/verbs/enums';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { PD, VerbsObject } from '#contract/verbs/provider';
import { PendingWaits } from './pending-waits.ts';
import type { WorkFailures } from './work-failures.ts';

/** The command channel of a provider; notifies the objects that use it when it is lost. */
export class Session {
  readonly commandChannel: CommandChannel;
  /** Events, outcomes, completions and closes that the program awaits. */
  readonly waits: PendingWaits;
  #lostReason: string | undefined;
  readonly #lossListeners = new Set<(error: VerbsError) => void>();

  constructor(channel: CommandChannel) {
    this.commandChannel = channel;
    this.waits = new PendingWaits((alive) => channel.hold?.(alive));
  }

  /** True once the device or its daemon is gone, or the provider closed. */
  get lost(): boolean {
    return this.#lostReason !== undefined;
  }

  /** Throws EIO once the device is gone. */
  assertPresent(): void {
    if (this.#lostReason !== undefined) throw this.#lossError();
  }

  /** Sends a command. Rejects with `VerbsError` if the device refuses; after a loss with EIO. */
  request<N extends CommandName>(name: N, request: CommandRequest<N>): Promise<CommandReply<N>> {
    if (this.#lostReason !== undefined) return Promise.reject(this.#lossError());
    return this.commandChannel.request(name, request);
  }

  /** Registers a callback for the loss of the device; call the result to unregister it. */
  onLost(listener: (error: VerbsError) => void): () => void {
    this.#lossListeners.add(listener);
    return () => {
      this.#lossListeners.delete(listener);
    };
  }

  /** The device is gone: everything that waits for it fails with EIO. */
  lose(reason: string): void {
    if (this.#lostReason !== undefined) return;
    this.#lostReason = reason;
    const listeners = [...this.#lossListeners];
    this.#lossListeners.clear();
    for (const listener of listeners) listener(this.#lossError());
  }

  #lossError(): VerbsError {
    return new VerbsError('EIO', this.#lostReason);
  }
}

/** Order in which a context destroys its objects: dependants first. */
export const TeardownRank = {
  queuePair: 0,
  sharedReceiveQueue: 1,
  completionQueue: 2,
  addressHandle: 3,
  memoryWindow: 4,
  memoryRegion: 5,
  protectionDomain: 6,
  completionChannel: 7,
} as const;
export type TeardownRank = (typeof TeardownRank)[keyof typeof TeardownRank];

/**
 * Lifetime of a client's object: closes once, ignores a second close, stays open if the device
 * refuses.
 */
export abstract class ClientObject implements VerbsObject {
  /** Private, so that printing an object, or an error with one, does not print its session. */
  readonly #session: Session;
  readonly #noun: string;
  #closing: Promise<void> | undefined;
  #closed = false;

  constructor(session: Session, noun: string) {
    this.#session = session;
    this.#noun = noun;
  }

  /** The command channel of the object's provider. */
  get session(): Session {
    return this.#session;
  }

  /** False from the first call of `close` on, unless the device refused it. */
  get usable(): boolean {
    return !this.#closed && this.#closing === undefined;
  }

  /** Throws EINVAL once the object closes, EIO once the device is gone. */
  assertUsable(): void {
    if (!this.usable) throw this.closedError();
    this.#session.assertPresent();
  }

  closedError(): VerbsError {
    return new VerbsError('EINVAL', `the ${this.#noun} is closed`);
  }

  close(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Destroys the object on the device. If this rejects, the object stays as it was. */
  protected abstract destroy(): Promise<void>;
  /** The object is gone, destroyed or lost with its device: releases what it holds. */
  protected abstract release(): void;

  async #close(): Promise<void> {
    this.session.waits.begin();
    try {
      await this.destroy();
    } catch (error) {
      // If the device is gone, so is the object. A command in flight reports EIO before the channel
      // reports the loss.
      const gone = this.#session.lost || (isVerbsError(error) && error.code === 'EIO');
      if (!gone) {
        this.#closing = undefined;
        throw error;
      }
    } finally {
      this.session.waits.end();
    }
    this.#closed = true;
    this.release();
  }
}

/** The part of a queue pair that completions in error use. */
interface FlushingQP {
  readonly failures: WorkFailures;
  noteFlushing(): void;
}

/** Shared by the objects of one opened device. */
export class DeviceScope {
  readonly session: Session;
  /** Handle of the context. */
  readonly handle: number;
  readonly deviceName: string;
  /** The device speaks RoCE. */
  readonly roce: boolean;
  /** Send operations that the device does not support. */
  readonly unsupported: ReadonlySet<WROpcode>;
  /** The device takes receives only after a doorbell. */
  readonly receivesNeedDoorbell: boolean;
  /** Queue pairs by number: a completion in error means that its queue pair flushes. */
  readonly queuePairs = new Map<number, FlushingQP>();
  readonly #members = new Map<ClientObject, TeardownRank>();

  constructor(session: Session, opened: CommandReply<'openDevice'>) {
    this.session = session;
    this.handle = opened.context;
    this.deviceName = opened.device.name;
    this.roce = opened.device.transport === 'roce';
    this.unsupported = new Set(opened.unsupported);
    this.receivesNeedDoorbell = opened.receivesNeedDoorbell;
  }

  add(member: ClientObject, rank: TeardownRank): void {
    this.#members.set(member, rank);
  }

  remove(member: ClientObject): void {
    this.#members.delete(member);
  }

  /** Closes everything that was made in this scope, or from `pd`, dependants first. */
  async closeAll(pd?: PD): Promise<void> {
    for (const rank of Object.values(TeardownRank)) {
      const members = [...this.#members].filter(
        ([member, memberRank]) => memberRank === rank && (pd === undefined || madeFrom(member, pd)),
      );
      await Promise.all(members.map(([member]) => member.close()));
    }
  }
}

/** True if `member` is the protection domain or was created from it. */
function madeFrom(member: object, pd: PD): boolean {
  return member === pd || ('pd' in member && member.pd === pd);
}
