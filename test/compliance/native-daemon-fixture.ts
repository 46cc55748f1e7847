/** Clients of a daemon, on its native devices, as a fixture. */
import type { Provider } from '#contract/verbs/provider';
import {
  DEVICE,
  type Lack,
  type ProviderFixture,
  type StartedFixture,
} from '../support/provider-fixture.ts';
import { LIBSIW_LACKS } from './native-fixture.ts';

/** The fixture, on devices with fewer features than libsiw, or shorter private data. */
export function nativeDaemonFixture(
  more: readonly Lack[],
  maxPrivateData: number,
  start: () => Promise<StartedFixture>,
): ProviderFixture {
  return {
    tiers: { allocated: 'shared', own: 'shared' },
    backend: 'native',
    maxPrivateData,
    lacks: new Set<Lack>([...LIBSIW_LACKS, 'ownMemory', 'solicitedOnly', ...more]),
    start,
  };
}

/** The provider, without the emulated device of its daemon. */
export function nativeOnly(provider: Provider): Provider {
  const devicesOf: Provider['devices'] = async () =>
    (await provider.devices()).filter(({ backend }) => backend === 'native');
  const open: Provider['open'] = (name) => provider.open(name ?? DEVICE.name);
  return new Proxy(provider, {
    get(target, key) {
      if (key === 'devices') return devicesOf;
      if (key === 'open') return open;
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
