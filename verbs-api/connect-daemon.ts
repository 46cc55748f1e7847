/** The provider of a running daemon. */
import { DaemonLink } from './client/daemon-link.ts';
import { DeviceProvider } from './client/device-provider.ts';
import type { Provider } from './contract/provider.ts';

/** Options of `connectDaemon`. */
export interface ConnectDaemonOptions {
  /**
   * Path of the daemon's socket. Default: `$IWARPD_SOCKET`, else `iwarpd/iwarpd.sock` under
   * `$XDG_RUNTIME_DIR`, else in a directory of this user under the temporary directory.
   */
  readonly socketPath?: string;
}

/**
 * Connects to a running daemon and returns its devices as a provider.
 *
 * Rejects with `VerbsError`: ENODEV or ECONNREFUSED when no daemon runs (the text says how to
 * start one), EACCES when the socket is another user's, EPROTO for a daemon of another version,
 * ETIMEDOUT.
 *
 * When the daemon ends later, everything that waits rejects with EIO, posts throw EIO, and
 * completions that were delivered can still be polled. Closing the provider gives back all that was
 * made through it; so does the end of the process.
 */
export async function connectDaemon(options: ConnectDaemonOptions = {}): Promise<Provider> {
  return new DeviceProvider(await DaemonLink.connect({ socketPath: options.socketPath }));
}
