/**
 * Chooses the CRC-32 implementation of the ICRC: zlib's, which Node.js has since 20.15, or a table.
 *
 * Found by `chooseCrc32` at run time, since an older Node.js 20 lacks it.
 */
import * as zlib from 'node:zlib';
import { type Crc32, crc32 } from '../../roce/wire/crc32.ts';

/** zlib's CRC-32 if this Node.js has it, several times as fast as the table. */
export function chooseCrc32(exported: object = zlib): Crc32 {
  const found: unknown = Reflect.get(exported, 'crc32');
  return typeof found === 'function' ? (found as Crc32) : crc32;
}
