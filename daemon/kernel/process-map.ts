/**
 * The mappings of a process. A registration over a hole or a page without write permission must fail at
 * once, as in the kernel, which pins every page; otherwise it would fail when a peer's bytes arrive.
 */
import { type MappedPiece, visitMappings } from '#native-bridge/libc/process-maps';

/**
 * Mappings of a region to check: each takes two microseconds, and a program can make 65,530 of them
 * in one region and register it again and again. A hole after that many is detected on use.
 */
const MAPPINGS_MAX = 256;

/** Calls back with each mapping of a process that overlaps a range; see `visitMappings`. */
type VisitPieces = (start: number, end: number, take: (piece: MappedPiece) => boolean) => void;

/**
 * True if the process may read (with `writable`: also write) every byte of the range. Also true if
 * this cannot be determined: the process has another user or namespace, or the range has more than
 * `MAPPINGS_MAX` mappings.
 */
export function isMapped(
  pid: number,
  start: number,
  lengthBytes: number,
  writable: boolean,
): boolean {
  const visit: VisitPieces = (from, end, take) => visitMappings(pid, from, end, take);
  try {
    return coversRange(visit, start, lengthBytes, writable);
  } catch {
    return true;
  }
}

/** Like `isMapped`, with the given source of mappings. Throws what `visit` throws. */
export function coversRange(
  visit: VisitPieces,
  start: number,
  lengthBytes: number,
  writable: boolean,
): boolean {
  const end = start + lengthBytes;
  let covered = start;
  let seen = 0;
  visit(start, end, (piece) => {
    const usable = piece.readable && (!writable || piece.writable);
    if (piece.start > covered || !usable) return false;
    seen += 1;
    covered = seen === MAPPINGS_MAX ? end : piece.end;
    return covered < end;
  });
  return covered >= end;
}
