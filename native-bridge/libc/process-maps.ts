/**
 * Lists a process's mappings. Linux 6.11 can query a single address (PROCMAP_QUERY); on older kernels
 * the text of /proc/<pid>/maps is read up to the addresses in question.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { ioctl } from './descriptor.ts';
import { lastErrno } from './libc.ts';

/** _IOWR('f', 17, struct procmap_query), a struct of 104 bytes. */
const PROCMAP_QUERY = 0xc068_6611;
const QUERY_BYTES = 104;
/** The mapping at the address, otherwise the next one above. */
const COVERING_OR_NEXT = 0x10;
const READABLE = 1;
const WRITABLE = 2;
const ENOENT = 2;
const CHUNK_BYTES = 64 * 1024;

/** A mapping: adjacent addresses with the same rights. */
export interface MappedPiece {
  readonly start: number;
  readonly end: number;
  readonly readable: boolean;
  readonly writable: boolean;
  /** `major:minor` of the file system of the mapped file; undefined for anonymous memory. */
  readonly device: string | undefined;
}

/**
 * Passes the pieces of process `pid` that overlap `start` to `end`, in address order, to `take` until
 * that returns false. Throws the error of opening the file: no such process, or another user's.
 */
export function visitMappings(
  pid: number,
  start: number,
  end: number,
  take: (piece: MappedPiece) => boolean,
): void {
  const fd = openSync(`/proc/${pid}/maps`, 'r');
  try {
    visitMappingsIn(fd, start, end, take);
  } finally {
    closeSync(fd);
  }
}

/** Like `visitMappings`, for an open maps file or a file with such text. */
export function visitMappingsIn(
  fd: number,
  start: number,
  end: number,
  take: (piece: MappedPiece) => boolean,
): void {
  if (!queried(fd, start, end, take)) readUpTo(fd, start, end, take);
}

/** Returns false, without calling `take`, if the kernel does not support the query. */
function queried(
  fd: number,
  start: number,
  end: number,
  take: (piece: MappedPiece) => boolean,
): boolean {
  const query = new Uint8Array(QUERY_BYTES);
  const fields = new DataView(query.buffer);
  for (let address = start; address < end; ) {
    query.fill(0);
    fields.setBigUint64(0, BigInt(QUERY_BYTES), true);
    fields.setBigUint64(8, BigInt(COVERING_OR_NEXT), true);
    fields.setBigUint64(16, BigInt(address), true);
    if (ioctl(fd, PROCMAP_QUERY, query) !== 0) return lastErrno() === ENOENT || address > start;
    const rights = fields.getUint32(40, true);
    const inode = fields.getBigUint64(64, true);
    const piece: MappedPiece = {
      start: Number(fields.getBigUint64(24, true)),
      end: Number(fields.getBigUint64(32, true)),
      readable: (rights & READABLE) !== 0,
      writable: (rights & WRITABLE) !== 0,
      device:
        inode === 0n ? undefined : `${fields.getUint32(72, true)}:${fields.getUint32(76, true)}`,
    };
    if (piece.start >= end || !take(piece)) return true;
    address = piece.end;
  }
  return true;
}

function readUpTo(
  fd: number,
  start: number,
  end: number,
  take: (piece: MappedPiece) => boolean,
): void {
  const chunk = new Uint8Array(CHUNK_BYTES);
  const decoder = new TextDecoder('latin1');
  let rest = '';
  for (;;) {
    const length = readSync(fd, chunk);
    const lines = (rest + decoder.decode(chunk.subarray(0, length))).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const piece = parseMapping(line);
      if (piece === undefined || piece.end <= start) continue;
      if (piece.start >= end || !take(piece)) return;
    }
    if (length === 0) return;
  }
}

/** A line of /proc/<pid>/maps. */
function parseMapping(line: string): MappedPiece | undefined {
  const [, from, to, rights = '', major = '', minor = '', inode] =
    /^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)/.exec(line) ?? [];
  if (from === undefined || to === undefined) return undefined;
  return {
    start: Number.parseInt(from, 16),
    end: Number.parseInt(to, 16),
    readable: rights[0] === 'r',
    writable: rights[1] === 'w',
    device:
      inode === '0' ? undefined : `${Number.parseInt(major, 16)}:${Number.parseInt(minor, 16)}`,
  };
}
