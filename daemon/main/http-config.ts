/** Where and for whom the daemon answers over HTTP, checked before it starts. */
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { z } from 'zod';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { canonicalAddress, isLoopback } from '../cm/address.ts';

/** A token that is shorter than this can be guessed. */
export const TOKEN_MIN_CHARACTERS = 16;

/** The option `http` of a daemon. */
export const httpOption = z.strictObject({
  /** IP address to listen on, or 'localhost'. */
  address: z.string().default('127.0.0.1'),
  /** 0 lets the system choose. */
  port: z.int().min(0).max(65_535).default(0),
  /**
   * What requests have to carry as bearer token. Needed on any address but loopback. Default:
   * `$IWARPD_HTTP_TOKEN`, else none.
   */
  token: z.string().optional(),
  /** Names by which clients call this host, beside IP addresses, localhost and its own name. */
  hostNames: z.array(z.string()).readonly().default([]),
});

/** The option, complete and checked. */
export interface HttpConfig {
  /** Canonical IP address. */
  readonly address: string;
  readonly port: number;
  readonly token: string | undefined;
  /** In lower case. */
  readonly hostNames: ReadonlySet<string>;
}

/** Checks the option. Throws `VerbsError` EINVAL that names what is wrong. */
export function httpConfig(
  option: z.output<typeof httpOption>,
  environment: Readonly<Record<string, string | undefined>>,
): HttpConfig {
  const { port, hostNames } = option;
  const address = option.address === 'localhost' ? '127.0.0.1' : canonicalAddress(option.address);
  if (address === undefined || isIP(address) === 0) {
    throw new VerbsError('EINVAL', `option http.address: '${option.address}' is no IP address`);
  }
  const given = option.token ?? environment['IWARPD_HTTP_TOKEN'];
  const token = given === '' ? undefined : given;
  if (token !== undefined) checkToken(token);
  else if (!isLoopback(address)) {
    const mend = `give one in $IWARPD_HTTP_TOKEN or --http-token-file, or listen on 127.0.0.1`;
    throw new VerbsError('EINVAL', `option http.token: HTTP on ${address} needs a token: ${mend}`);
  }
  const names = ['localhost', hostname(), ...hostNames].map((name) => name.toLowerCase());
  return { address, port, token, hostNames: new Set(names) };
}

/** Tokens travel in a header: visible ASCII without spaces (RFC 6750 §2.1, a little wider). */
function checkToken(token: string): void {
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new VerbsError('EINVAL', 'option http.token: it has to be ASCII without spaces');
  }
  if (token.length < TOKEN_MIN_CHARACTERS) {
    const text = `it has to have ${TOKEN_MIN_CHARACTERS} characters or more`;
    throw new VerbsError('EINVAL', `option http.token: ${text}`);
  }
}
