/**
 * Chooses the CRC-32 implementation of the ICRC: ISA-L's, if packets leave the host and it is installed;
 * zlib's, which Node.js has since 20.15; or a table.
 *
 * The choice is made at run time, since older versions of Node.js 20 lack zlib's.
 */
import * as zlib from 'node:zlib';
import { agrees } from '#base/crc';
import { type Crc32, crc32 } from '#daemon/roce/wire/crc32';
import { openIsalCrc32 } from '#native-bridge/isal/crc32';

/** zlib's CRC-32 if this Node.js has it, several times as fast as the table. */
export function chooseCrc32(exported: object = zlib): Crc32 {
  const found: unknown = Reflect.get(exported, 'crc32');
  return typeof found === 'function' ? (found as Crc32) : crc32;
}

/** The fastest implementation: ISA-L takes a sixth of zlib's time for 4 KiB. `open` throws without it. */
export function fastestCrc32(open: () => Crc32 = openIsalCrc32): Crc32 {
  try {
    const found = open();
    if (agrees(found, crc32)) return found;
  } catch {
    // Not installed, or not built for this machine.
  }
  return chooseCrc32();
}
