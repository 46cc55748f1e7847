/** Traffic between our NFS client and server over RDMA, recorded by our tap and read by Wireshark. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, expect, it } from 'vitest';
import { PcapngCapture } from '#daemon/capture/pcapng-capture';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { StableHow } from '#verbs-api/nfs/nfs3/constants';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import { listenRpc } from '#verbs-api/rpcrdma/rpc-server';
import { NfsRig, name, sysCredential } from '../support/nfs-rig.ts';
import { pattern } from '../support/pattern.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RawPeer } from '../support/rpc-world.ts';
import { messageBytes } from '../support/rpcrdma-rig.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const FIELDS = [
  'rpcordma.xid',
  'rpcordma.version',
  'rpcordma.flow_control',
  'rpcordma.msg_type',
  'rpcordma.reads_count',
  'rpcordma.writes_count',
  'rpcordma.reply_count',
  'rpcordma.position',
  'rpcordma.rdma_length',
  'rpcordma.errcode',
  'rpc.msgtyp',
  'nfs.procedure_v3',
  'rpc.state_accept',
] as const;

type Row = Readonly<Record<(typeof FIELDS)[number], string>>;

/** A row for each Send that tshark recognises as RPC over RDMA. */
async function rowsOf(file: string): Promise<readonly Row[]> {
  const fields = FIELDS.flatMap((field) => ['-e', field]);
  const { stdout } = await promisify(execFile)(
    'tshark',
    ['-n', '-r', file, '-Y', 'rpcordma', '-T', 'fields', ...fields],
    { maxBuffer: 64 << 20 },
  );
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const values = line.split('\t');
      return Object.fromEntries(FIELDS.map((field, i) => [field, values[i] ?? ''])) as Row;
    });
}

async function malformedIn(file: string): Promise<string> {
  return (await promisify(execFile)('tshark', ['-n', '-r', file, '-Y', '_ws.malformed'])).stdout;
}

describeWith(['tshark'], 'tshark on NFS between our client and server', () => {
  const directory = temporaryFolder();
  const file = join(directory, 'traffic.pcapng');
  let rows: readonly Row[];

  beforeAll(async () => {
    const pieces: Uint8Array[] = [];
    const tap = new PcapngCapture({ write: (bytes) => pieces.push(bytes.slice()) });
    const recorded = await createEmbedded({ observer: { tap } });
    const other = await createEmbedded();
    const rig = new NfsRig();
    for (let i = 0; i < 100; i++) writeFileSync(rig.file(`file-${i}`), pattern(10));
    writeFileSync(rig.file('data'), '');
    const root = await rig.mount();
    const handle = await rig.handle('data');
    const server = await listenRpc(other, rig.service, { host: '127.0.0.1', port: 0 });
    const client = await connectRpc(recorded, {
      host: '127.0.0.1',
      port: server.address.port,
      credential: sysCredential(process.getuid?.() ?? 0),
    });
    const data = pattern(65_533);
    const stable = StableHow.fileSync;
    await client.call(NFS3, 'getattr', root);
    await client.call(NFS3, 'lookup', { directory: root, name: name('data') });
    await client.call(NFS3, 'write', { file: handle, offset: 0n, stable, data });
    await client.call(NFS3, 'read', { file: handle, offset: 0n, count: 65_536 });
    const cookieVerifier = new Uint8Array(8);
    const bounds = { dirCount: 8192, maxCount: 32_768 };
    await client.call(NFS3, 'readdirplus', {
      directory: root,
      cookie: 0n,
      cookieVerifier,
      ...bounds,
    });
    await client.close();
    const raw = await RawPeer.connect(recorded, server.address.port);
    const words = { xid: 0x1234_5678, credits: 8 };
    const lists = { readList: [], writeList: [], replyChunk: undefined };
    raw.send(messageBytes({ type: 'nomsg', ...words, ...lists }));
    await raw.next();
    await raw.close();
    await server.close();
    await recorded.close();
    await other.close();
    rig.clean();
    writeFileSync(file, Buffer.concat(pieces));
    rows = await rowsOf(file);
  });

  it('finds a call and a reply for each, none malformed except by its own quirk [RPCR-4.1-02, RPCR-4.1-04]', async () => {
    // tshark puts the content of a write chunk into the reply without XDR's roundup, and then
    // reports that as missing; RFC 8166 §3.4.6.2 forbids us to write any.
    const malformed = (await malformedIn(file)).split('\n').filter((line) => line !== '');
    expect(malformed.filter((line) => !line.includes('READ Reply'))).toEqual([]);
    const nfs = rows.slice(0, -2);
    const calls = nfs.filter((_row, i) => i % 2 === 0);
    const replies = nfs.filter((_row, i) => i % 2 === 1);
    expect(replies.map((row) => row['rpcordma.xid'])).toEqual(
      calls.map((row) => row['rpcordma.xid']),
    );
    expect(new Set(rows.map((row) => row['rpcordma.version']))).toEqual(new Set(['1']));
    const procedures = replies.map((row) => row['nfs.procedure_v3'].split(',')[0]);
    expect(procedures).toEqual(['1', '3', '7', '6', '17']);
    const states = replies.map((row) => row['rpc.state_accept'].split(',')[0]);
    expect(new Set(states)).toEqual(new Set(['0']));
  });

  it('finds the data of WRITE in a read chunk at its position [RPCR-3.4-09, RPCR2-3.4.5.2-01]', () => {
    expect(rows[4]).toMatchObject({
      'rpcordma.msg_type': '0',
      'rpcordma.reads_count': '1',
      'rpcordma.rdma_length': '65533',
    });
    expect(Number(rows[4]?.['rpcordma.position']) % 4).toBe(0);
  });

  it('finds the data of READ in a write chunk of its exact length [RPCR-3.6-02, RPCR2-3.4.6.2-01]', () => {
    expect(rows[6]).toMatchObject({
      'rpcordma.writes_count': '1',
      'rpcordma.rdma_length': '65536',
    });
    expect(rows[7]).toMatchObject({
      'rpcordma.writes_count': '1',
      'rpcordma.rdma_length': '65533',
    });
  });

  it('finds the entries of a directory in a reply chunk [RPCR-5.2-02]', () => {
    expect(rows[8]).toMatchObject({ 'rpcordma.msg_type': '0', 'rpcordma.reply_count': '1' });
    expect(rows[9]).toMatchObject({ 'rpcordma.msg_type': '1', 'rpcordma.reply_count': '1' });
    const [offered, used] = [rows[8], rows[9]].map((row) => Number(row?.['rpcordma.rdma_length']));
    expect(used).toBeGreaterThan(4096);
    expect(used).toBeLessThanOrEqual(offered ?? 0);
  });

  it('reads our RDMA_ERROR [RPCR2-4.5.2-01]', () => {
    expect(rows.at(-1)).toMatchObject({
      'rpcordma.xid': '0x12345678',
      'rpcordma.msg_type': '4',
      'rpcordma.errcode': '2',
    });
  });
});
