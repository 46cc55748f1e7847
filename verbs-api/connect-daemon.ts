/** The provider of a running daemon. */
import { DaemonChannel } from './client/daemon-channel.ts';
import type { DaemonTrust } from './client/daemon-trust.ts';
import { DeviceProvider } from './client/device-provider.ts';
import type { Provider } from './contract/verbs/provider.ts';

/** Options of `connectDaemon`. */
export interface ConnectDaemonOptions extends DaemonTrust {
  /**
   * Path of the daemon's socket. Default: `$IWARPD_SOCKET`, else `iwarpd/iwarpd.sock` under
   * `$XDG_RUNTIME_DIR`, else in a directory of this user under the temporary directory.
   */
  readonly socketPath?: string | undefined;
}

/**
 * Connects to a running daemon and returns its devices as a provider.
 *
 * Rejects with `VerbsError`: ENODEV or ECONNREFUSED if no daemon is running (the text says how to
 * start one), EACCES for a daemon of another user that was not allowed, EPROTO for a daemon of
 * another version, ETIMEDOUT.
 *
 * If the daemon ends later, everything that waits rejects with EIO, posts throw EIO, and
 * completions that were delivered can still be polled. Closing the provider, or the end of the
 * process, releases everything created through it.
 */
export async function connectDaemon(options: ConnectDaemonOptions = {}): Promise<Provider> {
  return new DeviceProvider(await DaemonChannel.connect(options));
}
