/** The measurements of the bench, with their baselines and targets. */
import { CONNECTIONS_AT_ONCE, hold, release } from './held-connections.ts';
import { IDLE_MEASUREMENTS } from './idle-measurements.ts';
import { JOB_MEASUREMENTS } from './job-measurements.ts';
import type { Baseline, Measurement } from './measurement.ts';
import { NATIVE_MEASUREMENTS } from './native-measurements.ts';
import { oneCoreBaselines } from './one-core-limit.ts';
import { operatorMeasurements } from './operator-measurements.ts';
import { iperfWrites, PEER_MEASUREMENTS, ucxPut } from './peers.ts';
import { PROGRAM_MEASUREMENTS } from './program-measurements.ts';
import { rawRoundTrip, rawStream, rawWrites, type WriteLoad } from './raw-baselines.ts';
import type { Rig, VerbsPair } from './rig.ts';
import { ROCE_MEASUREMENTS } from './roce-measurements.ts';
import { rpcMeasurements } from './rpc-measurements.ts';
import { SCTP_MEASUREMENT } from './sctp-measurement.ts';
import { writeStream } from './write-stream.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const MESSAGE_BYTES = 64;

const WRITES_64K: WriteLoad = { writeBytes: 64 * KIB, totalBytes: 1024 * MIB, batch: 16 };
const WRITES_1M: WriteLoad = { writeBytes: MIB, totalBytes: 2048 * MIB, batch: 4 };
const WRITES_1K: WriteLoad = { writeBytes: KIB, totalBytes: 100 * MIB, batch: 64 };
/** Relative to raw TCP, and to the limit of one core. */
const LARGE_WRITE_AIM = 0.9;

/** All measurements, in the order of a run. */
export const MEASUREMENTS: readonly Measurement[] = [
  largeWrites('write-64k', '64 KiB', WRITES_64K, [ucxPut(), iperfWrites()]),
  largeWrites('write-1m', '1 MiB', WRITES_1M, []),
  writes('write-1k', '1 KiB, batched', WRITES_1K, 0.3, [
    rawWrites(WRITES_1K),
    {
      title: `raw TCP, ${WRITES_1K.batch} corked`,
      run: (rig, scale) => rawStream(rig, WRITES_1K, WRITES_1K.batch, scale),
    },
  ]),
  {
    name: 'ping-pong',
    title: 'Send of 64 bytes and back, two clients of two daemons',
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 3 },
    baselines: [rawRoundTrip(2.5)],
    run: async (rig, scale) => pingPong(await rig.overDaemons(), scale),
  },
  {
    name: 'ping-pong-embedded',
    title: 'Send of 64 bytes and back, RNICs in both processes',
    unit: 'µs',
    better: 'lower',
    target: { kind: 'ratio', limit: 1.5 },
    baselines: [rawRoundTrip()],
    run: async (rig, scale) => pingPong(await rig.embedded(), scale),
  },
  {
    name: 'messages',
    title: 'Sends of 64 bytes, 64 per post, one QP',
    unit: 'messages/s',
    better: 'higher',
    target: { kind: 'value', limit: 300_000 },
    aim: 1_000_000,
    baselines: [],
    run: async (rig, scale) => messageRate(await rig.overDaemons(), scale),
  },
  {
    name: 'connections',
    title: `${CONNECTIONS_AT_ONCE} connections with a QP each, all at once`,
    unit: 'ms',
    better: 'lower',
    target: { kind: 'value', limit: 100 },
    baselines: [{ title: 'raw TCP connections', run: rawConnections, aim: 10 }],
    run: async (rig) => connections(await rig.overDaemons()),
    // After a thousand connections, V8 has compiled their code.
    warmUps: 10,
  },
  ...PROGRAM_MEASUREMENTS,
  ...ROCE_MEASUREMENTS,
  SCTP_MEASUREMENT,
  ...PEER_MEASUREMENTS,
  ...IDLE_MEASUREMENTS,
  ...rpcMeasurements(async (rig, scale) => {
    const load = { writeBytes: MIB, totalBytes: 512 * MIB, batch: 4 };
    return writeStream(await rig.overDaemons(), load, scale);
  }),
  ...NATIVE_MEASUREMENTS,
  ...JOB_MEASUREMENTS,
  ...operatorMeasurements(async (rig, scale) => {
    const load = { writeBytes: 64 * KIB, totalBytes: 512 * MIB, batch: 16 };
    return writeStream(await rig.overDaemons(), load, scale);
  }),
];

/** Large writes between two daemons, compared with raw TCP, the limit of one core, and `others`. */
function largeWrites(
  name: string,
  size: string,
  load: WriteLoad,
  others: readonly Baseline[],
): Measurement {
  return writes(name, size, load, 0.7, [
    rawWrites(load, LARGE_WRITE_AIM),
    ...oneCoreBaselines(LARGE_WRITE_AIM),
    ...others,
  ]);
}

function writes(
  name: string,
  size: string,
  load: WriteLoad,
  limit: number,
  baselines: readonly Baseline[],
): Measurement {
  return {
    name,
    title: `RDMA Write of ${size}, one QP, CRC on, two clients of two daemons`,
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'ratio', limit },
    baselines,
    run: async (rig, scale) => writeStream(await rig.overDaemons(), load, scale),
  };
}

async function pingPong(pair: VerbsPair, scale: number): Promise<number> {
  const { active, passive } = pair;
  for (const count of [Math.ceil(500 * scale), Math.ceil(5000 * scale)]) {
    const echoed = passive.call('echo', { sizeBytes: MESSAGE_BYTES, count });
    const seconds = await active.call('ping', { sizeBytes: MESSAGE_BYTES, count });
    await echoed;
    // The first, shorter exchange warms up both sides.
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
  const seconds = await active.call('connections', { port, count: CONNECTIONS_AT_ONCE });
  await passive.call('stop', undefined);
  return seconds * 1e3;
}

async function connections(pair: VerbsPair): Promise<number> {
  const seconds = await hold(pair, CONNECTIONS_AT_ONCE);
  await release(pair);
  return seconds * 1e3;
}
