/**
 * Other users of TCP and RDMA interfaces on the same machine: UCX, libfabric and iperf3, unmodified and
 * without our devices. They appear in the table, and as baselines of our results.
 */
import type { Baseline, Measurement } from './measurement.ts';
import { iperfRate, pingPongFigures, ucxFigures } from './program-figures.ts';
import { likePerftest, type ProgramPlace, peerObstacle } from './program-pair.ts';
import { RAW_ONE_WAY, rawWrites } from './raw-baselines.ts';
import type { Rig } from './rig.ts';

const LARGE_BYTES = 65_536;
const SMALL_BYTES = 64;
const LARGE_COUNT = 10_000;
const SMALL_COUNT = 10_000;
const WARM_UP_COUNT = '1000';
/** Fewer for large messages that are sent one at a time, so that a round does not take seconds. */
const LARGE_PINGPONG_COUNT = 2000;
const SMALL_PINGPONG_COUNT = 5000;
const HERE: ProgramPlace = { address: '127.0.0.1' };
const RAW_WRITES = rawWrites({ writeBytes: LARGE_BYTES, totalBytes: 1 << 30, batch: 1 });

type Run = (rig: Rig, scale: number) => Promise<number>;

/** The peers, compared with raw TCP. */
export const PEER_MEASUREMENTS: readonly Measurement[] = [
  rate('ucx-put-bw', 'UCX tcp: ucp_put_bw of 64 KiB', ucxRate('ucp_put_bw'), ucxObstacle),
  rate('ucx-am-bw', 'UCX tcp: ucp_am_bw of 64 KiB', ucxRate('ucp_am_bw'), ucxObstacle),
  latency('ucx-tag-lat', 'UCX tcp: tag_lat of 64 bytes, median', ucxTime('tag_lat'), ucxObstacle),
  latency('ucx-am-lat', 'UCX tcp: ucp_am_lat of 64 bytes', ucxTime('ucp_am_lat'), ucxObstacle),
  ...(['msg', 'rdm'] as const).flatMap((endpoint) => [
    rate(
      `libfabric-${endpoint}-bw`,
      `libfabric tcp: fi_pingpong -e ${endpoint} of 64 KiB, one message at a time`,
      async (rig, scale) => (await pingPong(rig, endpoint, LARGE_BYTES, scale)).rateMBps,
      fabricObstacle,
    ),
    latency(
      `libfabric-${endpoint}-lat`,
      `libfabric tcp: fi_pingpong -e ${endpoint} of 64 bytes, average`,
      async (rig, scale) => (await pingPong(rig, endpoint, SMALL_BYTES, scale)).averageMicros,
      fabricObstacle,
    ),
  ]),
  rate('iperf3', 'iperf3: one TCP connection, writes of 64 KiB', iperf, iperfObstacle),
];

/** UCX's RDMA Writes of 64 KiB over its tcp transport. */
export function ucxPut(aim?: number): Baseline {
  return peer('UCX tcp put_bw', ucxRate('ucp_put_bw'), ucxObstacle, aim);
}

/** UCX's active messages of 64 KiB over its tcp transport. */
export function ucxMessages(): Baseline {
  return peer('UCX tcp am_bw', ucxRate('ucp_am_bw'), ucxObstacle);
}

/** UCX's tagged messages of 64 bytes over its tcp transport: half a round trip, median. */
export function ucxTagLatency(aim?: number): Baseline {
  return peer('UCX tcp tag_lat', ucxTime('tag_lat'), ucxObstacle, aim);
}

/** One TCP connection of iperf3. */
export function iperfWrites(): Baseline {
  return peer('iperf3, one connection', iperf, iperfObstacle);
}

/** libfabric's messages of 64 bytes over its tcp provider: half a round trip, average. */
export function fabricLatency(): Baseline {
  const run: Run = async (rig, scale) =>
    (await pingPong(rig, 'msg', SMALL_BYTES, scale)).averageMicros;
  return peer('libfabric tcp fi_pingpong', run, fabricObstacle);
}

function peer(title: string, run: Run, obstacle: () => string | undefined, aim?: number): Baseline {
  return { title, run, obstacle, ...(aim === undefined ? {} : { aim }) };
}

function rate(
  name: string,
  title: string,
  run: Run,
  obstacle: () => string | undefined,
): Measurement {
  return { name, title, unit: 'MB/s', better: 'higher', baselines: [RAW_WRITES], run, obstacle };
}

function latency(
  name: string,
  title: string,
  run: Run,
  obstacle: () => string | undefined,
): Measurement {
  return { name, title, unit: 'µs', better: 'lower', baselines: [RAW_ONE_WAY], run, obstacle };
}

function ucxObstacle(): string | undefined {
  return peerObstacle('ucx_perftest', 'ucx-utils');
}

function fabricObstacle(): string | undefined {
  return peerObstacle('fi_pingpong', 'libfabric-bin');
}

function iperfObstacle(): string | undefined {
  return peerObstacle('iperf3', 'iperf3');
}

function ucxRate(test: string): Run {
  return async (rig, scale) => {
    const size = String(LARGE_BYTES);
    return (await ucx(rig, ['-t', test, '-s', size, ...counted(LARGE_COUNT, scale)])).rateMBps;
  };
}

function ucxTime(test: string): Run {
  return async (rig, scale) => {
    const size = String(SMALL_BYTES);
    return (await ucx(rig, ['-t', test, '-s', size, ...counted(SMALL_COUNT, scale)])).medianMicros;
  };
}

function counted(count: number, scale: number): string[] {
  return ['-w', WARM_UP_COUNT, '-n', String(Math.ceil(count * scale))];
}

async function ucx(rig: Rig, options: readonly string[]) {
  const variables = ['UCX_TLS=tcp', 'UCX_NET_DEVICES=lo'];
  const ends = likePerftest(['env', ...variables, 'ucx_perftest', '-f', ...options]);
  return ucxFigures(await rig.programs().runBothEnds(HERE, HERE, ends));
}

async function pingPong(rig: Rig, endpoint: 'msg' | 'rdm', sizeBytes: number, scale: number) {
  const full = sizeBytes === LARGE_BYTES ? LARGE_PINGPONG_COUNT : SMALL_PINGPONG_COUNT;
  const count = String(Math.ceil(full * scale));
  const options = ['-p', 'tcp', '-e', endpoint, '-S', String(sizeBytes), '-I', count];
  const output = await rig.programs().runBothEnds(HERE, HERE, {
    server: (port) => ['fi_pingpong', ...options, '-B', String(port)],
    client: (port, address) => ['fi_pingpong', ...options, '-P', String(port), address],
  });
  return pingPongFigures(output);
}

async function iperf(rig: Rig, scale: number): Promise<number> {
  const total = String(Math.ceil(LARGE_BYTES * LARGE_COUNT * scale));
  const output = await rig.programs().runBothEnds(HERE, HERE, {
    server: (port) => ['iperf3', '-s', '-1', '-B', HERE.address, '-p', String(port)],
    client: (port, address) => {
      const load = ['-l', String(LARGE_BYTES), '-n', total, '-J'];
      return ['iperf3', '-c', address, '-p', String(port), ...load];
    },
  });
  return iperfRate(output);
}
