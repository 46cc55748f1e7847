/** Loopback addresses of this process: tests that run at once on a machine share UDP port 4791. */

/** The address with this last byte. */
export function ownAddress(last: number): string {
  const { pid } = process;
  return `127.${128 + ((pid >> 8) & 0x7f)}.${pid & 0xff}.${last}`;
}
