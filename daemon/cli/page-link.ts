/** `iwarpd page`: the URL of a daemon's page, and its token. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { type HttpReady, httpTokenPath } from '#contract/protocol/ipc-admin';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { isTrustedUser } from '#verbs-api/client/daemon-trust';
import { CommandFailure, failureCode, fileFailureText } from '../console/failure.ts';
import type { Output } from '../console/output.ts';

export interface PageArguments {
  readonly socket?: string;
  readonly token?: boolean;
}

const TOKEN_FILE_MAX_BYTES = 4096;

/**
 * Prints the link, or only the token. CommandFailure without HTTP, or if the token is not accessible.
 */
export async function printPage(
  { socket, token: tokenOnly }: PageArguments & { readonly socket: string },
  output: Output,
): Promise<void> {
  const { http } = await queryDaemon('status', {}, { socketPath: socket });
  if (http === undefined) {
    throw new CommandFailure(
      'the daemon does not serve HTTP; restart it with `iwarpd start --http 127.0.0.1:7470`',
    );
  }
  const token = http.tokenNeeded ? tokenOf(http, socket) : undefined;
  if (tokenOnly !== true) output.line(pageLink(http, token));
  else if (token !== undefined) output.line(token);
  else throw new CommandFailure('the daemon uses no token: it was started with --http-no-token');
}

/**
 * The link for a browser. Browsers do not send the part after the #, so the token stays out of logs.
 */
export function pageLink({ url }: Pick<HttpReady, 'url'>, token: string | undefined): string {
  // A browser cannot connect to a wildcard address.
  const near = url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
  return token === undefined ? `${near}/` : `${near}/#token=${encodeURIComponent(token)}`;
}

/**
 * The token: the daemon's own next to its socket, from the configured file, or from the environment.
 */
function tokenOf({ tokenFile }: HttpReady, socket: string): string {
  // The daemon may see the socket's directory under another path, as in a container.
  const made = readToken(httpTokenPath(socket));
  const given = made ?? (tokenFile === undefined ? undefined : readToken(tokenFile));
  const found = given ?? process.env['IWARPD_HTTP_TOKEN'];
  if (found !== undefined && found !== '') return found;
  throw new CommandFailure(
    'the daemon got its token from its environment or configuration; set IWARPD_HTTP_TOKEN to the same token',
  );
}

/** The token in a file; undefined if there is no such file. */
function readToken(path: string): string | undefined {
  let fd: number;
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (failureCode(error) === 'ENOENT') return undefined;
    throw new CommandFailure(
      `cannot read the token ${path}: ${fileFailureText(error)}; run this as the daemon's user`,
      { cause: error },
    );
  }
  try {
    const { uid, size } = fstatSync(fd);
    if (!isTrustedUser(uid))
      throw new CommandFailure(`refusing the token file ${path}: it belongs to uid ${uid}`);
    return size > TOKEN_FILE_MAX_BYTES ? undefined : readFileSync(fd, 'utf8').trim();
  } finally {
    closeSync(fd);
  }
}
