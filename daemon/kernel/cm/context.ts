/** A connection id of a program, as rdma_cm sees it: the manager's id and the kernel's bookkeeping. */
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO, isVerbsError } from '#contract/verbs/errors';
import type { ListedId } from '#daemon/clients/objects/device-resources';
import { EventSink } from '#daemon/clients/objects/event-router';
import type { OwnReport } from '#daemon/clients/objects/failure-report';
import type { HostCmEvent, HostId } from '#daemon/host/host-id';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { KernelClient } from '../kernel-client.ts';
import { emitCmEvent } from './event-record.ts';
import { CM_PERSONAS } from './personas.ts';
import { Family, type IbAddress } from './sockaddr.ts';

/** QP types (`IBV_QPT_*`) that a port space implies. */
export const CmQpType = { rc: 2, ud: 4 } as const;

export interface CmRecord {
  readonly bytes: Uint8Array;
  /** On a connect request: the new id, which the program does not know yet. */
  readonly child: CmContext | undefined;
  /** For the event of a group: the membership. */
  readonly membership?: Membership;
  /** The program wrote it. */
  readonly written?: boolean;
}

/** The open file that an id belongs to. */
interface ContextFile {
  readonly client: KernelClient;
  readonly host: RnicHost;
  queueEvent(context: CmContext, record: CmRecord): void;
  /** The new id of a connect request. ENOMEM. */
  addChild(listener: CmContext, id: HostId): CmContext;
}

export class CmContext extends EventSink implements ListedId {
  readonly number: number;
  /** Its number in the list of all ids that `rdma resource` shows. */
  listedNumber = 0;
  readonly id: HostId;
  readonly portSpace: number;
  readonly qpType: number;
  file: ContextFile;
  /** The program's own identifier for it; 0 for a new passive id until it is accepted. */
  uid: bigint;
  readonly memberships = new Set<Membership>();
  /** Address family, as the program gave it. */
  family: Family = Family.none;
  /** The InfiniBand address of an id that was bound to one. */
  ibAddress: IbAddress | undefined;
  /** Number of the queue pair that the program named in CONNECT or ACCEPT. */
  qpn: number | undefined;
  /** False for a new passive id until its connect request is delivered. */
  known: boolean;
  /** It was created by a connect request. */
  readonly #passive: boolean;
  /** Events delivered; a connect request counts for the listener. */
  eventsReported = 0;
  /** Events that the program wrote and has not read. */
  writtenUnread = 0;

  constructor(parts: {
    number: number;
    id: HostId;
    file: ContextFile;
    uid: bigint;
    portSpace: number;
    qpType: number;
    known: boolean;
  }) {
    super();
    this.number = parts.number;
    this.id = parts.id;
    this.file = parts.file;
    this.uid = parts.uid;
    this.portSpace = parts.portSpace;
    this.qpType = parts.qpType;
    this.known = parts.known;
    this.#passive = !parts.known;
  }

  get pid(): number {
    return this.file.client.credentials.pid;
  }

  /** Queues an event. Drops events of a passive id that has not been accepted, like the kernel. */
  override handleCmEvent(event: HostCmEvent): void {
    if (event.type === CMEventType.connectRequest) {
      this.#handleRequest(event);
      return;
    }
    if (this.uid === 0n) return;
    const failed = failedEvent(event, this.number, this.#passive);
    if (failed !== undefined) this.file.client.record(failed);
    this.file.queueEvent(this, { bytes: this.#record(event, this.number), child: undefined });
  }

  /** Rejects a connect request whose id would exceed the limit. */
  #handleRequest(event: HostCmEvent): void {
    try {
      const child = this.file.addChild(this, event.id);
      this.file.queueEvent(this, { bytes: this.#record(event, child.number), child });
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      event.id.tag = undefined;
      this.file.host.cm.destroy(event.id);
    }
  }

  #record(event: HostCmEvent, number: number): Uint8Array {
    const { device } = event.id;
    const transport = this.file.host.devices.find(({ name }) => name === device)?.transport;
    const { status, parameters } = CM_PERSONAS[transport ?? 'iwarp'].outcome(event);
    return emitCmEvent({ uid: this.uid, number, type: event.type, status, parameters });
  }
}

/** A multicast group that an id has joined. */
export class Membership {
  /** Memberships are numbered separately from ids. */
  readonly number: number;
  readonly context: CmContext;
  /** The program's own identifier for it. */
  readonly uid: bigint;
  eventsReported = 0;

  constructor(number: number, context: CmContext, uid: bigint) {
    this.number = number;
    this.context = context;
    this.uid = uid;
  }
}

/** Events that report a failure, with the program's name for the failed step. */
const FAILURES: ReadonlyMap<CMEventType, string> = new Map([
  [CMEventType.addrError, 'RDMA_CM_EVENT_ADDR_ERROR'],
  [CMEventType.routeError, 'RDMA_CM_EVENT_ROUTE_ERROR'],
  [CMEventType.connectError, 'RDMA_CM_EVENT_CONNECT_ERROR'],
  [CMEventType.unreachable, 'RDMA_CM_EVENT_UNREACHABLE'],
  [CMEventType.rejected, 'RDMA_CM_EVENT_REJECTED'],
]);

/** The system's message for a port without a listener. */
const REFUSED = ERRNO.ECONNREFUSED.text;

/** For the refusals of the program's user; undefined for an event that reports no failure. `number` identifies the id; `passive`: it accepted. */
function failedEvent(event: HostCmEvent, number: number, passive: boolean): OwnReport | undefined {
  const code = FAILURES.get(event.type);
  if (code === undefined) return undefined;
  const { device, peerAddress } = event.id;
  const to =
    peerAddress === undefined || passive
      ? ''
      : `connecting to ${peerAddress.address} port ${peerAddress.port}: `;
  return {
    api: 'event',
    verb: 'rdma_get_cm_event',
    code,
    sentence: to + (event.text === REFUSED ? 'nothing listens there' : event.text),
    ...(device === undefined ? {} : { device }),
    objects: { id: number },
  };
}
