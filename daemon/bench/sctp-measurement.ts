/** RDMA Writes over SCTP, compared with the same library without DDP and RDMAP. */
import { loadUsrsctp } from '#native-bridge/usrsctp/library';
import { failureText } from '../console/failure.ts';
import type { Measurement } from './measurement.ts';
import { type WriteLoad, writeCount } from './raw-baselines.ts';
import { RAW_SCTP_ADDRESSES, type Rig } from './rig.ts';
import { writeStream } from './write-stream.ts';

const LOAD: WriteLoad = { writeBytes: 65_536, totalBytes: 1 << 29, batch: 16 };

export const SCTP_MEASUREMENT: Measurement = {
  name: 'sctp-write-bw',
  title: 'RDMA Write of 64 KiB over SCTP, one QP, two clients of two daemons',
  unit: 'MB/s',
  better: 'higher',
  target: { kind: 'ratio', limit: 0.7 },
  baselines: [{ title: 'raw SCTP of the same library', run: rawMessages }],
  run: async (rig, scale) => writeStream(await rig.overSctp(), LOAD, scale),
  warmUps: 4,
  obstacle,
};

async function rawMessages(rig: Rig, scale: number): Promise<number> {
  const { active, passive } = rig.rawSctp();
  const [from, to] = RAW_SCTP_ADDRESSES;
  const totalBytes = writeCount(LOAD, scale) * LOAD.writeBytes;
  const port = await passive.call('sink', { address: to });
  const seconds = await active.call('stream', { from, to, port, totalBytes });
  const arrived = await passive.call('received', undefined);
  if (arrived !== totalBytes) throw new Error(`${arrived} of ${totalBytes} bytes arrived`);
  return totalBytes / seconds / 1e6;
}

function obstacle(): string | undefined {
  try {
    loadUsrsctp();
    return undefined;
  } catch (error) {
    return failureText(error);
  }
}
