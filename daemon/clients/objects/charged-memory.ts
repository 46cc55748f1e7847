/** Client memory, charged to the client's quotas while it is held. */
import type { ClientMemory, ProcessAllocation, SharedAllocation } from './client-memory.ts';
import type { QuotaLedger } from './quotas.ts';

/** Allocates shared memory with `create`. ENOMEM. */
export function takeShared(
  ledger: QuotaLedger,
  create: () => SharedAllocation,
  lengthBytes: number,
): SharedAllocation {
  return ledger.takeFor('sharedBytes', lengthBytes, create);
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
  const open = () => memory.openProcess(address, lengthBytes);
  return ledger.takeFor('pinnedBytes', lengthBytes, open);
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
