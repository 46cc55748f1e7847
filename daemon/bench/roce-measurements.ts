/** Unmodified programs that connect out of band, both ends on the RoCE device of one daemon. */
import type { Measurement, Target } from './measurement.ts';
import { ucxFigures } from './program-figures.ts';
import { oneDaemonMeasurements } from './program-measurements.ts';
import { likePerftest, type ProgramPlace, programObstacle } from './program-pair.ts';
import type { Rig } from './rig.ts';

const LARGE_BYTES = 65_536;
const PUT_COUNT = 20_000;

/** What the lines of one daemon must reach on this device. */
const TARGETS: Readonly<Record<string, Target>> = {
  'roce-write-bw': { kind: 'value', limit: 2000 },
  'roce-send-rate': { kind: 'value', limit: 300_000 },
  'roce-write-lat': { kind: 'value', limit: 12 },
  'roce-send-lat': { kind: 'value', limit: 12 },
};

/** See the module's comment. */
export const ROCE_MEASUREMENTS: readonly Measurement[] = [
  ...oneDaemonMeasurements({
    prefix: 'roce',
    where: 'both ends on the RoCE device of one daemon',
    places: async (rig) => {
      const place = await localPlace(rig);
      return [place, place];
    },
    options: [],
  }).map((measurement) => {
    const target = TARGETS[measurement.name];
    return target === undefined ? measurement : { ...measurement, target };
  }),
  {
    name: 'roce-ucx-put',
    title: `ucx_perftest -t ucp_put_bw -s ${LARGE_BYTES}, rc_verbs on RoCE, one daemon`,
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'ratio', limit: 1 },
    baselines: [{ title: "UCX's tcp transport", run: (rig, scale) => put(rig, 'tcp', scale) }],
    run: (rig, scale) => put(rig, 'rc_verbs,ud_verbs', scale),
    obstacle: () => programObstacle('ucx_perftest', 'ucx-utils'),
  },
];

async function put(rig: Rig, transports: string, scale: number): Promise<number> {
  const place = await localPlace(rig);
  const count = String(Math.max(100, Math.ceil(PUT_COUNT * scale)));
  const options = ['-f', '-t', 'ucp_put_bw', '-s', String(LARGE_BYTES), '-n', count];
  const ends = likePerftest(['env', `UCX_TLS=${transports}`, 'ucx_perftest', ...options]);
  return ucxFigures(await rig.programs().runBothEnds(place, place, ends)).rateMBps;
}

/** Programs exchange their numbers over TCP on the loopback. */
async function localPlace(rig: Rig): Promise<ProgramPlace> {
  const { socketPath } = await rig.rocePlace();
  return { socketPath, address: '127.0.0.1' };
}
