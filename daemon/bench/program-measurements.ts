/**
 * perftest, unmodified: between two daemons, and with both ends on one. The lines of one daemon are the
 * same for every device; `device` says how its programs connect.
 */
import type { Baseline, Measurement, Target } from './measurement.ts';
import { fabricLatency, ucxMessages, ucxPut, ucxTagLatency } from './peers.ts';
import { type ProgramPlace, programObstacle } from './program-pair.ts';
import { RAW_ONE_WAY, rawRoundTrip, rawWrites, type WriteLoad } from './raw-baselines.ts';
import type { Rig } from './rig.ts';

const LARGE_BYTES = 65_536;
const SMALL_BYTES = 64;
/** Position after the size: the number of iterations and the peak come first. */
const FIGURE_OF_AVERAGE_RATE = 2;
const FIGURE_OF_MESSAGE_RATE = 3;
/** Position after the number of iterations, the minimum and the maximum. */
const FIGURE_OF_TYPICAL_TIME = 3;
const FIGURE_OF_AVERAGE_TIME = 4;
/** Large messages per round: as many bytes as raw TCP writes. */
const LARGE_COUNT = 16_384;
/** Small messages per round; and those sent one at a time, each after the answer to the last. */
const SMALL_COUNT = 300_000;
const ANSWERED_COUNT = 10_000;
/** Programs to run before V8 has compiled the path of a large message in two daemons. */
const LARGE_WARM_UPS = 2;
/** Required ratio to raw TCP of a program between two daemons. */
const BETWEEN_DAEMONS: Target = { kind: 'ratio', limit: 0.5 };

/** The load of the bandwidth programs. */
const LARGE_WRITES: WriteLoad = {
  writeBytes: LARGE_BYTES,
  totalBytes: 1 << 30,
  batch: 1,
};

/** The places where client and server run; possibly the same. */
type Places = (rig: Rig) => Promise<readonly [ProgramPlace, ProgramPlace]>;

/** Where and how a group of programs runs. */
interface Setting {
  /** Prefix of the names of its lines. */
  readonly prefix: string;
  /** Suffix of their titles. */
  readonly where: string;
  readonly places: Places;
  /** How the programs connect. */
  readonly options: readonly string[];
  /** Rounds of large messages that do not count. */
  readonly largeWarmUps: number;
}

const TWO_DAEMONS: Setting = {
  prefix: 'run',
  where: 'between two daemons',
  places: (rig) => rig.daemons(),
  options: ['-R'],
  largeWarmUps: LARGE_WARM_UPS,
};

const ONE_DAEMON: Setting = {
  prefix: 'one',
  where: 'both ends on the iWARP device of one daemon',
  places: async (rig) => {
    const [place] = await rig.daemons();
    return [place, place];
  },
  options: ['-R'],
  largeWarmUps: 0,
};

/** The measurements of iWARP devices. */
export const PROGRAM_MEASUREMENTS: readonly Measurement[] = [
  {
    ...bandwidth(TWO_DAEMONS, 'ib_write_bw', [rawWrites(LARGE_WRITES, 0.6), ucxPut(1.5)]),
    target: BETWEEN_DAEMONS,
  },
  {
    // The spinning programs are niced: this is what daemons reach if processors are not scarce.
    ...bandwidth(TWO_DAEMONS, 'ib_write_bw', [rawWrites(LARGE_WRITES)], ['nice', '-n', '19']),
    name: 'run-write-bw-nice',
    target: BETWEEN_DAEMONS,
  },
  bandwidth(TWO_DAEMONS, 'ib_read_bw', [rawWrites(LARGE_WRITES)]),
  bandwidth(TWO_DAEMONS, 'ib_send_bw', [rawWrites(LARGE_WRITES), ucxMessages()]),
  roundTrip('run-send-lat', []),
  roundTrip('run-send-lat-e', ['-e']),
  latency(TWO_DAEMONS, 'ib_write_lat', [RAW_ONE_WAY]),
  ...oneDaemonMeasurements(ONE_DAEMON),
];

