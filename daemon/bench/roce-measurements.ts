/** Unmodified programs that connect out of band, both ends on the RoCE device of one daemon. */
import type { Measurement, Target } from './measurement.ts';
import { ucxFigures } from './program-figures.ts';
import { oneDaemonMeasurements } from './program-measurements.ts';
import { likePerftest, type ProgramPlace, programObstacle } from './program-pair.ts';
import { type Rig, UDP_ADDRESSES } from './rig.ts';

const LARGE_BYTES = 65_536;
const SMALL_BYTES = 64;
const DATAGRAM_BYTES = 4096;
/** Iterations of the bandwidth program and the baseline; of the latency program. */
const LARGE_COUNT = 4000;
const DATAGRAM_COUNT = 100_000;
const ANSWERED_COUNT = 5000;
/** Positions in perftest's figures after the size and the number of iterations. */
const FIGURE_OF_AVERAGE_RATE = 2;
const FIGURE_OF_TYPICAL_TIME = 3;
/** Any port but RoCE's own, which the daemons use. */
const RAW_PORT = 14_791;
const PUT_COUNT = 20_000;

/** Required results of the measurements within one daemon. */
const TARGETS: Readonly<Record<string, Target>> = {
  'roce-write-bw': { kind: 'value', limit: 2000 },
  'roce-send-rate': { kind: 'value', limit: 300_000 },
  'roce-write-lat': { kind: 'value', limit: 12 },
  'roce-send-lat': { kind: 'value', limit: 12 },
};

export const ROCE_MEASUREMENTS: readonly Measurement[] = [
  ...oneDaemonMeasurements({
    prefix: 'roce',
    where: 'both ends on the RoCE device of one daemon',
    places: async (rig) => {
      const place = await localPlace(rig);
      return [place, place];
    },
    options: [],
    largeWarmUps: 0,
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
  {
    name: 'udp-write-bw',
    title: `ib_write_bw -s ${LARGE_BYTES}, unmodified, RoCE devices of two daemons, over UDP`,
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'value', limit: 400 },
    baselines: [
      {
        title: `raw UDP of ${DATAGRAM_BYTES} bytes by sendmmsg`,
        run: (rig, scale) => rawDatagrams(rig, scale, false),
      },
      {
        title: 'the same with UDP_SEGMENT and UDP_GRO',
        run: (rig, scale) => rawDatagrams(rig, scale, true),
      },
    ],
    run: async (rig, scale) => {
      const words = ['ib_write_bw', '--report_gbits', '-n', countOf(LARGE_COUNT, scale)];
      const figures = await between(rig, words, LARGE_BYTES);
      return ((figures[FIGURE_OF_AVERAGE_RATE] ?? Number.NaN) * 1000) / 8;
    },
    obstacle: () => programObstacle('ib_write_bw'),
  },
  {
    name: 'udp-write-lat',
    title: `ib_write_lat -s ${SMALL_BYTES}, unmodified, the same: there and back, median`,
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 3 },
    baselines: [{ title: 'raw UDP round trip', run: rawRoundTrips }],
    run: async (rig, scale) => {
      const words = ['ib_write_lat', '-n', countOf(ANSWERED_COUNT, scale)];
      const figures = await between(rig, words, SMALL_BYTES);
      // perftest reports half a round trip.
      return (figures[FIGURE_OF_TYPICAL_TIME] ?? Number.NaN) * 2;
    },
    obstacle: () => programObstacle('ib_write_lat'),
  },
];

/** A perftest program between two daemons. Its ends exchange parameters over TCP on loopback. */
async function between(
  rig: Rig,
  words: readonly string[],
  sizeBytes: number,
): Promise<readonly number[]> {
  const [active, passive] = await rig.roceDaemons();
  const near = { socketPath: active.socketPath, address: '127.0.0.1' };
  const far = { socketPath: passive.socketPath, address: '127.0.0.1' };
  return await rig.programs().runPerftest(near, far, [...words, '-x', '1'], sizeBytes);
}

/** MB/s received; datagrams for which the receiver has no room are lost. */
async function rawDatagrams(rig: Rig, scale: number, segments: boolean): Promise<number> {
  const { active, passive } = rig.rawUdp();
  const [from, to] = UDP_ADDRESSES;
  const [port, bytes] = [RAW_PORT, DATAGRAM_BYTES];
  await passive.call('sink', { address: to, port, bytes, segments });
  const count = Math.ceil(DATAGRAM_COUNT * scale);
  await active.call('stream', { from, to, port, bytes, count, segments });
  return (await passive.call('received', undefined)) / 1e6;
}

async function rawRoundTrips(rig: Rig, scale: number): Promise<number> {
  const { active, passive } = rig.rawUdp();
  const port = await passive.call('echo', undefined);
  const count = Math.ceil(ANSWERED_COUNT * scale);
  const seconds = await active.call('pingPong', { port, sizeBytes: SMALL_BYTES, count });
  await passive.call('stop', undefined);
  return seconds * 1e6;
}

function countOf(count: number, scale: number): string {
  return String(Math.max(100, Math.ceil(count * scale)));
}

async function put(rig: Rig, transports: string, scale: number): Promise<number> {
  const place = await localPlace(rig);
  const count = String(Math.max(100, Math.ceil(PUT_COUNT * scale)));
  const options = ['-f', '-t', 'ucp_put_bw', '-s', String(LARGE_BYTES), '-n', count];
  const ends = likePerftest(['env', `UCX_TLS=${transports}`, 'ucx_perftest', ...options]);
  return ucxFigures(await rig.programs().runBothEnds(place, place, ends)).rateMBps;
}

/** Where programs run that exchange parameters over TCP on loopback. */
async function localPlace(rig: Rig): Promise<ProgramPlace> {
  const { socketPath } = await rig.roceDaemon();
  return { socketPath, address: '127.0.0.1' };
}
