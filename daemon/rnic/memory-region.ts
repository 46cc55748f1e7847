/** The memory region: registered octets with an STag, access rights and two address spaces. */
import { ACCESS_MASK, Access } from '../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { MemoryBacking } from './memory-backing.ts';
import type { PD } from './protection-domain.ts';
import type { StagEntry, StagTable } from './stag-table.ts';

/** Addresses end here: above, a number is no longer exact. */
const ADDRESS_END = 2 ** 53;

/** What a registration asks for. */
export interface MRInit {
  readonly backing: MemoryBacking;
  /** Where the region's first octet is in `backing`. */
  readonly backingOffset: number;
  /** At least 1. */
  readonly lengthBytes: number;
  /** Local address of the first octet, for SGEs. */
  readonly address: number;
  /** Address of the first octet for peers; ignored for a zero-based region, where it is 0. */
  readonly iova: number;
  /** Bits of `Access`. */
  readonly access: number;
  /** 8-bit STag key; undefined lets the device choose. */
  readonly key: number | undefined;
}

/** Throws EINVAL or EOPNOTSUPP for a registration that is not allowed. */
export function checkMRInit(init: MRInit, maxMrSize: number): void {
  const { access, address, iova, lengthBytes, key } = init;
  const refuse = (text: string): never => {
    throw new VerbsError('EINVAL', text);
  };
  if (!Number.isSafeInteger(lengthBytes) || lengthBytes < 1 || lengthBytes > maxMrSize) {
    refuse(`a region has 1 to ${maxMrSize} octets, not ${lengthBytes}`);
  }
  for (const start of [address, iova]) {
    // Not as a sum: above 2^53 it would be rounded.
    if (!Number.isSafeInteger(start) || start < 0 || start > ADDRESS_END - lengthBytes) {
      refuse(`the address range at ${start} leaves the 53 bits that are supported`);
    }
  }
  if (!Number.isInteger(access) || (access & ~ACCESS_MASK) !== 0) {
    refuse(`unknown access bits in ${access}`);
  }
  const remoteChange = Access.remoteWrite | Access.remoteAtomic;
  if ((access & remoteChange) !== 0 && (access & Access.localWrite) === 0) {
    refuse('remote write and remote atomic need local write');
  }
  if (key !== undefined && (!Number.isInteger(key) || key < 0 || key > 255)) {
    refuse(`an STag key has 8 bits, not ${key}`);
  }
  // An atomic is done at once; octets that have to be fetched first cannot take part.
  if ((access & Access.remoteAtomic) !== 0 && init.backing.tier === 'agent') {
    throw new VerbsError('EOPNOTSUPP', 'atomics need memory that the device reaches directly');
  }
}

/** A registered memory region. lkey, rkey and STag are one number. */
export class MR {
  readonly pd: PD;
  readonly address: number;
  /** Address of the first octet for peers: 0 for a zero-based region. */
  readonly iova: number;
  readonly lengthBytes: number;
  readonly access: number;
  readonly backing: MemoryBacking;
  /** Its place in the STag table. */
  readonly entry: StagEntry;
  private readonly table: StagTable;
  private readonly onClose: () => void;
  private closed = false;

  /** `init` has been checked; `onClose` gives the device's slot back. */
  constructor(pd: PD, init: MRInit, table: StagTable, onClose: () => void) {
    const zeroBased = (init.access & Access.zeroBased) !== 0;
    this.pd = pd;
    this.address = init.address;
    this.iova = zeroBased ? 0 : init.iova;
    this.lengthBytes = init.lengthBytes;
    this.access = init.access;
    this.backing = init.backing;
    this.table = table;
    this.onClose = onClose;
    this.entry = table.add(pd, false, init.key);
    this.entry.access = init.access;
    this.entry.toBase = this.iova;
    this.entry.address = init.address;
    this.entry.lengthBytes = init.lengthBytes;
    this.entry.backing = init.backing;
    this.entry.backingOffset = init.backingOffset;
    this.entry.remoteValid = (init.access & REMOTE_ACCESS) !== 0;
    pd.members += 1;
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

  /**
   * Deregisters: no octet is read or written through it once this returns. EBUSY while windows
   * are bound onto it; the second call does nothing.
   */
  close(): void {
    if (this.closed) return;
    if (this.entry.windows > 0) {
      throw new VerbsError('EBUSY', `${this.entry.windows} windows are bound onto the region`);
    }
    // SEC-6.2.2-01: from here on every access, one already under way included, is refused.
    this.closed = true;
    this.table.remove(this.entry);
    this.pd.members -= 1;
    this.onClose();
  }
}

/** Rights that let a peer in. */
export const REMOTE_ACCESS = Access.remoteRead | Access.remoteWrite | Access.remoteAtomic;
