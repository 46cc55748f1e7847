/** Checks the address and port that a program gives. */
import { canonicalAddress } from '#base/address';
import { invalid } from './errors.ts';
import type { SocketAddress } from './provider.ts';

/** An address in canonical form with its port. Throws `VerbsError` EINVAL. */
export function parseSocketAddress(text: SocketAddress): SocketAddress {
  const address = canonicalAddress(text.address);
  if (address === undefined) throw invalid(`${text.address} is not an IP address`);
  if (!Number.isInteger(text.port) || text.port < 0 || text.port > 65_535) {
    throw invalid(`${text.port} is not a port: 0 to 65535`);
  }
  return { address, port: text.port };
}
