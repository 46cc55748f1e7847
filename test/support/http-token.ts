/** HTTP requests to a test's daemon, with the token that the daemon made. */
import { readFileSync } from 'node:fs';
import { httpTokenPath } from '#contract/protocol/ipc-admin';

export function madeToken(socketPath: string): string {
  return readFileSync(httpTokenPath(socketPath), 'utf8').trim();
}

/** As `fetch`, with the token. */
export async function fetchWith(
  token: string,
  url: string,
  init: RequestInit & { readonly duplex?: 'half' } = {},
): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${token}`);
  return await fetch(url, { ...init, headers });
}
