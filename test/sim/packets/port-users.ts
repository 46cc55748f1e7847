/**
 * Users who open rdma_cm as rdma-core does, and listen on ports that they are willing to share
 * (RDMA_OPTION_ID_REUSEADDR). They reject every request.
 */
import { IPV4_ANY } from '#base/address';
import { Role } from '#contract/protocol/ipc-frames';
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO } from '#contract/verbs/errors';
import { CommandShare } from '#daemon/clients/command-pace';
import { PortSpace } from '#daemon/host/host-id';
import { cmCommands } from '#test/support/kernel-commands';
import { tokenOf } from '../flow-token.ts';
import { must } from '../rules.ts';
import { EventDescriptor, KernelConnection, processOf } from './kernel-process.ts';
import type { PacketHost, PacketSetting } from './packet-host.ts';
import type { Pair } from './packet-queue-pair.ts';

/** Ports that no one gets without asking for them. */
const PORTS = [26_001, 26_002] as const;
const LOOPBACK = '127.0.0.1';
const USERS_PER_HOST = 2;
const FIRST_UID = 1000;
/** Types of queue pairs, in rdma-core's numbers. */
const [RC, UD] = [2, 4];
const IDS_MAX = 4;
const BACKLOG_MAX = 8;
const REUSE_ADDRESS = 1;
const ON = '01000000';
const CLASHES: readonly number[] = [-ERRNO.EADDRINUSE.number, -ERRNO.EADDRNOTAVAIL.number];
/** Their commands take no time, so each is carried out at once. */
const NO_TIME = { now: () => 0, soon: () => undefined };
/** Private data in an event. */
const DATA_AT = 28;
const DATAGRAM_DATA_AT = 60;
const NOTHING_QUEUED = -ERRNO.EAGAIN.number;

interface PortsWorld extends PacketSetting {
  readonly hosts: readonly PacketHost[];
  readonly pairs: ReadonlyMap<number, Pair>;
  nextWrId(): number;
}

interface PortUser {
  readonly host: PacketHost;
  readonly uid: number;
  readonly file: KernelConnection;
  readonly descriptor: EventDescriptor;
  readonly ids: Set<SharedId>;
}

/** An id that is bound, or listens. */
interface SharedId {
  readonly user: PortUser;
  readonly number: number;
  /** By which its events name it. */
  readonly cookie: bigint;
  /** It is for datagrams, whose ports are others. */
  readonly datagrams: boolean;
  readonly address: string;
  readonly port: number;
  shares: boolean;
  listens: boolean;
}

export class PortUsers {
  readonly #world: PortsWorld;
  readonly #users = new Map<string, PortUser>();

  constructor(world: PortsWorld) {
    this.#world = world;
  }

  /** A user binds an id, listens with it, destroys it, or exits. */
  act(): void {
    const { prng, hosts } = this.#world;
    const user = this.#userOf(prng.choose(hosts), FIRST_UID + prng.below(USERS_PER_HOST));
    const id = user.ids.size === 0 ? undefined : prng.choose([...user.ids]);
    if (id === undefined || (user.ids.size < IDS_MAX && prng.oneIn(2))) this.#bind(user);
    else if (!id.listens && !prng.oneIn(4)) this.#listen(id);
    else if (prng.oneIn(8)) this.#exit(user);
    else if (prng.oneIn(2)) this.#destroy(id);
  }

  /** Listening ids. */
  get listeners(): readonly SharedId[] {
    return this.#idsOf(() => true).filter(({ listens }) => listens);
  }

  /** The most ids on a host, those of requests that wait included. */
  mostAt(host: PacketHost): number {
    const ids = this.#idsOf((user) => user.host === host);
    return ids.reduce((sum, { listens }) => sum + (listens ? 1 + BACKLOG_MAX : 1), 0);
  }

  /** An address at which the listener receives requests. */
  addressOf({ address, user }: SharedId): string {
    return isOpen(address) ? this.#world.prng.choose(user.host.roceAddresses) : address;
  }

  /** Rejects requests that have arrived. */
  answer(): void {
    for (const user of this.#users.values()) {
      const { descriptor } = user;
      while (descriptor.readable) descriptor.readable = this.#takeEvent(user);
    }
  }

  /** Every user exits. */
  exit(): void {
    for (const user of this.#users.values()) this.#exit(user);
  }

  #userOf(host: PacketHost, uid: number): PortUser {
    const key = `${host.index} ${uid}`;
    let user = this.#users.get(key);
    if (user === undefined) {
      const credentials = processOf(uid, `user ${uid}`);
      const share = new CommandShare(NO_TIME);
      const file = new KernelConnection(host, Role.rdmaCm, { credentials, share });
      const descriptor = new EventDescriptor(host, file);
      user = { host, uid, file, descriptor, ids: new Set() };
      this.#users.set(key, user);
    }
    return user;
  }

