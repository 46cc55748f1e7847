/** Shared receive queues. */
import type { SRQAttributes } from '#contract/verbs/attributes';
import type { PD, SRQ, SRQInit } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import type { RecvWR } from '#contract/verbs/work-request';
import type { NativePD } from '#native-bridge/rdma/protection-domain';
import type { NativeSRQ } from '#native-bridge/rdma/shared-receive-queue';
import { TeardownRank } from '../client/lifetime.ts';
import type { DeviceScope } from './device-scope.ts';
import { OwnedObject } from './owned-object.ts';
import { listOf } from './posting.ts';

export class RdmaSRQ extends OwnedObject implements SRQ {
  readonly pd: PD;
  readonly native: NativeSRQ;
  readonly #scope: DeviceScope;

  constructor(pd: PD, scope: DeviceScope, nativePD: NativePD, init: SRQInit) {
    super(scope.presence, 'shared receive queue');
    this.pd = pd;
    this.#scope = scope;
    this.native = nativePD.createSRQ({
      maxWr: init.maxWr,
      maxSge: init.maxSge ?? 1,
      srqLimit: init.srqLimit ?? 0,
    });
    scope.add(this, TeardownRank.sharedReceiveQueue);
  }

  get handle(): number {
    return this.native.handle;
  }

  postRecv(wr: RecvWR | readonly RecvWR[]): void {
    this.assertUsable();
    this.native.postRecv(listOf(wr));
  }

  async modify(attributes: { readonly srqLimit: number }): Promise<void> {
    checkCall.modifySRQ(attributes);
    this.assertUsable();
    this.native.setLimit(attributes.srqLimit);
  }

  async query(): Promise<SRQAttributes> {
    this.assertUsable();
    return this.native.query();
  }

  protected override destroy(): void {
    this.native.dispose();
  }

  protected override released(): void {
    this.#scope.remove(this);
  }
}
