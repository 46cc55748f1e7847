/** Objects of emulated devices, from all clients, with their owners: for `rdma resource`. */
import type { ServedDevice } from '#daemon/host/served-device';
import { MR } from '#daemon/rnic/memory/memory-region';
import { PD } from '#daemon/rnic/memory/protection-domain';
import { QP } from '#daemon/rnic/queue-pair';
import { CQ } from '#daemon/rnic/queues/completion-queue';
import { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import { NumberedList } from './numbered-list.ts';

export interface ResourceOwner {
  readonly pid: number;
  /** The opened device, by identity. */
  readonly context: object;
}

export interface OwnedResource<T> {
  readonly object: T;
  readonly owner: ResourceOwner;
}

/** A connection id and what its owner knows about it. */
export interface ListedId {
  /** A `HostId`, unless a native device serves it. */
  readonly id: object;
  /** Number of its queue pair, once the program has named it. */
  readonly qpn: number | undefined;
  readonly pid: number;
}

export class DeviceResources {
  readonly contexts = new NumberedList<OwnedResource<object>>();
  readonly pds = new NumberedList<OwnedResource<PD>>();
  readonly cqs = new NumberedList<OwnedResource<CQ>>();
  readonly qps = new NumberedList<OwnedResource<QP>>();
  readonly srqs = new NumberedList<OwnedResource<SRQ>>();
  readonly mrs = new NumberedList<OwnedResource<MR>>();
  /** Of all objects but queue pairs, of which there may be many: they have it themselves. */
  readonly #numbers = new Map<object, number>();
  /** The queue pairs of each shared receive queue, indexed because a search would visit all. */
  readonly #qpsBySRQ = new Map<SRQ, Set<QP>>();

  addContext(owner: ResourceOwner): void {
    this.#numbers.set(owner.context, this.contexts.add({ object: owner.context, owner }));
  }

  removeContext(context: object): void {
    this.contexts.remove(this.numberOf(context));
    this.#numbers.delete(context);
  }

  /** Adds an object of the emulated NIC; ignores others. */
  add(object: object, owner: ResourceOwner): void {
    const number = this.#list(object, owner);
    if (number === undefined) return;
    if (!(object instanceof QP)) {
      this.#numbers.set(object, number);
      return;
    }
    object.listedNumber = number;
    if (object.srq === undefined) return;
    const known = this.#qpsBySRQ.get(object.srq);
    if (known === undefined) this.#qpsBySRQ.set(object.srq, new Set([object]));
    else known.add(object);
  }

  remove(object: object): void {
    if (object instanceof QP) {
      this.#removeQP(object);
      return;
    }
    const number = this.#numbers.get(object);
    if (number === undefined) return;
    this.#numbers.delete(object);
    if (object instanceof CQ) this.cqs.remove(number);
    else if (object instanceof MR) this.mrs.remove(number);
    else if (object instanceof SRQ) {
      this.srqs.remove(number);
      this.#qpsBySRQ.delete(object);
    } else if (object instanceof PD) this.pds.remove(number);
  }

  #removeQP(qp: QP): void {
    if (qp.listedNumber === undefined) return;
    this.qps.remove(qp.listedNumber);
    qp.listedNumber = undefined;
    if (qp.srq !== undefined) this.#qpsBySRQ.get(qp.srq)?.delete(qp);
  }

  /** The number of an added object, other than a queue pair, among those of its kind. */
  numberOf(object: object): number {
    return this.#numbers.get(object) ?? 0;
  }

  /** The queue pairs that use a shared receive queue. */
  qpsOf(srq: SRQ): Iterable<QP> {
    return this.#qpsBySRQ.get(srq) ?? [];
  }

  #list(object: object, owner: ResourceOwner): number | undefined {
    if (object instanceof QP) return this.qps.add({ object, owner });
    if (object instanceof CQ) return this.cqs.add({ object, owner });
    if (object instanceof MR) return this.mrs.add({ object, owner });
    if (object instanceof SRQ) return this.srqs.add({ object, owner });
    if (object instanceof PD) return this.pds.add({ object, owner });
    return undefined;
  }
}

/** Objects of all devices, and the ids, which have no device until an address decides it. */
export class AllResources {
  readonly ids = new NumberedList<ListedId>();
  readonly #byDevice = new Map<ServedDevice, DeviceResources>();

  of(device: ServedDevice): DeviceResources {
    let resources = this.#byDevice.get(device);
    if (resources === undefined) {
      resources = new DeviceResources();
      this.#byDevice.set(device, resources);
    }
    return resources;
  }
}