  #bind(user: PortUser): void {
    const { prng } = this.#world;
    const { file, host } = user;
    const cookie = BigInt(this.#world.nextWrId());
    const datagrams = prng.oneIn(3);
    const [space, type] = datagrams ? [PortSpace.udp, UD] : [PortSpace.tcp, RC];
    const number = file.must(cmCommands.createId(cookie, space, type)).getUint32(0, true);
    const address = prng.choose([...host.roceAddresses, IPV4_ANY, LOOPBACK]);
    const shares = !prng.oneIn(4);
    const port = prng.choose(PORTS);
    const id = { user, number, cookie, datagrams, address, port, shares, listens: false };
    if (shares) file.must(cmCommands.setOption(number, 0, REUSE_ADDRESS, ON));
    const clashes = this.#others(id).some((other) => !shares || !other.shares);
    if (this.#attempt(id, cmCommands.bind(number, address, port), clashes)) user.ids.add(id);
    else file.must(cmCommands.destroyId(number));
  }

  #listen(id: SharedId): void {
    const backlog = this.#world.prng.between(1, BACKLOG_MAX);
    const clashes = this.#others(id).length > 0;
    if (!this.#attempt(id, cmCommands.listen(id.number, backlog), clashes)) return;
    id.listens = true;
    id.shares = false;
  }

  /** A command that is refused only if the id clashes with another one, and always then. */
  #attempt({ user, address, port }: SharedId, command: Uint8Array, clashes: boolean): boolean {
    const { status } = user.file.call(command);
    const what = `user ${user.uid} of ${user.host.name} at ${address}:${port}`;
    this.#world.log?.(`  ${what}: ${status}`);
    if (status >= 0) {
      must(!clashes, 'alone', () => `${what} shares it with another id`);
      return true;
    }
    const excused = (clashes && CLASHES.includes(status)) || user.host.moved;
    must(excused, 'refused', () => `${what} is refused with ${status}`);
    return false;
  }

  #destroy(id: SharedId): void {
    const { user, number } = id;
    user.file.must(cmCommands.destroyId(number));
    this.#gone(id);
  }

  #exit(user: PortUser): void {
    user.file.close();
    user.descriptor.close();
    this.#users.delete(`${user.host.index} ${user.uid}`);
    for (const id of user.ids) this.#gone(id);
  }

  #gone(id: SharedId): void {
    id.user.ids.delete(id);
    if (!id.listens) return;
    id.listens = false;
    for (const pair of this.#world.pairs.values()) {
      if (pair.responder === undefined) pair.excuse('listener destroyed');
    }
  }

  /** False if no event is queued. */
  #takeEvent({ file, ids }: PortUser): boolean {
    const { status, response } = file.call(cmCommands.getEvent());
    if (status === NOTHING_QUEUED) return false;
    const fields = new DataView(response.buffer, response.byteOffset, response.length);
    if (fields.getUint32(12, true) !== CMEventType.connectRequest) return true;
    const cookie = fields.getBigUint64(0, true);
    const listener = [...ids].find((id) => id.cookie === cookie);
    must(listener?.listens === true, 'events', 'a connect request without its listener');
    const data = response.subarray(listener.datagrams ? DATAGRAM_DATA_AT : DATA_AT);
    const pair = this.#world.pairs.get(tokenOf(data));
    pair?.checkAddressee(listener);
    pair?.excuse('rejected');
    const number = fields.getUint32(8, true);
    // Refused if the peer gave up.
    file.call(cmCommands.reject(number, []));
    file.must(cmCommands.destroyId(number));
    return true;
  }

  /** Other ids of the host at a place that overlaps. */
  #others(id: SharedId): readonly SharedId[] {
    const { user, datagrams, address, port } = id;
    return this.#idsOf(({ host }) => host === user.host).filter((other) => {
      if (other === id || other.port !== port || other.datagrams !== datagrams) return false;
      const open = other.user === user ? isWildcard : isOpen;
      return other.address === address || open(address) || open(other.address);
    });
  }

  #idsOf(wanted: (user: PortUser) => boolean): readonly SharedId[] {
    return [...this.#users.values()].filter(wanted).flatMap(({ ids }) => [...ids]);
  }
}

function isWildcard(address: string): boolean {
  return address === IPV4_ANY;
}

/** Receives requests for any address of its host. */
function isOpen(address: string): boolean {
  return isWildcard(address) || address === LOOPBACK;
}
