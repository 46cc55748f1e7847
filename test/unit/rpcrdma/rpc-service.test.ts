import { beforeEach, describe, expect, it } from 'vitest';
import { payloadOf, replyPayload } from '#test/support/rpcrdma-rig';
import { defineProcedure, defineProgram, voidCodec } from '#verbs-api/rpcrdma/core/program';
import {
  AuthStatus,
  type CallHeader,
  emitCredential,
  NO_AUTH,
  type ReplyHeader,
  readReplyHeader,
  writeCallHeader,
} from '#verbs-api/rpcrdma/core/rpc-message';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { RpcService, type ServerCall } from '#verbs-api/rpcrdma/rpc-service';

const word = {
  encode: (writer: XdrWriter, value: number) => writer.uint32(value),
  decode: (reader: XdrReader) => reader.uint32(),
};

const PROGRAM = defineProgram({
  name: 'sums',
  number: 77,
  version: 2,
  procedures: {
    double: defineProcedure({ number: 1, args: word, result: word, resultMaxBytes: () => 4 }),
    missing: defineProcedure({
      number: 2,
      args: voidCodec,
      result: voidCodec,
      resultMaxBytes: () => 0,
    }),
    broken: defineProcedure({
      number: 3,
      args: {
        encode: () => undefined,
        decode: (): number => {
          throw new TypeError('a fault of the codec');
        },
      },
      result: word,
      resultMaxBytes: () => 4,
    }),
  },
});

const CALLER = {
  address: '192.0.2.1',
  bulkBuffer: async (lengthBytes: number) => new Uint8Array(lengthBytes),
};

describe('a service', () => {
  let failures: unknown[];
  let calls: ServerCall[];
  let service: RpcService;

  beforeEach(() => {
    failures = [];
    calls = [];
    service = new RpcService({
      handlerFailed: (_program, _procedure, error) => void failures.push(error),
    });
    service.register(PROGRAM, {
      double: (value, call) => {
        calls.push(call);
        if (value === 13) throw new Error('unlucky');
        if (value === 14) return Promise.reject(new Error('unlucky later'));
        return value % 2 === 0 ? value * 2 : Promise.resolve(value * 2);
      },
      broken: () => 0,
    });
  });

  /** Answers a call; returns the header of the reply and, on success, its result. */
  async function answer(
    header: Partial<CallHeader>,
    ...args: readonly number[]
  ): Promise<{ readonly header: ReplyHeader; readonly result: number | undefined }> {
    const call = payloadOf((writer) => {
      writeCallHeader(writer, {
        xid: 5,
        program: 77,
        version: 2,
        procedure: 1,
        credential: NO_AUTH,
        verifier: NO_AUTH,
        ...header,
      });
      for (const each of args) writer.uint32(each);
    });
    const writer = new XdrWriter();
    await service.answer(new XdrReader(call.stream), writer, CALLER);
    const reader = new XdrReader(writer.payload().stream);
    const replyHeader = readReplyHeader(reader);
    const result = reader.remainingBytes > 0 ? reader.uint32() : undefined;
    reader.finish();
    return { header: replyHeader, result };
  }

  const outcomeOf = async (header: Partial<CallHeader>, ...args: readonly number[]) =>
    (await answer(header, ...args)).header.outcome;

  it('answers with the result, at once or later', async () => {
    expect(await answer({ xid: 9 }, 4)).toMatchObject({ header: { xid: 9 }, result: 8 });
    expect(await answer({ xid: 9 }, 5)).toMatchObject({ header: { xid: 9 }, result: 10 });
  });

  it('reports programs, versions and procedures that it does not offer', async () => {
    expect(await outcomeOf({ program: 78 })).toEqual({ status: 'progUnavail' });
    expect(await outcomeOf({ version: 1 })).toEqual({ status: 'progMismatch', low: 2, high: 2 });
    expect(await outcomeOf({ procedure: 2 })).toEqual({ status: 'procUnavail' });
    expect(await outcomeOf({ procedure: 99 })).toEqual({ status: 'procUnavail' });
    expect(await outcomeOf({ procedure: 0 })).toEqual({ status: 'success' });
  });

  it('reports arguments that do not decode, too short or too long', async () => {
    expect(await outcomeOf({})).toEqual({ status: 'garbageArgs' });
    expect(await outcomeOf({}, 1, 2)).toEqual({ status: 'garbageArgs' });
    expect(calls).toEqual([]);
  });

  it('answers SYSTEM_ERR when a handler or codec fails, and logs why', async () => {
    expect(await answer({}, 13)).toEqual({
      header: { xid: 5, verifier: NO_AUTH, outcome: { status: 'systemErr' } },
      result: undefined,
    });
    expect(await outcomeOf({}, 14)).toEqual({ status: 'systemErr' });
    expect(await outcomeOf({ procedure: 3 })).toEqual({ status: 'systemErr' });
    expect(failures.map((error) => error instanceof Error && error.message)).toEqual([
      'unlucky',
      'unlucky later',
      'a fault of the codec',
    ]);
  });

  it('denies other versions of RPC and unknown credentials', async () => {
    for (const version of [0, 3]) {
      const foreign = payloadOf((writer) => {
        for (const each of [5, 0, version]) writer.uint32(each);
      });
      const writer = new XdrWriter();
      await service.answer(new XdrReader(foreign.stream), writer, CALLER);
      const { xid, outcome } = readReplyHeader(new XdrReader(writer.payload().stream));
      expect([xid, outcome]).toEqual([5, { status: 'rpcMismatch', low: 2, high: 2 }]);
    }
    const denied = { status: 'authError', authStatus: AuthStatus.badCred };
    expect(await outcomeOf({ credential: { flavor: 6, body: new Uint8Array(8) } }, 4)).toEqual(
      denied,
    );
    expect(await outcomeOf({ credential: { flavor: 1, body: new Uint8Array(8) } }, 4)).toEqual(
      denied,
    );
  });

  it('identifies the caller to the handler', async () => {
    const user = { flavor: 'sys', stamp: 1, machineName: 'h', uid: 2, gid: 3, gids: [4] } as const;
    await answer({ credential: emitCredential(user) }, 4);
    expect(calls[0]).toMatchObject({ xid: 5, credential: user, address: '192.0.2.1' });
  });

  it('throws on bytes that are not a whole call, and answers nothing', () => {
    const cut = new Uint8Array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    for (const stream of [replyPayload(5).stream, cut]) {
      const writer = new XdrWriter();
      expect(() => service.answer(new XdrReader(stream), writer, CALLER)).toThrow(XdrError);
      expect(writer.payload().stream).toHaveLength(0);
    }
  });

  it('offers a version once', () => {
    expect(() => service.register(PROGRAM, {})).toThrow(RangeError);
    service.register(defineProgram({ ...PROGRAM, version: 4 }), {});
    return expect(outcomeOf({ version: 3 })).resolves.toMatchObject({ low: 2, high: 4 });
  });
});

describe('a description', () => {
  it('has procedures of different numbers, all unsigned 32-bit integers', () => {
    const { double } = PROGRAM.procedures;
    const twice = { double, again: { ...double } };
    expect(() => defineProgram({ ...PROGRAM, procedures: twice })).toThrow(RangeError);
    expect(() => defineProgram({ ...PROGRAM, version: -1 })).toThrow(RangeError);
    expect(() => defineProgram({ ...PROGRAM, number: 2 ** 32 })).toThrow(RangeError);
  });
});
