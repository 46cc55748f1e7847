/**
 * The suite on Linux's siw as a daemon serves it. It runs in a guest that names two siw devices as
 * the fixture wants them, with the addresses of the first in $IWARPD_SUITE_ADDRESSES.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { RunningCommand } from '../e2e/cli-process.ts';
import { nativeDaemonFixture, nativeOnly } from './native-daemon-fixture.ts';
import { complianceSuite } from './suite.ts';

/** siw counts its 4 octets of RFC 6581 and the private data in one octet. */
const SIW_PRIVATE_DATA_MAX = 251;

const fixture = nativeDaemonFixture(
  ['nearLimits', 'otherAddresses', 'smallerDepths', 'solicitedEvents', 'foreignReplies'],
  SIW_PRIVATE_DATA_MAX,
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'iwarpd-siw-'));
    const socketPath = join(directory, 's');
    const words = ['start', '--socket', socketPath, '--device', 'emulated0=127.0.0.9'];
    const daemon = new RunningCommand(words);
    await daemon.until(/ready/);
    const [server, client] = await Promise.all([
      connectDaemon({ socketPath }),
      connectDaemon({ socketPath }),
    ]);
    return {
      server: nativeOnly(server),
      client: nativeOnly(client),
      async stop() {
        await Promise.all([server.close(), client.close()]);
        daemon.signal('SIGTERM');
        await daemon.end();
        rmSync(directory, { recursive: true });
      },
    };
  },
);

complianceSuite('daemon, siw', fixture);
