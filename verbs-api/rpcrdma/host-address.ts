/** What the verbs want of an address, and errors want of a text. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { VerbsError } from '../contract/errors.ts';

/** The address of a host; addresses stay as they are. `VerbsError` EADDRNOTAVAIL without one. */
export async function addressOf(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch {
    throw new VerbsError('EADDRNOTAVAIL', `the name ${host} has no address`);
  }
}

/** What an error says. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
