/** Releases shared memory in a process that has as many mappings as the kernel allows. */
import koffi from 'koffi';
import { SharedMemory } from '#native-bridge/libc/shared-memory';

const MAP_FAILED = 0xffff_ffff_ffff_ffffn;
const MAP_PRIVATE_ANONYMOUS_NORESERVE = 0x4022;
const PAGE_BYTES = 4096;
/** Mappings to remove before printing, for which V8 may need new ones. */
const SLACK = 1_000;

const libc = koffi.load('libc.so.6');
const mmap = libc.func('uint64_t mmap(void *, uint64_t, int, int, int, int64_t)');
const munmap = libc.func('int munmap(uint64_t, uint64_t)');

const memory = SharedMemory.create('full', PAGE_BYTES);
const mapped: bigint[] = [];
for (;;) {
  // The kernel would merge neighbours with equal rights into one mapping.
  const rights = mapped.length % 2 === 0 ? 1 : 3;
  const at = BigInt(mmap(null, PAGE_BYTES, rights, MAP_PRIVATE_ANONYMOUS_NORESERVE, -1, 0));
  if (at === MAP_FAILED) break;
  mapped.push(at);
}
let outcome = 'released';
try {
  memory.release();
} catch (error) {
  outcome = String(error);
}
for (const at of mapped.slice(0, SLACK)) munmap(at, PAGE_BYTES);
process.stdout.write(`${outcome}\n`);