/** Measurements of unmodified programs with both ends on one daemon. */
export function oneDaemonMeasurements(setting: Setting): readonly Measurement[] {
  const raw = rawWrites(LARGE_WRITES);
  return [
    bandwidth(setting, 'ib_write_bw', [raw, ucxPut(2)]),
    bandwidth(setting, 'ib_read_bw', [raw, ucxPut(2)]),
    bandwidth(setting, 'ib_send_bw', [raw, ucxMessages()]),
    latency(setting, 'ib_write_lat', [ucxTagLatency(1.2), fabricLatency()]),
    latency(setting, 'ib_send_lat', [ucxTagLatency(1.2), fabricLatency()]),
    messageRate(setting, 'ib_write_bw', 1_000_000),
    messageRate(setting, 'ib_send_bw', 500_000),
  ];
}

function bandwidth(
  setting: Setting,
  program: string,
  baselines: readonly Baseline[],
  prefix: readonly string[] = [],
): Measurement {
  const command = [...prefix, program, ...setting.options];
  return {
    name: nameOf(setting, program),
    title: `${command.join(' ')} -s ${LARGE_BYTES}, unmodified, ${setting.where}`,
    unit: 'MB/s',
    better: 'higher',
    baselines,
    warmUps: setting.largeWarmUps,
    run: async (rig, scale) => {
      const count = Math.ceil(LARGE_COUNT * scale);
      // Gbit/s are decimal, as our units are.
      const words = [...command, '--report_gbits', '-n', String(count)];
      const figures = await runOnce(rig, setting, words, LARGE_BYTES);
      return ((figures[FIGURE_OF_AVERAGE_RATE] ?? Number.NaN) * 1000) / 8;
    },
    obstacle: () => programObstacle(program),
  };
}

/** Half a round trip, as perftest counts it; the median. */
function latency(setting: Setting, program: string, baselines: readonly Baseline[]): Measurement {
  const command = [program, ...setting.options];
  return {
    name: nameOf(setting, program),
    title: `${command.join(' ')} -s ${SMALL_BYTES}, unmodified, ${setting.where}: half a round trip`,
    unit: 'µs',
    better: 'lower',
    baselines,
    run: async (rig, scale) => {
      const words = [...command, '-n', String(Math.ceil(ANSWERED_COUNT * scale))];
      const figures = await runOnce(rig, setting, words, SMALL_BYTES);
      return figures[FIGURE_OF_TYPICAL_TIME] ?? Number.NaN;
    },
    obstacle: () => programObstacle(program),
  };
}

/** Small messages, each posted separately. */
function messageRate(setting: Setting, program: string, aim: number): Measurement {
  const command = [program, ...setting.options, '-l', '1'];
  return {
    name: nameOf(setting, program).replace(/-bw$/, '-rate'),
    title: `${command.join(' ')} -s ${SMALL_BYTES}, unmodified, ${setting.where}`,
    unit: 'messages/s',
    better: 'higher',
    aim,
    baselines: [],
    run: async (rig, scale) => {
      const words = [...command, '-n', String(Math.ceil(SMALL_COUNT * scale))];
      const figures = await runOnce(rig, setting, words, SMALL_BYTES);
      return (figures[FIGURE_OF_MESSAGE_RATE] ?? Number.NaN) * 1e6;
    },
    obstacle: () => programObstacle(program),
  };
}

/** A round trip between two daemons, on average. */
function roundTrip(name: string, options: readonly string[]): Measurement {
  const command = ['ib_send_lat', ...options, ...TWO_DAEMONS.options];
  return {
    name,
    title: `${command.join(' ')} -s ${SMALL_BYTES}, unmodified, between two daemons: there and back`,
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 4 },
    baselines: [rawRoundTrip()],
    run: async (rig, scale) => {
      const words = [...command, '-n', String(Math.ceil(5000 * scale))];
      const figures = await runOnce(rig, TWO_DAEMONS, words, SMALL_BYTES);
      // perftest reports half a round trip.
      return (figures[FIGURE_OF_AVERAGE_TIME] ?? Number.NaN) * 2;
    },
    obstacle: () => programObstacle('ib_send_lat'),
  };
}

/** `ib_write_bw` in the setting `run` is `run-write-bw`. */
function nameOf({ prefix }: Setting, program: string): string {
  return program.replace('ib_', `${prefix}-`).replaceAll('_', '-');
}

async function runOnce(
  rig: Rig,
  { places }: Setting,
  words: readonly string[],
  sizeBytes: number,
): Promise<readonly number[]> {
  const [active, passive] = await places(rig);
  return await rig.programs().runPerftest(active, passive, words, sizeBytes);
}
