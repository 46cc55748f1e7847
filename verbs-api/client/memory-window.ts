/** Memory windows. */
import { takes, UINT32 } from '#contract/verbs/arguments';
import type { MWType } from '#contract/verbs/enums';
import type { MW, PD } from '#contract/verbs/provider';
import { TeardownRank } from './lifetime.ts';
import { type Domain, ScopedObject } from './session.ts';

const KEY_MASK = 0xff;

const checkIncRkey = takes('incRkey', { rkey: UINT32 });

/**
 * The rkey for the next bind of a window (`ibv_inc_rkey`).
 *
 * Returns `rkey` with its 8-bit key incremented, which wraps from 255 to 0, and its index kept.
 */
export function incRkey(rkey: number): number {
  if (typeof rkey !== 'number' || rkey >>> 0 !== rkey) checkIncRkey(rkey);
  return ((rkey & ~KEY_MASK) | ((rkey + 1) & KEY_MASK)) >>> 0;
}

export class ClientMW extends ScopedObject implements MW {
  readonly pd: PD;
  readonly type: MWType;
  readonly handle: number;
  rkey: number;

  private constructor(pd: Domain, type: MWType, handle: number, rkey: number) {
    super(pd.scope, 'memory window');
    this.pd = pd;
    this.type = type;
    this.handle = handle;
    this.rkey = rkey;
    pd.scope.add(this, TeardownRank.memoryWindow);
  }

  static async create(pd: Domain, type: MWType): Promise<ClientMW> {
    const reply = await pd.scope.session.request('allocMW', { pd: pd.handle, type });
    return new ClientMW(pd, type, reply.mw, reply.rkey);
  }

  protected override async destroy(): Promise<void> {
    await this.session.request('deallocMW', { mw: this.handle });
  }
}
