/** Calls with chunks under the upper-layer binding of NFS version 3 (RFC 8267). */
import { beforeEach, describe, expect, it } from 'vitest';
import { messageBytes, payloadOf, ResponderRig } from '#test/support/rpcrdma-rig';
import { temporaryFolder } from '#test/support/temporary-folder';
import { Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import type { WriteArgs } from '#verbs-api/nfs/nfs3/file-procedures';
import { MOUNT3 } from '#verbs-api/nfs/nfs3/mount3-program';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import { nfsServices } from '#verbs-api/nfs/server/nfs-server';
import { ServedExport } from '#verbs-api/nfs/server/served-export';
import { NO_AUTH, readReplyHeader, writeCallHeader } from '#verbs-api/rpcrdma/core/rpc-message';
import type { ReadSegment } from '#verbs-api/rpcrdma/core/transport-header';
import { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { type Payload, XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { RpcService } from '#verbs-api/rpcrdma/rpc-service';

const HANDLE = new Uint8Array(32);
const NO_LISTS = { readList: [], writeList: [], replyChunk: undefined };
const CALLER = {
  address: '127.0.0.1',
  bulkBuffer: async (lengthBytes: number) => new Uint8Array(lengthBytes),
};

function call(
  xid: number,
  procedure: number,
  writeArgs: (writer: XdrWriter) => void = () => undefined,
  program: { readonly number: number; readonly version: number } = NFS3,
): Payload {
  return payloadOf((writer) => {
    writeCallHeader(writer, {
      xid,
      program: program.number,
      version: program.version,
      procedure,
      credential: NO_AUTH,
      verifier: NO_AUTH,
    });
    writeArgs(writer);
  });
}

/** Passes a call to `service` through a responder; returns the status of the reply. */
async function statusOf(
  service: RpcService,
  rig: ResponderRig,
  payload: Payload,
  readList: readonly ReadSegment[] = [],
): Promise<string> {
  const reduced = { stream: payload.stream, items: [], lengthBytes: payload.stream.length };
  rig.handle(messageBytes({ type: 'msg', xid: 1, credits: 1, ...NO_LISTS, readList }, reduced));
  const writer = new XdrWriter();
  await service.answer(rig.lastDispatched.reader, writer, CALLER);
  rig.reply(rig.lastDispatched, writer.payload());
  if (rig.last.header.type === 'error') return rig.last.header.error.code;
  return readReplyHeader(new XdrReader(rig.last.payload)).outcome.status;
}

describe('the binding of NFS', () => {
  let written: Uint8Array[];
  let looked: string[];
  let readBytes = 0;
  const service = new RpcService();
  service.register(NFS3, {
    lookup: ({ name }) => {
      looked.push(Buffer.from(name).toString());
      return { status: Nfs3Status.noent, fail: { attributes: undefined } };
    },
    write: ({ data }) => {
      written.push(data.slice());
      return { status: Nfs3Status.io, fail: { wcc: { before: undefined, after: undefined } } };
    },
    read: () => ({
      status: Nfs3Status.ok,
      ok: { attributes: undefined, eof: false, data: new Uint8Array(readBytes) },
    }),
  });

  beforeEach(() => {
    written = [];
    looked = [];
  });

  function writePayload(lengthBytes: number): Payload {
    const args = { file: HANDLE, offset: 0n, stable: 2, data: new Uint8Array(lengthBytes).fill(5) };
    return call(1, 7, (writer) => NFS3.procedures.write.args.encode(writer, args as WriteArgs));
  }

  it('returns GARBAGE_ARGS for a name in a chunk, and looks up none [NFSR-5667.4-04, RPCR2-6.1-01]', async () => {
    const rig = new ResponderRig();
    const payload = call(1, 3, (writer) => {
      writer.opaque(HANDLE);
      writer.bulk(Buffer.from('file'));
    });
    const { handle, offset } = rig.memory.register(Buffer.from('file'));
    const position = payload.items[0]?.position ?? 0;
    const readList = [{ position, handle, offset, lengthBytes: 4 }];
    expect(await statusOf(service, rig, payload, readList)).toBe('garbageArgs');
    expect(looked).toEqual([]);
  });

  it('has the data of WRITE at position 96 after AUTH_NONE and 32 bytes of handle [NFSR-1813.3-01]', () => {
    expect(writePayload(5000).items.map(({ position }) => position)).toEqual([96]);
  });

  it('accepts the data of WRITE in a chunk [NFSR-5667.4-03]', async () => {
    const rig = new ResponderRig();
    const payload = writePayload(5000);
    const { handle, offset } = rig.memory.register(payload.items[0]?.bytes ?? HANDLE);
    const readList = [{ position: 96, handle, offset, lengthBytes: 5000 }];
    expect(await statusOf(service, rig, payload, readList)).toBe('success');
    expect(written.map((data) => data.length)).toEqual([5000]);
  });

  it('accepts an inline WRITE up to the threshold, and returns no more than requested [NFSR-5667.4-07]', async () => {
    const rig = new ResponderRig({}, undefined, { callBytes: 4096, replyBytes: 4096 });
    // 28 of the transport header and 96 before the data.
    const largest = writePayload(4096 - 28 - 96);
    rig.handle(messageBytes({ type: 'msg', xid: 1, credits: 1, ...NO_LISTS }, largest));
    await service.answer(rig.lastDispatched.reader, new XdrWriter(), CALLER);
    expect(written.map((data) => data.length)).toEqual([4096 - 28 - 96]);
    const args = { file: HANDLE, offset: 0n, count: 8000 };
    const read = call(1, 6, (writer) => NFS3.procedures.read.args.encode(writer, args));
    const memory = rig.memory.register(new Uint8Array(8000));
    const writeList = [[{ ...memory, lengthBytes: 8000 }]];
    const answerOf = async (lengthBytes: number): Promise<unknown> => {
      readBytes = lengthBytes;
      rig.handle(messageBytes({ type: 'msg', xid: 1, credits: 1, ...NO_LISTS, writeList }, read));
      const writer = new XdrWriter();
      await service.answer(rig.lastDispatched.reader, writer, CALLER);
      rig.reply(rig.lastDispatched, writer.payload());
      return rig.last.header.type;
    };
    expect(await answerOf(8000)).toBe('msg');
    expect(await answerOf(8001)).toBe('error');
  });

  it('denies flavors whose messages could exceed its limits [RPCR2-8.2.2-01]', async () => {
    const payload = payloadOf((writer) => {
      const header = { xid: 1, program: NFS3.number, version: 3, procedure: 1 };
      const credential = { flavor: 6, body: new Uint8Array(20) };
      writeCallHeader(writer, { ...header, credential, verifier: NO_AUTH });
    });
    expect(await statusOf(service, new ResponderRig(), payload)).toBe('authError');
  });
});

describe('the services of a directory', () => {
  let directory: string;

  beforeEach(() => {
    directory = temporaryFolder();
  });
  it('offer MOUNT to clients over TCP, and NFS to those over RDMA [NFSR-8267.5-01]', async () => {
    const { tcp, rdma } = nfsServices(new ServedExport(directory));
    const nullCall = (program: typeof NFS3 | typeof MOUNT3) => call(1, 0, () => undefined, program);
    expect(await statusOf(tcp, new ResponderRig(), nullCall(MOUNT3))).toBe('success');
    expect(await statusOf(tcp, new ResponderRig(), nullCall(NFS3))).toBe('progUnavail');
    expect(await statusOf(rdma, new ResponderRig(), nullCall(NFS3))).toBe('success');
  });
});
