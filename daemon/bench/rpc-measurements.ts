/** Measurements of RPC over RDMA, and of NFS on top of it. */
import type { Measurement } from './measurement.ts';
import type { Rig } from './rig.ts';

const NULL_DEPTH = 16;
/** V8 compiles the path of four processes in about five rounds of 20,000 calls. */
const NULL_WARM_UPS = 5;
/** Outstanding calls, as many as our NFS client has. RDMA Writes use the whole send queue. */
const BULK_DEPTH = 8;
const BULK_BYTES = 1 << 20;
/** A round has few calls, so V8 needs this many rounds to compile their path. */
const BULK_WARM_UPS = 6;
/** Aim relative to RDMA Write: NFS copies each byte once more, from or to the page cache. */
const NFS_AIM = 0.75;

/**
 * Measurements of client and server on two daemons. Bulk transfers are compared with `writes`: RDMA
 * Writes of the same size on the same daemons.
 */
export function rpcMeasurements(
  writes: (rig: Rig, scale: number) => Promise<number>,
): readonly Measurement[] {
  const against = { title: 'RDMA Write of 1 MiB', run: writes };
  const bulk = {
    unit: 'MB/s',
    better: 'higher',
    target: { kind: 'ratio', limit: 0.5 },
    baselines: [against],
    warmUps: BULK_WARM_UPS,
  } as const;
  return [
    {
      name: 'rpc-null',
      title: `calls of NULL over RDMA, ${NULL_DEPTH} at once, two clients of two daemons`,
      unit: 'calls/s',
      better: 'higher',
      target: { kind: 'value', limit: 20_000 },
      baselines: [],
      run: async (rig, scale) => {
        const { active } = await rig.rpc();
        const count = Math.ceil(20_000 * scale);
        const load = { count, depth: NULL_DEPTH, sizeBytes: 0 };
        return count / (await active.call('nulls', load));
      },
      warmUps: NULL_WARM_UPS,
    },
    {
      ...bulk,
      name: 'rpc-read-1m',
      title: `results of 1 MiB in write chunks, ${BULK_DEPTH} calls at once`,
      run: (rig, scale) => moved(rig, 'fetches', scale),
    },
    {
      ...bulk,
      name: 'rpc-write-1m',
      title: `arguments of 1 MiB in read chunks, ${BULK_DEPTH} calls at once`,
      run: (rig, scale) => moved(rig, 'stores', scale),
    },
    {
      ...bulk,
      name: 'nfs-read-1m',
      title: `NFS READs of 1 MiB, ${BULK_DEPTH} at once`,
      baselines: [{ ...against, aim: NFS_AIM }],
      run: (rig, scale) => transferred(rig, 'reads', scale),
    },
    {
      ...bulk,
      name: 'nfs-write-1m',
      title: `NFS WRITEs of 1 MiB, unstable, ${BULK_DEPTH} at once`,
      baselines: [{ ...against, aim: NFS_AIM }],
      run: (rig, scale) => transferred(rig, 'writes', scale),
    },
  ];
}

async function moved(rig: Rig, method: 'fetches' | 'stores', scale: number): Promise<number> {
  const { active } = await rig.rpc();
  const count = Math.ceil(512 * scale);
  const load = { count, depth: BULK_DEPTH, sizeBytes: BULK_BYTES };
  return (count * BULK_BYTES) / (await active.call(method, load)) / 1e6;
}

async function transferred(rig: Rig, method: 'reads' | 'writes', scale: number): Promise<number> {
  const { active } = await rig.nfs();
  const count = Math.ceil(512 * scale);
  const seconds = await active.call(method, { count, depth: BULK_DEPTH });
  return (count * BULK_BYTES) / seconds / 1e6;
}
