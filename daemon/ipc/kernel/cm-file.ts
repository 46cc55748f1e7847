/**
 * One open of `/dev/infiniband/rdma_cm`: connection ids of one event channel, and the queue of
 * their events. What a program writes is executed at once; what takes time ends in an event.
 */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import { IpcFormatError } from '../../../verbs-api/contract/ipc-value.ts';
import type { RnicHost } from '../../adapter/rnic-host.ts';
import type { CmId } from '../../cm/cm-id.ts';
import type { QP } from '../../rnic/queue-pair.ts';
import { parseCmRequest } from './cm-abi.ts';
import { executeCmCommand } from './cm-commands.ts';
import { CmContext, type CmRecord } from './cm-context.ts';
import { CmTable } from './cm-table.ts';
import { EventQueue } from './event-queue.ts';
import type { KernelClient } from './kernel-client.ts';
import {
  DONE,
  type KernelFile,
  type KernelFileParts,
  type KernelReply,
  type KernelServices,
} from './kernel-file.ts';
import { type KernelDevice, kernelDevices } from './nldev-devices.ts';
import { ReplyFlag, ShimOp, type ShimRequest } from './shim-protocol.ts';

/** As long as a server that is about to listen may be behind its client, on a busy host. */
const REFUSAL_PATIENCE_MS = 500;

/** What ids have in common when they are made. */
export interface NewId {
  readonly uid: bigint;
  readonly portSpace: number;
  readonly qpType: number;
}

/** See the module's comment. */
export class CmFile implements KernelFile {
  readonly kind = 'rdmaCm';
  readonly number: number;
  readonly client: KernelClient;
  readonly ownQueue: EventQueue<CmRecord, CmContext>;
  readonly host: RnicHost;
  readonly #services: KernelServices;
  readonly #devices: readonly KernelDevice[];
  readonly #table: CmTable;
  readonly #contexts = new Set<CmContext>();

  constructor(parts: KernelFileParts) {
    this.number = parts.number;
    this.client = parts.client;
    this.#services = parts.services;
    this.host = parts.services.host;
    this.ownQueue = new EventQueue(parts.token, parts.number);
    this.#devices = kernelDevices(this.host);
    this.#table = CmTable.of(this.host);
  }

  /** See `KernelFile`. */
  execute(request: ShimRequest): KernelReply {
    if (request.op === ShimOp.child) return DONE;
    if (request.op !== ShimOp.write) throw new IpcFormatError(`op ${request.op} on rdma_cm`);
    return executeCmCommand(this, parseCmRequest(request.payload));
  }

  /** See `MemoryUser`: nothing of this file reaches a program's memory. */
  workEpoch(): number {
    return 0;
  }

