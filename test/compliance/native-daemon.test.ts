import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import type { Provider } from '../../verbs-api/contract/provider.ts';
import { NativeDaemonRig } from '../support/native-daemon.ts';
import {
  DEVICE,
  type ProviderFixture,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
} from './fixture.ts';
import { complianceSuite } from './suite.ts';

const small = { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE };
const devices = [DEVICE, small].map((device) => ({ ...device, addresses: [...device.addresses] }));

/** The native devices of a daemon, by the names and addresses that the suite expects. */
const words = [DEVICE, SMALL_DEVICE].flatMap(({ name, addresses }) => [
  '--device',
  `${name}=native:${name},${addresses.join(',')}`,
]);

/** Two clients of one daemon, on devices that are native to it. */
const fixture: ProviderFixture = {
  tiers: { allocated: 'shared', own: 'shared' },
  backend: 'native',
  maxPrivateData: 255,
  lacks: new Set([
    'windows',
    'atomics',
    'immediateData',
    'localInvalidate',
    'chosenKeys',
    'chosenAddresses',
    'wireOptions',
    'ownMemory',
    'solicitedOnly',
  ]),
  async start() {
    const rig = new NativeDaemonRig();
    await rig.start(devices, [...words, '--device', 'emulated0=127.0.0.9']);
    const { socketPath } = rig;
    const providers = await Promise.all([
      connectDaemon({ socketPath }),
      connectDaemon({ socketPath }),
    ]);
    const [server, client] = providers.map(nativeOnly);
    if (server === undefined || client === undefined) throw new Error('two providers');
    return {
      server,
      client,
      async stop() {
        await Promise.all([server.close(), client.close()]);
        await rig.stop();
      },
    };
  },
};

/** The provider without the emulated device that every daemon has. */
function nativeOnly(provider: Provider): Provider {
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

complianceSuite('daemon, native device', fixture);
