/** `HOST:PATH` on the command line. */
import { usageFailure } from '#daemon/console/failure';

export interface RemotePath {
  readonly host: string;
  /** From the root of the server; starts with a slash. */
  readonly path: string;
}

/** Parses `HOST:/PATH`; an IPv6 address is in brackets. Throws a usage failure for anything else. */
export function parseRemotePath(text: string): RemotePath {
  const [, bracketed, plain, path] = /^(?:\[([^\]]+)\]|([^:/]+)):(\/.*)$/s.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || path === undefined || path.includes('\0')) {
    throw usageFailure(
      `${text} is not HOST:PATH; PATH starts with a slash, for example 127.0.0.1:/file`,
    );
  }
  return { host, path };
}

/** The remote path as given. */
export function remotePathText({ host, path }: RemotePath): string {
  return host.includes(':') ? `[${host}]:${path}` : `${host}:${path}`;
}
