/**
 * The contents of one open of `/dev/infiniband/rdma_cm`: the connection ids of one event channel,
 * and their event queue. Commands operate on it; `file.ts` calls them.
 */
import { assert } from '#base/assert';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { HandleSpace } from '#daemon/clients/objects/handle-space';
import { userOf } from '#daemon/clients/trusted-user';
import type { HostId } from '#daemon/host/host-id';
import type { RnicHost } from '#daemon/host/rnic-host';
import { inSlices } from '#daemon/host/slices';
import type { QP } from '#daemon/rnic/queue-pair';
import { type AnyQueue, bytesToTake, EventQueue } from '../event-queue.ts';
import type { KernelClient } from '../kernel-client.ts';
import {
  DONE,
  type KernelFileParts,
  type KernelReply,
  type KernelServices,
} from '../kernel-file.ts';
import { type KernelDevice, kernelDevices } from '../nldev/devices.ts';
import { ReplyFlag } from '../shim-protocol.ts';
import { CmContext, CmQpType, type CmRecord, Membership } from './context.ts';
import { type CmEventFields, emitCmEvent } from './event-record.ts';
import type { CmCall } from './persona.ts';

/** On a busy host, a server may start to listen this long after its client connects. */
const REFUSAL_PATIENCE_MS = 500;

/**
 * Unread records of one program: a program that writes events and never reads would otherwise fill
 * the daemon's memory.
 */
const CLIENT_UNREAD_MAX = 65_536;

/** Unread requests of an ended listener to reject in one turn. */
const REJECTED_PER_TURN = 64;

interface NewId {
  readonly uid: bigint;
  readonly portSpace: number;
  readonly qpType: number;
}

/** The namespaces of all programs of a server: one for each kind of number, as in the kernel. */
export interface CmNumbers {
  readonly ids: HandleSpace<CmContext>;
  readonly memberships: HandleSpace<Membership>;
}

export class OpenChannel {
  readonly number: number;
  readonly client: KernelClient;
  readonly ownQueue: EventQueue<CmRecord, CmContext>;
  readonly host: RnicHost;
  readonly #services: KernelServices;
  readonly #devices: readonly KernelDevice[];
  readonly #table: HandleSpace<CmContext>;
  readonly #memberships: HandleSpace<Membership>;
  readonly #contexts = new Set<CmContext>();

  constructor(parts: KernelFileParts, numbers: CmNumbers) {
    this.number = parts.number;
    this.client = parts.client;
    this.#services = parts.services;
    this.host = parts.services.host;
    this.ownQueue = new EventQueue(parts.token, parts.number);
    this.#devices = kernelDevices(this.host);
    this.#table = numbers.ids;
    this.#memberships = numbers.memberships;
  }

  /** See `MemoryUser`: nothing in this file reaches a program's memory. */
  workEpoch(): number {
    return 0;
  }

  /**
   * Last close: ends the queue first, so that no id's events must be searched, then the ids. See
   * `KernelFile`.
   */
  close(costMax = Number.POSITIVE_INFINITY): number {
    this.ownQueue.end();
    let cost = 0;
    for (const context of this.#contexts) {
      if (cost >= costMax) break;
      this.#remove(context);
      cost += 1;
    }
    return cost;
  }

  get size(): number {
    return this.#contexts.size;
  }

