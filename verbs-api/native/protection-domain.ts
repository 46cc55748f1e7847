/** Protection domains. */
import type { AHAttributes } from '#contract/verbs/attributes';
import type { MWType } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type {
  AH,
  Context,
  MR,
  MROptions,
  MW,
  QP,
  QPInit,
  SRQ,
  SRQInit,
} from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { unsupported } from '#native-bridge/rdma/errors';
import type { NativePD } from '#native-bridge/rdma/protection-domain';
import { TeardownRank } from '../client/lifetime.ts';
import { DeviceObject, type DeviceScope, type NativeDomain } from './device-scope.ts';
import { RdmaMR } from './memory-region.ts';
import { RdmaQP } from './queue-pair.ts';
import { RdmaSRQ } from './shared-receive-queue.ts';

const KEY_MAX = 255;

export class RdmaPD extends DeviceObject implements NativeDomain {
  readonly context: Context;
  readonly native: NativePD;

  constructor(context: Context, scope: DeviceScope) {
    super(scope, 'protection domain');
    this.context = context;
    this.native = scope.native.allocPD();
    scope.add(this, TeardownRank.protectionDomain);
  }

  async regMR(buffer: Uint8Array, access: number, options: MROptions = {}): Promise<MR> {
    checkCall.regMR(buffer, access, options);
    this.assertUsable();
    this.#refuseKey(options);
    return new RdmaMR(this, this.native.regMR(buffer, access, iovaOf(options)), access);
  }

  async allocMR(lengthBytes: number, access: number, options: MROptions = {}): Promise<MR> {
    checkCall.allocMR(lengthBytes, access, options);
    this.assertUsable();
    this.#refuseKey(options);
    return new RdmaMR(this, this.native.allocMR(lengthBytes, access, iovaOf(options)), access);
  }

  async allocMW(type: MWType): Promise<MW> {
    checkCall.allocMW(type);
    this.assertUsable();
    throw unsupported(this.#name, 'memory windows through this bridge');
  }

  async createAH(attributes: AHAttributes): Promise<AH> {
    checkCall.createAH(attributes);
    this.assertUsable();
    throw unsupported(this.#name, 'address handles: it speaks iWARP');
  }

  async createSRQ(init: SRQInit): Promise<SRQ> {
    checkCall.createSRQ(init);
    this.assertUsable();
    return new RdmaSRQ(this, init);
  }

  async createQP(init: QPInit): Promise<QP> {
    checkCall.createQP(init);
    this.assertUsable();
    return this.makeQP(init);
  }

  /** Like `createQP`, but synchronous. */
  makeQP(init: QPInit): RdmaQP {
    return new RdmaQP(this, init);
  }

  async closeAll(): Promise<void> {
    await this.scope.closeAll(this);
  }

  get #name(): string {
    return this.scope.native.info.name;
  }

  #refuseKey({ key }: MROptions): void {
    if (key === undefined) return;
    if (!Number.isInteger(key) || key < 0 || key > KEY_MAX) {
      throw invalid('a key must be from 0 to 255');
    }
    throw unsupported(this.#name, 'chosen keys: rdma-core leaves them to the device');
  }
}

function iovaOf({ iova }: MROptions): bigint | undefined {
  return iova === undefined ? undefined : BigInt(iova);
}
