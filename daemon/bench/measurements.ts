/** What the bench measures, against what, and what it has to reach. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Measurement } from './measurement.ts';
import { NATIVE_MEASUREMENTS } from './native-measurements.ts';
import { operatorMeasurements } from './operator-measurements.ts';
import { programObstacle, runProgramPair } from './program-pair.ts';
import type { Rig, VerbsPair } from './rig.ts';
import { ROCE_MEASUREMENTS } from './roce-measurements.ts';
import { rpcMeasurements } from './rpc-measurements.ts';
import { WRITE_WINDOW_BYTES } from './verbs-traffic.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const MESSAGE_BYTES = 64;
const CONNECTION_COUNT = 100;
const IDLE_QP_COUNT = 1000;
const IDLE_SETTLE_MS = 2000;
/** Behind the number of iterations and the peak. */
const FIGURE_OF_AVERAGE_RATE = 2;
/** Behind the number of iterations, the least, the most and the typical time. */
const FIGURE_OF_AVERAGE_TIME = 4;

/** What `run-write-bw` writes. */
const PROGRAM_WRITES: WriteLoad = {
  writeBytes: 64 * KIB,
  totalBytes: 1024 * MIB,
  batch: 1,
};

/** All measurements, in the order in which they run. */
export const MEASUREMENTS: readonly Measurement[] = [
  writes('write-64k', '64 KiB', { writeBytes: 64 * KIB, totalBytes: 1024 * MIB, batch: 16 }, 0.7),
  writes('write-1m', '1 MiB', { writeBytes: MIB, totalBytes: 2048 * MIB, batch: 4 }, 0.7),
  writes('write-1k', '1 KiB, batched', { writeBytes: KIB, totalBytes: 100 * MIB, batch: 64 }, 0.3),
  {
    name: 'ping-pong',
    title: 'Send of 64 bytes and back, two clients of two daemons',
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 3, aim: 2 },
    baselines: [{ title: 'raw TCP round trip', run: rawPingPong }],
    run: async (rig, scale) => pingPong(await rig.overDaemons(), scale),
  },
  {
    name: 'ping-pong-embedded',
    title: 'Send of 64 bytes and back, RNICs in both processes',
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 1.5 },
    baselines: [{ title: 'raw TCP round trip', run: rawPingPong }],
    run: async (rig, scale) => pingPong(await rig.embedded(), scale),
  },
  {
    name: 'messages',
    title: 'Sends of 64 bytes, 64 at a post, one QP',
    unit: 'messages/s',
    better: 'higher',
    target: { kind: 'value', limit: 300_000, aim: 1_000_000 },
    baselines: [],
    run: async (rig, scale) => messageRate(await rig.overDaemons(), scale),
  },
  {
    name: 'connections',
    title: `${CONNECTION_COUNT} connections with a QP each, all at once`,
    unit: 'ms',
    better: 'lower',
    target: { kind: 'value', limit: 100 },
    baselines: [{ title: 'raw TCP connections', run: rawConnections }],
    run: async (rig) => connections(await rig.overDaemons()),
    warmUps: 5,
  },
  programWrites('run-write-bw', []),
  // The spinning programs give way: what the daemons reach where processors are not short.
  programWrites('run-write-bw-nice', ['nice', '-n', '19']),
  programPingPong('run-send-lat', []),
  programPingPong('run-send-lat-e', ['-e']),
  ...ROCE_MEASUREMENTS,
  {
    name: 'idle-qp',
    title: `daemon memory for each of ${IDLE_QP_COUNT} idle, connected QPs`,
    unit: 'KiB',
    better: 'lower',
    target: { kind: 'value', limit: 64 },
    baselines: [],
    run: idleMemory,
    once: true,
  },
  ...rpcMeasurements((rig, scale) =>
    writeStream(rig, { writeBytes: MIB, totalBytes: 512 * MIB, batch: 4 }, scale),
  ),
  ...NATIVE_MEASUREMENTS,
  ...operatorMeasurements((rig, scale) =>
    writeStream(rig, { writeBytes: 64 * KIB, totalBytes: 512 * MIB, batch: 16 }, scale),
  ),
];

interface WriteLoad {
  readonly writeBytes: number;
  readonly totalBytes: number;
  /** Work requests at a post. */
  readonly batch: number;
}

function writes(name: string, size: string, load: WriteLoad, limit: number): Measurement {
  const small = load.writeBytes <= KIB;
  return {
    name,
    title: `RDMA Write of ${size}, one QP, CRC on, two clients of two daemons`,
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'ratio', limit, ...(small ? {} : { aim: 0.9 }) },
    baselines: [
      { title: 'raw TCP, one write each', run: (rig, scale) => rawStream(rig, load, 1, scale) },
      ...(small
        ? [
            {
              title: `raw TCP, ${load.batch} corked`,
              run: (rig: Rig, scale: number) => rawStream(rig, load, load.batch, scale),
            },
          ]
        : []),
    ],
    run: (rig, scale) => writeStream(rig, load, scale),
  };
}

/** The load's count of writes, scaled, as whole batches. */
function writeCount(load: WriteLoad, scale: number): number {
  const batches = Math.round((load.totalBytes * scale) / load.writeBytes / load.batch);
  return Math.max(1, batches) * load.batch;
}

async function rawStream(rig: Rig, load: WriteLoad, cork: number, scale: number): Promise<number> {
  const { active, passive } = rig.raw();
  const { writeBytes } = load;
  const totalBytes = writeCount(load, scale) * writeBytes;
  const port = await passive.call('sink', { totalBytes });
  const seconds = await active.call('stream', { port, writeBytes, totalBytes, cork });
  await passive.call('stop', undefined);
  return totalBytes / seconds / 1e6;
}

