/** What the commands of one client work on. */
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
} from '../../../verbs-api/contract/commands.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { ClientContext } from './client-context.ts';
import type { ClientMemory } from './client-memory.ts';
import { type AnyObject, HandleTable } from './client-objects.ts';
import type { DeviceDirectory } from './device-directory.ts';
import { type ClientQuotas, type ObjectKind, QuotaLedger } from './quotas.ts';

/** The functions behind the commands. */
export type CommandHandlers<Names extends CommandName = CommandName> = {
  readonly [N in Names]: (request: CommandRequest<N>) => CommandReply<N> | Promise<CommandReply<N>>;
};

/** One client's objects, memory and accounts. */
export class ClientState {
  readonly client: ClientContext;
  readonly directory: DeviceDirectory;
  readonly memory: ClientMemory;
  readonly table = new HandleTable();
  readonly ledger: QuotaLedger;
  readonly sendEvent: (event: DeviceEvent) => void;
  /** A completion channel comes or goes; coming, it gets the token of its event path. */
  readonly openChannel: (channel: Handle) => string;
  readonly closeChannel: (channel: Handle) => void;

  constructor(
    client: ClientContext,
    parts: {
      directory: DeviceDirectory;
      memory: ClientMemory;
      quotas: ClientQuotas;
      sendEvent: (event: DeviceEvent) => void;
      openChannel: (channel: Handle) => string;
      closeChannel: (channel: Handle) => void;
    },
  ) {
    this.client = client;
    this.directory = parts.directory;
    this.memory = parts.memory;
    this.ledger = new QuotaLedger(parts.quotas);
    this.sendEvent = parts.sendEvent;
    this.openChannel = parts.openChannel;
    this.closeChannel = parts.closeChannel;
  }

  /** Makes an object under the next handle. ENOMEM beyond the quota; nothing stays if `make` throws. */
  add<T extends AnyObject>(kind: ObjectKind, make: (handle: Handle) => T): T {
    this.ledger.assertRoom(kind);
    const object = make(this.table.nextHandle);
    this.table.add(object);
    this.ledger.note(kind, 1);
    return object;
  }

  /** Takes an object out of the table; what it holds is the caller's to give back. */
  remove(object: AnyObject): void {
    this.table.remove(object);
    this.ledger.note(object.kind, -1);
  }

  /** EBUSY while others depend on the object. */
  assertUnused(object: AnyObject): void {
    if (object.users > 0) {
      throw new VerbsError('EBUSY', `${object.users} objects use the ${object.kind}`);
    }
  }
}
