/** The provider of a running daemon. */
import { optional, options, takes } from '#contract/verbs/arguments';
import type { Provider } from '#contract/verbs/provider';
import { DaemonChannel } from './client/daemon-channel.ts';
import { DAEMON_FIELDS, type DaemonOptions } from './client/daemon-place.ts';
import { DeviceProvider } from './client/device-provider.ts';

/** Options of `connectDaemon`. */
export interface ConnectDaemonOptions extends DaemonOptions {}

const check = takes('connectDaemon', {
  options: optional(options<ConnectDaemonOptions>(DAEMON_FIELDS)),
});

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
export async function connectDaemon(given: ConnectDaemonOptions = {}): Promise<Provider> {
  check(given);
  return new DeviceProvider(await DaemonChannel.connect(given));
}
