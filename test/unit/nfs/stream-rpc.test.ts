/** RPC on a TCP stream: record marking, and the client against correct and faulty servers. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { findTcpPort, PORT_MAPPER } from '#verbs-api/nfs/tcp/port-mapper';
import { emitRecord, RecordAssembler } from '#verbs-api/nfs/tcp/record-marking';
import { TcpRpcClient } from '#verbs-api/nfs/tcp/tcp-rpc-client';
import { TcpRpcServer } from '#verbs-api/nfs/tcp/tcp-rpc-server';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { RpcService } from '#verbs-api/rpcrdma/rpc-service';

const MOUNT = { program: 100005, version: 3 };

describe('records', () => {
  it('are whole, however the stream is split', () => {
    const pieces = fc.array(fc.uint8Array({ maxLength: 60 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(pieces, fc.array(fc.integer({ min: 1, max: 30 })), (bodies, cuts) => {
        const records = bodies.map((body) => {
          const writer = new XdrWriter();
          writer.opaque(body);
          return Buffer.from(emitRecord(writer.payload()));
        });
        const assembler = new RecordAssembler(1000);
        const found: Buffer[] = [];
        let stream = Buffer.concat(records);
        for (const cut of [...cuts, stream.length]) {
          found.push(...(assembler.handle(stream.subarray(0, cut)) ?? []));
          stream = stream.subarray(cut);
        }
        expect(found).toEqual(records.map((record) => record.subarray(4)));
      }),
    );
  });

  it('of several fragments are one', () => {
    const stream = Buffer.from('00000004616263640000000080000002656600', 'hex');
    expect(new RecordAssembler(1000).handle(stream)).toEqual([Buffer.from('abcdef')]);
  });

  it('are refused by their declared length, and when empty fragments do not end', () => {
    expect(new RecordAssembler(1000).handle(Buffer.from('7fffffff', 'hex'))).toBeUndefined();
    expect(new RecordAssembler(1000).handle(Buffer.from('000003e9', 'hex'))).toBeUndefined();
    expect(new RecordAssembler(1000).handle(Buffer.alloc(4000))).toBeUndefined();
  });
});

describe('the client', () => {
  const closers: (() => Promise<void>)[] = [];

  afterEach(async () => {
    for (const close of closers.splice(0)) await close();
  });

  /** A server that treats each connection differently. */
  async function oddServer(serve: (socket: Socket) => void): Promise<number> {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      serve(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    closers.push(async () => void server.close());
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  it('asks a port mapper, and works without one', async () => {
    const service = new RpcService().register(PORT_MAPPER, {
      getport: (asked: typeof MOUNT): number => (asked.program === MOUNT.program ? 20048 : 0),
    });
    const server = await TcpRpcServer.listen(service, '127.0.0.1', 0);
    expect(await findTcpPort('127.0.0.1', MOUNT, server.port)).toBe(20048);
    expect(await findTcpPort('127.0.0.1', { program: 1, version: 1 }, server.port)).toBeUndefined();
    await server.close();
    expect(await findTcpPort('127.0.0.1', MOUNT, server.port)).toBeUndefined();
  });

  const odd: readonly (readonly [what: string, serve: (socket: Socket) => unknown])[] = [
    ['hangs up', (socket) => socket.destroy()],
    ['claims too much', (socket) => socket.write(Buffer.alloc(4, 0xff))],
  ];

  it.each(odd)('reports when its server %s', async (_what, serve) => {
    const port = await oddServer((socket) => void socket.once('data', () => serve(socket)));
    await using client = await TcpRpcClient.connect('127.0.0.1', port, { flavor: 'none' });
    const call = client.call(PORT_MAPPER, 'getport', MOUNT);
    await expect(call).rejects.toMatchObject({ code: 'connectionLost' });
  });

  it('ignores a reply to another call', async () => {
    const port = await oddServer((socket) =>
      socket.once('data', () => {
        socket.write(
          Buffer.from('8000001c00000000000000010000000000000000000000000000000000004e50', 'hex'),
        );
      }),
    );
    await using client = await TcpRpcClient.connect('127.0.0.1', port, { flavor: 'none' });
    const call = client.call(PORT_MAPPER, 'getport', MOUNT);
    await expect(call).rejects.toMatchObject({ code: 'badReply' });
  });

  it('is refused if there is no listener', async () => {
    const port = await oddServer(() => undefined);
    await closers.pop()?.();
    const connecting = TcpRpcClient.connect('127.0.0.1', port, { flavor: 'none' });
    await expect(connecting).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });
});
