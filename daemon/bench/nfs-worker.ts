/** One end of NFS over RDMA, in a separate process, run as a worker of the bench. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ownCredential } from '#verbs-api/nfs/client/nfs-client';
import { Nfs3Status, StableHow } from '#verbs-api/nfs/nfs3/constants';
import { MOUNT3 } from '#verbs-api/nfs/nfs3/mount3-program';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { NfsServer } from '#verbs-api/nfs/server/nfs-server';
import { serveCalls } from './channel.ts';
import {
  connectEnd,
  connected,
  endMethods,
  type Load,
  opened,
  TRANSFER_MAX_BYTES as TRANSFER_BYTES,
  timed,
  transferBuffers,
} from './rpc-end.ts';
import type { Meeting } from './verbs-worker.ts';

/** READs or WRITEs that fit in a file: transfers wrap around in it. */
const FILE_TRANSFERS = 16;
/** Distance between compared bytes; comparing more would affect the measurement. */
const SAMPLE_STEP_BYTES = 65_521;

const methods = {
  ...endMethods,

  /** Serves `folder` with two files on a free port; returns it. */
  async serve({ address, folder }: { address: string; folder: string }): Promise<Meeting> {
    const bytes = new Uint8Array(FILE_TRANSFERS * TRANSFER_BYTES);
    for (let at = 0; at < bytes.length; at++) bytes[at] = patternByte(at);
    writeFileSync(join(folder, 'read'), bytes);
    writeFileSync(join(folder, 'written'), '');
    const options = { host: address, port: 0, mountPort: 0, squashRoot: false };
    const server = await NfsServer.listen(opened(), folder, options);
    return { address, port: server.address.port };
  },

  async connect({ address, port }: Meeting): Promise<void> {
    await connectEnd({ host: address, port, credential: ownCredential() });
  },

  /** Seconds that the READs took. */
  async reads(load: Load): Promise<number> {
    const file = await find('read');
    const memory = await transferBuffers(load);
    return await timed(load, async (slot, index) => {
      const bytes = await read(file, index, memory[slot]);
      check(bytes, (at) => patternByte(at + (index % FILE_TRANSFERS) * TRANSFER_BYTES));
    });
  },

  /** Seconds that the WRITEs took, up to the server's page cache. */
  async writes(load: Load): Promise<number> {
    const file = await find('written');
    const memory = await transferBuffers(load);
    for (const bytes of memory) bytes.fill(0x5a);
    const seconds = await timed(load, async (slot, index) => {
      const data = memory[slot] ?? new Uint8Array(TRANSFER_BYTES);
      const args = { file, offset: offsetOf(index), stable: StableHow.unstable, data };
      const written = await connected().call(NFS3, 'write', args);
      if (written.status !== Nfs3Status.ok) throw new Error(`WRITE says ${written.status}`);
      if (written.ok.count !== TRANSFER_BYTES) throw new Error('WRITE wrote too few bytes');
    });
    for (let index = 0; index < Math.min(load.count, FILE_TRANSFERS); index++) {
      memory[0]?.fill(0);
      check(await read(file, index, memory[0]), () => 0x5a);
    }
    return seconds;
  },
};

export type NfsMethods = typeof methods;

async function find(name: string): Promise<Uint8Array> {
  const mounted = await connected().call(MOUNT3, 'mnt', Buffer.from('/'));
  if (mounted.status !== 0) throw new Error(`MNT says ${mounted.status}`);
  const where = { directory: Uint8Array.from(mounted.handle), name: Buffer.from(name) };
  const found = await connected().call(NFS3, 'lookup', where);
  if (found.status !== Nfs3Status.ok) throw new Error(`LOOKUP says ${found.status}`);
  return Uint8Array.from(found.ok.object);
}

async function read(
  file: Uint8Array,
  index: number,
  into: Uint8Array = new Uint8Array(TRANSFER_BYTES),
): Promise<Uint8Array> {
  const args = { file, offset: offsetOf(index), count: TRANSFER_BYTES };
  const outcome = await connected().call(NFS3, 'read', args, { bulkInto: [into] });
  if (outcome.status !== Nfs3Status.ok) throw new Error(`READ says ${outcome.status}`);
  if (outcome.ok.data.length !== TRANSFER_BYTES) throw new Error('READ returned too few bytes');
  return outcome.ok.data;
}

function offsetOf(index: number): bigint {
  return BigInt((index % FILE_TRANSFERS) * TRANSFER_BYTES);
}

function patternByte(at: number): number {
  return (at * 7 + (at >> 12)) & 0xff;
}

function check(bytes: Uint8Array, wanted: (at: number) => number): void {
  for (let at = 0; at < bytes.length; at += SAMPLE_STEP_BYTES) {
    if (bytes[at] !== wanted(at)) throw new Error(`byte ${at} of a transfer is ${bytes[at]}`);
  }
}

serveCalls(methods);
