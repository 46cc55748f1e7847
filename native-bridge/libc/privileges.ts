/** Privileges of a process that the kernel checks. */
import { readFileSync } from 'node:fs';

/** Capabilities by their number in capability(7). */
export const Capability = { netBindService: 10, netRaw: 13 } as const;

/** The default of kernels without the setting. */
const UNPRIVILEGED_PORTS_FIRST = 1024;

/** The lowest port of this network namespace that every user may bind. */
export function firstUnprivilegedPort(): number {
  try {
    const text = readFileSync('/proc/sys/net/ipv4/ip_unprivileged_port_start', 'latin1');
    const port = Number.parseInt(text, 10);
    return Number.isNaN(port) ? UNPRIVILEGED_PORTS_FIRST : port;
  } catch {
    return UNPRIVILEGED_PORTS_FIRST;
  }
}

/** Number of users in a namespace that maps all of them. */
const ALL_USERS = 4_294_967_295;
const OVERFLOW_UID = 65_534;
let overflowUid: number | undefined;

/**
 * True for the uid that stands for every user whom this process's user namespace does not map. A
 * mapped user may have it, too.
 */
export function isSharedUid(uid: number): boolean {
  overflowUid ??= readOverflowUid();
  if (uid !== overflowUid) return false;
  try {
    const lines = readFileSync('/proc/self/uid_map', 'latin1').trim().split('\n');
    const mapped = lines.map((line) => Number(line.trim().split(/\s+/)[2] ?? 0));
    return mapped.reduce((sum, count) => sum + count, 0) < ALL_USERS;
  } catch {
    // Without /proc, it may be.
    return true;
  }
}

function readOverflowUid(): number {
  try {
    const uid = Number.parseInt(readFileSync('/proc/sys/kernel/overflowuid', 'latin1'), 10);
    return Number.isNaN(uid) ? OVERFLOW_UID : uid;
  } catch {
    return OVERFLOW_UID;
  }
}

export function hasCapability(number: number): boolean {
  try {
    const [, mask] =
      /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'latin1')) ?? [];
    return mask !== undefined && ((BigInt(`0x${mask}`) >> BigInt(number)) & 1n) === 1n;
  } catch {
    return process.geteuid?.() === 0;
  }
}
