/** Unmodified programs that connect out of band, both ends on the RoCE device of one daemon. */
import type { Measurement } from './measurement.ts';
import { programObstacle, runBothEnds, runProgramPair } from './program-pair.ts';
import type { Rig } from './rig.ts';

const LARGE_BYTES = 65_536;
const SMALL_BYTES = 64;
/** Figures behind the size: the number of iterations first. */
const FIGURE_OF_AVERAGE_RATE = 2;
const FIGURE_OF_MESSAGE_RATE = 3;
const FIGURE_OF_TYPICAL_TIME = 3;
/** ucx_perftest's line: iterations, three times, rates of the last report and of all. */
const UCX_FIGURE_OF_RATE = 5;

/** See the module's comment. */
export const ROCE_MEASUREMENTS: readonly Measurement[] = [
  {
    name: 'roce-write-bw',
    title: `ib_write_bw -s ${LARGE_BYTES}, unmodified, RoCE, one daemon`,
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'value', limit: 2000 },
    baselines: [],
    run: async (rig, scale) => {
      const words = ['ib_write_bw', '--report_gbits', ...iterations(40_000, scale)];
      const figures = await transfer(rig, words, LARGE_BYTES);
      return ((figures[FIGURE_OF_AVERAGE_RATE] ?? Number.NaN) * 1000) / 8;
    },
    obstacle: () => programObstacle('ib_write_bw'),
  },
  {
    name: 'roce-send-bw',
    title: `ib_send_bw -s ${SMALL_BYTES}, unmodified, RoCE, one daemon`,
    unit: 'messages/s',
    better: 'higher',
    target: { kind: 'value', limit: 300_000 },
    baselines: [],
    run: async (rig, scale) => {
      const words = ['ib_send_bw', ...iterations(500_000, scale)];
      const figures = await transfer(rig, words, SMALL_BYTES);
      return (figures[FIGURE_OF_MESSAGE_RATE] ?? Number.NaN) * 1e6;
    },
    obstacle: () => programObstacle('ib_send_bw'),
  },
  latency('roce-write-lat', 'ib_write_lat'),
  latency('roce-send-lat', 'ib_send_lat'),
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

/** Half of a round trip, as perftest counts; the median. */
function latency(name: string, program: string): Measurement {
  return {
    name,
    title: `${program} -s ${SMALL_BYTES}, unmodified, RoCE, one daemon: half a round trip`,
    unit: 'µs',
    better: 'lower',
    target: { kind: 'value', limit: 12 },
    baselines: [],
    run: async (rig, scale) => {
      const words = [program, ...iterations(20_000, scale)];
      return (await transfer(rig, words, SMALL_BYTES))[FIGURE_OF_TYPICAL_TIME] ?? Number.NaN;
    },
    obstacle: () => programObstacle(program),
  };
}

function iterations(count: number, scale: number): string[] {
  return ['-n', String(Math.max(100, Math.ceil(count * scale)))];
}

async function transfer(
  rig: Rig,
  words: readonly string[],
  sizeBytes: number,
): Promise<readonly number[]> {
  const place = await localPlace(rig);
  return runProgramPair(place, place, words, sizeBytes);
}

async function put(rig: Rig, transports: string, scale: number): Promise<number> {
  const place = await localPlace(rig);
  const program = ['ucx_perftest', '-f', '-t', 'ucp_put_bw', '-s', String(LARGE_BYTES)];
  const words = ['env', `UCX_TLS=${transports}`, ...program, ...iterations(20_000, scale)];
  const output = await runBothEnds(place, place, words);
  const figures = /^(?:Final:)?[\s\d.]*\d[\s\d.]*$/m.exec(output)?.[0].replace('Final:', '');
  const rate = figures?.trim().split(/\s+/).map(Number)[UCX_FIGURE_OF_RATE];
  if (rate === undefined) throw new Error(`ucx_perftest gave no figures: ${output}`);
  return rate;
}

/** Programs exchange their numbers over TCP on the loopback. */
async function localPlace(rig: Rig): Promise<{ socketPath: string; address: string }> {
  const { socketPath } = await rig.rocePlace();
  return { socketPath, address: '127.0.0.1' };
}
