/** Address handles. */
import type { AHAttributes } from '#contract/verbs/attributes';
import type { AH, PD } from '#contract/verbs/provider';
import { ClientObject, type DeviceScope, TeardownRank } from './session.ts';

/** `AH` over a channel. */
export class ClientAH extends ClientObject implements AH {
  readonly pd: PD;
  readonly number: number;
  readonly #handle: number;
  readonly #scope: DeviceScope;

  private constructor(pd: PD, scope: DeviceScope, handle: number, number: number) {
    super(scope.session, 'address handle');
    this.pd = pd;
    this.number = number;
    this.#handle = handle;
    this.#scope = scope;
    scope.add(this, TeardownRank.addressHandle);
  }

  static async create(
    pd: PD,
    scope: DeviceScope,
    pdHandle: number,
    attributes: AHAttributes,
  ): Promise<ClientAH> {
    const reply = await scope.session.request('createAH', { pd: pdHandle, attributes });
    return new ClientAH(pd, scope, reply.ah, reply.number);
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('destroyAH', { ah: this.#handle });
  }

  protected override release(): void {
    this.#scope.remove(this);
  }
}