  /** See `KernelFile`. */
  close(): void {
    for (const context of [...this.#contexts]) this.#remove(context);
    this.ownQueue.end();
  }

  // For commands

  /** Name of the device of an id, if the number names one of this file and an address decided it. */
  deviceNameOf(number: number | undefined): string | undefined {
    const context = number === undefined ? undefined : this.#table.find(number);
    return context?.file === this ? context.id.device : undefined;
  }

  /** A new id. ENOMEM. */
  create(init: NewId): CmContext {
    const id = this.host.cm.createId(undefined);
    id.refusalPatienceMs = REFUSAL_PATIENCE_MS;
    id.portKeeper = this.client;
    try {
      return this.#add(id, { ...init, known: true });
    } catch (error) {
      this.host.cm.destroy(id);
      throw error;
    }
  }

  /** The id of a number. ENOENT when there is none; EINVAL when it is another file's. */
  expect(number: number): CmContext {
    const context = this.#table.find(number);
    if (context?.known !== true) throw new VerbsError('ENOENT', `no connection id ${number}`);
    if (context.file !== this) {
      throw new VerbsError('EINVAL', `connection id ${number} is of another file`);
    }
    return context;
  }

  /** The same, for commands that need a device. EINVAL when none is decided. */
  expectDevice(number: number): { readonly context: CmContext; readonly device: KernelDevice } {
    const context = this.expect(number);
    const device = this.deviceOf(context);
    if (device === undefined) throw new VerbsError('EINVAL', 'the id is not bound to a device');
    return { context, device };
  }

  /** The device of an id, once an address decided it. */
  deviceOf({ id }: CmContext): KernelDevice | undefined {
    return this.#devices.find(({ name }) => name === id.device);
  }

  /** The queue pair that CONNECT and ACCEPT name. EINVAL when there is none on the id's device. */
  expectQP(device: KernelDevice, qpn: number): QP {
    const qp = this.#services.findQP(device.name, qpn, this.client);
    if (qp === undefined) throw new VerbsError('EINVAL', `no queue pair ${qpn} on ${device.name}`);
    return qp;
  }

  /** Destroys an id and what of it is not delivered. */
  destroy(context: CmContext): KernelReply {
    const emptied = this.#remove(context);
    return emptied ? { status: 0, purged: [this.ownQueue.number] } : DONE;
  }

  /** The oldest event. EAGAIN when there is none. */
  nextEvent(): { readonly octets: Uint8Array; readonly flags: number } {
    const entry = this.ownQueue.pop();
    if (entry === undefined) throw new VerbsError('EAGAIN', 'no event waits');
    entry.owner.eventsReported += 1;
    if (entry.record.child !== undefined) entry.record.child.known = true;
    return { octets: entry.record.octets, flags: entry.emptied ? ReplyFlag.emptied : 0 };
  }

  /**
   * Takes over an id, with its events, from another file of the program. EINVAL when `fileNumber`
   * names no rdma_cm file.
   */
  migrate(number: number, fileNumber: number): { context: CmContext; reply: KernelReply } {
    const from = this.#services.findFile(fileNumber, this.client);
    if (!(from instanceof CmFile)) throw new VerbsError('EINVAL', 'not a file of rdma_cm');
    const context = from.expect(number);
    if (from.number === this.number) return { context, reply: DONE };
    const { records, emptied } = from.ownQueue.take(context);
    from.#move(context, this);
    for (const record of records) {
      if (record.child !== undefined) from.#move(record.child, this);
      this.ownQueue.push(record, context);
    }
    return { context, reply: emptied ? { status: 0, purged: [from.ownQueue.number] } : DONE };
  }

  // For contexts

  /** Queues an event of `context`. */
  queueEvent(context: CmContext, record: CmRecord): void {
    this.ownQueue.push(record, context);
  }

  /** The new id of a connect request. ENOMEM. */
  addChild(listener: CmContext, id: CmId): CmContext {
    const { portSpace, qpType, family } = listener;
    const child = this.#add(id, { uid: 0n, portSpace, qpType, known: false });
    child.family = family;
    return child;
  }

  #add(id: CmId, init: NewId & { readonly known: boolean }): CmContext {
    const { ledger } = this.client;
    ledger.assertRoom('id');
    const context = this.#table.add((number) => {
      return new CmContext({ ...init, number, id, file: this });
    });
    id.tag = context;
    ledger.note('id', 1);
    this.#contexts.add(context);
    return context;
  }

  #move(context: CmContext, to: CmFile): void {
    this.#contexts.delete(context);
    this.client.ledger.note('id', -1);
    to.#contexts.add(context);
    to.client.ledger.note('id', 1);
    context.file = to;
  }

  /** True when the event queue became empty by it. */
  #remove(context: CmContext): boolean {
    const { records, emptied } = this.ownQueue.take(context);
    for (const { child } of records) {
      if (child !== undefined) this.#forget(child);
    }
    this.#forget(context);
    return emptied;
  }

  #forget(context: CmContext): void {
    if (!this.#contexts.delete(context)) return;
    this.client.ledger.note('id', -1);
    this.#table.remove(context);
    context.id.tag = undefined;
    this.host.cm.destroy(context.id);
  }
}
