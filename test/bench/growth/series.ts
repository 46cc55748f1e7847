/** Series that grow: messages, queue pairs, clients, devices. */
import { setTimeout as sleep } from 'node:timers/promises';
import { BenchDaemon } from '#daemon/bench/bench-daemon';
import { rawStream } from '#daemon/bench/raw-baselines';
import { GrowthPair } from './growth-pair.ts';
import type { Figures, GrowthSeries, OpenSeries } from './growth-series.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const SMALL_BYTES = 64;
/** Small writes of a step, over all connections: a second or less on an idle machine. */
const SMALL_WRITES = 200_000;
/** Writes per post. */
const BATCH = 16;
/** Bytes written per message size, in a number of messages within these limits. */
const SIZE_BYTES = 512 * MIB;
const SIZE_MESSAGES_MIN = 4;
const SIZE_MESSAGES_MAX = 40_000;
/** From this size on, a batch is one message. */
const SINGLE_BYTES = 4 * MIB;
const QPS_MAX = 10_000;
/** More than one, since a client may have at most 8,192 objects of a kind. */
const QP_CLIENTS = 4;
/** Time for collecting garbage and returning pages to the system. */
const SETTLE_MS = 1000;
/** Memory of fewer added QPs or clients is lost in a process's random variation. */
const EACH_MIN = 16;
/** How long an idle daemon is watched. */
const IDLE_MS = 2000;

/** Metrics of `growing`. */
const OF_GROWING: GrowthSeries['metrics'] = [
  { key: 'setup', title: 'set-up ms each' },
  { key: 'memory', title: 'daemon MiB' },
  { key: 'memoryEach', title: 'KiB each more' },
  { key: 'files', title: 'daemon files' },
  { key: 'messages', title: 'messages/s' },
  { key: 'memoryActive', title: 'daemon MiB after' },
];

/** All series, in the order in which they run. */
export const GROWTH_SERIES: readonly GrowthSeries[] = [
  {
    name: 'sizes',
    title: 'RDMA Writes of growing size, one QP between two daemons, beside raw TCP',
    axis: 'bytes',
    metrics: [
      { key: 'rate', title: 'MB/s' },
      { key: 'raw', title: 'raw TCP MB/s' },
      { key: 'ratio', title: 'ratio' },
      { key: 'messages', title: 'messages/s' },
      { key: 'memory', title: 'daemon MiB' },
    ],
    steps: [1, 4, 16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB].concat(
      [1, 4, 16, 64].map((count) => count * MIB),
    ),
    open: async () => {
      const pair = await GrowthPair.start({ regionBytes: 64 * MIB, connections: 1 });
      await orClose(pair, async () => {
        await pair.openClients(1);
        await pair.connect(0, 1);
      });
      return {
        watched: pair.watched,
        step: (size) => sizeStep(pair, size),
        close: () => pair.close(),
      };
    },
  },
  {
    name: 'qps',
    title: `connected queue pairs of ${QP_CLIENTS} clients, idle, then all active with Writes of 64 bytes`,
    axis: 'QPs',
    metrics: OF_GROWING,
    steps: [1, 10, 100, 1000, 2000, 5000, QPS_MAX],
    open: async () => {
      const connections = Math.ceil(QPS_MAX / QP_CLIENTS);
      const pair = await GrowthPair.start({ regionBytes: 64 * KIB, connections });
      await orClose(pair, () => pair.openClients(QP_CLIENTS));
      return growing(pair, async (from, to) => {
        let seconds = 0;
        for (let client = 0; client < QP_CLIENTS; client++) {
          const count = shareOf(to, client) - shareOf(from, client);
          if (count > 0) seconds += await pair.connect(client, count);
        }
        return { setup: (seconds * 1000) / (to - from) };
      });
    },
  },
  {
    name: 'clients',
    title: 'clients with one queue pair each, idle, then all active with Writes of 64 bytes',
    axis: 'clients',
    metrics: OF_GROWING,
    steps: [1, 2, 4, 8, 16, 32, 64],
    open: async () => {
      const pair = await GrowthPair.start({ regionBytes: 64 * KIB, connections: 1 });
      return growing(pair, async (from, to) => {
        let seconds = await pair.openClients(to);
        for (let client = from; client < to; client++) seconds += await pair.connect(client, 1);
        return { setup: (seconds * 1000) / (to - from) };
      });
    },
  },
  {
    name: 'devices',
    title: 'devices of one idle daemon, all iWARP or all RoCE',
    axis: 'devices',
    metrics: [
      { key: 'iwarpReady', title: 'iWARP ready ms' },
      { key: 'iwarpMemory', title: 'MiB' },
      { key: 'iwarpFiles', title: 'files' },
      { key: 'iwarpIdle', title: 'idle CPU %' },
      { key: 'roceReady', title: 'RoCE ready ms' },
      { key: 'roceMemory', title: 'MiB' },
      { key: 'roceFiles', title: 'files' },
      { key: 'roceIdle', title: 'idle CPU %' },
    ],
    steps: [1, 2, 4, 8, 16, 32, 64],
    open: async () => deviceSeries(),
  },
];

