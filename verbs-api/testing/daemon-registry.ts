/**
 * Maps providers to their private daemons, so waits on their objects can report how the daemon ended.
 */
import type { Provider } from '#contract/verbs/provider';

const signals = new WeakMap<Provider, AbortSignal>();

/**
 * Registers the signal that aborts, with the error as its reason, when the provider's daemon ends.
 */
export function noteDaemon(provider: Provider, gone: AbortSignal): void {
  signals.set(provider, gone);
}

/** That signal; undefined for a provider without a private daemon. */
export function daemonGone(provider: Provider): AbortSignal | undefined {
  return signals.get(provider);
}
