/** `struct mminfo`: where the program maps a ring. */
import { PAGE_BYTES, type Ring } from '#daemon/kernel/ring-mapping';
import { setUint64 } from '#daemon/kernel/struct-fields';

/** u64 offset, u32 bytes in whole pages, u32 zero. */
export const MMINFO_BYTES = 16;

export function putMmInfo(target: DataView, at: number, ring: Ring): void {
  setUint64(target, at, ring.key);
  target.setUint32(at + 8, Math.ceil(ring.mappedBytes / PAGE_BYTES) * PAGE_BYTES, true);
}

/** Entries of a ring for `asked` requested ones: slots are a power of two, and one stays empty. */
export function ringEntries(asked: number): number {
  return 2 ** Math.ceil(Math.log2(asked + 1)) - 1;
}
