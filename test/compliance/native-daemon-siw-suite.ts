/**
 * The suite on Linux's siw as a daemon serves it. It runs in a guest that names two siw devices as
 * the fixture wants them, with the addresses of the first in $IWARPD_SUITE_ADDRESSES, beside the
 * daemon at $IWARPD_SOCKET.
 */
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { nativeDaemonFixture, nativeOnly } from './native-daemon-fixture.ts';
import { complianceSuite } from './suite.ts';

/** siw counts its 4 octets of RFC 6581 and the private data in one octet. */
const SIW_PRIVATE_DATA_MAX = 251;

const fixture = nativeDaemonFixture(
  ['nearLimits', 'otherAddresses', 'smallerDepths', 'solicitedEvents', 'foreignReplies'],
  SIW_PRIVATE_DATA_MAX,
  async () => {
    const [server, client] = await Promise.all([connectDaemon(), connectDaemon()]);
    return {
      server: nativeOnly(server),
      client: nativeOnly(client),
      async stop() {
        await Promise.all([server.close(), client.close()]);
      },
    };
  },
);

complianceSuite('daemon, siw', fixture);
