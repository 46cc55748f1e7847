/** HTTP options of the daemon, validated before it starts. */
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { z } from 'zod';
import { canonicalAddress, isLoopback } from '#base/address';
import { invalid } from '#contract/verbs/errors';
import { checkToken, type HttpToken, readTokenFile } from './http-token.ts';

export const httpOption = z.strictObject({
  /** IP address to listen on, or 'localhost'. */
  address: z.string().default('127.0.0.1'),
  /** 0 selects a free port. */
  port: z.int().min(0).max(65_535).default(0),
  /**
   * The bearer token that requests must carry. Default: the content of `tokenFile`, else
   * `$IWARPD_HTTP_TOKEN`, else a token that the daemon generates and stores in `SOCKET.http-token`,
   * readable only by its own user.
   */
  token: z.string().optional(),
  /** A file that contains the token. */
  tokenFile: z.string().min(1).optional(),
  /**
   * Requires no token: every user of this host may reset and inject faults. Only on loopback; keys,
   * addresses and traces are then hidden. Default: false.
   */
  noToken: z.boolean().default(false),
  /** Names by which clients address this host, besides IP addresses, localhost and its own name. */
  hostNames: z.array(z.string()).readonly().default([]),
});

export interface HttpConfig {
  /** Canonical IP address. */
  readonly address: string;
  readonly port: number;
  readonly token: HttpToken;
  /** In lower case. */
  readonly hostNames: ReadonlySet<string>;
}

/** Validates the option. Throws `VerbsError` EINVAL naming the invalid field. */
export function httpConfig(
  option: z.output<typeof httpOption>,
  environment: Readonly<Record<string, string | undefined>>,
): HttpConfig {
  const { port, hostNames } = option;
  const address = option.address === 'localhost' ? '127.0.0.1' : canonicalAddress(option.address);
  if (address === undefined || isIP(address) === 0) {
    throw invalid(`option http.address: '${option.address}' is not an IP address`);
  }
  const token = tokenOf(option, address, environment);
  const names = ['localhost', hostname(), ...hostNames].map((name) => name.toLowerCase());
  return { address, port, token, hostNames: new Set(names) };
}

function tokenOf(
  option: z.output<typeof httpOption>,
  address: string,
  environment: Readonly<Record<string, string | undefined>>,
): HttpToken {
  const { token, tokenFile, noToken } = option;
  if (noToken) {
    if (token !== undefined || tokenFile !== undefined) {
      throw invalid('option http.noToken: conflicts with the token');
    }
    if (isLoopback(address)) return { kind: 'none' };
    throw invalid(
      `option http.noToken: HTTP on ${address} needs a token; listen on 127.0.0.1 to do without`,
    );
  }
  const value = token ?? (tokenFile === undefined ? undefined : readTokenFile(tokenFile));
  if (value !== undefined) {
    checkToken(value);
    return {
      kind: 'given',
      value,
      ...(tokenFile === undefined ? {} : { file: resolve(tokenFile) }),
    };
  }
  const inherited = environment['IWARPD_HTTP_TOKEN'];
  if (inherited === undefined || inherited === '') return { kind: 'made' };
  checkToken(inherited);
  return { kind: 'given', value: inherited };
}