async function writeStream(rig: Rig, load: WriteLoad, scale: number): Promise<number> {
  const { active, passive, remote } = await rig.overDaemons();
  const { writeBytes, batch } = load;
  const count = writeCount(load, scale);
  const answered = passive.call('answer', undefined);
  const seconds = await active.call('write', { remote, writeBytes, count, batch });
  await answered;
  await passive.call('verify', {
    lengthBytes: Math.min(batch * writeBytes, Math.max(writeBytes, WRITE_WINDOW_BYTES)),
  });
  return (count * writeBytes) / seconds / 1e6;
}

async function rawPingPong(rig: Rig, scale: number): Promise<number> {
  const { active, passive } = rig.raw();
  const count = Math.ceil(10_000 * scale);
  const port = await passive.call('echo', undefined);
  const seconds = await active.call('pingPong', { port, sizeBytes: MESSAGE_BYTES, count });
  await passive.call('stop', undefined);
  return seconds * 1e6;
}

async function pingPong(pair: VerbsPair, scale: number): Promise<number> {
  const { active, passive } = pair;
  for (const count of [Math.ceil(500 * scale), Math.ceil(5000 * scale)]) {
    const echoed = passive.call('echo', { sizeBytes: MESSAGE_BYTES, count });
    const seconds = await active.call('ping', { sizeBytes: MESSAGE_BYTES, count });
    await echoed;
    // The first, shorter exchange warms both sides up.
    if (count > 500 * scale + 1) return seconds * 1e6;
  }
  return Number.NaN;
}

async function messageRate({ active, passive }: VerbsPair, scale: number): Promise<number> {
  const count = Math.max(1, Math.round(400 * scale)) * KIB;
  const received = passive.call('receiveStream', { count });
  const seconds = await active.call('sendStream', { sizeBytes: MESSAGE_BYTES, count, batch: 64 });
  await received;
  return count / seconds;
}

async function rawConnections(rig: Rig): Promise<number> {
  const { active, passive } = rig.raw();
  const port = await passive.call('echo', undefined);
  const seconds = await active.call('connections', { port, count: CONNECTION_COUNT });
  await passive.call('stop', undefined);
  return seconds * 1e3;
}

async function connections(pair: VerbsPair): Promise<number> {
  const seconds = await hold(pair, CONNECTION_COUNT, CONNECTION_COUNT);
  await release(pair);
  return seconds * 1e3;
}

async function idleMemory(rig: Rig): Promise<number> {
  const pair = await rig.overDaemons();
  const daemons = await rig.daemons();
  // Connections before the count starts, so that what is allocated once is there already.
  await hold(pair, CONNECTION_COUNT, CONNECTION_COUNT);
  await release(pair);
  await sleep(IDLE_SETTLE_MS);
  const before = daemons.map((daemon) => daemon.residentBytes());
  await hold(pair, IDLE_QP_COUNT, CONNECTION_COUNT);
  await sleep(IDLE_SETTLE_MS);
  const growth = daemons.map((daemon, index) => daemon.residentBytes() - (before[index] ?? 0));
  await release(pair);
  return Math.max(...growth) / IDLE_QP_COUNT / KIB;
}

function programWrites(name: string, prefix: readonly string[]): Measurement {
  const command = [...prefix, 'ib_write_bw'];
  const { writeBytes } = PROGRAM_WRITES;
  return {
    name,
    title: `${command.join(' ')} -R -s ${writeBytes}, unmodified, between two daemons`,
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'ratio', limit: 0.5 },
    baselines: [
      {
        title: 'raw TCP, one write each',
        run: (rig, scale) => rawStream(rig, PROGRAM_WRITES, 1, scale),
      },
    ],
    run: async (rig, scale) => {
      const [active, passive] = await rig.places();
      const count = writeCount(PROGRAM_WRITES, scale);
      // Gbit/s are decimal, as our units are.
      const words = [...command, '-R', '--report_gbits', '-n', String(count)];
      const figures = await runProgramPair(active, passive, words, writeBytes);
      return ((figures[FIGURE_OF_AVERAGE_RATE] ?? Number.NaN) * 1000) / 8;
    },
    obstacle: () => programObstacle('ib_write_bw'),
  };
}

function programPingPong(name: string, options: readonly string[]): Measurement {
  const command = ['ib_send_lat', ...options];
  return {
    name,
    title: `${command.join(' ')} -R -s 64, unmodified, between two daemons: there and back`,
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 4 },
    baselines: [{ title: 'raw TCP round trip', run: rawPingPong }],
    run: async (rig, scale) => {
      const [active, passive] = await rig.places();
      const words = [...command, '-R', '-n', String(Math.ceil(5000 * scale))];
      // perftest halves its round trips.
      const figures = await runProgramPair(active, passive, words, MESSAGE_BYTES);
      return (figures[FIGURE_OF_AVERAGE_TIME] ?? Number.NaN) * 2;
    },
    obstacle: () => programObstacle('ib_send_lat'),
  };
}

async function hold(pair: VerbsPair, count: number, width: number): Promise<number> {
  const accepted = pair.passive.call('acceptMany', { count });
  const seconds = await pair.active.call('connectMany', { ...pair.meeting, count, width });
  await accepted;
  return seconds;
}

async function release({ active, passive }: VerbsPair): Promise<void> {
  await active.call('closeMany', undefined);
  await passive.call('closeMany', undefined);
}