/** Number of queue pairs of one client, out of `total`. */
function shareOf(total: number, client: number): number {
  return Math.floor((total + QP_CLIENTS - 1 - client) / QP_CLIENTS);
}

/** Runs `prepare`; closes the pair if that fails. */
async function orClose(pair: GrowthPair, prepare: () => Promise<unknown>): Promise<void> {
  try {
    await prepare();
  } catch (error) {
    await pair.close();
    throw error;
  }
}

async function sizeStep(pair: GrowthPair, sizeBytes: number): Promise<Figures> {
  const wanted = Math.floor(SIZE_BYTES / sizeBytes);
  const batch = sizeBytes >= SINGLE_BYTES ? 1 : sizeBytes >= MIB ? 4 : BATCH;
  const count = Math.min(SIZE_MESSAGES_MAX, Math.max(SIZE_MESSAGES_MIN, wanted));
  const batches = Math.max(1, Math.round(count / batch));
  const sent = batches * batch;
  const load = { writeBytes: sizeBytes, totalBytes: sent * sizeBytes, batch: 1 };
  const raw = await rawStream(pair.rig, load, 1, 1);
  const seconds = await pair.write(sizeBytes, batch, batches);
  const rate = (sent * sizeBytes) / seconds / 1e6;
  const memory = pair.residentBytes() / MIB;
  return { rate, raw, ratio: rate / raw, messages: sent / seconds, memory };
}

/** A series whose `grow` adds objects, measured idle, then active. */
function growing(
  pair: GrowthPair,
  grow: (from: number, to: number) => Promise<Figures>,
): OpenSeries {
  let before = pair.residentBytes();
  let held = 0;
  return {
    watched: pair.watched,
    close: () => pair.close(),
    step: async (size) => {
      const more = size - held;
      const figures = await grow(held, size);
      held = size;
      await sleep(SETTLE_MS);
      const memory = pair.residentBytes();
      const files = pair.openFiles();
      const batches = Math.max(1, Math.round(SMALL_WRITES / BATCH / size));
      const each = (memory - before) / KIB / more;
      const seconds = await pair.write(SMALL_BYTES, BATCH, batches);
      // The next step's growth must not include memory taken by traffic.
      before = pair.residentBytes();
      return {
        ...figures,
        memory: memory / MIB,
        ...(more < EACH_MIN ? {} : { memoryEach: each }),
        files,
        messages: (batches * BATCH * size) / seconds,
        memoryActive: before / MIB,
      };
    },
  };
}

/** A new daemon for each step and kind. */
function deviceSeries(): OpenSeries {
  const running = new Set<Promise<BenchDaemon>>();
  const measure = async (kind: string, count: number) => {
    const devices = Array.from({ length: count }, (_, index) => {
      return `grow${index}=${kind}127.1.0.${index + 1}`;
    });
    const began = performance.now();
    const starting = BenchDaemon.start({ address: '127.0.0.4', devices });
    running.add(starting);
    const daemon = await starting;
    const ready = performance.now() - began;
    await sleep(SETTLE_MS);
    const busy = daemon.cpuSeconds();
    await sleep(IDLE_MS);
    const idle = ((daemon.cpuSeconds() - busy) / (IDLE_MS / 1000)) * 100;
    const [memory, files] = [daemon.residentBytes() / MIB, daemon.openFiles()];
    running.delete(starting);
    await daemon.stop();
    return { ready, memory, files, idle };
  };
  return {
    watched: [],
    step: async (size) => {
      const iwarp = await measure('', size);
      const roce = await measure('roce:', size);
      return {
        iwarpReady: iwarp.ready,
        iwarpMemory: iwarp.memory,
        iwarpFiles: iwarp.files,
        iwarpIdle: iwarp.idle,
        roceReady: roce.ready,
        roceMemory: roce.memory,
        roceFiles: roce.files,
        roceIdle: roce.idle,
      };
    },
    close: async () => {
      await Promise.allSettled([...running].map(async (starting) => (await starting).stop()));
    },
  };
}
