/** Adds a client's objects to the list of all clients' objects, for `rdma resource`. */
import type { AllResources, ResourceOwner } from '#daemon/clients/objects/device-resources';
import type { ObjectListing } from '#daemon/clients/objects/object-registry';
import { type AnyObject, type ContextObject, contextOf } from './client-objects.ts';

export class ListedObjects implements ObjectListing<AnyObject> {
  readonly #all: AllResources;
  readonly #pid: number;
  readonly #judge: (object: object, device: string) => void;
  readonly #owners = new Map<ContextObject, ResourceOwner>();

  /** `judge` is called with each destroyed object of the NIC and the name of its device. */
  constructor(all: AllResources, pid: number, judge: (object: object, device: string) => void) {
    this.#all = all;
    this.#pid = pid;
    this.#judge = judge;
  }

  added(object: AnyObject): void {
    if (object.kind === 'id') {
      object.pid = this.#pid;
      object.listedNumber = this.#all.ids.add(object);
      return;
    }
    if (object.kind === 'context') {
      const owner = { pid: this.#pid, context: object };
      this.#owners.set(object, owner);
      this.#all.of(object.device).addContext(owner);
      return;
    }
    const [found, context] = [listed(object), contextOf(object)];
    if (found === undefined || context === undefined) return;
    const owner = this.#owners.get(context);
    if (owner !== undefined) this.#all.of(context.device).add(found, owner);
  }

  removed(object: AnyObject): void {
    if (object.kind === 'id') {
      if (object.listedNumber !== undefined) this.#all.ids.remove(object.listedNumber);
      object.listedNumber = undefined;
      return;
    }
    if (object.kind === 'context') {
      this.#owners.delete(object);
      this.#all.of(object.device).removeContext(object);
      return;
    }
    const [found, context] = [listed(object), contextOf(object)];
    if (found === undefined || context === undefined) return;
    this.#all.of(context.device).remove(found);
    this.#judge(found, context.device.name);
  }
}

/** The device's object, if its kind is listed. */
function listed(object: AnyObject): object | undefined {
  switch (object.kind) {
    case 'pd':
      return object.pd;
    case 'cq':
      return object.cq;
    case 'srq':
      return object.srq;
    case 'qp':
      return object.qp;
    case 'mr':
      return object.mr;
    default:
      return undefined;
  }
}
