/** The memory region: registered bytes with an STag, access rights and two address spaces. */
import { assert } from '#base/assert';
import { ACCESS_MASK, Access } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { MemoryBacking } from './memory-backing.ts';
import type { PD } from './protection-domain.ts';
import { ADDRESS_END, highHalf, lowHalf } from './region-address.ts';
import type { StagEntry, StagTable } from './stag-table.ts';

export interface MRInit {
  readonly backing: MemoryBacking;
  /** Offset of the region's first byte in `backing`. */
  readonly backingOffset: number;
  /** At least 1. */
  readonly lengthBytes: number;
  /** Local address of the first byte, for SGEs: 64 bits. */
  readonly address: number | bigint;
  /** Address of the first byte for peers; ignored for a zero-based region, where it is 0. */
  readonly iova: number | bigint;
  /** Bits of `Access`. */
  readonly access: number;
  /** 8-bit STag key; undefined lets the device choose. */
  readonly key: number | undefined;
}

/** Throws EINVAL or EOPNOTSUPP for a registration that is not allowed. */
export function checkMRInit(init: MRInit, maxMrSize: number): void {
  const { access, address, iova, lengthBytes, key } = init;
  const refuse = (text: string): never => {
    throw invalid(text);
  };
  if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1 || lengthBytes > maxMrSize) {
    refuse(`a region has 1 to ${maxMrSize} bytes, not ${lengthBytes}`);
  }
  for (const start of [address, iova]) {
    // A larger number cannot be intended: it has been rounded.
    const exact = typeof start === 'bigint' || Number.isSafeInteger(start);
    if (!exact || start < 0 || BigInt(start) + BigInt(lengthBytes) > ADDRESS_END) {
      refuse(`${lengthBytes} bytes at ${start} exceed the 64-bit address space`);
    }
  }
  if (!Number.isInteger(access) || (access & ~ACCESS_MASK) !== 0) {
    refuse(`unknown access bits in ${access}`);
  }
  const remoteChange = Access.remoteWrite | Access.remoteAtomic;
  if ((access & remoteChange) !== 0 && (access & Access.localWrite) === 0) {
    refuse('Access.remoteWrite and Access.remoteAtomic need Access.localWrite, too');
  }
  if (key !== undefined && (!Number.isInteger(key) || key < 0 || key > 255)) {
    refuse(`an STag key has 8 bits, not ${key}`);
  }
  // An atomic runs at once, so it cannot use bytes that must be fetched first.
  if ((access & Access.remoteAtomic) !== 0 && init.backing.tier === 'agent') {
    throw new VerbsError('EOPNOTSUPP', 'atomics need memory that the device reaches directly');
  }
}

/** A registered memory region. lkey, rkey and STag are the same number. */
export class MR {
  readonly pd: PD;
  readonly address: bigint;
  /** Address of the first byte for peers: 0 for a zero-based region. */
  readonly iova: bigint;
  readonly lengthBytes: number;
  readonly access: number;
  readonly backing: MemoryBacking;
  readonly entry: StagEntry;
  readonly #table: StagTable;
  readonly #onClose: () => void;
  #closed = false;

  /** `init` has been checked; `onClose` releases the device's slot. */
  constructor(pd: PD, init: MRInit, table: StagTable, onClose: () => void) {
    const zeroBased = (init.access & Access.zeroBased) !== 0;
    this.pd = pd;
    this.address = BigInt(init.address);
    this.iova = zeroBased ? 0n : BigInt(init.iova);
    this.lengthBytes = init.lengthBytes;
    this.access = init.access;
    this.backing = init.backing;
    this.#table = table;
    this.#onClose = onClose;
    this.entry = table.add(pd, false, init.key);
    this.entry.access = init.access;
    this.entry.toHi = highHalf(this.iova);
    this.entry.toLo = lowHalf(this.iova);
    this.entry.addressHi = highHalf(this.address);
    this.entry.addressLo = lowHalf(this.address);
    this.entry.lengthBytes = init.lengthBytes;
    this.entry.backing = init.backing;
    this.entry.backingOffset = init.backingOffset;
    this.entry.remoteValid = (init.access & REMOTE_ACCESS) !== 0;
    pd.members += 1;
    if (init.backing.takesCopies !== true) pd.notTaking += 1;
  }

  get stag(): number {
    return this.entry.stag;
  }

  get lkey(): number {
    return this.entry.stag;
  }

  get rkey(): number {
    return this.entry.stag;
  }

  /** True once a work request or a peer has been permitted an access. */
  get used(): boolean {
    return this.entry.used;
  }

  /**
   * Deregisters the region: no access succeeds after this returns. EBUSY while windows are bound to
   * it; a second call does nothing.
   */
  close(): void {
    if (this.#closed) return;
    if (this.entry.windows > 0) {
      throw new VerbsError(
        'EBUSY',
        `${this.entry.windows} memory windows are bound to the region: invalidate or deallocate them first`,
      );
    }
    // SEC-6.2.2-01: from now on every access fails, even one in progress.
    this.#closed = true;
    this.#table.remove(this.entry);
    this.pd.members -= 1;
    if (this.backing.takesCopies !== true) this.pd.notTaking -= 1;
    this.#onClose();
    this.assertInvariants();
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.#closed === !this.entry.alive, 'region and STag disagree');
    this.entry.assertInvariants();
    this.pd.assertInvariants();
  }
}

/** Rights that give peers access. */
export const REMOTE_ACCESS = Access.remoteRead | Access.remoteWrite | Access.remoteAtomic;
