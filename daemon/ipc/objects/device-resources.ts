/** The objects of emulated devices, of all clients, with their owners: for `rdma resource`. */
import { HostId } from '../../host/host-id.ts';
import { CQ } from '../../rnic/completion-queue.ts';
import { MR } from '../../rnic/memory-region.ts';
import { PD } from '../../rnic/protection-domain.ts';
import { QP } from '../../rnic/queue-pair.ts';
import { SRQ } from '../../rnic/shared-receive-queue.ts';

/** The owner of an object. */
interface ResourceOwner {
  /** Process that made it. */
  readonly pid: number;
  /** The opened device that it belongs to, by identity; of an id, the opened channel. */
  readonly context: object;
}

/** An object and its owner. */
export interface OwnedResource<T> {
  readonly object: T;
  readonly owner: ResourceOwner;
}

/** A connection id, with what its owner knows of it. */
export interface IdResource {
  readonly id: HostId;
  /** Number of its queue pair, once the program has named one. */
  readonly qpn: number | undefined;
}

/** Objects of one device by kind. */
export class DeviceResources {
  /** Opened devices. */
  readonly contexts: OwnedResource<object>[] = [];
  readonly pds: OwnedResource<PD>[] = [];
  readonly cqs: OwnedResource<CQ>[] = [];
  readonly qps: OwnedResource<QP>[] = [];
  readonly srqs: OwnedResource<SRQ>[] = [];
  readonly mrs: OwnedResource<MR>[] = [];
  readonly ids: OwnedResource<IdResource>[] = [];

  /** Adds an opened device. */
  addContext(owner: ResourceOwner): void {
    this.contexts.push({ object: owner.context, owner });
  }

  /** Adds an object of the emulated NIC; ignores others. */
  add(object: object, owner: ResourceOwner): void {
    if (object instanceof QP) this.qps.push({ object, owner });
    else if (object instanceof CQ) this.cqs.push({ object, owner });
    else if (object instanceof MR) this.mrs.push({ object, owner });
    else if (object instanceof SRQ) this.srqs.push({ object, owner });
    else if (object instanceof PD) this.pds.push({ object, owner });
  }

  /** Adds a connection id, if it is one of emulated devices. */
  addId(id: object, qpn: number | undefined, owner: ResourceOwner): void {
    if (id instanceof HostId) this.ids.push({ object: { id, qpn }, owner });
  }
}
