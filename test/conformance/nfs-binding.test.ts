/** The upper-layer binding of NFS version 3 (RFC 5667, 8267): a real server and literal bytes. */
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import { NfsServer } from '#verbs-api/nfs/server/nfs-server';
import { hex32, hex64 } from '../support/consumer.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { RawPeer as TcpPeer } from '../support/raw-peer.ts';
import { RawPeer, WORLDS, type World } from '../support/rpc-world.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const NFS = '000186a3';
const MOUNT = '000186a5';
const NO_LISTS = '00000000 00000000 00000000';
const GARBAGE_ARGS = 4;

let folder: string;
let world: World;
let server: NfsServer;
let raw: RawPeer;

beforeEach(async () => {
  folder = temporaryFolder();
  writeFileSync(join(folder, 'file'), Buffer.alloc(20_000, 0x41));
  // Calls without a credential run as the anonymous user.
  chmodSync(folder, 0o755);
  chmodSync(join(folder, 'file'), 0o666);
  world = await WORLDS.embedded();
  const options = { host: '127.0.0.1', port: 0, mountPort: 0 };
  server = await NfsServer.listen(world.provider, folder, options);
  raw = await RawPeer.connect(world.provider, server.address.port);
});

afterEach(async () => {
  await raw.close();
  await server.close();
  await world.close();
});

/** An RPC call without credential, in hexadecimal. */
function rpc(xid: number, program: string, procedure: number, args = ''): string {
  return `${hex32(xid)} 00000000 00000002 ${program} 00000003 ${hex32(procedure)} 00*16 ${args}`;
}

/** Calls MOUNT over TCP and returns the reply without its record mark. */
async function overTcp(call: string): Promise<Buffer> {
  const peer = await TcpPeer.dial(server.mountPort);
  const bytes = bytesOf(call);
  peer.say(bytesOf(hex32((0x8000_0000 | bytes.length) >>> 0)), bytes);
  await peer.receive(4);
  const reply = await peer.receive(4 + (peer.received.readUInt32BE(0) & 0x7fff_ffff));
  peer.destroy();
  return reply.subarray(4);
}

/** The status of an RPC reply that was accepted. */
function acceptStatus(reply: Buffer): number {
  return reply.readUInt32BE(20);
}

/** The counted handle of the exported directory. */
async function rootHandle(): Promise<string> {
  const reply = await overTcp(rpc(1, MOUNT, 1, '00000001 2f000000'));
  expect(reply.readUInt32BE(24)).toBe(0);
  return hexOf(reply.subarray(28, 32 + reply.readUInt32BE(28)));
}

/** Calls NFS over RDMA with these lists; returns the whole reply message. */
async function overRdma(procedure: number, args: string, lists = NO_LISTS): Promise<Buffer> {
  raw.send(bytesOf(`00000002 00000001 00000008 00000000 ${lists} ${rpc(2, NFS, procedure, args)}`));
  return Buffer.from(await raw.nextBytes());
}

async function fileHandle(): Promise<string> {
  const reply = (await overRdma(3, `${await rootHandle()} 00000004 66696c65`)).subarray(28);
  expect([acceptStatus(reply), reply.readUInt32BE(24)]).toEqual([0, 0]);
  return hexOf(reply.subarray(28, 32 + reply.readUInt32BE(28)));
}

describe('the services', () => {
  it('are MOUNT over TCP and NFS over RDMA [NFSR-8267.5-01, NFSR-8166.9-01]', async () => {
    expect(acceptStatus(await overTcp(rpc(1, MOUNT, 0)))).toBe(0);
    // PROG_UNAVAIL
    expect(acceptStatus(await overTcp(rpc(1, NFS, 0)))).toBe(1);
    expect(acceptStatus((await overRdma(0, '')).subarray(28))).toBe(0);
  });
});

describe('chunks', () => {
  it('of anything but the data of WRITE and READ are an error, or come back unused [NFSR-5667.4-02, NFSR-5667.4-04, RPCR2-6.1-01]', async () => {
    const root = await rootHandle();
    const mr = await raw.channel.pd.allocMR(
      64,
      Access.localWrite | Access.remoteRead | Access.remoteWrite,
    );
    mr.buffer.set(Buffer.from('file'));
    const segment = `${hex32(mr.rkey)} ${hex32(4)} ${hex64(mr.address)}`;
    const position = 40 + compactHex(root).length / 2 + 4;
    const readList = `00000001 ${hex32(position)} ${segment} 00000000 00000000 00000000`;
    const refused = await overRdma(3, `${root} 00000004`, readList);
    const error = refused.readUInt32BE(12) === 4;
    expect(error || acceptStatus(refused.subarray(28)) === GARBAGE_ARGS).toBe(true);
    const unused = (length: number): string =>
      `00000000 00000001 00000001 ${hex32(mr.rkey)} ${hex32(length)} ${hex64(mr.address)} 00000000 00000000`;
    const looked = await overRdma(3, `${root} 00000004 66696c65`, unused(64));
    expect(hexOf(looked.subarray(16, 16 + 36))).toBe(compactHex(unused(0)));
    expect(acceptStatus(looked.subarray(52))).toBe(0);
  });

  it('hold the data of READ, no more than requested and none of it inline [NFSR-5667.4-07, NFSR-5667.3-03, NFSR-5667.3-04]', async () => {
    const file = await fileHandle();
    const mr = await raw.channel.pd.allocMR(16_384, Access.localWrite | Access.remoteWrite);
    mr.buffer.fill(0xee);
    const chunk = (length: number): string =>
      `00000000 00000001 00000001 ${hex32(mr.rkey)} ${hex32(length)} ${hex64(mr.address)} 00000000 00000000`;
    const reply = await overRdma(6, `${file} ${hex64(0)} ${hex32(8001)}`, chunk(16_384));
    expect(hexOf(reply.subarray(16, 52))).toBe(compactHex(chunk(8001)));
    expect(mr.buffer.subarray(0, 8001).every((byte) => byte === 0x41)).toBe(true);
    expect(mr.buffer.subarray(8001).every((byte) => byte === 0xee)).toBe(true);
    expect(reply.length).toBeLessThan(300);
  });

  it('are not needed for a WRITE that fills the threshold [NFSR-5667.4-07]', async () => {
    const file = await fileHandle();
    // 28 of header, 40 of RPC, the handle, then offset, count, stable and the data's count.
    const room = 4096 - 28 - 40 - compactHex(file).length / 2 - 8 - 4 - 4 - 4;
    const args = `${file} ${hex64(0)} ${hex32(room)} 00000002 ${hex32(room)} ${'42'.repeat(room)}`;
    const reply = (await overRdma(7, args)).subarray(28);
    expect([acceptStatus(reply), reply.readUInt32BE(24)]).toEqual([0, 0]);
  });
});
