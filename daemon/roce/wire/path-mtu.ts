/**
 * Path MTUs: the largest payload of a packet, in five sizes (IBTA 9.6; `enum ibv_mtu`).
 *
 * Queue pairs have a code for it: `pathMtuBytes`. The code of a port follows from its interface's MTU:
 * `largestPathMtu`.
 */

/** The largest payload of any packet, in bytes. */
export const PATH_MTU_MAX_BYTES = 4096;

/**
 * Bytes of headers in an IP packet, as rxe counts them. No packet has that many, but both ends of a path must
 * agree.
 */
export const IP_HEADERS_BYTES = 80;

/** Bytes by code: `IBV_MTU_256` is 1, `IBV_MTU_4096` is 5. */
const BYTES = [undefined, 256, 512, 1024, 2048, 4096] as const;

/** Payload bytes of the path MTU with this code; undefined for an unknown code. */
export function pathMtuBytes(code: number): number | undefined {
  return BYTES[code];
}

/** True for a legal payload length of a packet that is not the last of its message. */
export function isPathMtu(bytes: number): boolean {
  return bytes >= 256 && bytes <= PATH_MTU_MAX_BYTES && (bytes & (bytes - 1)) === 0;
}

/** Code of the largest path MTU whose packets fit into `bytes` of IP payload, or 0 if none fits. */
export function largestPathMtu(bytes: number): number {
  let code = 0;
  for (let next = 1; next < BYTES.length; next += 1) {
    if ((BYTES[next] ?? Number.POSITIVE_INFINITY) <= bytes) code = next;
  }
  return code;
}
