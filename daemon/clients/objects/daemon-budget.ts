/**
 * Limits of all clients together, each divided among users: quotas limit one client, and there can be
 * any number of clients. `daemon/LIMITS.md` lists them; a test compares the two.
 */
import type { SharedLimitUse } from '#contract/protocol/ipc-admin';
import type { DeviceCapacity } from '#daemon/rnic/device-registry';
import { isTrusted } from '../trusted-user.ts';
import { type LimitTerms, OWNER, type RefusalNote, SharedLimit } from './shared-limit.ts';

/** librdmacm indexes connection ids by 16 bits of their number; memberships have as many numbers. */
export const CM_NUMBERS = 65_536;

export interface DaemonLimits {
  readonly sharedBytes: number;
  /** Mappings of shared memory: beyond vm.max_map_count the process can allocate no memory. */
  readonly mappings: number;
  /** Objects of all kinds: each takes some of the daemon's heap. */
  readonly objects: number;
  /** Connection ids and multicast memberships of rdma_cm: see `CM_NUMBERS`. */
  readonly ids: number;
  /** Connections to the daemon's socket. */
  readonly connections: number;
  readonly descriptors: number;
  /** Descriptors sent and not yet received: the kernel counts them for the daemon's user. */
  readonly descriptorsInFlight: number;
  /** Ports of connection ids, for all transports. */
  readonly ports: number;
  /** Multicast memberships of queue pairs. */
  readonly groups: number;
  readonly associations: number;
  /** RoCE connections, those in timewait included. */
  readonly roceConnections: number;
  readonly unreadBytes: number;
  /** Bytes received from clients and not yet used by the daemon. */
  readonly inputBytes: number;
}

export type LimitName = keyof DaemonLimits;

/** A limit that can be set under `limits` of the configuration. */
type SettableLimit = Exclude<
  LimitName,
  'connections' | 'descriptors' | 'descriptorsInFlight' | 'ports'
>;

const TERMS: Readonly<Record<LimitName, LimitTerms>> = {
  sharedBytes: settable('sharedBytes', 'bytes of shared memory'),
  mappings: settable('mappings', 'mappings of shared memory'),
  objects: settable('objects', 'objects'),
  // Only the range of id numbers limits the owner.
  ids: { ...settable('ids', 'connection ids of rdma_cm'), ownerFree: true },
  connections: {
    what: 'connections',
    remedy: 'raise connectionsMax of the daemon',
    code: 'ENOMEM',
  },
  // Only the process's limit of open files limits the owner.
  descriptors: {
    what: 'descriptors',
    remedy: 'raise the limit of open files before the daemon starts (ulimit -n)',
    code: 'EMFILE',
    ownerFree: true,
  },
  // Only the kernel limits the owner, to the same number.
  descriptorsInFlight: {
    what: 'descriptors that programs have not received',
    remedy: 'raise the limit of open files before the daemon starts (ulimit -n)',
    code: 'EMFILE',
    ownerFree: true,
  },
  // Only the machine's ports limit the owner.
  ports: {
    what: 'ports of connection ids',
    remedy: 'widen net.ipv4.ip_local_port_range before the daemon starts',
    code: 'EADDRNOTAVAIL',
    ownerFree: true,
  },
  // Only the host limits the owner.
  groups: {
    ...settable('groups', 'multicast memberships'),
    ownerFree: true,
  },
  associations: {
    what: 'SCTP associations',
    remedy:
      'connect to fewer listeners: a program needs one association per listener for 16 connections ' +
      '(limits.associations can only lower the limit)',
    code: 'ENOMEM',
  },
  roceConnections: {
    what: 'RoCE connections',
    remedy:
      'wait up to 69 s for closed connections to leave timewait ' +
      '(limits.roceConnections can only lower the limit)',
    code: 'ENOMEM',
  },
  unreadBytes: settable('unreadBytes', 'bytes that clients have not read'),
  inputBytes: settable('inputBytes', 'bytes of incomplete and waiting requests and fetched memory'),
};

export const LIMIT_NAMES = Object.keys(TERMS) as readonly LimitName[];

/** The limits that can be set under `limits` of the configuration. */
export const SETTABLE_LIMITS: readonly SettableLimit[] = [
  'sharedBytes',
  'mappings',
  'objects',
  'ids',
  'groups',
  'associations',
  'roceConnections',
  'unreadBytes',
  'inputBytes',
];

interface BudgetOptions {
  /** Measures the actual use of a limit, if it can exceed the sum of what clients hold. */
  readonly measures?: Partial<Readonly<Record<LimitName, () => number>>>;
  readonly lingering?: Partial<Readonly<Record<LimitName, number>>>;
  readonly onRefused?: RefusalNote;
  /** Default: `isTrusted`. */
  readonly isOwner?: (uid: number) => boolean;
}

