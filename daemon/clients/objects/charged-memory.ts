/** Client memory, charged to the client's quotas while it is held. */
import type { ClientMemory, ProcessAllocation, SharedAllocation } from './client-memory.ts';
import type { QuotaLedger } from './quotas.ts';

/** Allocates shared memory with `create`. ENOMEM. */
export function takeShared(
  ledger: QuotaLedger,
  create: () => SharedAllocation,
  lengthBytes: number,
): SharedAllocation {
  ledger.take('sharedBytes', lengthBytes);
  try {
    return create();
  } catch (error) {
    ledger.give('sharedBytes', lengthBytes);
    throw error;
  }
}

export function giveShared(ledger: QuotaLedger, allocation: SharedAllocation): void {
  allocation.release();
  ledger.give('sharedBytes', allocation.mapping.lengthBytes);
}

/** Opens a piece of the client's own memory. ENOMEM, EFAULT, EOPNOTSUPP. */
export function takeProcess(
  ledger: QuotaLedger,
  memory: Pick<ClientMemory, 'openProcess'>,
  address: bigint,
  lengthBytes: number,
): ProcessAllocation {
  ledger.take('pinnedBytes', lengthBytes);
  try {
    return memory.openProcess(address, lengthBytes);
  } catch (error) {
    ledger.give('pinnedBytes', lengthBytes);
    throw error;
  }
}

/** Closes a piece of the client's own memory. */
export function giveProcess(
  ledger: QuotaLedger,
  allocation: ProcessAllocation,
  lengthBytes: number,
): void {
  allocation.release();
  ledger.give('pinnedBytes', lengthBytes);
}
