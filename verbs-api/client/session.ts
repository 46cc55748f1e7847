/** Shared by all objects of one provider: the command channel, its loss, and their closing. */
import type {
  CommandChannel,
  CommandName,
  CommandReply,
  CommandRequest,
} from '#contract/protocol/commands';
import type { WROpcode } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import type { PD } from '#contract/verbs/provider';
import { ClosableObject, MemberScope, Presence } from './lifetime.ts';
import { PendingWaits } from './pending-waits.ts';
import type { WorkFailures } from './work-failures.ts';

/** The command channel of a provider; notifies the objects that use it when it is lost. */
export class Session extends Presence {
  readonly commandChannel: CommandChannel;
  /** Events, outcomes, completions and closes that the program awaits. */
  readonly waits: PendingWaits;

  constructor(channel: CommandChannel) {
    super();
    this.commandChannel = channel;
    this.waits = new PendingWaits((alive) => channel.hold?.(alive));
  }

  /** Sends a command. Rejects with `VerbsError` if the device refuses; after a loss with EIO. */
  request<N extends CommandName>(name: N, request: CommandRequest<N>): Promise<CommandReply<N>> {
    if (this.lost) return Promise.reject(this.lossError());
    return this.commandChannel.request(name, request);
  }
}

/** An object of a client; it stays open if the device refuses to destroy it. */
export abstract class ClientObject extends ClosableObject<Session> {
  get session(): Session {
    return this.presence;
  }

  /** Destroys the object on the device. If this rejects, the object stays as it was. */
  protected abstract destroy(): Promise<void>;
  /** The object is gone, destroyed or lost with its device: releases what it holds. */
  protected abstract release(): void;

  protected override async end(): Promise<void> {
    this.session.waits.begin();
    try {
      await this.destroy();
    } catch (error) {
      // If the device is gone, so is the object. A command in flight reports EIO before the channel
      // reports the loss.
      const gone = this.session.lost || (isVerbsError(error) && error.code === 'EIO');
      if (!gone) {
        this.reopen();
        throw error;
      }
    } finally {
      this.session.waits.end();
    }
    this.release();
  }
}

/** An object made from an opened device, whose scope it leaves when it closes. */
export abstract class ScopedObject extends ClientObject {
  readonly #scope: DeviceScope;

  constructor(scope: DeviceScope, noun: string) {
    super(scope.session, noun);
    this.#scope = scope;
  }

  get scope(): DeviceScope {
    return this.#scope;
  }

  protected override release(): void {
    this.#scope.remove(this);
  }
}

/** A protection domain for the objects in it. */
export interface Domain extends PD {
  readonly scope: DeviceScope;
  readonly handle: number;
}

/** The part of a queue pair that completions in error use. */
interface FlushingQP {
  readonly failures: WorkFailures;
  noteFlushing(): void;
}

/** Shared by the objects of one opened device. */
export class DeviceScope extends MemberScope<ClientObject> {
  readonly session: Session;
  readonly handle: number;
  readonly deviceName: string;
  readonly roce: boolean;
  /** Send operations that the device does not support. */
  readonly unsupported: ReadonlySet<WROpcode>;
  /** The device takes receives only after a doorbell. */
  readonly receivesNeedDoorbell: boolean;
  /** Queue pairs by number: a completion in error means that its queue pair flushes. */
  readonly queuePairs = new Map<number, FlushingQP>();

  constructor(session: Session, opened: CommandReply<'openDevice'>) {
    super();
    this.session = session;
    this.handle = opened.context;
    this.deviceName = opened.device.name;
    this.roce = opened.device.transport === 'roce';
    this.unsupported = new Set(opened.unsupported);
    this.receivesNeedDoorbell = opened.receivesNeedDoorbell;
  }

  /** Closes everything that was made in this scope, or from `pd`, dependants first. */
  async closeAll(pd?: PD): Promise<void> {
    for (const members of this.byRank(pd)) await Promise.all(members.map((one) => one.close()));
  }
}