export class DaemonBudget {
  readonly #limits: Readonly<Record<LimitName, SharedLimit>>;
  readonly #devices = new Map<string, Readonly<Record<string, SharedLimit>>>();
  readonly #options: BudgetOptions;

  constructor(sizes: DaemonLimits, options: BudgetOptions) {
    this.#options = options;
    this.#limits = byName(LIMIT_NAMES, (name) => {
      return new SharedLimit(sizes[name], TERMS[name], {
        measure: options.measures?.[name],
        lingering: options.lingering?.[name],
        onRefused: options.onRefused,
      });
    });
  }

  /** Also divides the capacity of a device among users. */
  addDevice(device: string, capacity: DeviceCapacity): void {
    const limits = Object.entries(capacity).map(([kind, most]): [string, SharedLimit] => {
      const what = `objects of kind ${kind} on ${device}`;
      const remedy = 'raise the limit in the profile of the device';
      const { onRefused } = this.#options;
      return [kind, new SharedLimit(most, { what, remedy, code: 'ENOMEM' }, { onRefused })];
    });
    this.#devices.set(device, Object.fromEntries(limits));
  }

  of(uid: number): UserShare {
    return new UserShare(
      (this.#options.isOwner ?? isTrusted)(uid) ? OWNER : uid,
      (name) => this.#limits[name],
      this.#devices,
    );
  }

  /** Use of every limit, by its name in `status`. */
  uses(): Record<string, SharedLimitUse> {
    const uses: Record<string, SharedLimitUse> = {};
    for (const [name, limit] of Object.entries(this.#limits)) uses[name] = limit.use();
    for (const [device, limits] of this.#devices) {
      for (const [kind, limit] of Object.entries(limits))
        uses[`${kind} of ${device}`] = limit.use();
    }
    return uses;
  }

  /** Throws `InvariantError` when a count is wrong. */
  assertInvariants(): void {
    for (const limit of Object.values(this.#limits)) limit.assertInvariants();
    for (const limits of this.#devices.values()) {
      for (const limit of Object.values(limits)) limit.assertInvariants();
    }
  }
}

export class UserShare {
  readonly #user: number;
  readonly #limit: (name: LimitName) => SharedLimit;
  readonly #devices: ReadonlyMap<string, Readonly<Record<string, SharedLimit>>>;

  /** For use by `DaemonBudget.of`. */
  constructor(
    user: number,
    limit: (name: LimitName) => SharedLimit,
    devices: ReadonlyMap<string, Readonly<Record<string, SharedLimit>>>,
  ) {
    this.#user = user;
    this.#limit = limit;
    this.#devices = devices;
  }

  /** Takes an amount, or throws the limit's error. */
  take(name: LimitName, amount = 1): void {
    this.#limit(name).take(this.#user, amount);
  }

  /** Counts an amount already taken, without a check. */
  add(name: LimitName, amount = 1): void {
    this.#limit(name).note(this.#user, amount);
  }

  give(name: LimitName, amount = 1): void {
    this.#limit(name).give(this.#user, amount);
  }

  /** ENOMEM if the user may add no more objects, or none of this kind on the device. */
  assertRoom(kind: string, device: string | undefined): void {
    this.#limit('objects').assertRoom(this.#user);
    if (kind === 'id') this.#limit('ids').assertRoom(this.#user);
    this.#ofDevice(kind, device)?.assertRoom(this.#user);
  }

  /** Counts an object that was added (1) or removed (-1). */
  note(kind: string, device: string | undefined, change: 1 | -1): void {
    this.#limit('objects').note(this.#user, change);
    if (kind === 'id') this.#limit('ids').note(this.#user, change);
    this.#ofDevice(kind, device)?.note(this.#user, change);
  }

  #ofDevice(kind: string, device: string | undefined): SharedLimit | undefined {
    return device === undefined ? undefined : this.#devices.get(device)?.[kind];
  }
}

/** Takes one of each limit, then calls `make`. Undoes everything if anything fails. */
export function takeFor<T>(
  share: UserShare | undefined,
  names: readonly LimitName[],
  make: () => T,
): T {
  const taken: LimitName[] = [];
  try {
    for (const name of names) {
      share?.take(name);
      taken.push(name);
    }
    return make();
  } catch (error) {
    for (const name of taken) share?.give(name);
    throw error;
  }
}

function settable(name: SettableLimit, what: string): LimitTerms {
  return { what, remedy: `raise limits.${name} of the daemon`, code: 'ENOMEM' };
}

function byName<Name extends string, T>(
  names: readonly Name[],
  make: (name: Name) => T,
): Record<Name, T> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<Name, T>;
}
