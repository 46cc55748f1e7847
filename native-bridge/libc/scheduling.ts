/**
 * Scheduling of this thread. A NIC responds at once; a process that emulates one needs the CPU while
 * programs poll their queues on every core. Linux 6.12 and later soon schedules a thread that asks for
 * short slices, which needs no privilege; older kernels ignore the request.
 */
import { libc } from './libc.ts';

const syscall = libc.func(
  'long syscall(long number, long pid, void *attr, long third, long fourth)',
) as (number: number, pid: number, attr: Uint8Array, third: number, fourth: number) => number;

const clockGettime = libc.func('int clock_gettime(int clock, void *time)') as (
  clock: number,
  time: Uint8Array,
) => number;

const CLOCK_THREAD_CPUTIME_ID = 3;
const time = new Uint8Array(16);
const timeFields = new DataView(time.buffer);

const yieldNow = libc.func('int sched_yield()') as () => number;

/** sched_getattr and sched_setattr. */
const NUMBERS: Readonly<Record<string, { readonly get: number; readonly set: number }>> = {
  x64: { get: 315, set: 314 },
  arm64: { get: 275, set: 274 },
};
/** The calling thread. */
const SELF = 0;
/** `struct sched_attr` in its first version. */
const ATTR_BYTES = 48;
const FLAGS_AT = 8;
const RUNTIME_AT = 24;
/** Children and threads start with the default. */
const RESET_ON_FORK = 1n;
/** The shortest slice that Linux grants. */
const SLICE_NANOS = 100_000n;

/** Processor time used by the calling thread, in milliseconds. */
export function threadTimeMs(): number {
  clockGettime(CLOCK_THREAD_CPUTIME_ID, time);
  const seconds = Number(timeFields.getBigInt64(0, true));
  return seconds * 1000 + Number(timeFields.getBigInt64(8, true)) / 1e6;
}

export function yieldCore(): void {
  yieldNow();
}

/**
 * Requests the shortest slices for the calling thread, but not for processes it starts. Returns false
 * if the kernel refuses.
 */
export function requestShortSlices(): boolean {
  const numbers = NUMBERS[process.arch];
  const attr = new Uint8Array(ATTR_BYTES);
  if (numbers === undefined || syscall(numbers.get, SELF, attr, ATTR_BYTES, 0) !== 0) return false;
  const fields = new DataView(attr.buffer);
  fields.setBigUint64(FLAGS_AT, fields.getBigUint64(FLAGS_AT, true) | RESET_ON_FORK, true);
  fields.setBigUint64(RUNTIME_AT, SLICE_NANOS, true);
  return syscall(numbers.set, SELF, attr, 0, 0) === 0;
}
