/** Recordings of NFS over RDMA by Linux's client and server, read and reproduced by ours. */
import { describe, expect, it } from 'vitest';
import { NFS3 } from '#verbs-api/nfs/nfs3/nfs3-program';
import {
  ReadChunkSource,
  readChunksOf,
  returnedLengthBytes,
  WriteChunkSource,
} from '#verbs-api/rpcrdma/core/chunks';
import {
  emitPrivateData,
  inlineThresholds,
  parsePrivateData,
} from '#verbs-api/rpcrdma/core/private-data';
import type { AnyProcedure } from '#verbs-api/rpcrdma/core/program';
import {
  type CallHeader,
  emitCredential,
  parseCredential,
  readCallHeader,
  readReplyHeader,
  writeCallHeader,
  writeReplyHeader,
} from '#verbs-api/rpcrdma/core/rpc-message';
import { type BulkSource, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import type { Payload } from '#verbs-api/rpcrdma/core/xdr-writer';
import { hexOf } from '../support/hex.ts';
import {
  messageBytes,
  messageHeader,
  payloadOf,
  RequesterRig,
  ResponderRig,
  wholeOf,
} from '../support/rpcrdma-rig.ts';
import {
  type RecordedExchange,
  type RpcRecording,
  readRpcRecording,
} from './captures/rpc-recording.ts';

const NAMES = ['nfs3-small', 'nfs3-64k', 'nfs3-readdir'] as const;
const LIMITS = { segmentsMax: 64, readBytesMax: 1 << 20 };
const PROCEDURES = new Map<number, AnyProcedure>(
  Object.values(NFS3.procedures).map((procedure) => [procedure.number, procedure]),
);

function payloadFrom(bytes: Uint8Array): Payload {
  return { stream: bytes, items: [], lengthBytes: bytes.length };
}

function readCall(bytes: Uint8Array, bulk?: BulkSource): { header: CallHeader; reader: XdrReader } {
  const reader = new XdrReader(bytes, bulk);
  const header = readCallHeader(reader);
  if ('rpcVersion' in header) throw new Error('another version of RPC');
  return { header, reader };
}

/** Bytes of a reply, be they inline or in the reply chunk. */
function replyStream(recording: RpcRecording, { reply }: RecordedExchange): Uint8Array {
  const header = messageHeader(reply);
  if (header.type === 'msg') return reply.payload;
  const parts = (header.replyChunk ?? []).map((segment) => recording.memory(segment));
  return Buffer.concat(parts);
}

/** Results in write chunks. */
function writeSource(recording: RpcRecording, { reply }: RecordedExchange): WriteChunkSource {
  const chunks = messageHeader(reply).writeList;
  return new WriteChunkSource(
    chunks.map((chunk) => Buffer.concat(chunk.map((segment) => recording.memory(segment)))),
  );
}

/** Arguments in read chunks. */
function readSource(recording: RpcRecording, { call }: RecordedExchange): ReadChunkSource {
  const chunks = readChunksOf(messageHeader(call).readList, LIMITS);
  if (typeof chunks === 'string') throw new Error(chunks);
  return new ReadChunkSource(
    chunks.map(({ position, segments }) => ({
      position,
      bytes: Buffer.concat(segments.map((segment) => recording.memory(segment))),
    })),
  );
}

/** The procedure of NFS that a call is for; undefined for NULL and for other programs. */
function procedureOf(header: CallHeader): AnyProcedure | undefined {
  return header.program === NFS3.number ? PROCEDURES.get(header.procedure) : undefined;
}

/** Arguments and results of an exchange, and both messages as our codecs would write them. */
function decoded(
  recording: RpcRecording,
  exchange: RecordedExchange,
): { procedure: AnyProcedure; args: unknown; call: Payload; reply: Payload } | undefined {
  const { header, reader } = readCall(exchange.call.payload, readSource(recording, exchange));
  const procedure = procedureOf(header);
  if (procedure === undefined) return undefined;
  reader.limitBulk(procedure.readChunksMax ?? 0);
  const args = procedure.args.decode(reader);
  reader.finish();
  const results = new XdrReader(replyStream(recording, exchange), writeSource(recording, exchange));
  const replyHeader = readReplyHeader(results);
  const result = procedure.result.decode(results);
  results.finish();
  return {
    procedure,
    args,
    call: payloadOf((writer) => {
      writeCallHeader(writer, header);
      writer.limitBulk(procedure.readChunksMax ?? 0);
      procedure.args.encode(writer, args);
    }),
    reply: payloadOf((writer) => {
      writeReplyHeader(writer, replyHeader.xid, replyHeader.outcome, replyHeader.verifier);
      writer.limitBulk(procedure.writeChunks?.(args).length ?? 0);
      procedure.result.encode(writer, result);
    }),
  };
}

describe.each(NAMES)('%s', (name) => {
  const recording = readRpcRecording(name);

  it('has private data that we encode to the same bytes', () => {
    const client = parsePrivateData(recording.clientPrivateData);
    const server = parsePrivateData(recording.serverPrivateData);
    expect(client).toEqual({ remoteInvalidation: true, sendBytes: 4096, receiveBytes: 4096 });
    expect(server).toEqual({ remoteInvalidation: false, sendBytes: 4096, receiveBytes: 4096 });
    expect(hexOf(emitPrivateData(client))).toBe(hexOf(recording.clientPrivateData));
    expect(hexOf(emitPrivateData(server))).toBe(hexOf(recording.serverPrivateData));
    expect(inlineThresholds(client, server)).toEqual({ callBytes: 4096, replyBytes: 4096 });
  });

  it('has transport headers that we write byte by byte', () => {
    for (const { call, reply } of recording.exchanges) {
      for (const send of [call, reply]) {
        expect(hexOf(messageBytes(send.header, payloadFrom(send.payload)))).toBe(hexOf(send.bytes));
      }
    }
  });

  it('has RPC headers that we write byte by byte, with the same XID [RPCR-4.1-02, RPCR-4.1-10]', () => {
    for (const exchange of recording.exchanges) {
      const { call, reply } = exchange;
      const { header } = readCall(call.payload);
      expect(header.xid).toBe(call.header.xid);
      const parsed = parseCredential(header.credential);
      if (parsed === undefined) throw new Error('a credential of another flavor');
      const written = payloadOf((writer) =>
        writeCallHeader(writer, { ...header, credential: emitCredential(parsed) }),
      );
      const headBytes = written.stream.length;
      expect(hexOf(written.stream)).toBe(hexOf(call.payload.subarray(0, headBytes)));
      const stream = replyStream(recording, exchange);
      const replyHeader = readReplyHeader(new XdrReader(stream));
      expect(replyHeader.xid).toBe(reply.header.xid);
      const head = payloadOf((writer) =>
        writeReplyHeader(writer, replyHeader.xid, replyHeader.outcome, replyHeader.verifier),
      );
      expect(hexOf(head.stream)).toBe(hexOf(stream.subarray(0, head.stream.length)));
    }
  });

  it('has arguments and results of NFS that we write byte by byte, chunks included', () => {
    let count = 0;
    for (const exchange of recording.exchanges) {
      const ours = decoded(recording, exchange);
      if (ours === undefined) continue;
      count += 1;
      expect(hexOf(ours.call.stream)).toBe(hexOf(exchange.call.payload));
      const stream = replyStream(recording, exchange);
      const { items } = ours.reply;
      expect(
        hexOf(
          items.length > 0 && messageHeader(exchange.reply).writeList.length > 0
            ? ours.reply.stream
            : wholeOf(ours.reply),
        ),
      ).toBe(hexOf(stream));
    }
    expect(count).toBeGreaterThan(8);
  });

  it('returns the chunks that were offered', () => {
    for (const { call, reply } of recording.exchanges) {
      const offered = messageHeader(call);
      const returned = messageHeader(reply);
      expect(returned.readList).toEqual([]);
      expect(returned.writeList).toHaveLength(offered.writeList.length);
      for (const [i, chunk] of returned.writeList.entries()) {
        expect(returnedLengthBytes(offered.writeList[i] ?? [], chunk)).toBeDefined();
      }
      if (returned.replyChunk !== undefined) {
        expect(returnedLengthBytes(offered.replyChunk ?? [], returned.replyChunk)).toBeDefined();
      }
    }
  });

  it('has calls that our requester sends in the same bytes, given the same memory addresses', () => {
    const rig = new RequesterRig({ credits: 128 }, { callBytes: 4096, replyBytes: 4096 });
    rig.holdExposures = true;
    let count = 0;
    for (const exchange of recording.exchanges) {
      const ours = decoded(recording, exchange);
      const offered = messageHeader(exchange.call);
      // Linux splits a reply chunk at page boundaries; ours is one segment.
      if (ours === undefined || offered.replyChunk !== undefined) continue;
      const { xid } = exchange.call.header;
      const { procedure, args, call } = ours;
      const resultBytes = procedure.writeChunks?.(args) ?? [];
      const replyMaxBytes = 24 + procedure.resultMaxBytes(args);
      rig.call(xid, { payload: call, resultBytes, replyMaxBytes });
      const segments = [...offered.readList, ...offered.writeList.flat()];
      for (const effect of rig.take('expose')) {
        const regions = effect.regions.map((region, i) => {
          const segment = segments[i];
          if (segment === undefined) throw new Error('more regions than Linux had');
          const bytes =
            region.kind === 'source' ? region.bytes : new Uint8Array(segment.lengthBytes);
          return { handle: segment.handle, offset: segment.offset, bytes };
        });
        rig.requester.exposed(xid, regions);
        rig.drain();
      }
      expect(hexOf(rig.last.bytes)).toBe(hexOf(exchange.call.bytes));
      rig.handle(exchange.reply.bytes);
      expect(rig.outcomes.has(xid) || rig.effects.length > 0).toBe(true);
      count += 1;
    }
    expect(count).toBeGreaterThan(8);
  });

  it('has replies that our responder sends in the same bytes', () => {
    const rig = new ResponderRig({ credits: 64 }, undefined, { callBytes: 4096, replyBytes: 4096 });
    rig.memory.view = (handle, offset, lengthBytes) => {
      // Writes are discarded; only their lengths are compared, in the replies.
      const isRead = rig.order.at(-1) === 'pull';
      return isRead
        ? recording.memory({ handle, offset, lengthBytes })
        : new Uint8Array(lengthBytes);
    };
    let count = 0;
    for (const exchange of recording.exchanges) {
      const ours = decoded(recording, exchange);
      // Linux uses a reply chunk that it was offered even for a reply that fits inline.
      if (ours === undefined || messageHeader(exchange.call).replyChunk !== undefined) continue;
      rig.handle(exchange.call.bytes);
      rig.reply(rig.lastDispatched, ours.reply);
      expect(hexOf(rig.last.bytes)).toBe(hexOf(exchange.reply.bytes));
      count += 1;
    }
    expect(count).toBeGreaterThan(8);
  });
});
