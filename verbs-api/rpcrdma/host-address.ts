/** Resolves host names and formats errors. */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { VerbsError } from '../contract/verbs/errors.ts';

/**
 * The address of a host; returns addresses unchanged. `VerbsError` EADDRNOTAVAIL if it has none.
 */
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

/** The message of an error. */
export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
