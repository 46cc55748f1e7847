/** The state of one client, on which its commands operate. */
import { assert } from '#base/assert';
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  Handle,
} from '#contract/protocol/commands';
import { VerbsError } from '#contract/verbs/errors';
import { giveShared, takeShared } from '#daemon/clients/objects/charged-memory';
import type { ClientMemory, SharedAllocation } from '#daemon/clients/objects/client-memory';
import type { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { type ObjectListing, ObjectRegistry } from '#daemon/clients/objects/object-registry';
import { QueueRings } from '#daemon/clients/objects/queue-rings';
import { type ClientQuotas, OBJECT_KINDS, QuotaLedger } from '#daemon/clients/objects/quotas';
import { ownRights, rightsOf, type UserRights } from '#daemon/clients/objects/user-rights';
import { userOf } from '#daemon/clients/trusted-user';
import { type AnyObject, type ClientEvents, contextOf } from './client-objects.ts';

/** A command whose reply is empty returns nothing. */
export type CommandHandlers<Names extends CommandName = CommandName> = {
  readonly [N in Names]: (
    request: CommandRequest<N>,
  ) => Record<never, never> extends CommandReply<N> ? void : CommandReply<N>;
};

type ObjectOf<K extends AnyObject['kind']> = Extract<AnyObject, { readonly kind: K }>;

/** Handle 0 means no object. */
const FIRST_HANDLE = 1;

export class ClientState {
  readonly client: ClientEvents;
  readonly directory: DeviceDirectory;
  readonly memory: ClientMemory;
  readonly rights: UserRights;
  readonly user: number | object | undefined;
  readonly ledger: QuotaLedger;
  readonly table: ObjectRegistry<AnyObject>;
  readonly rings: QueueRings<SharedAllocation>;
  readonly sendEvent: (event: DeviceEvent) => void;
  /**
   * Called when a completion channel is created or destroyed; the former returns the token of the
   * event path.
   */
  readonly openChannel: (channel: Handle) => string;
  readonly closeChannel: (channel: Handle) => void;

  constructor(
    client: ClientEvents,
    parts: {
      directory: DeviceDirectory;
      memory: ClientMemory;
      quotas: ClientQuotas;
      /** Default: none. */
      listing?: ObjectListing<AnyObject> | undefined;
      uid?: number | undefined;
      sendEvent: (event: DeviceEvent) => void;
      openChannel: (channel: Handle) => string;
      closeChannel: (channel: Handle) => void;
    },
  ) {
    this.client = client;
    this.directory = parts.directory;
    this.memory = parts.memory;
    this.rights = parts.uid === undefined ? ownRights() : rightsOf(parts.uid);
    this.user = userOf(parts.uid, client);
    const { memory } = parts;
    const ledger = new QuotaLedger(parts.quotas, parts.uid);
    this.ledger = ledger;
    const deviceOf = (object?: AnyObject) => contextOf(object)?.device.name;
    this.table = new ObjectRegistry(ledger, FIRST_HANDLE, deviceOf, parts.listing);
    const rings = {
      create: (bytes: number) => takeShared(ledger, () => memory.createRing(bytes), bytes),
      release: (ring: SharedAllocation) => giveShared(ledger, ring),
    };
    this.rings = new QueueRings(rings, ledger);
    this.sendEvent = parts.sendEvent;
    this.openChannel = parts.openChannel;
    this.closeChannel = parts.closeChannel;
  }

  /** Compares table, ledger and users, for tests, between commands. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    const { table, ledger } = this;
    table.assertDeepInvariants();
    ledger.assertInvariants();
    const users = new Map<AnyObject, number>();
    const note = (object: AnyObject): void => void users.set(object, (users.get(object) ?? 0) + 1);
    let size = 0;
    for (const kind of OBJECT_KINDS) {
      const objects = table.ofKind(kind);
      size += objects.length;
      assert(objects.length === ledger.count(kind), `ledger: wrong count of ${kind}`);
      for (const object of objects) {
        assert(object.users >= 0, 'users < 0');
        for (const used of usedBy(object)) note(used);
      }
    }
    assert(size === table.size, 'object of an unknown kind');
    for (const kind of ['context', 'buffer', 'channel'] as const) {
      for (const object of table.ofKind(kind)) {
        assert(object.users === (users.get(object) ?? 0), `${kind}: wrong count of users`);
      }
    }
    const regions = table.ofKind('mr').filter(({ source }) => !('kind' in source));
    const pinned = regions.reduce((sum, { mr }) => sum + mr.lengthBytes, 0);
    assert(pinned === ledger.held('pinnedBytes'), 'ledger: wrong count of registered bytes');
    const shared = [
      ...table.ofKind('buffer').map(({ memory }) => memory),
      ...(['cq', 'srq', 'qp'] as const).flatMap((kind) =>
        table.ofKind(kind).map(({ ring }) => ring),
      ),
    ].reduce((sum, { mapping }) => sum + mapping.lengthBytes, 0);
    assert(shared === ledger.held('sharedBytes'), 'ledger: wrong count of shared bytes');
  }

  /** Adds an object with the fields that `make` returns: see `ObjectRegistry.add`. */
  add<K extends 'context' | 'pd' | 'channel' | 'buffer' | 'mw' | 'ah'>(
    kind: K,
    make: (handle: Handle) => Omit<ObjectOf<K>, 'kind' | 'handle' | 'users'>,
    device?: string,
  ): ObjectOf<K> {
    const all = (handle: Handle): object => ({ kind, handle, users: 0, ...make(handle) });
    return this.table.add(kind, (handle) => all(handle) as ObjectOf<K>, device);
  }

  /** EBUSY while others depend on the object. */
  assertUnused(object: AnyObject): void {
    if (object.users > 0) {
      throw new VerbsError(
        'EBUSY',
        `${object.users} objects still use the ${object.kind}: destroy them first`,
      );
    }
  }
}

/** The objects that an object uses, and thus keeps from being destroyed. */
function usedBy(object: AnyObject): AnyObject[] {
  switch (object.kind) {
    case 'pd':
    case 'channel':
      return [object.context];
    case 'cq':
      return object.channel === undefined ? [object.context] : [object.context, object.channel];
    case 'mr':
      return 'kind' in object.source ? [object.source] : [];
    default:
      return [];
  }
}