  /** Unread events that the program wrote, recounted for tests. */
  get unreadEvents(): number {
    let unread = 0;
    for (const { writtenUnread } of this.#contexts) unread += writtenUnread;
    return unread;
  }

  /** Checks every id, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.#table.assertDeepInvariants();
    this.#memberships.assertDeepInvariants();
    for (const context of this.#contexts) {
      assert(context.file === this, 'id belongs to another file');
      assert(this.#table.find(context.number) === context, 'id filed under another number');
      assert(context.id.tag === context, 'tag of an id is another context');
    }
  }

  // For commands

  /** Device name of an id; undefined unless the id belongs to this file and has a device. */
  deviceNameOf(number: number | undefined): string | undefined {
    const context = number === undefined ? undefined : this.#table.find(number);
    return context?.file === this ? context.id.device : undefined;
  }

  /** A new id. ENOMEM. */
  create(init: NewId): CmContext {
    const datagram = init.qpType === CmQpType.ud;
    const id = this.host.cm.createId(undefined, init.portSpace, datagram);
    id.refusalPatienceMs = REFUSAL_PATIENCE_MS;
    id.portKeeper = this.client;
    id.program = this.client;
    id.account = this.client.ledger.share;
    id.user = userOf(this.client.credentials.uid, this.client);
    try {
      return this.#add(id, { ...init, known: true });
    } catch (error) {
      this.host.cm.destroy(id);
      throw error;
    }
  }

  /** The id with this number. ENOENT if there is none; EINVAL if another file owns it. */
  expect(number: number): CmContext {
    const context = this.#table.find(number);
    if (context?.known !== true)
      throw new VerbsError(
        'ENOENT',
        `no such connection id ${number}: it was destroyed or never created`,
      );
    if (context.file !== this) {
      throw invalid(
        `connection id ${number} belongs to another event channel: use rdma_migrate_id`,
      );
    }
    return context;
  }

  /** Like `expect`, for commands that need a device. EINVAL while the id has none. */
  expectDevice(number: number): { readonly context: CmContext; readonly device: KernelDevice } {
    const context = this.expect(number);
    const device = this.deviceOf(context);
    if (device === undefined) {
      const text = 'the id has no device yet: call rdma_resolve_addr or rdma_bind_addr first';
      throw invalid(text);
    }
    return { context, device };
  }

  /** The device of an id, once an address determines it: see `HostCm.reportedDevice`. */
  deviceOf({ id }: CmContext): KernelDevice | undefined {
    const name = this.host.cm.reportedDevice(id);
    return this.#devices.find((device) => device.name === name);
  }

  /** A command on an id, for its persona. */
  callOn({ id }: CmContext, device: KernelDevice): CmCall {
    const expectQP = (qpn: number): QP => {
      const qp = this.#services.findQP(device.index, qpn, this.client);
      if (qp !== undefined) return qp;
      throw invalid(
        qpn === 0
          ? `qp_num 0 is no queue pair of this program on ${device.name}: call rdma_create_qp first`
          : `qp_num ${qpn} is no queue pair of this program on ${device.name}`,
      );
    };
    return { cm: this.host.cm, id, device, expectQP };
  }

  destroy(context: CmContext): KernelReply {
    return purgedReply(this.ownQueue, this.#remove(context));
  }

  /** The oldest event. EAGAIN if there is none. */
  nextEvent(): { readonly bytes: Uint8Array; readonly flags: number } {
    const entry = this.ownQueue.pop();
    if (entry === undefined) throw new VerbsError('EAGAIN', 'no event is pending');
    entry.owner.eventsReported += 1;
    const { child, membership, written } = entry.record;
    if (written === true) this.#noteWritten(entry.owner, -1);
    if (child !== undefined) child.known = true;
    if (membership !== undefined) membership.eventsReported += 1;
    return { bytes: entry.record.bytes, flags: entry.bytes > 0 ? ReplyFlag.takeByte : 0 };
  }

  /** Queues an event that the program writes for one of its ids. ENOMEM. */
  write(context: CmContext, event: Omit<CmEventFields, 'uid' | 'number'>): void {
    if (this.client.unreadEvents >= CLIENT_UNREAD_MAX) {
      throw new VerbsError(
        'ENOMEM',
        `the program has ${CLIENT_UNREAD_MAX} unread events; read them first`,
      );
    }
    const bytes = emitCmEvent({ ...event, uid: context.uid, number: context.number });
    this.#noteWritten(context, 1);
    this.queueEvent(context, { bytes, child: undefined, written: true });
  }

  #noteWritten(context: CmContext, change: number): void {
    context.writtenUnread += change;
    this.client.unreadEvents += change;
  }

  /**
   * Moves an id with its events here from another file of the program. EINVAL if `fileNumber` is not
   * an rdma_cm file.
   */
  migrate(number: number, fileNumber: number): { context: CmContext; reply: KernelReply } {
    const from = this.#services.findFile(fileNumber, this.client);
    if (!(from instanceof OpenChannel))
      throw invalid(`channel ${fileNumber} is not an event channel of this user`);
    const context = from.expect(number);
    if (from.number === this.number) return { context, reply: DONE };
    const { records, bytes } = from.ownQueue.take(context);
    from.#move(context, this);
    for (const record of records) {
      if (record.child !== undefined) from.#move(record.child, this);
      this.ownQueue.push(record, context);
    }
    return { context, reply: purgedReply(from.ownQueue, bytes) };
  }

  /** Adds a membership of an id. It counts as an id of the program: ENOMEM. */
  join(context: CmContext, uid: bigint): Membership {
    const { ledger } = this.client;
    ledger.assertRoom('id');
    const membership = this.#memberships.add((number) => new Membership(number, context, uid));
    ledger.note('id', 1);
    context.memberships.add(membership);
    return membership;
  }

  /** The membership with this number. ENOENT if there is none; EINVAL for another file's. */
  expectMembership(number: number): Membership {
    const membership = this.#memberships.find(number);
    if (membership === undefined)
      throw new VerbsError(
        'ENOENT',
        `no such membership ${number}: the id has not joined the group`,
      );
    if (membership.context.file !== this) {
      throw invalid(`membership ${number} belongs to another event channel`);
    }
    return membership;
  }

  /** Ends a membership, with its unread event. */
  leave(membership: Membership): KernelReply {
    const { context } = membership;
    const { bytes } = this.ownQueue.take(context, (record) => record.membership === membership);
    this.#endMembership(membership);
    return purgedReply(this.ownQueue, bytes);
  }

  // For contexts

  queueEvent(context: CmContext, record: CmRecord): void {
    this.ownQueue.push(record, context);
  }

  /** Adds the new id of a connect request. ENOMEM. */
  addChild(listener: CmContext, id: HostId): CmContext {
    const { portSpace, qpType, family } = listener;
    const child = this.#add(id, { uid: 0n, portSpace, qpType, known: false });
    child.family = family;
    return child;
  }

  #add(id: HostId, init: NewId & { readonly known: boolean }): CmContext {
    const { ledger } = this.client;
    ledger.assertRoom('id');
    const context = this.#table.add((number) => {
      return new CmContext({ ...init, number, id, file: this });
    });
    id.tag = context;
    ledger.note('id', 1);
    this.#contexts.add(context);
    context.listedNumber = this.#services.ids.add(context);
    return context;
  }

  #move(context: CmContext, to: OpenChannel): void {
    this.#contexts.delete(context);
    to.#contexts.add(context);
    context.file = to;
    this.client.unreadEvents -= context.writtenUnread;
    to.client.unreadEvents += context.writtenUnread;
    for (let count = 0; count <= context.memberships.size; count += 1) {
      this.client.ledger.note('id', -1);
      to.client.ledger.note('id', 1);
    }
  }

  #endMembership(membership: Membership): void {
    this.#memberships.remove(membership.number);
    membership.context.memberships.delete(membership);
    this.client.ledger.note('id', -1);
  }

  /** Returns the number of bytes that the preload library must take from the descriptor. */
  #remove(context: CmContext): number {
    const { records, bytes } = this.ownQueue.take(context);
    this.#forget(context);
    this.host.cm.destroy(context.id);
    const unread: HostId[] = [];
    for (const { child } of records) {
      if (child !== undefined && this.#forget(child)) unread.push(child.id);
    }
    const soon = (run: () => void): void => this.host.soon(run);
    void inSlices(unread, REJECTED_PER_TURN, soon, (id) => this.host.cm.destroy(id));
    return bytes;
  }

  /** Removes everything that belongs to an id. Returns false if nothing was left. */
  #forget(context: CmContext): boolean {
    if (!this.#contexts.delete(context)) return false;
    for (const membership of context.memberships) this.#endMembership(membership);
    this.#noteWritten(context, -context.writtenUnread);
    this.client.ledger.note('id', -1);
    this.#table.remove(context.number);
    this.#services.ids.remove(context.listedNumber);
    context.id.tag = undefined;
    return true;
  }
}

function purgedReply(queue: AnyQueue, bytes: number): KernelReply {
  return bytes === 0 ? DONE : { status: 0, purged: bytesToTake(queue, bytes) };
}
