/**
 * The default contexts: connections without a protection domain share one context per provider and
 * device, since a client of a daemon may open only 64.
 */
import type { Context, Provider } from '#contract/verbs/provider';

/** A context shared with other users. */
interface SharedContext {
  readonly context: Context;
  /** Releases it; the last user closes it. */
  release(): Promise<void>;
}

/** An opened context and its number of users. */
interface Entry {
  readonly opened: Promise<Context>;
  users: number;
}

/** By provider, then by device; a garbage-collected provider takes its entries with it. */
const entries = new WeakMap<Provider, Map<string, Entry>>();

/** The default context of a device, opened for its first user. Errors as `Provider.open`. */
export async function shareContext(
  provider: Provider,
  device: string | undefined,
): Promise<SharedContext> {
  const devices = entries.get(provider) ?? new Map<string, Entry>();
  entries.set(provider, devices);
  const name = device ?? '';
  const entry = devices.get(name) ?? { opened: provider.open(device), users: 0 };
  devices.set(name, entry);
  entry.users += 1;
  const leave = (): boolean => {
    entry.users -= 1;
    if (entry.users > 0) return false;
    if (devices.get(name) === entry) devices.delete(name);
    return true;
  };
  let context: Context;
  try {
    context = await entry.opened;
  } catch (error) {
    leave();
    throw error;
  }
  let released = false;
  return {
    context,
    async release() {
      if (released) return;
      released = true;
      if (leave()) await context.close();
    },
  };
}
