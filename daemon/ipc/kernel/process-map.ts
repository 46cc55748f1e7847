/**
 * What a process has mapped (/proc/<pid>/maps), to refuse a registration as the kernel does, which
 * pins every page: a hole, or a page that may not be written, is found when the region is made and
 * not when a peer's octets arrive.
 */
import { readFileSync } from 'node:fs';

/**
 * True when the process may read, and with `writable` write, every octet of the range. True also
 * when that cannot be known: the process is of another user or namespace.
 */
export function isMapped(
  pid: number,
  start: number,
  lengthBytes: number,
  writable: boolean,
): boolean {
  let maps: string;
  try {
    maps = readFileSync(`/proc/${pid}/maps`, 'latin1');
  } catch {
    return true;
  }
  return coversRange(maps, start, lengthBytes, writable);
}

/** See `isMapped`; `maps` is the text of the file, whose lines are in the order of addresses. */
export function coversRange(
  maps: string,
  start: number,
  lengthBytes: number,
  writable: boolean,
): boolean {
  const end = start + lengthBytes;
  let covered = start;
  for (const line of maps.split('\n')) {
    const [, from = '', to = '', rights = ''] = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/.exec(line) ?? [];
    if (from === '' || Number.parseInt(to, 16) <= covered) continue;
    const usable = rights[0] === 'r' && (!writable || rights[1] === 'w');
    if (Number.parseInt(from, 16) > covered || !usable) return false;
    covered = Number.parseInt(to, 16);
    if (covered >= end) return true;
  }
  return false;
}
