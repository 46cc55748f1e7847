/** Which private daemon serves a provider, so that waits on its objects tell how that one ended. */
import type { Provider } from '../contract/provider.ts';

const signals = new WeakMap<Provider, AbortSignal>();

/** Notes the signal that aborts, with the error as its reason, when the provider's daemon ends. */
export function noteDaemon(provider: Provider, gone: AbortSignal): void {
  signals.set(provider, gone);
}

/** That signal; undefined for a provider that no private daemon serves. */
export function daemonGone(provider: Provider): AbortSignal | undefined {
  return signals.get(provider);
}
