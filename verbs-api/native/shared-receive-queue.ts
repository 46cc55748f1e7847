/** Shared receive queues. */
import type { SRQAttributes } from '#contract/verbs/attributes';
import type { PD, SRQ, SRQInit } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import type { RecvWR } from '#contract/verbs/work-request';
import type { NativeSRQ } from '#native-bridge/rdma/shared-receive-queue';
import { TeardownRank } from '../client/lifetime.ts';
import { DeviceObject, type NativeDomain } from './device-scope.ts';
import { listOf } from './posting.ts';

export class RdmaSRQ extends DeviceObject implements SRQ {
  readonly pd: PD;
  readonly native: NativeSRQ;

  constructor(pd: NativeDomain, init: SRQInit) {
    super(pd.scope, 'shared receive queue');
    this.pd = pd;
    this.native = pd.native.createSRQ({
      maxWr: init.maxWr,
      maxSge: init.maxSge ?? 1,
      srqLimit: init.srqLimit ?? 0,
    });
    pd.scope.add(this, TeardownRank.sharedReceiveQueue);
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
}
