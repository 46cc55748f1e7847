/** Defaults and checks of every connection id: of a daemon, an embedded device or rdma_cm. */
import { invalid } from '#contract/verbs/errors';
import type { PD, Provider } from '#contract/verbs/provider';

export const DEFAULT_BACKLOG = 128;
export const DEFAULT_RESOLVE_TIMEOUT_MS = 2000;
/** Private data of a request or reply that has none. */
export const NO_PRIVATE_DATA = new Uint8Array(0);

/** The id that is to make a queue pair. */
interface QPMaker {
  readonly provider: Provider;
  readonly device: string | undefined;
}

/**
 * The protection domain for a queue pair of an id; `own` is the same as an object of the id's
 * provider, if it is one. Throws EINVAL if the id has a queue pair, or for a domain of another device
 * or provider.
 */
export function domainFor<P extends PD>(
  { provider, device }: QPMaker,
  present: { readonly usable: boolean } | undefined,
  pd: PD,
  own: P | undefined,
): P {
  if (present?.usable === true) throw invalid('the id has a queue pair');
  if (pd.context.provider !== provider || pd.context.device.name !== device) {
    throw invalid('the protection domain belongs to another device than the id');
  }
  if (own === undefined) throw invalid('the protection domain belongs to another provider');
  return own;
}
