/** `HOST:PATH` on the command line. */
import { usageFailure } from '../failure.ts';

/** A file on a host. */
export interface RemotePath {
  readonly host: string;
  /** From the server's root, with a slash ahead. */
  readonly path: string;
}

/** Takes `HOST:/PATH` apart; an IPv6 address stands in brackets. A usage failure for anything else. */
export function parseRemotePath(text: string): RemotePath {
  const [, bracketed, plain, path] = /^(?:\[([^\]]+)\]|([^:/]+)):(\/.*)$/s.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || path === undefined || path.includes('\0')) {
    throw usageFailure(
      `${text} is no HOST:PATH; a path of the server starts with a slash: 127.0.0.1:/file`,
    );
  }
  return { host, path };
}

/** The remote path as it is given. */
export function remotePathText({ host, path }: RemotePath): string {
  return host.includes(':') ? `[${host}]:${path}` : `${host}:${path}`;
}
