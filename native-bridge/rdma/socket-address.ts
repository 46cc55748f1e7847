/** Converts socket addresses between text and port, and C's sockaddr. */
import type { SocketAddress } from '#contract/verbs/provider';
import { libc } from '../libc/libc.ts';
import { invalid } from './errors.ts';
import { fieldOf, sizeOf } from './layouts.ts';
import { Block } from './struct-block.ts';

const inetPton = libc.func('int inet_pton(int family, const char *text, void *address)') as (
  family: number,
  text: string,
  address: Uint8Array,
) => number;
const inetNtop = libc.func(
  'const char *inet_ntop(int family, void *address, void *text, uint32_t size)',
) as (family: number, address: Uint8Array, text: Uint8Array, size: number) => string | null;

const AF_INET = 2;
const AF_INET6 = 10;
const IPV4_BYTES = 4;
const IPV6_BYTES = 16;
const TEXT_BYTES = 64;
const PORT_MAX = 65_535;
const [PORT_OFFSET] = fieldOf('sockaddr_in', 'sin_port');
const [IPV4_OFFSET] = fieldOf('sockaddr_in', 'sin_addr');
const [IPV6_OFFSET] = fieldOf('sockaddr_in6', 'sin6_addr');

/** A sockaddr for the library. Throws EINVAL for an invalid address or port. */
export function toSockaddr({ address, port }: SocketAddress): Block {
  const block = new Block(sizeOf('sockaddr_in6'));
  if (!Number.isInteger(port) || port < 0 || port > PORT_MAX)
    throw invalid(`${port} is not a port`);
  block.view.setUint16(PORT_OFFSET, port);
  for (const [family, offset] of [
    [AF_INET, IPV4_OFFSET],
    [AF_INET6, IPV6_OFFSET],
  ] as const) {
    if (inetPton(family, address, block.bytes.subarray(offset)) === 1) {
      block.view.setUint16(0, family, true);
      return block;
    }
  }
  throw invalid(`${address} is not an IP address`);
}

/** The address in a sockaddr of the library; undefined if it is unset. */
export function fromSockaddr(bytes: Uint8Array): SocketAddress | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const family = view.getUint16(0, true);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const [offset, lengthBytes] =
    family === AF_INET ? [IPV4_OFFSET, IPV4_BYTES] : [IPV6_OFFSET, IPV6_BYTES];
  const raw = bytes.subarray(offset, offset + lengthBytes);
  const text = inetNtop(family, raw, new Uint8Array(TEXT_BYTES), TEXT_BYTES);
  return text === null ? undefined : { address: text, port: view.getUint16(PORT_OFFSET) };
}
