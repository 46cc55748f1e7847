/** The cost of an idle, connected queue pair to a daemon. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { BenchDaemon } from './bench-daemon.ts';
import { CONNECTIONS_AT_ONCE, hold, release } from './held-connections.ts';
import type { Measurement } from './measurement.ts';
import type { Rig } from './rig.ts';

const KIB = 1024;
/** Connections opened and closed first, so that V8 compiles their code. */
const WARM_UPS = 10;
/** QPs created before the measured ones, so that memory allocated once or in large steps does not count. */
const QPS_BEFORE = 1000;
/** QPs to measure: many, since memory fluctuates by a MiB or two. */
const QPS_MORE = 4000;
const SETTLE_MS = 2000;

export const IDLE_MEASUREMENTS: readonly Measurement[] = [
  {
    name: 'idle-qp',
    title: `daemon memory for each of ${QPS_MORE} further idle, connected QPs`,
    unit: 'KiB',
    better: 'lower',
    target: { kind: 'value', limit: 64 },
    aim: 12,
    baselines: [],
    run: async (rig) => (await growth(rig, (daemon) => daemon.residentBytes())) / KIB,
    once: true,
  },
  {
    name: 'idle-qp-files',
    title: `descriptors of a daemon for each of ${QPS_MORE} further idle, connected QPs`,
    unit: 'files',
    better: 'lower',
    // 10,000 QPs, and the daemon's own files, in the 20,000 that a process may usually open.
    aim: 1.99,
    baselines: [],
    run: async (rig) => await growth(rig, (daemon) => daemon.openFiles()),
    once: true,
  },
];

/** Growth of `measure` per additional QP, in the daemon that grows more. */
async function growth(rig: Rig, measure: (daemon: BenchDaemon) => number): Promise<number> {
  const { pair, daemons } = await rig.idle();
  const settled = async (): Promise<number[]> => {
    await sleep(SETTLE_MS);
    for (const daemon of daemons) await daemon.collectGarbage();
    return daemons.map(measure);
  };
  for (let left = WARM_UPS; left > 0; left--) {
    await hold(pair, CONNECTIONS_AT_ONCE);
    await release(pair);
  }
  // Collect the garbage of the first connections, whose memory the measured ones would reuse.
  await settled();
  await hold(pair, QPS_BEFORE);
  const before = await settled();
  await hold(pair, QPS_MORE);
  const after = await settled();
  await release(pair);
  return Math.max(...after.map((value, index) => value - (before[index] ?? 0))) / QPS_MORE;
}
