/** Pairs of providers for fixtures: in this process, or of daemons in this process. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Provider } from '#contract/verbs/provider';
import { createEmbedded, type EmbeddedOptions } from '#daemon/embedded/embedded-provider';
import type { DaemonConfigInput } from '#daemon/main/config';
import { startDaemon } from '#daemon/main/daemon';
import { connectDaemon } from '#verbs-api/connect-daemon';
import {
  DEVICE,
  SMALL_DEVICE,
  SMALL_PROFILE,
  SMALL_WIRE,
  type StartedFixture,
} from '../support/provider-fixture.ts';

/** The suite's devices, as a fixture of iWARP has them. */
export const DEVICES = [
  DEVICE,
  { ...SMALL_DEVICE, profile: SMALL_PROFILE, wire: SMALL_WIRE },
] as const;

/** Both providers as a fixture at work; `release` runs once they are closed. */
export function pairOf(
  [server, client]: readonly [Provider, Provider],
  release?: () => Promise<unknown>,
): StartedFixture {
  return {
    server,
    client,
    async stop() {
      await Promise.all([server.close(), client.close()]);
      await release?.();
    },
  };
}

/** Two hosts in this process. */
export async function embeddedPair(
  devices: NonNullable<EmbeddedOptions['devices']>,
): Promise<StartedFixture> {
  const server = await createEmbedded({ devices });
  return pairOf([server, await createEmbedded({ devices })]);
}

interface Addressed {
  readonly addresses: readonly string[];
}

/** `devices` as a daemon takes them, with `more` options each. */
export function daemonDevices<Device extends Addressed, More extends object>(
  devices: readonly Device[],
  more?: More,
): (Device & More & { addresses: string[] })[] {
  return devices.map((device) => ({
    ...device,
    ...(more as More),
    addresses: [...device.addresses],
  }));
}

/** Two clients: of one daemon, or of one daemon each. */
export async function daemonPair(
  options: Omit<DaemonConfigInput, 'socketPath'>,
  daemonCount: 1 | 2 = 1,
): Promise<StartedFixture> {
  const directory = mkdtempSync(join(tmpdir(), 'iwarpd-'));
  const paths = ['a', 'b'].slice(0, daemonCount).map((name) => join(directory, name));
  const daemons = await Promise.all(
    paths.map((socketPath) => startDaemon({ logLevel: 'silent', ...options, socketPath })),
  );
  const [first = '', second = first] = paths;
  const providers = await Promise.all([
    connectDaemon({ socketPath: first }),
    connectDaemon({ socketPath: second }),
  ]);
  return pairOf(providers, async () => {
    await Promise.all(daemons.map((daemon) => daemon.stop()));
    rmSync(directory, { recursive: true });
  });
}
