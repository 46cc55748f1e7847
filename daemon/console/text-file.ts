/** Files of text that the command line names. */
import { closeSync, openSync, readSync } from 'node:fs';

/** More than any of them needs; less than a device such as /dev/zero, which has no end. */
const TEXT_BYTES_MAX = 16 * 2 ** 20;
const PIECE_BYTES = 65_536;

/** The text of a file, or of a pipe up to its end. Throws what fs throws, and for more than 16 MiB. */
export function readTextFile(path: string): string {
  const pieces: Buffer[] = [];
  let bytes = 0;
  const fd = openSync(path, 'r');
  try {
    for (;;) {
      const piece = Buffer.allocUnsafe(PIECE_BYTES);
      const count = readSync(fd, piece);
      if (count === 0) return Buffer.concat(pieces).toString('utf8');
      bytes += count;
      if (bytes > TEXT_BYTES_MAX) throw new Error('it has more than 16 MiB');
      pieces.push(piece.subarray(0, count));
    }
  } finally {
    closeSync(fd);
  }
}
