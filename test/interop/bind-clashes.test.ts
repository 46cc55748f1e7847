/**
 * Clashes between the ports of rdma_cm ids, as on Linux. The same program runs on Linux's siw and
 * rxe in `kernel-peer.test.ts` and `rxe-peer.test.ts`.
 */
import { beforeAll, expect, it } from 'vitest';
import type { DeviceTransport } from '#contract/verbs/attributes';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { BindClashes, type ClashAddresses, kernelOutcomes, outcomesOf } from './bind-clashes.ts';

const ADDRESSES: ClashAddresses = ['127.0.72.37', '127.0.72.38', '::1'];
/** Below the system's ephemeral ports. Each run has its own ports. */
const PORTS = { iwarp: 23_000, roce: 23_200, both: 23_400 };

/** The port of a destroyed listener stays open to the program's next one for a moment. */
const KEPT = 'bind a A, listen a, destroy a, hold T A, serve T';

let folder: string;
let clashes: BindClashes;

async function run(rig: RoceRig, port: number) {
  try {
    const words = ['sh', '-c', clashes.command(ADDRESSES, port)];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    rig.host.assertDeepInvariants();
    return outcomesOf(ended.output);
  } finally {
    await rig.stop();
  }
}

const device = (transport: DeviceTransport, addresses: readonly string[] = ADDRESSES) => ({
  name: `${transport}0`,
  addresses,
  transport,
});

describeWith(['native'], "ports of rdma_cm's ids", () => {
  beforeAll(() => {
    folder = temporaryFolder();
    clashes = new BindClashes(folder);
  });

  it('clash on iWARP as on siw', async () => {
    const found = await run(await RoceRig.start(device('iwarp')), PORTS.iwarp);
    const kept = { [KEPT]: 'ok, ok, ok, EADDRINUSE, ok' };
    expect(found).toEqual({ ...kernelOutcomes('iwarp'), ...kept });
  });

  it.each(['iwarp', 'roce'] as const)(
    'clash on an isolated network of %s, but not with sockets of the machine',
    async (transport) => {
      const found = await run(await RoceRig.startIsolated(device(transport)), PORTS[transport]);
      const sockets = Object.entries(kernelOutcomes('roce')).filter(([steps]) =>
        / T\b/.test(steps),
      );
      expect(found).toEqual({ ...kernelOutcomes(transport), ...Object.fromEntries(sockets) });
    },
  );

  it('clash on two devices with one address as on siw or rxe', async () => {
    // Other suites use RoCE's UDP port at ::1.
    const roce = device('roce', ADDRESSES.slice(0, 2));
    const found = await run(await RoceRig.start(roce, device('iwarp')), PORTS.both);
    const [siw, rxe] = [kernelOutcomes('iwarp'), kernelOutcomes('roce')];
    const other = Object.entries(found).filter(([steps, outcomes]) => {
      return steps !== KEPT && outcomes !== siw[steps] && outcomes !== rxe[steps];
    });
    expect(other).toEqual([]);
  });
});
