import { connectDaemon } from '#verbs-api/connect-daemon';
import { NativeDaemonRig } from '../support/native-daemon.ts';
import { DEVICE, SMALL_DEVICE, SMALL_PROFILE, SMALL_WIRE } from '../support/provider-fixture.ts';
import { nativeDaemonFixture, nativeOnly } from './native-daemon-fixture.ts';
import { complianceSuite } from './suite.ts';

/** rdma-core's connection manager counts private data in one byte. */
const CM_PRIVATE_DATA_MAX = 255;

const small = { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE };
const devices = [DEVICE, small].map((device) => ({ ...device, addresses: [...device.addresses] }));

/** The native devices of a daemon, by the names and addresses that the suite expects. */
const words = [DEVICE, SMALL_DEVICE].flatMap(({ name, addresses }) => [
  '--device',
  `${name}=native:${name},${addresses.join(',')}`,
]);

/** Two clients of one daemon, on devices that another daemon emulates. */
const fixture = nativeDaemonFixture([], CM_PRIVATE_DATA_MAX, async () => {
  const rig = new NativeDaemonRig();
  await rig.start(devices, [...words, '--device', 'emulated0=127.0.0.9']);
  const { socketPath } = rig;
  const [server, client] = await Promise.all([
    connectDaemon({ socketPath }),
    connectDaemon({ socketPath }),
  ]);
  return {
    server: nativeOnly(server),
    client: nativeOnly(client),
    async stop() {
      await Promise.all([server.close(), client.close()]);
      await rig.stop();
    },
  };
});

complianceSuite('daemon, native device', fixture);
