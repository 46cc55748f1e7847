/** Host names, for everything that connects or listens. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { VerbsError } from '#contract/verbs/errors';

/** The address of a host name; an address as it is. Rejects with `VerbsError` EADDRNOTAVAIL. */
export async function addressOf(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch {
    throw new VerbsError(
      'EADDRNOTAVAIL',
      `cannot resolve ${host}: not an address, and no such host name`,
    );
  }
}
