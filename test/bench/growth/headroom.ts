/** Predicts from earlier steps whether the machine can run the next one. */
import { readdirSync, readFileSync } from 'node:fs';
import { readable } from '#daemon/bench/report';
import type { WatchedProcess } from './growth-series.ts';

/** Share of the available memory; the rest is a reserve for other processes and surprises. */
const MEMORY_SHARE = 0.5;
/** A process needs some descriptors for itself. */
const FILES_RESERVE = 64;
const MIB = 1 << 20;

/** Usage and limits of a process. */
interface Usage {
  readonly name: string;
  readonly files: number;
  readonly filesMax: number;
  readonly residentBytes: number;
}

/** Resources of all watched processes after a step. */
export interface Sample {
  readonly size: number;
  readonly usage: readonly Usage[];
}

/** Samples the processes. */
export function sampleOf(size: number, watched: readonly WatchedProcess[]): Sample {
  return {
    size,
    usage: watched.map(({ name, pid }) => ({
      name,
      files: readdirSync(`/proc/${pid}/fd`).length,
      filesMax: fileLimitOf(readFileSync(`/proc/${pid}/limits`, 'utf8')),
      residentBytes: residentBytesOf(readFileSync(`/proc/${pid}/status`, 'utf8')),
    })),
  };
}

/** Bytes of memory that processes may take without swapping. */
export function availableBytes(): number {
  return availableBytesOf(readFileSync('/proc/meminfo', 'utf8'));
}

/**
 * The reason why `size` is out of reach, or undefined. The difference between the last two samples
 * gives the cost of a unit, which is assumed to stay the same.
 */
export function shortage(
  size: number,
  samples: readonly Sample[],
  available: number,
): string | undefined {
  const last = samples.at(-1);
  const before = samples.at(-2);
  if (last === undefined || before === undefined) return undefined;
  const more = (size - last.size) / (last.size - before.size);
  let bytes = 0;
  for (const [index, now] of last.usage.entries()) {
    const then = before.usage[index];
    if (then === undefined) continue;
    const files = now.files + more * Math.max(0, now.files - then.files) + FILES_RESERVE;
    if (files > now.filesMax) {
      return `In the first of them, ${now.name} would need about ${readable(Math.round(files))} descriptors, and may have ${readable(now.filesMax)}; raise the limit (ulimit -n)`;
    }
    bytes += more * Math.max(0, now.residentBytes - then.residentBytes);
  }
  if (bytes <= available * MEMORY_SHARE) return undefined;
  return `The first of them would take about ${readable(Math.round(bytes / MIB))} MiB more, and half of what is available is ${readable(Math.round((available * MEMORY_SHARE) / MIB))} MiB`;
}

/** The soft limit in /proc/PID/limits. */
export function fileLimitOf(limits: string): number {
  const [, soft] = /^Max open files +(\S+)/m.exec(limits) ?? [];
  return soft === undefined || soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
}

/** Resident memory in /proc/PID/status. */
export function residentBytesOf(status: string): number {
  return Number(/^VmRSS:\s*([0-9]+) kB/m.exec(status)?.[1] ?? Number.NaN) * 1024;
}

/** Available memory, from /proc/meminfo. */
export function availableBytesOf(meminfo: string): number {
  return Number(/^MemAvailable:\s*([0-9]+) kB/m.exec(meminfo)?.[1] ?? 0) * 1024;
}
