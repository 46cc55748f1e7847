/** Protection domains and memory regions of a native device. */
import { Access } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { addressOf } from '#native-bridge/libc/libc';
import type { DeviceMR, DevicePD } from '../host/served-device.ts';
import type { MemoryBacking } from '../rnic/memory/memory-backing.ts';
import { checkMRInit, type MRInit } from '../rnic/memory/memory-region.ts';
import { giveBack } from './give-back.ts';
import type { LowerMR, LowerPD } from './lower.ts';

export class BridgedPD implements DevicePD {
  readonly lower: LowerPD;
  /** Regions and queues in the domain. */
  members = 0;
  #closed = false;

  constructor(lower: LowerPD) {
    this.lower = lower;
  }

  /** EINVAL once closed. */
  assertOpen(): void {
    if (this.#closed) throw invalid('the protection domain is closed');
  }

  close(): void {
    if (this.#closed) return;
    if (this.members > 0) {
      throw new VerbsError('EBUSY', `${this.members} objects belong to the protection domain`);
    }
    this.#closed = true;
    giveBack(() => this.lower.dispose());
  }
}

/** A memory region in memory that client and daemon both map. */
export class BridgedMR implements DeviceMR {
  readonly address: bigint;
  readonly lengthBytes: number;
  readonly backing: MemoryBacking;
  readonly lower: LowerMR;
  readonly #pd: BridgedPD;
  #closed = false;

  /** Takes ownership of `lower`, the registration of the bytes in `init`. */
  constructor(pd: BridgedPD, init: MRInit, lower: LowerMR) {
    this.address = BigInt(init.address);
    this.lengthBytes = init.lengthBytes;
    this.backing = init.backing;
    this.lower = lower;
    this.#pd = pd;
    pd.members += 1;
  }

  get lkey(): number {
    return this.lower.lkey;
  }

  get rkey(): number {
    return this.lower.rkey;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#pd.members -= 1;
    giveBack(() => this.lower.dispose());
  }
}

/** Address of shared memory in this process, used by device, SGEs and peers. */
export function sharedAddress(bytes: Uint8Array): number {
  return Number(addressOf(bytes));
}

/**
 * Registers shared memory. Throws `VerbsError`: EINVAL for wrong ranges and rights; EOPNOTSUPP,
 * with the device's name, for memory that is not mapped here, a chosen key, or chosen addresses
 * that the device cannot use; ENOMEM if no more memory may be locked.
 */
export function registerShared(
  device: { readonly name: string; readonly maxMrSize: number; readonly iova: boolean },
  pd: BridgedPD,
  init: MRInit,
): BridgedMR {
  pd.assertOpen();
  checkMRInit(init, device.maxMrSize);
  const { view } = init.backing;
  if (view === undefined) throw new VerbsError('EOPNOTSUPP', processObstacle(device.name));
  if (init.key !== undefined) {
    throw new VerbsError('EOPNOTSUPP', `${device.name} chooses the keys of regions itself`);
  }
  const bytes = view.subarray(init.backingOffset, init.backingOffset + init.lengthBytes);
  const address = sharedAddress(bytes);
  if (BigInt(init.address) !== BigInt(address)) {
    throw new VerbsError('EOPNOTSUPP', `${device.name} chooses the addresses of regions itself`);
  }
  const zeroBased = (init.access & Access.zeroBased) !== 0;
  const chosen = BigInt(init.iova);
  const iova = zeroBased || chosen === BigInt(address) ? undefined : chosen;
  if (iova !== undefined && !device.iova) {
    throw new VerbsError(
      'EOPNOTSUPP',
      `${device.name} does not support regions at a chosen address`,
    );
  }
  return new BridgedMR(pd, init, pd.lower.regMR(bytes, init.access, iova));
}

/** Why a native device cannot access memory that only the client has. */
export function processObstacle(name: string): string {
  return `${name} is a native device: it can access memory that the daemon shares with its clients (allocMR), but not a program's own (regMR)`;
}
