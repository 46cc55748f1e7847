/** Protection domains. */
import type { AHAttributes } from '#contract/verbs/attributes';
import type { MWType } from '#contract/verbs/enums';
import type {
  AH,
  Context,
  MR,
  MROptions,
  MW,
  PD,
  QPInit,
  SRQ,
  SRQInit,
} from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { TeardownRank } from './lifetime.ts';
import { ClientMR } from './memory-region.ts';
import { ClientMW } from './memory-window.ts';
import { ClientQP } from './queue-pair.ts';
import { type DeviceScope, type Domain, ScopedObject } from './session.ts';
import { ClientSRQ } from './shared-receive-queue.ts';

export class ClientPD extends ScopedObject implements Domain {
  readonly context: Context;
  readonly handle: number;

  private constructor(context: Context, scope: DeviceScope, handle: number) {
    super(scope, 'protection domain');
    this.context = context;
    this.handle = handle;
    scope.add(this, TeardownRank.protectionDomain);
  }

  static async create(context: Context, scope: DeviceScope): Promise<ClientPD> {
    const reply = await scope.session.request('allocPD', { context: scope.handle });
    return new ClientPD(context, scope, reply.pd);
  }

  async regMR(buffer: Uint8Array, access: number, options: MROptions = {}): Promise<MR> {
    checkCall.regMR(buffer, access, options);
    this.assertUsable();
    return await ClientMR.register(this, buffer, access, options);
  }

  async allocMR(lengthBytes: number, access: number, options: MROptions = {}): Promise<MR> {
    checkCall.allocMR(lengthBytes, access, options);
    this.assertUsable();
    return await ClientMR.allocate(this, lengthBytes, access, options);
  }

  async allocMW(type: MWType): Promise<MW> {
    checkCall.allocMW(type);
    this.assertUsable();
    return await ClientMW.create(this, type);
  }

  async createAH(attributes: AHAttributes): Promise<AH> {
    checkCall.createAH(attributes);
    this.assertUsable();
    return await ClientAH.create(this, attributes);
  }

  async createSRQ(init: SRQInit): Promise<SRQ> {
    checkCall.createSRQ(init);
    this.assertUsable();
    return await ClientSRQ.create(this, init);
  }

  async createQP(init: QPInit): Promise<ClientQP> {
    checkCall.createQP(init);
    this.assertUsable();
    return await ClientQP.create(this, init, false);
  }

  /** Like `createQP`, but in INIT, with one command: for a connection id. */
  async createInitialisedQP(init: QPInit): Promise<ClientQP> {
    this.assertUsable();
    return await ClientQP.create(this, init, true);
  }

  async closeAll(): Promise<void> {
    await this.scope.closeAll(this);
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('deallocPD', { pd: this.handle });
  }
}

class ClientAH extends ScopedObject implements AH {
  readonly pd: PD;
  readonly number: number;
  readonly #handle: number;

  private constructor(pd: Domain, handle: number, number: number) {
    super(pd.scope, 'address handle');
    this.pd = pd;
    this.number = number;
    this.#handle = handle;
    pd.scope.add(this, TeardownRank.addressHandle);
  }

  static async create(pd: Domain, attributes: AHAttributes): Promise<ClientAH> {
    const reply = await pd.scope.session.request('createAH', { pd: pd.handle, attributes });
    return new ClientAH(pd, reply.ah, reply.number);
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('destroyAH', { ah: this.#handle });
  }
}
