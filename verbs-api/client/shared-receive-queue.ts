/** Shared receive queues. */
import type { CommandReply } from '#contract/protocol/commands';
import type { SRQAttributes } from '#contract/verbs/attributes';
import type { PD, SRQ, SRQInit } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import type { RecvWR } from '#contract/verbs/work-request';
import { TeardownRank } from './lifetime.ts';
import { postAll } from './posting.ts';
import { ReceiveRing } from './receive-ring.ts';
import { type Domain, ScopedObject } from './session.ts';

export class ClientSRQ extends ScopedObject implements SRQ {
  readonly pd: PD;
  readonly handle: number;
  readonly #ring: ReceiveRing;

  private constructor(
    pd: Domain,
    reply: CommandReply<'createSRQ'>,
    mapping: Uint8Array,
    maxSge: number,
  ) {
    super(pd.scope, 'shared receive queue');
    this.pd = pd;
    this.handle = reply.srq;
    this.#ring = new ReceiveRing(mapping, 0, reply.count, maxSge);
    pd.scope.add(this, TeardownRank.sharedReceiveQueue);
  }

  static async create(pd: Domain, init: SRQInit): Promise<ClientSRQ> {
    const { session } = pd.scope;
    const maxSge = init.maxSge ?? 1;
    const reply = await session.request('createSRQ', {
      pd: pd.handle,
      maxWr: init.maxWr,
      maxSge,
      srqLimit: init.srqLimit ?? 0,
    });
    try {
      const mapping = await session.commandChannel.map(reply.ring);
      return new ClientSRQ(pd, reply, mapping, maxSge);
    } catch (error) {
      await session.request('destroySRQ', { srq: reply.srq });
      throw error;
    }
  }

  postRecv(wr: RecvWR | readonly RecvWR[]): void {
    this.assertUsable();
    try {
      postAll(wr, this.#ring);
    } finally {
      if (this.scope.receivesNeedDoorbell && this.#ring.doorbellDue()) {
        this.session.commandChannel.doorbell(this.handle);
      }
    }
  }

  async modify(attributes: { readonly srqLimit: number }): Promise<void> {
    checkCall.modifySRQ(attributes);
    this.assertUsable();
    await this.session.request('modifySRQ', { srq: this.handle, srqLimit: attributes.srqLimit });
  }

  async query(): Promise<SRQAttributes> {
    this.assertUsable();
    return await this.session.request('querySRQ', { srq: this.handle });
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('destroySRQ', { srq: this.handle });
  }
}
