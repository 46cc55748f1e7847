/** What all objects of one provider share: the link to the device, its loss, and object lifetime. */
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceLink,
} from '../contract/commands.ts';
import type { WROpcode } from '../contract/enums.ts';
import { isVerbsError, VerbsError } from '../contract/errors.ts';
import type { VerbsObject } from '../contract/provider.ts';

/** One link to a device, with the news of its loss passed on to the objects that live on it. */
export class Session {
  readonly link: DeviceLink;
  #lostReason: string | undefined;
  readonly #lossListeners = new Set<(error: VerbsError) => void>();

  constructor(link: DeviceLink) {
    this.link = link;
  }

  /** True once the device or its daemon is gone, or the provider closed. */
  get lost(): boolean {
    return this.#lostReason !== undefined;
  }

  /** Throws EIO once the device is gone. */
  assertPresent(): void {
    if (this.#lostReason !== undefined) throw this.#lossError();
  }

  /** Sends a command. Refusals reject with `VerbsError`; after a loss with EIO. */
  request<N extends CommandName>(name: N, request: CommandRequest<N>): Promise<CommandReply<N>> {
    if (this.#lostReason !== undefined) return Promise.reject(this.#lossError());
    return this.link.request(name, request);
  }

  /** Registers what an object does when the device is lost; the result unregisters it. */
  onLost(listener: (error: VerbsError) => void): () => void {
    this.#lossListeners.add(listener);
    return () => {
      this.#lossListeners.delete(listener);
    };
  }

  /** The device is gone: every wait on it fails with EIO. */
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

/** Order in which a context takes its objects down: dependants first. */
export const TeardownRank = {
  queuePair: 0,
  sharedReceiveQueue: 1,
  completionQueue: 2,
  memoryWindow: 3,
  memoryRegion: 4,
  protectionDomain: 5,
  completionChannel: 6,
} as const;
export type TeardownRank = (typeof TeardownRank)[keyof typeof TeardownRank];

/** Lifetime of an object of a client: closes once, may be closed twice, survives a refusal. */
export abstract class ClientObject implements VerbsObject {
  readonly session: Session;
  readonly #noun: string;
  #closing: Promise<void> | undefined;
  #closed = false;

  constructor(session: Session, noun: string) {
    this.session = session;
    this.#noun = noun;
  }

  /** False from the first call of `close` on, unless the device refused it. */
  get usable(): boolean {
    return !this.#closed && this.#closing === undefined;
  }

  /** Throws EINVAL once the object closes, EIO once the device is gone. */
  assertUsable(): void {
    if (!this.usable) throw this.closedError();
    this.session.assertPresent();
  }

  /** What calls on a closed object get. */
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

  /** Gives the object back to the device. May reject: the object then stays as it was. */
  protected abstract destroy(): Promise<void>;
  /** The object is gone, by `destroy` or with the device: lets go of what it holds. */
  protected abstract release(): void;

  async #close(): Promise<void> {
    try {
      await this.destroy();
    } catch (error) {
      // With the device gone, so is the object: there is nothing left to give back. EIO says so
      // before the link does when the command was on its way.
      const gone = this.session.lost || (isVerbsError(error) && error.code === 'EIO');
      if (!gone) {
        this.#closing = undefined;
        throw error;
      }
    }
    this.#closed = true;
    this.release();
  }
}

/** What the objects of one opened device share. */
export class DeviceScope {
  readonly session: Session;
  /** Handle of the context. */
  readonly handle: number;
  readonly deviceName: string;
  /** Send operations that the device refuses. */
  readonly unsupported: ReadonlySet<WROpcode>;
  /** The device takes receives only when its doorbell rang. */
  readonly receivesNeedDoorbell: boolean;
  /** Queue pairs by number: a completion in error tells that its queue pair flushes. */
  readonly queuePairs = new Map<number, { noteFlushing(): void }>();
  readonly #members = new Map<ClientObject, TeardownRank>();

  constructor(session: Session, opened: CommandReply<'openDevice'>) {
    this.session = session;
    this.handle = opened.context;
    this.deviceName = opened.device.name;
    this.unsupported = new Set(opened.unsupported);
    this.receivesNeedDoorbell = opened.receivesNeedDoorbell;
  }

  add(member: ClientObject, rank: TeardownRank): void {
    this.#members.set(member, rank);
  }

  remove(member: ClientObject): void {
    this.#members.delete(member);
  }

  /** Closes everything that was made in this scope, dependants first. */
  async closeAll(): Promise<void> {
    for (const rank of Object.values(TeardownRank)) {
      const members = [...this.#members].filter(([, memberRank]) => memberRank === rank);
      await Promise.all(members.map(([member]) => member.close()));
    }
  }
}
